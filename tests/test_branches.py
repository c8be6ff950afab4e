"""The bound on branches: what the tool counts, and that nothing but compiled code is left out of it."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fedwise

ROOT = Path(__file__).parents[1]
SOURCE = Path(fedwise.__file__).parent
RULES = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["coverage"]
#: The rules that leave out functions by their decorator; `overload` has no body.
COMPILED = [rule for rule in RULES["report"]["exclude_also"] if rule.startswith("@") and rule != "@overload"]


def left_out() -> list[tuple[str, str]]:
    """Module and name of every function that the report leaves out by its decorator."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not any(re.search(rule, line) for rule in COMPILED for line in text.splitlines()):
            continue
        module = ".".join(("fedwise", *path.relative_to(SOURCE).with_suffix("").parts))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and any(
                re.search(rule, f"@{ast.unparse(mark)}") for mark in node.decorator_list for rule in COMPILED
            ):
                found.append((module, node.name))
    return found


def test_no_folder_and_no_file_is_left_out() -> None:
    assert RULES["run"]["source"] == ["fedwise"]
    assert RULES["run"]["branch"] is True
    assert "omit" not in RULES["run"]
    assert "omit" not in RULES["report"]


def test_what_a_decorator_leaves_out_is_compiled() -> None:
    pytest.importorskip("torch", reason="needs the train extra")
    from numba.core.dispatcher import Dispatcher

    found = left_out()
    assert len(found) > 40
    for module, name in found:
        assert isinstance(getattr(importlib.import_module(module), name), Dispatcher), (module, name)


@pytest.mark.parametrize(("least", "code"), [("75", 0), ("75.1", 1)])
def test_the_tool_counts_branches_and_names_the_files(least: str, code: int, tmp_path: Path) -> None:
    part = {"a.py": {"missing_branches": []}, "b.py": {"missing_branches": [[3, 5], [7, -1]]}}
    report = {"files": part, "totals": {"covered_branches": 6, "num_branches": 8}}
    (tmp_path / "c.json").write_text(json.dumps(report))
    words = [sys.executable, str(ROOT / "tools" / "branches.py"), str(tmp_path / "c.json"), "--least", least]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stdout == f"b.py: 3->5, 7->-1\n6 of 8 branches, 75.00% (at least {least}%)\n"
