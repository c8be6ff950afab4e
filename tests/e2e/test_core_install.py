"""The core without extras: schema, plan, release, select work; what needs an extra says which, and how to get it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import SMALL, make_people

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
#: Every module that only an extra brings.
EXTRAS = (
    "altair", "fairlearn", "flwr", "folktables", "opacus", "pandas", "pyarrow", "ray", "safetensors", "sklearn",
    "starlette", "torch", "uvicorn", "vl_convert",
)  # fmt: skip

#: Runs command lines one after the other in one process, in which the modules of argv[1] do not exist.
PROGRAM = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from importlib.machinery import PathFinder

absent = set(json.loads(sys.argv[1]))
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name.partition(".")[0] in absent else find(name, *rest)
from fedwise.cli.main import main
outcomes = []
for words in json.loads(sys.argv[2]):
    out, err, code = io.TextIOWrapper(io.BytesIO(), write_through=True), io.StringIO(), 0
    sys.argv = ["fedwise", *words]
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
    outcomes.append([code, out.buffer.getvalue().decode(), err.getvalue()])
loaded = sorted(set(sys.modules) & absent)
print(json.dumps({"outcomes": outcomes, "loaded": loaded}))
"""

#: What a data owner and a coordinator do.
WORKS = [
    ["plan", "schema.toml", "--epsilon", "2", "-o", "plan.json"],
    *(
        ["release", "plan.json", f"{c}.csv", "--client", c, "-o", f"releases/{c}.release.json"]
        for c in ("CA", "NY", "TX")
    ),
    ["inspect", "releases"],
    ["budget", "CA.csv.ledger.db"],
    ["select", "releases", "-k", "2", "--json"],
    ["frontier", "releases", "--json"],
]
#: What needs more, and the extra that brings it.
NEEDS = {
    "train": ["train", "--data", "data", "--schema", "schema.toml", "-o", "run", "--rounds", "1"],
    "explore": ["explore", "releases", "--no-open"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A schema and the rows of three clients."""
    (tmp_path / "schema.toml").write_text(SMALL)
    (tmp_path / "data").mkdir()
    for seed, client in enumerate(("CA", "NY", "TX")):
        make_people(300, seed).write_csv(tmp_path / f"{client}.csv")
        make_people(300, seed).write_parquet(tmp_path / "data" / f"{client}.parquet")
    return tmp_path


def check(found: dict[str, Any], commands: list[list[str]]) -> None:
    """The core did its work; each of the others named its extra in one sentence."""
    assert found["loaded"] == []
    for words, (code, out, err) in zip(commands, found["outcomes"], strict=True):
        assert "Traceback" not in err, (words, err)
        extra = next((name for name, wanted in NEEDS.items() if wanted == words), None)
        if extra is None:
            assert code == 0, (words, err)
        else:
            assert code == 2, (words, err)
            assert re.fullmatch(
                rf"error: .* needs the '{extra}' extra; run: pip install 'fedwise\[{extra}\]'\n", err
            )
            assert out == ""
    answer = json.loads(found["outcomes"][len(WORKS) - 2][1])
    assert len(answer["clients"]) == 2


def nothing_begun(folder: Path) -> None:
    """A command that cannot be done leaves nothing that the next try would trip over."""
    assert not (folder / "run").exists()


def run(python: str, folder: Path, absent: tuple[str, ...]) -> dict[str, Any]:
    commands = [*WORKS, *NEEDS.values()]
    done = subprocess.run(
        [python, "-c", PROGRAM, json.dumps(absent), json.dumps(commands)],
        cwd=folder, capture_output=True, text=True, timeout=500, check=False,
        env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    check(found, commands)
    nothing_begun(folder)
    return found


def test_the_core_works_as_if_no_extra_were_installed(folder: Path) -> None:
    run(sys.executable, folder, EXTRAS)


def test_the_stand_in_can_fail(folder: Path) -> None:
    """Without a package of the core nothing works: the blocked modules really are gone."""
    with pytest.raises(AssertionError, match="msgspec"):
        run(sys.executable, folder, ("msgspec",))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_fresh_environment_without_extras(folder: Path, tmp_path: Path) -> None:
    """The real thing: a new environment, ``pip install .`` with the constraints, and the same commands."""
    home = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, timeout=600)
    python = str(home / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*install, "--constraint", str(ROOT / "constraints.txt"), str(ROOT)],
        capture_output=True, text=True, timeout=3000, check=False,
    )  # fmt: skip
    if "No matching distribution" in done.stderr or "Connection" in done.stderr:
        pytest.skip("needs a package registry")
    assert done.returncode == 0, done.stderr
    listed = subprocess.run(
        [python, "-m", "pip", "list", "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    names = {package["name"].lower() for package in json.loads(listed.stdout)}
    assert not names & {
        "torch",
        "flwr",
        "starlette",
        "altair",
        "opacus",
        "fairlearn",
        "pandas",
        "pyarrow",
        "ray",
    }
    run(python, folder, ())
    version = subprocess.run(
        [str(home / "bin" / "fedwise"), "--version"], capture_output=True, text=True, check=True, timeout=600
    )
    assert version.stdout.startswith("fedwise ")
