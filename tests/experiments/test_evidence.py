"""The evidence run as small as it gets, and the rivals it compares with: plain rules, post-processing, reweighing."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import baselines
import census
import choices
import evidence
import measured
import numpy as np
import polars as pl
import postprocessing
import pytest
from trained import Recipe, reweighing

from fedwise.training.encoding import Rows
from fedwise.training.local import LocalSettings
from fedwise.training.simulate import Config, simulate

pytest.importorskip("safetensors", reason="needs the train extra")

pytestmark = pytest.mark.slow

TINY = evidence.Scale(
    splits=1, k=2, random=4, matched=2, draws=1, rounds=2, mean_rows=150, test_rows=600, forecast_steps=40, states=8
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("evidence")
    evidence.evaluate(["synthetic"], TINY, cache=root / "cache", out=root / "results", jobs=1)
    return root


@pytest.fixture(scope="module")
def bundle() -> census.Bundle:
    return census.load("synthetic", states=8, mean_rows=150, test_rows=600)


def test_every_kind_has_its_rows(folder: Path) -> None:
    table = pl.read_parquet(folder / "results" / "evidence.parquet")
    counted = dict(table.filter(model="mlp").group_by("kind").len().iter_rows())
    assert counted["random"] == 4
    assert counted["row_matched"] == 2
    parity = {f"{who}_{how}" for who in ("all", "pfl", "pfl_exact") for how in evidence.TREATMENTS}
    assert len(parity) == 21
    once = {"all", "all_reweighed", "pfl", "pfl_exact", *choices.GOALS, *baselines.RULES, *parity}
    assert all(counted[kind] == 1 for kind in once)
    assert set(table["model"]) == {"mlp", "logistic"}
    whole = table.filter(~pl.col("kind").str.contains("optimizer"))
    assert not any(whole[name].has_nulls() for name in measured.METRICS)
    # All models decide yes equally often at the matched rate: that is what it is for.
    rates = whole["positive_rate@rate"]
    assert rates.max() - rates.min() < 1e-4
    held = table.filter(kind="all_threshold_optimizer_tpr", model="mlp")
    base = table.filter(kind="all", model="mlp")
    assert held["auc"][0] == base["auc"][0]
    assert held["loss"][0] is None
    members = pl.read_csv(folder / "results" / "evidence_federations.csv")
    assert set(table["federation"]) == set(members["federation"])


def test_second_run_trains_nothing_and_writes_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(Recipe, "train", never)
    monkeypatch.setattr(measured, "measure", never)
    evidence.evaluate(["synthetic"], TINY, cache=folder / "cache", out=folder / "again", jobs=1)
    for name in ("evidence.parquet", "evidence_federations.csv"):
        assert (folder / "again" / name).read_bytes() == (folder / "results" / name).read_bytes()


def test_rows_of_other_parts_stay(folder: Path, tmp_path: Path) -> None:
    table = pl.read_parquet(folder / "results" / "evidence.parquet")
    evidence.save(table.with_columns(split=pl.lit(1, pl.Int64)), {"x": ("A", "B")}, tmp_path)
    evidence.save(table, {"x": ("A", "B")}, tmp_path)
    evidence.save(table.filter(kind="all", model="mlp"), {"y": ("A",)}, tmp_path)
    found = pl.read_parquet(tmp_path / "evidence.parquet")
    # Only the network of all clients of split 0 was replaced, by the one row that was new.
    kept = table.height - table.filter(pl.col("k") == 8, model="mlp").height + 1
    assert dict(found.group_by("split").len().iter_rows()) == {0: kept, 1: table.height}
    assert pl.read_csv(tmp_path / "evidence_federations.csv")["federation"].to_list() == ["x", "y"]
    assert evidence.identify(["B", "A"]) == evidence.identify(("A", "B")) != evidence.identify(["A"])


def test_held_out_tasks_are_those_fixed_beforehand_and_need_their_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (Path(evidence.__file__).parent / "HELD_OUT.md").read_text(encoding="utf-8")
    for name in census.HELD_OUT:
        assert f"`{name}`" in text
        assert f"`{census.SOURCES[name].file}`" in text
        assert name not in evidence.TASKS
        with pytest.raises(SystemExit):
            evidence.main(["--tasks", name])
    assert "--held-out" in capsys.readouterr().err


def test_network_is_the_one_simulate_trains(bundle: census.Bundle) -> None:
    members = bundle.sex.clients[:3]
    config = Config(rounds=2, settings=LocalSettings(lr=1e-3), replicates=0, seed=4)
    expected = simulate(bundle.prepared, members, config).parameters
    np.testing.assert_array_equal(Recipe(rounds=2, seed=4).train(bundle.prepared, members), expected)


@pytest.mark.parametrize("model", ["mlp", "logistic"])
def test_reweighing_changes_the_model(bundle: census.Bundle, model: str) -> None:
    members = bundle.sex.clients[:3]
    plain, weighted = (
        Recipe(model, rounds=2, reweighed=r).train(bundle.prepared, members) for r in (False, True)
    )
    assert not np.allclose(plain, weighted)


def test_reweighing_is_the_closed_form() -> None:
    # 30 of 40 men and 10 of 60 women are positive: P(y) P(g) / P(y, g) by hand.
    y = np.repeat([1, 0, 1, 0], [30, 10, 10, 50]).astype(np.float32)
    group = np.repeat([0, 0, 1, 1], [30, 10, 10, 50]).astype(np.int16)
    empty = np.zeros((100, 0), np.float32)
    rows = Rows(0, np.zeros((100, 0), np.int32), empty, np.zeros(0, np.int64), y, group[None])
    found = reweighing([rows.take(np.arange(37)), rows.take(np.arange(37, 100))])
    np.testing.assert_allclose(
        found, [[0.6 * 0.4 / 0.1, 0.6 * 0.6 / 0.5], [0.4 * 0.4 / 0.3, 0.4 * 0.6 / 0.1]]
    )


def unequal(seed: int, rows: int = 8000) -> tuple[Any, Any, Any]:
    """Scores that rank both groups, but one of them lower, with less signal and fewer positives."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, rows)
    y = (rng.random(rows) < np.where(group == 0, 0.5, 0.3)).astype(np.float32)
    scores = (np.where(group == 0, 1.6, 1.0) * (y - 0.5) - 0.6 * group + rng.normal(size=rows)).astype(
        np.float32
    )
    return scores, y, group


def rates(chances: Any, y: Any, group: Any) -> Any:
    """Expected positive, true positive and false positive rates by group, shape (3, 2)."""
    kinds = (y >= 0, y > 0.5, y < 0.5)
    return np.array([[chances[kind & (group == g)].mean() for g in (0, 1)] for kind in kinds])


SATISFIED = {"dp": [0], "tpr": [1], "eo": [1, 2]}


@pytest.mark.parametrize("constraint", list(SATISFIED))
def test_post_processing_closes_the_gap(constraint: str) -> None:
    fitted, judged = unequal(1), unequal(2)
    rule = postprocessing.fit_fairlearn(constraint, *fitted)
    matched = postprocessing.at_rate(constraint, fitted, (judged[0], judged[2]), 0.35)
    assert matched.mean() == pytest.approx(0.35, abs=1e-3)
    same = postprocessing.at_rate(constraint, fitted, (fitted[0], fitted[2]), 0.35)
    for at in SATISFIED[constraint]:
        before = np.ptp(rates(judged[0] > 0, *judged[1:])[at])
        assert before > 0.08
        # On the fitted rows the constraint holds exactly; new rows add the error of rates of a few thousand rows.
        assert np.ptp(rates(same, *fitted[1:])[at]) < 2e-3
        for chances in (rule(judged[0], judged[2]), matched):
            assert np.ptp(rates(chances, *judged[1:])[at]) < before / 2


def test_shifted_scores_close_the_gap_share_by_share() -> None:
    fitted, judged = unequal(4), unequal(5)
    taken = postprocessing.offsets(*fitted)
    gaps = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        scores = judged[0] - share * taken[judged[2]]
        yes = scores > np.quantile(scores, 1 - judged[1].mean())
        gaps.append(np.ptp(rates(yes, *judged[1:])[1]))
    assert gaps[0] > 0.25
    assert sorted(gaps, reverse=True) == gaps
    # Rates of 2,000 and 1,200 positives: 0.05 is three standard errors of their difference.
    assert gaps[-1] < 0.05
    # Without a difference between groups there is nothing to take.
    same = np.random.default_rng(6).normal(size=4000), np.tile([0, 1], 2000), np.repeat([0, 1], 2000)
    assert np.abs(postprocessing.offsets(*same)).max() < 0.1


def test_equalised_odds_at_fairlearns_own_rate_is_fairlearns_rule() -> None:
    fitted = unequal(3)
    theirs = postprocessing.fit_fairlearn("eo", *fitted)(fitted[0], fitted[2])
    ours = postprocessing.at_rate("eo", fitted, (fitted[0], fitted[2]), float(theirs.mean()))
    # fairlearn looks at a grid of a thousand false positive rates.
    np.testing.assert_allclose(rates(ours, *fitted[1:]), rates(theirs, *fitted[1:]), atol=2e-3)


def test_rules_choose_what_they_say(bundle: census.Bundle) -> None:
    truth = bundle.sex.truth()
    whole = census.load("synthetic", states=8, mean_rows=10**6, test_rows=600).prepared
    exact = {c: float(rows.y.mean()) for c, rows in whole.train.items()}
    np.testing.assert_allclose(baselines.label_rates(truth), [exact[c] for c in truth.clients], atol=1e-6)
    assert baselines.highest_label_rate(truth, 3) == sorted(sorted(exact, key=exact.__getitem__)[-3:])
    assert baselines.largest(truth, 3) == sorted(sorted(bundle.rows, key=bundle.rows.__getitem__)[-3:])
    pooled = sum(exact[c] * n for c, n in bundle.rows.items()) / sum(bundle.rows.values())
    near = sorted(exact, key=lambda c: abs(exact[c] - pooled))[:3]
    assert baselines.nearest_label_rate(truth, 3) == sorted(near)


def test_nearest_federation_is_the_best_of_all(bundle: census.Bundle) -> None:
    truth = bundle.sex.truth()
    everyone = np.arange(len(truth.clients))
    assert baselines.distances(truth, everyone[None])[0] == pytest.approx(0, abs=1e-12)
    for k in (2, 3):
        pairs = np.array(list(combinations(everyone, k)))
        best = pairs[np.argmin(baselines.distances(truth, pairs))]
        assert baselines.nearest_to_pool(truth, k) == sorted(truth.clients[i] for i in best)
