"""The supply chain, checked offline: pins, licences, dependency table, lower bounds; and the checks checked."""

from __future__ import annotations

import ast
import importlib.util
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fedwise"
#: Where a module is not called as its distribution.
DISTRIBUTION = {"ot": "pot", "sklearn": "scikit-learn", "vl_convert": "vl-convert-python"}
#: Extras whose packages a room may import, besides the core's.
EXTRAS = {
    "features": ("train",),
    "training": ("train",),
    "rehearsal": ("train", "tune"),
    "flower": ("train", "flower"),
    "nvflare": ("nvflare",),
    "view": ("explore",),
    "reporting": ("explore",),
    "explore": ("explore",),
    "data": ("acs",),
}


def tool(name: str) -> ModuleType:
    """A script of tools/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


supply = tool("supply_chain")
minimum = tool("minimum")


def test_nothing_is_wrong_here() -> None:
    """Skipped where other versions than the pinned ones are at work on purpose, as in the minimum job."""
    installed = supply.closure(supply.project()["core"])
    pinned = supply.pins((ROOT / "constraints.txt").read_text())
    if list(supply.check_pins(installed, pinned)):
        pytest.skip("this environment was not made with constraints.txt")
    found, number = supply.findings()
    assert found == []
    assert number >= len(supply.project()["core"])


def test_pins() -> None:
    pinned = supply.pins("# a comment\nNumPy==2.0.0  # why\nruamel.yaml==1.0\n")
    assert pinned == {"numpy": "2.0.0", "ruamel-yaml": "1.0"}
    here = {name: supply.Package(name, "2.0.0", frozenset({"MIT"})) for name in ("numpy", "scipy", "pip")}
    assert list(supply.check_pins(here, pinned)) == [
        "scipy 2.0.0 is installed but not in constraints.txt; pin it"
    ]
    here["numpy"] = supply.Package("numpy", "2.0.1", frozenset())
    assert next(supply.check_pins(here, pinned)) == "numpy must be 2.0.0 as in constraints.txt, got 2.0.1"


def test_every_pin_is_of_something_we_need() -> None:
    """A pin nobody needs is a pin nobody reviews."""
    direct = supply.project()
    pinned = supply.pins((ROOT / "constraints.txt").read_text())
    assert {name for group in direct.values() for name in group} <= set(pinned)


def imported(texts: Iterable[str]) -> set[str]:
    """Distributions of all absolute imports, wherever in the text they are; not ours, not the standard library's."""
    names: set[str] = set()
    for text in texts:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names.add(node.module)
    tops = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - {"fedwise"}
    return {canonicalize_name(DISTRIBUTION.get(top, top)) for top in tops}


def rooms() -> dict[str, set[str]]:
    """What each package, and each module directly under fedwise, imports."""
    return {
        place.stem: imported(
            file.read_text(encoding="utf-8") for file in ([place] if place.is_file() else place.rglob("*.py"))
        )
        for place in SOURCE.iterdir()
        if place.suffix == ".py" or (place / "__init__.py").exists()
    }


def test_imports_are_seen_anywhere() -> None:
    text = "import sklearn.metrics\nif x:\n    def f():\n        from vl_convert import y\nfrom . import z\nimport os"
    assert imported([text, "from fedwise import plan\nimport tomli_w"]) == {
        "scikit-learn",
        "vl-convert-python",
        "tomli-w",
    }


def test_what_is_imported_is_declared() -> None:
    direct = {group: set(names) for group, names in supply.project().items()}
    undeclared = {
        room: sorted(found - direct["core"].union(*(direct[extra] for extra in EXTRAS.get(room, ()))))
        for room, found in rooms().items()
    }
    assert {room: names for room, names in undeclared.items() if names} == {}


def test_what_is_declared_is_imported() -> None:
    direct = {group: set(names) for group, names in supply.project().items()}
    found = rooms()
    assert direct["core"] - set().union(*found.values()) == set()
    for extra in ("train", "flower", "explore", "acs"):
        used = set().union(*(names for room, names in found.items() if extra in EXTRAS.get(room, ())))
        assert direct[extra] - used == set(), extra
        # Twice declared is once too often: what the core needs is no part of an extra.
        assert direct[extra] & direct["core"] == set(), extra


def test_what_tests_and_tools_import_is_declared() -> None:
    """The extras bring all that runs here; modules beside the tests are no distributions."""
    folders = [ROOT / name for name in ("tests", "tools", "benchmarks", "experiments", "examples")]
    files = [file for folder in folders for file in folder.rglob("*.py")]
    own = {canonicalize_name(file.stem) for file in files}
    own |= {canonicalize_name(folder.name) for top in folders for folder in top.rglob("*") if folder.is_dir()}
    direct = {name for names in supply.project().values() for name in names}
    indirect = {"ray"}  # flwr[simulation]
    found = imported(file.read_text(encoding="utf-8") for file in files)
    assert found - own - direct - indirect == set()


def test_licences() -> None:
    good = supply.Package("a", "1", frozenset({"MIT", "Apache-2.0"}))
    bad = supply.Package("b", "1", frozenset({"AGPL-3.0-only", "MIT"}))
    none = supply.Package("c", "1", frozenset())
    found = list(supply.check_licences({"a": good, "b": bad, "c": none}))
    assert [line.split()[0] for line in found] == ["b", "c"]
    assert "AGPL-3.0-only" in found[0]
    assert "states no licence" in found[1]


def test_the_table_and_the_requirements_agree() -> None:
    text = "| extra | package | why | licence |\n|---|---|---|---|\n| core | numpy, scipy | x | BSD-3-Clause, MIT |\n"
    listed = supply.table(text)
    assert listed == {"numpy": "BSD-3-Clause", "scipy": "MIT"}
    direct = {"core": {"numpy": Requirement("numpy>=2"), "polars": Requirement("polars")}}
    here = {"numpy": supply.Package("numpy", "2.0", frozenset({"MIT"}))}
    assert list(supply.check_table(direct, listed, here)) == [
        "polars is required in pyproject.toml but not explained in docs/dependencies.md",
        "scipy is explained in docs/dependencies.md but not required in pyproject.toml",
        "numpy has licence BSD-3-Clause in docs/dependencies.md, its own metadata says MIT",
    ]
    assert list(supply.check_bounds(direct)) == [
        "polars (core) must have a lower bound in pyproject.toml, such as polars>=1.0"
    ]


def test_a_changed_file_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "thing.py").write_text("x = 1\n")
    info = tmp_path / "thing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: thing\nVersion: 1.0\nLicense: MIT\n")
    digest = "0JR6pSZgKYl5eEvY2CwBhmI4FjAiOByWWKsSCmIr5gM"
    (info / "RECORD").write_text(f"thing.py,sha256={digest},6\nlost.py,sha256={digest},6\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = list(supply.check_hashes(["thing"]))
    assert found == [
        "thing: thing.py is not the file that was installed",
        "thing: lost.py is missing",
    ]
    assert supply.closure(["thing"])["thing"].licences == {"MIT"}
    assert list(supply.check_hashes(["typer"])) == []


def test_the_audit_says_when_nobody_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supply.shutil, "which", lambda _: None)
    assert supply.audit() == ([], "pip-audit is not installed: nobody looked for known vulnerabilities")


def test_the_lowest_versions() -> None:
    core = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    lines = minimum.minimum()
    assert len(lines) == len(core)
    assert all(Requirement(line).specifier for line in lines)
    for line in core:
        wanted = Requirement(line)
        version = next(found for found in lines if found.startswith(f"{wanted.name}==")).partition("==")[2]
        assert wanted.specifier.contains(version)
    assert minimum.lowest(Requirement("flwr[simulation]>=1.41,<1.42")) == "flwr==1.41"
    with pytest.raises(ValueError, match="must have a lower bound"):
        minimum.lowest(Requirement("flwr<2"))
    assert all((ROOT / test).exists() for test in minimum.CORE_TESTS)
