"""Layers: the core imports nothing above it, and the import of fedwise loads nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fedwise

ROOT = Path(fedwise.__file__).parent
#: Packages that import the core and are never imported by it.
UPPER = ("auditing", "training", "flower", "view", "reporting", "explore", "cli", "data")
#: What the core may use besides the standard library.
ALLOWED = {"fedwise", "numpy", "scipy", "numba", "polars", "opendp", "msgspec"}
HEAVY = ("numba", "polars", "torch", "opendp", "scipy", "flwr", "pandas", "pyarrow", "sklearn")

#: The front door names what lies above the core, and loads it only when it is asked for (tested below).
FRONT = ROOT / "__init__.py"
CORE = sorted(
    path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] not in UPPER and path != FRONT
)


def imports(path: Path, tree: ast.AST | None = None) -> set[str]:
    """Absolute names of all modules a file imports, anywhere in it."""
    package = ["fedwise", *path.relative_to(ROOT).parts[:-1]]
    found: set[str] = set()
    for node in ast.walk(tree or ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return found


def offences(path: Path, tree: ast.AST | None = None) -> set[str]:
    found = set()
    for name in imports(path, tree):
        top, *rest = name.split(".")
        upward = top == "fedwise" and bool(rest) and rest[0] in UPPER and (ROOT / rest[0]).is_dir()
        if upward or (top not in ALLOWED and top not in sys.stdlib_module_names):
            found.add(name)
    return found


def test_there_is_a_core() -> None:
    names = {str(path.relative_to(ROOT)) for path in CORE}
    assert {
        "schema/schema.py",
        "planning.py",
        "owner/release.py",
        "pool/pool.py",
        "owner/ledger.py",
        "objective/pfl.py",
    } <= names


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(ROOT)))
def test_core_imports_nothing_above_it(path: Path) -> None:
    assert offences(path) == set()


@pytest.mark.parametrize(
    "line",
    [
        "import torch",
        "import torch.nn as nn",
        "from torch import nn",
        "import flwr",
        "from fedwise.training import model",
        "from fedwise import cli",
        "from .. import data",
        "from ..data import schema",
        "from ..cli.console import stderr",
        "import rich",
        "def f():\n    import pandas",
    ],
)
def test_the_check_sees_offences(line: str) -> None:
    assert offences(ROOT / "owner" / "noise.py", ast.parse(line))


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(ROOT)))
def test_core_does_not_print_and_evaluates_no_text(path: Path) -> None:
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not calls & {"print", "eval", "exec", "compile", "__import__"}
    assert not {name.split(".")[0] for name in imports(path)} & {"pickle", "shelve", "marshal", "random"}


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return {name.split(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize(
    "statement", ["import fedwise", "import fedwise; dir(fedwise)", "import fedwise.cli.main"]
)
def test_imports_that_must_be_instant_load_nothing_heavy(statement: str) -> None:
    assert not loaded_by(statement) & set(HEAVY)


def test_the_heavy_check_can_fail() -> None:
    assert loaded_by("import fedwise; fedwise.Schema") & set(HEAVY)


def test_public_names_exist() -> None:
    for name in fedwise.__all__:
        assert getattr(fedwise, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = fedwise.nonsense
