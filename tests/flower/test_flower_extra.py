"""Flower is an extra: nothing outside fedwise.flower imports it, and its absence is explained."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import fedwise

SOURCE = Path(fedwise.__file__).parent


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_a_missing_flower_names_the_pip_command():
    done = python(
        "import sys; sys.modules['flwr'] = None\n"
        "from fedwise.flower import Policy\n"
        "from fedwise.errors import MissingExtra\n"
        "try:\n    from fedwise.flower import select_federation\n"
        "except MissingExtra as error:\n    print(error)"
    )
    assert "Flower integration needs the 'flower' extra; run: pip install 'fedwise[flower]'" in done.stdout, (
        done.stderr
    )


def test_writing_an_app_needs_no_flower(tmp_path):
    done = python(
        "import sys; sys.modules['flwr'] = None\n"
        f"from fedwise.flower.new import write_app; print(len(write_app({str(tmp_path / 'demo')!r})))"
    )
    assert done.stdout.strip() == "10", done.stderr


def test_only_the_flower_package_imports_flwr():
    for file in SOURCE.rglob("*.py"):
        if file.relative_to(SOURCE).parts[0] == "flower":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "flwr" for name in names), file


def test_every_public_name_resolves():
    import fedwise.flower as flower

    assert all(getattr(flower, name) is not None for name in flower.__all__)
    assert dir(flower) == flower.__all__
