"""The whole evaluation, as small as it gets: runs, resumes without training anything again, draws its page."""

from __future__ import annotations

import re
from pathlib import Path

import figures
import long_tables
import page
import paper
import polars as pl
import pytest
from claims import examine
from results import Results
from store import RESULTS
from verdicts import OPEN, WORDS

import fedwise.training.cached as cached

pytest.importorskip("safetensors", reason="needs the train extra")
pytest.importorskip("vl_convert", reason="needs the explore extra")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("paper")
    paper.evaluate(["synthetic"], paper.TINY, jobs=1, cache=root / "cache", out=root / "results", quick=True)
    return root


def test_every_arm_is_trained(folder: Path) -> None:
    runs = pl.read_csv(folder / "results" / "runs.csv")
    arms = {"chosen", "paper mode", "exact tables", "race", "random", "matched", "everyone", "sweep"}
    assert arms <= set(runs["group"])
    assert {"fedavg", "fedprox", "scaffold", "scaffold-adam"} == set(runs["strategy"])
    assert {"full", "ucb_cs", "fed_sampling", "threshold", "cluster_fl"} == set(runs["sampler"])
    assert runs["accuracy"].is_between(0, 1).all()
    assert not runs["eod_race"].is_nan().all()
    # SCAFFOLD with SGD and with Adam are different trainings.
    of = runs.filter(group="chosen").to_dicts()
    losses = {line["strategy"]: line["log_loss"] for line in of if line["sampler"] == "full"}
    assert losses["scaffold"] != losses["scaffold-adam"]


def test_second_run_trains_nothing_and_writes_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(cached, "simulate", never)
    paper.evaluate(
        ["synthetic"], paper.TINY, jobs=1, cache=folder / "cache", out=folder / "again", quick=True
    )
    for name in ("runs.csv", "federations.csv", "sweep.csv", "calibration.csv", "random_losses.csv"):
        assert (folder / "again" / name).read_bytes() == (folder / "results" / name).read_bytes()


def test_page_shows_every_claim_and_figure(folder: Path) -> None:
    figures.main(["--results", str(folder / "results")])
    text = (folder / "results.md").read_text(encoding="utf-8")
    behind = (folder / "results" / "tables.md").read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (folder / link.partition("#")[0]).is_file()
    for link in re.findall(r"\]\(([^)]+)\)", behind):
        assert (folder / "results" / link.partition("#")[0]).is_file()
    found = examine(Results.load(folder / "results"))
    assert {v.word for v in found} <= set(WORDS)
    # Two random federations cannot show anything, and the page does not pretend.
    assert not any(v.word == OPEN for v in found if v.name in ("Accuracy", "Rounds"))
    assert all(v.claim in text for v in found)
    assert "quick variant" in text
    assert "## Not run yet" in text
    assert "nan" not in (text + behind).lower()


def test_stored_page_is_generated_and_short() -> None:
    results = Results.load(RESULTS)
    drawn = sorted(file.name for file in RESULTS.glob("*.svg"))
    text = (RESULTS.parent / "results.md").read_text(encoding="utf-8")
    assert text == page.render(results, drawn, RESULTS.name)
    assert (RESULTS / "tables.md").read_text(encoding="utf-8") == long_tables.render(results, drawn)
    assert len(text.split()) <= 2500
    # A cell holds one number or one short phrase; only claims are sentences.
    cells = [cell for line in text.splitlines() if line.startswith("|") for cell in line.split("|")]
    assert max(len(cell) for cell in cells) <= 120
