"""fedwise demo: the whole story on synthetic states, its JSON, its second run, and what is left out without extras."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest

import fedwise as fw
from cli.cli_kit import Run
from fedwise.data import synthetic

pytest.importorskip("safetensors", reason="needs the train extra")
pytest.importorskip("altair", reason="needs the explore extra")

pytestmark = pytest.mark.slow

NAMES = ("AK", "DE", "ND", "VT", "WY")
SMALL = ("demo", "-o", "story", "-k", "2", "--scale", "0.05", "--rounds", "1")


@pytest.fixture(autouse=True)
def few_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five of the fifty states."""
    monkeypatch.setattr(synthetic, "states", partial(synthetic.states, names=NAMES))


@pytest.mark.rehearses
def test_one_object_of_json_and_everything_on_disk(run: Run, tmp_path: Path) -> None:
    outcome = run(*SMALL, "--json")
    assert outcome.code == 0, outcome.err
    found = outcome.json
    assert found["synthetic"] is True
    selection = fw.Selection.load(tmp_path / "story" / "selection.json")
    assert found["clients"] == list(selection.clients)
    assert found["loss"] == selection.loss
    assert str(found["rehearsal"]).startswith("Rehearsed beside 8 random federations of 2: ")
    assert fw.Rehearsed.load(tmp_path / "story" / "rehearsal.json").federation.clients == selection.clients
    training = found["training"]
    assert isinstance(training, dict)
    assert training["chosen"]["federation"] == list(selection.clients)
    assert list(training) == ["chosen", "random 1", "random 2", "random 3"]
    assert "<html" in (tmp_path / str(found["report"])).read_text(encoding="utf-8")
    pool = fw.Pool.load(tmp_path / "story" / "releases")
    assert pool.clients == NAMES
    assert pool.label == "private"
    for name in NAMES:
        (charge,) = fw.Ledger(tmp_path / "story" / "ledgers" / f"{name}.db").history()
        assert (charge.client, charge.epsilon, charge.plan) == (name, 1.0, pool.plan.digest)


def test_a_second_run_begins_anew_and_tells_what_is_left_out(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(*SMALL[:-1], "0")
    assert first.code == 0, first.err
    for text in (
        "5 synthetic states hold",
        "epsilon 1, delta 1e-05",
        "4. the best federation of 2",
        "open the report",
    ):
        assert text in first.out
    assert "6. " not in first.out
    assert first.err == ""
    before = fw.Pool.load(tmp_path / "story" / "releases")
    # Without the train extra training is left out and named; without the explore extra there is no page.
    for name in ("fedwise.training.comparison", "fedwise.reporting"):
        monkeypatch.setitem(sys.modules, name, None)
    second = run(*SMALL)
    assert second.code == 0, second.err
    assert "6. training left out: it needs pip install 'fedwise[train]'" in second.out
    assert "report" not in second.out
    after = fw.Pool.load(tmp_path / "story" / "releases")
    assert (after.matrix != before.matrix).any()
    assert len(fw.Ledger(tmp_path / "story" / "ledgers" / "WY.db").history()) == 1
