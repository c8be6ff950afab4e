"""Screens of every command at 60, 80 and 120 columns and in a pipe: no number and no client's name is cut."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import typer.main

import fedwise as fw
from cli.cli_kit import Run
from conftest import SMALL, make_people
from fedwise.cli.main import app
from fedwise.data import synthetic

pytest.importorskip("safetensors", reason="needs the train extra")
pytest.importorskip("altair", reason="needs the explore extra")

#: A name as long as names of hospitals are.
LONG = "Kreiskrankenhaus-am-Südring-2"
CLIENTS = ("CA", LONG, "NY", "TX")
#: What a screen cuts with.
CUT = "…"
#: Work that is done once for all widths: what it gives is the same, and only the screen is looked at.
LONG_WORK = (
    "rehearsal.workflow.rehearse",
    "rehearsal.tuning.tune",
    "training.calibration.calibrate",
    "auditing.budgets.audit_budgets",
    "search.elimination.shortlist",
    "training.workflow.train",
    "training.comparison.compare",
    "reporting.report",
)
#: Commands whose screens name the clients.
NAMING = (
    "check", "release", "budget", "inspect", "inspect --quality", "select", "shortlist", "frontier",
    "rehearse", "train", "compare",
)  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("screens")
    (folder / "schema.toml").write_text(SMALL)
    schema = fw.Schema.parse(SMALL)
    asked = fw.plan(schema, 3.0)
    asked.save(folder / "plan.json")
    staged = fw.plan(schema, 3.0, stages=[0.5, 3.0])
    (folder / "data").mkdir()
    for i, client in enumerate(CLIENTS):
        people = make_people(200, seed=i)
        people.write_csv(folder / "data" / f"{client}.csv")
        for name, plan in (("releases", asked), ("staged", staged)):
            released = fw.release(plan, people, client=client, simulated=True, seed=i)
            released.save(folder / name / f"{client}.release.json")
    make_people(60).write_csv(folder / "people.csv")
    rng = np.random.default_rng(0)
    np.save(folder / "public.npy", rng.normal(size=(60, 6)))
    ages = pl.DataFrame({"AGEP": rng.integers(18, 80, 40), "PINCP": rng.integers(1, 90_000, 40)})
    census = ages.with_columns(
        ST=pl.lit(6), COW=pl.lit(1), SCHL=pl.lit(21), MAR=pl.lit(1), OCCP=pl.lit(20), POBP=pl.lit(6),
        RELP=pl.lit(0), WKHP=pl.lit(40), SEX=pl.Series(rng.integers(1, 3, 40)), RAC1P=pl.lit(1), PWGTP=pl.lit(1),
    )  # fmt: skip
    census.write_parquet(folder / "census.parquet")
    return folder


class Stopped:
    """An explorer that has an address and serves nothing."""

    port, url, session = 51234, "http://127.0.0.1:51234/", SimpleNamespace(label="simulated")

    def __init__(self, pool: fw.Pool, **settings: object) -> None:
        assert len(pool) == len(CLIENTS)

    def run(self) -> None:
        """End at once."""


@pytest.fixture(scope="module")
def done_before() -> dict[str, Any]:
    return {}


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch, done_before: dict[str, Any]) -> None:
    """Long work is done by the first width, few states take part in the demo, and the explorer serves nothing."""
    for path in LONG_WORK:
        module, _, name = f"fedwise.{path}".rpartition(".")
        real = getattr(importlib.import_module(module), name)

        def remembered(*given: Any, _path: str = path, _real: Any = real, **more: Any) -> Any:
            if _path not in done_before:
                done_before[_path] = _real(*given, **more)
            return done_before[_path]

        monkeypatch.setattr(f"{module}.{name}", remembered)
    monkeypatch.setattr(synthetic, "states", partial(synthetic.states, names=("DE", "VT", "WY")))
    monkeypatch.setattr("fedwise.explore.Explorer", Stopped)


def lines_of(folder: Path, out: Path) -> dict[str, tuple[object, ...]]:
    """A command line of every command."""
    releases, data, schema = folder / "releases", folder / "data", folder / "schema.toml"
    people = folder / "people.csv"
    fast = ("--rounds", 1, "--model", "logistic")
    quick = ("--records", 40, "--stages", 2)
    return {
        "plan": ("plan", schema),
        "check": ("check", folder / "plan.json", people, "-c", LONG),
        "release": ("release", folder / "plan.json", people, "-c", LONG, "-o", out / "l.json", "-l", out / "l.db"),
        "budget": ("budget", out / "l.db"),
        "inspect": ("inspect", releases),
        "inspect --quality": ("inspect", releases, "--quality"),
        "select": ("select", releases, "-k", 2, "--include", LONG, "--evidence", "none"),
        "shortlist": ("shortlist", folder / "staged", "-k", 2, "--redraws", 10),
        "frontier": ("frontier", releases, "-k", "2:3", "--include", LONG),
        "doubles": ("doubles", releases, "-o", out / "doubles", "--records", 20),
        "rehearse": ("rehearse", releases, "--federation", f"CA,{LONG}", "--alone", "--random", 2, *quick, *fast),
        "tune": (
            "tune", releases, "--federation", f"CA,{LONG}", "--trials", 2, "--rounds", 1, "--models", "logistic",
            *quick,
        ),
        "explore": ("explore", releases, "--no-open"),
        "train": (
            "train", "--data", data, "--schema", schema, "--clients", f"CA,{LONG}", "-o", folder / "run", *fast,
            "--bootstrap", 0,
        ),
        "compare": (
            "compare", "--data", data, "--schema", schema, "-f", f"{LONG}={LONG},CA", "--strategies", "fedavg",
            "--seeds", 1, "--workers", 1, "-o", out / "c.csv", *fast,
        ),
        "predict": ("predict", folder / "run", people, "-o", out / "p.csv"),
        "report": ("report", folder / "run", "--releases", releases, "-o", folder / "report.html", "--force"),
        "calibrate": (
            "calibrate", "--data", data, "--schema", schema, "-r", 8, "-k", "1:3", "--rounds", 1, "--bootstrap", 10,
            "--workers", 1, "--cache", out / "cache", "-o", out / "weights.toml",
        ),
        "audit": ("audit", schema, people, "--epsilon", "0.5,12", "--trials", 100, "--runs", 0),
        "data schemas": ("data", "schemas", schema, "--show"),
        "data acs": ("data", "acs", "--task", "income", "--source", folder / "census.parquet", "-o", out / "acs"),
        "data synthetic": ("data", "synthetic", "-o", out / "states", "--scale", 0.02),
        "features fit": ("features", "fit", folder / "public.npy", "--public", "drawn", "-o", out / "book.safetensors"),
        "features apply": (
            "features", "apply", folder / "public.npy", "--codebook", out / "book.safetensors", "-o", out / "own.csv",
        ),
        "flower new": ("flower", "new", out / "my-federation"),
        "demo": ("demo", "-o", out / "story", "-k", 2, "--scale", 0.02, "--rounds", 0, "--no-rehearsal"),
    }  # fmt: skip


def commands(group: Any, before: str = "") -> Iterator[str]:
    """Every command of the group that does something, with the group's name before it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}"


def test_every_command_is_tried(tmp_path: Path) -> None:
    found = set(commands(typer.main.get_command(app)))
    assert {"select", "data schemas"} <= found
    assert found == set(lines_of(tmp_path, tmp_path)) - {"inspect --quality"}


@pytest.mark.parametrize("width", [60, 80, 120, None], ids=["60", "80", "120", "pipe"])
def test_nothing_is_cut(
    run: Run, made: Path, tmp_path: Path, width: int | None, once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    if width is None:
        monkeypatch.delenv("COLUMNS")
    faults: list[tuple[str, str]] = []
    for name, words in lines_of(made, tmp_path).items():
        if name == "demo" and width in (80, 120):
            continue  # it takes seconds, and its screen is made of sentences
        done = run(*words)
        assert done.code == 0, (name, done.err)
        faults += [(name, line) for line in cut_lines(done.out, width)]
        if name in NAMING and LONG not in done.out:
            faults.append((name, f"does not name {LONG}"))
        assert done.out.strip(), name
    assert not faults


def cut_lines(text: str, width: int | None) -> list[str]:
    """Lines that are cut, or longer than the screen without a long word in them."""
    return [
        line
        for line in text.splitlines()
        if CUT in line
        or (
            width is not None
            and " " in line.strip()
            and len(line.rstrip()) > width
            and max(map(len, line.split())) <= width // 2
        )
    ]


def test_a_cut_line_is_found() -> None:
    assert cut_lines(f"Kreiskra{CUT}  3\nwhole", 60) == [f"Kreiskra{CUT}  3"]
    assert cut_lines("word " * 20, 60) == ["word " * 20]
    assert not cut_lines("word " * 20, None)
    assert not cut_lines("path " + "x" * 80, 60)
