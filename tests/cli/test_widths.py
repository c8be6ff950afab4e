"""Screens of every command at 60, 80 and 120 columns and in a pipe: no number and no client's name is cut."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedwise as fw
from cli.cli_kit import Run
from conftest import SMALL, make_people

#: A name as long as names of hospitals are.
LONG = "Kreiskrankenhaus-am-Südring-2"
CLIENTS = ("CA", LONG, "NY", "TX")
#: What a screen cuts with.
CUT = "…"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("screens")
    (folder / "schema.toml").write_text(SMALL)
    asked = fw.plan(fw.Schema.parse(SMALL), 3.0)
    asked.save(folder / "plan.json")
    (folder / "data").mkdir()
    for i, client in enumerate(CLIENTS):
        people = make_people(200, seed=i)
        people.write_csv(folder / "data" / f"{client}.csv")
        released = fw.release(asked, people, client=client, simulated=True, seed=i)
        released.save(folder / "releases" / f"{client}.release.json")
    make_people(60).write_csv(folder / "people.csv")
    return folder


def lines_of(folder: Path, out: Path) -> dict[str, tuple[object, ...]]:
    """A command line of every command that shows something to people."""
    releases, data = folder / "releases", folder / "data"
    fast = ("--rounds", 1, "--model", "logistic")
    return {
        "plan": ("plan", folder / "schema.toml"),
        "check": ("check", folder / "plan.json", folder / "people.csv", "-c", LONG),
        "release": (
            "release",
            folder / "plan.json",
            folder / "people.csv",
            "-c",
            LONG,
            "-o",
            out / "l.json",
            "-l",
            out / "l.db",
        ),
        "budget": ("budget", out / "l.db"),
        "inspect": ("inspect", releases),
        "select": ("select", releases, "-k", 2, "--include", LONG, "--evidence", "none"),
        "frontier": ("frontier", releases, "-k", "2:3", "--include", LONG),
        "train": (
            "train",
            "--data",
            data,
            "--schema",
            folder / "schema.toml",
            "--clients",
            f"CA,{LONG}",
            "-o",
            out / "run",
            *fast,
            "--bootstrap",
            0,
        ),
        "compare": (
            "compare",
            "--data",
            data,
            "--schema",
            folder / "schema.toml",
            "-f",
            f"{LONG}={LONG},CA",
            "--strategies",
            "fedavg",
            "--seeds",
            1,
            "--workers",
            1,
            "-o",
            out / "c.csv",
            *fast,
        ),
        "predict": ("predict", out / "run", folder / "people.csv", "-o", out / "p.csv"),
        "data": ("data", "schemas", folder / "schema.toml", "--show"),
    }


@pytest.mark.parametrize("width", [60, 80, 120, None], ids=["60", "80", "120", "pipe"])
def test_nothing_is_cut(
    run: Run, made: Path, tmp_path: Path, width: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    if width is None:
        monkeypatch.delenv("COLUMNS")
    for name, words in lines_of(made, tmp_path).items():
        if name in ("train", "compare", "predict") and width in (80, 120):
            continue  # trainings take seconds; compare is tried at these widths in test_layout
        done = run(*words)
        assert done.code == 0, (name, done.err)
        assert done.out.strip(), name
        for line in done.out.splitlines():
            assert CUT not in line, (name, width, line)
            if width is not None and " " in line.strip():
                assert len(line.rstrip()) <= width or max(map(len, line.split())) > width // 2, (name, line)
        if name in ("check", "release", "budget", "inspect", "select", "frontier", "train", "compare"):
            assert LONG in done.out, (name, width)
