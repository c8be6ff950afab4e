"""The wheel that is built here is installed and run; the source archive holds what its README needs."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import fedwise as fw

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``make dist`` makes; hatchling is installed, so nothing is fetched."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_wheel_is_installed_and_runs(built: Path, tmp_path: Path) -> None:
    """Into a folder of its own, with the packages of this environment beside it."""
    (wheel,) = built.glob("*.whl")
    assert wheel.name.startswith(f"fedwise-{fw.__version__}-")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        assert "fedwise/py.typed" in names
        assert "fedwise/reporting/templates/body.html" in names
        assert "fedwise/explore/static/saved.js" in names
        assert not any(name.startswith(("tests/", "docs/")) for name in names)
        file.extractall(tmp_path / "site")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}

    def run(*words: str) -> str:
        program = "import sys, fedwise; print(fedwise.__file__); from fedwise.cli.main import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", program, *words], cwd=tmp_path, env=environment, capture_output=True, text=True,
            timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        where, _, rest = done.stdout.partition("\n")
        assert where.startswith(str(tmp_path / "site"))
        return rest

    assert run("--version").strip() == f"fedwise {fw.__version__}"
    run("plan", "income", "-o", "plan.json")
    assert fw.Plan.load(tmp_path / "plan.json").schema.name


def test_the_source_archive_holds_what_its_readme_needs(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    for name in (
        "Makefile",
        "constraints.txt",
        "mkdocs.yml",
        "pyproject.toml",
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
    ):
        assert name in names
    for folder in ("src/fedwise", "tests", "docs", "tools", "examples", "benchmarks", "experiments"):
        assert any(name.startswith(f"{folder}/") for name in names), folder
