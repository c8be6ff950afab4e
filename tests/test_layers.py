"""Layers: rooms import along the floor plan, the core nothing above it, and `import fedwise` nothing heavy."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import fedwise

ROOT = Path(fedwise.__file__).parent
#: Packages that import the core and are never imported by it.
UPPER = (
    "features",
    "auditing",
    "training",
    "rehearsal",
    "coordinator",
    "flower",
    "nvflare",
    "view",
    "reporting",
    "explore",
    "cli",
    "data",
)
#: What the core may use besides the standard library.
ALLOWED = {
    "fedwise", "numpy", "scipy", "numba", "polars", "opendp", "msgspec", "tomli_w", "filelock", "lazy_loader"
}  # fmt: skip
HEAVY = ("numba", "polars", "torch", "opendp", "scipy", "flwr", "pandas", "pyarrow", "sklearn")

#: The rooms of the house, inner ones first. A room may import those before it, and none after.
ROOMS = (
    "errors", "files", "cache", "deferred", "machine_code", "notebook", "schema", "privacy", "objective", "allocation",
    "promise", "planning", "owner", "estimation", "pool", "certificate", "bounds", "search", "forecasting", "doubling",
    "data", "features", "identification", "calibration", "training", "rehearsal", "auditing", "coordinator",
    "flower", "nvflare", "view", "reporting", "explore", "cli",
)  # fmt: skip
#: Imports against that order that are still to be removed; a line goes when its import is gone, none is added.
BACKWARD: set[tuple[str, str]] = set()
#: The cycles these imports make, lazy and typing imports counted.
CYCLES: list[set[str]] = []
#: Functions of the public API, those that are planned among them.
VERBS = (
    "audit", "calibrate", "check", "compare", "doubles", "estimate", "forecast", "frontier", "pareto", "plan",
    "quality", "rehearse", "release", "report", "select", "shortlist", "train", "tune",
)  # fmt: skip
#: What 0.1.0 had; nobody's import may break.
NAMES_OF_0_1_0 = {
    "Annealing", "Column", "Exact", "FedwiseError", "Forecast", "Forecaster", "Greedy", "Ledger", "Plan", "Pool",
    "Release", "Role", "Schema", "Selection", "Terms", "Weights", "frontier", "pareto", "plan", "release", "select",
}  # fmt: skip

#: The front door names what lies above the core, and loads it only when it is asked for (tested below).
FRONT = (ROOT / "__init__.py", ROOT / "__main__.py")
CORE = sorted(
    path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] not in UPPER and path not in FRONT
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
    assert loaded_by("import fedwise; fedwise.select") & set(HEAVY)


def test_public_names_exist() -> None:
    assert set(fedwise.__all__) >= NAMES_OF_0_1_0
    for name in fedwise.__all__:
        assert getattr(fedwise, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = fedwise.nonsense


@cache
def modules() -> frozenset[str]:
    return frozenset(module.name for module in pkgutil.iter_modules([str(ROOT)]) if module.name != "__main__")


def test_no_module_shares_the_name_of_a_public_name() -> None:
    """``import fedwise.plan`` would otherwise replace the function `fedwise.plan` by a module."""
    assert not modules() & {*VERBS, *fedwise.__all__}
    # Also whatever is loaded: a submodule becomes an attribute of the package.
    for name in sorted(modules() - {"flower", "explore", "cli"}):
        importlib.import_module(f"fedwise.{name}")
    for name in set(VERBS) & set(fedwise.__all__):
        assert callable(getattr(fedwise, name)), name


def shadowed(package: Path, tree: ast.Module | None = None) -> set[str]:
    """Names of a package's own that are also modules of it: which one an import gives depends on what ran before."""
    tree = tree or ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    own: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            own |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            own.add(node.name)
    return own & {module.name for module in pkgutil.iter_modules([str(package)])}


@pytest.mark.parametrize(
    "package", sorted(path.parent for path in ROOT.rglob("__init__.py")), ids=lambda path: path.name
)
def test_no_package_has_a_module_and_a_name_of_one_spelling(package: Path) -> None:
    assert shadowed(package) == set()


def test_the_check_of_spellings_can_fail() -> None:
    found = shadowed(ROOT / "search", ast.parse("from .entry import select as point\ndef exact(): ...\n"))
    assert found == {"point", "exact"}


def test_importing_is_fast() -> None:
    """The fastest of five, in processes of their own; the promise is half a second."""
    code = "import time; t = time.perf_counter(); import fedwise; print(time.perf_counter() - t)"
    times = [
        float(
            subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60).stdout
        )
        for _ in range(5)
    ]
    assert min(times) < 0.5


def room(name: str) -> str | None:
    """The room of an absolute module name; None for what is not ours, or the package itself."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "fedwise" and parts[1] in modules() else None


@cache
def doors(tree: Path = ROOT) -> dict[tuple[str, str], set[str]]:
    """Every import of one room by another, lazy and typing imports too, and the files that have it."""
    found: dict[tuple[str, str], set[str]] = {}
    for path in sorted(tree.rglob("*.py")):
        own = path.relative_to(tree).parts[0].removesuffix(".py")
        if own in ("__init__", "__main__"):
            continue  # the public API and the command name every room and belong to none
        for name in imports(path):
            other = room(name)
            if other not in (None, own):
                found.setdefault((own, str(other)), set()).add(str(path.relative_to(tree)))
    return found


def cycles(edges: set[tuple[str, str]]) -> list[set[str]]:
    """Rooms that reach one another, for each such group."""
    nodes = {node for edge in edges for node in edge}
    reach = {node: {b for a, b in edges if a == node} for node in nodes}
    for middle in nodes:
        for node in nodes:
            if middle in reach[node]:
                reach[node] |= reach[middle]
    groups = {frozenset(b for b in reach[a] if a in reach[b]) for a in nodes if a in reach[a]}
    return sorted((set(group) for group in groups), key=sorted)


def test_every_room_has_its_place() -> None:
    assert set(ROOMS) == modules()
    assert len(set(ROOMS)) == len(ROOMS)


def test_rooms_import_inner_rooms_only() -> None:
    backward = {
        (own, other): files
        for (own, other), files in doors().items()
        if ROOMS.index(own) < ROOMS.index(other)
    }
    new = {edge: files for edge, files in backward.items() if edge not in BACKWARD}
    assert not new, "imports against the floor plan; move what is shared to the inner room"
    gone = BACKWARD - set(backward)
    assert not gone, "no longer imported; take the line out of BACKWARD"


def test_rooms_make_no_new_cycles() -> None:
    found = cycles(set(doors()))
    assert [group for group in found if not any(group <= known for known in CYCLES)] == []
    gone = [known for known in CYCLES if not any(group <= known for group in found)]
    assert gone == [], "no longer a cycle; take the line out of CYCLES"


def test_the_checks_of_rooms_can_fail() -> None:
    assert cycles({("a", "b"), ("b", "c")}) == []
    assert cycles({("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("x", "y"), ("y", "x")}) == [
        {"a", "b", "c"},
        {"x", "y"},
    ]
    lazy = ast.parse("def f():\n    from ..search import select\n")
    assert {room(name) for name in imports(ROOT / "pool" / "pool.py", lazy)} == {"search"}
    typing = ast.parse("if TYPE_CHECKING:\n    from ..training.run import Run\n")
    assert {room(name) for name in imports(ROOT / "search" / "entry.py", typing)} == {"training"}


#: A function longer than this hides a second one, and so does a public function with more settings.
LONGEST, MOST = 80, 12


def functions(path: Path, tree: ast.AST | None = None) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    nodes = ast.walk(tree or ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def too_long(path: Path, tree: ast.AST | None = None) -> dict[str, int]:
    """Functions above the limit, with their lines; decorators are not counted."""
    lines = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions(path, tree)}
    return {name: count for name, count in lines.items() if count > LONGEST}


def too_wide(path: Path, tree: ast.AST | None = None) -> dict[str, int]:
    """Public functions above the limit, with their parameters; ``self``, ``cls`` and a ``**`` do not count.

    A command of the command line has as many as it has options, and a compiled kernel takes arrays, not objects.
    """
    found = {}
    for node in functions(path, tree):
        compiled = bool(
            {"compiled", "numba", "_compile"}
            & {re.split(r"\W", ast.unparse(one))[0] for one in node.decorator_list}
        )
        if node.name.startswith("_") or compiled or path.parent.name == "cli":
            continue
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        count = sum(argument.arg not in ("self", "cls") for argument in given)
        if count > MOST:
            found[node.name] = count
    return found


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_functions_stay_short_and_take_few_parameters(path: Path) -> None:
    assert too_long(path) == {}
    assert too_wide(path) == {}


def test_the_measures_of_functions_can_fail() -> None:
    long = ast.parse("def f():\n" + "    pass\n" * LONGEST)
    assert too_long(ROOT / "planning.py", long) == {"f": LONGEST + 1}
    names = ", ".join(f"a{i}" for i in range(MOST))
    wide = ast.parse(
        f"class A:\n    def f(self, {names}, *, last): ...\n    def _g(self, {names}, last): ..."
    )
    assert too_wide(ROOT / "planning.py", wide) == {"f": MOST + 1}
    assert too_wide(ROOT / "cli" / "train.py", wide) == {}
    exact = ast.parse(
        f"class A:\n    def f(self, {names}, **more): ...\n@_compile\ndef g({names}, last): ..."
    )
    assert too_wide(ROOT / "planning.py", exact) == {}
