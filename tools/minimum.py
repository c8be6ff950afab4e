"""Minimum: the lowest versions the ranges in pyproject.toml allow, as constraints.

    python tools/minimum.py                     the core: name==lowest, one a line
    python tools/minimum.py --extra train       the core and an extra; repeatable
    python tools/minimum.py --test PYTHON       make a fresh environment with PYTHON, install the core at these
                                                versions, and run the tests that need no extra

A range nobody has run at its lower end is a guess; this turns it into a fact.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

sys.path.insert(0, str(Path(__file__).parent))
from supply_chain import ROOT, project  # type: ignore[import-not-found]

#: What the tests themselves need, at any version that works with the rest.
TOOLS = ("hypothesis", "pytest", "pytest-timeout", "pandas", "pyarrow", "dp-accounting")
#: Tests of the core and its command line: none imports an extra.
CORE_TESTS = (
    "tests/test_allocation.py", "tests/test_files.py", "tests/test_planning.py", "tests/test_certificate.py",
    "tests/test_bounds.py", "tests/schema", "tests/privacy", "tests/owner/test_release.py",
    "tests/owner/test_tables.py",
    "tests/owner/test_noise.py", "tests/owner/test_ledger.py", "tests/pool", "tests/estimation", "tests/search",
    "tests/forecasting", "tests/cli/test_release_commands.py",
)  # fmt: skip


def lowest(requirement: Requirement) -> str:
    """``name==version`` at the lower bound of a requirement.

    Raises
    ------
    ValueError
        It has no lower bound.
    """
    bounds = [
        Version(clause.version) for clause in requirement.specifier if clause.operator in (">=", "==", "~=")
    ]
    if not bounds:
        raise ValueError(f"{requirement.name} must have a lower bound in pyproject.toml, got '{requirement}'")
    return f"{requirement.name}=={max(bounds)}"


def minimum(extras: Iterable[str] = (), root: Path = ROOT) -> list[str]:
    """Lowest versions of the core and the given extras, sorted."""
    groups = project(root)
    return sorted({lowest(r) for group in ("core", *extras) for r in groups[group].values()})


def run_tests(python: str, extras: Iterable[str]) -> int:
    """The core tests in a fresh environment at the lowest versions."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "minimum.txt").write_text("\n".join(minimum(extras)) + "\n")
        subprocess.run([python, "-m", "venv", str(home / "venv")], check=True)
        there = str(home / "venv" / "bin" / "python")
        install = [there, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        wanted = f".[{','.join(extras)}]" if extras else "."
        subprocess.run(
            [*install, "--constraint", str(home / "minimum.txt"), wanted, *TOOLS], cwd=ROOT, check=True
        )
        tests = [test for test in CORE_TESTS if (ROOT / test).exists()]
        # Warnings of old versions about each other are not ours to mend.
        return subprocess.run(
            [there, "-m", "pytest", "-q", "-W", "default", *tests], cwd=ROOT, check=False
        ).returncode


def main() -> int:
    """Print the lines, or run the tests with them."""
    parser = argparse.ArgumentParser(description="Lowest versions that pyproject.toml allows.")
    parser.add_argument("--extra", action="append", default=[], help="also this extra; repeatable")
    parser.add_argument("--test", metavar="PYTHON", help="run the core tests at these versions")
    options = parser.parse_args()
    if options.test:
        return run_tests(options.test, options.extra)
    print("\n".join(minimum(options.extra)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
