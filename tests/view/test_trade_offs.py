"""AUC against the rate-matched EOD: which points, which of them are best, and where they are shown."""

from __future__ import annotations

import polars as pl
import pytest

import fedwise as fw
from fedwise.estimation import estimate
from fedwise.reporting import Report
from fedwise.search.selection import Selection
from fedwise.view import outcome_charts
from fedwise.view.alerts import better_baselines
from fedwise.view.forecasts import forecaster
from fedwise.view.outcomes import BOTH, outcome_of
from fedwise.view.trade_offs import RANDOM, of_forecast, of_outcome
from reporting.report_kit import metrics


def _table(auc: float, eod: float, seed: int = 0) -> pl.DataFrame:
    """A run of the present version: the last round has a few lines more."""
    old = metrics(0.5, seed)
    more = [
        ("auc", "", auc),
        ("brier", "", 0.2),
        ("balanced_accuracy@rate", "", 0.6),
        ("eod@rate", "SEX", eod),
    ]
    last = old["round"].max()
    lines = [(last, "all", "", *line, float("nan"), float("nan")) for line in more]
    return pl.concat([old, pl.DataFrame(lines, schema=old.schema, orient="row")])


@pytest.fixture(scope="module")
def runs() -> dict[str, pl.DataFrame]:
    tables = {"chosen": (0.80, 0.10), "everyone": (0.85, 0.20), "random": (0.79, 0.15)}
    return {label: _table(*values) for label, values in tables.items()}


def test_trainings_that_no_other_beats_are_marked(runs: dict[str, pl.DataFrame]) -> None:
    outcome = outcome_of(runs)
    assert outcome is not None
    points = of_outcome(outcome.final)
    assert [(p.label, p.kind, p.auc, p.eod, p.best) for p in points] == [
        ("chosen", "chosen", 0.80, 0.10, True),
        ("everyone", "baseline", 0.85, 0.20, True),
        ("random", "baseline", 0.79, 0.15, False),
    ]
    # What only the last round has makes no line over the rounds.
    assert not {curve.metric for curve in outcome.curves} & {"eod@rate", "brier", "balanced_accuracy@rate"}
    spec = outcome_charts.trade_off(points)
    assert [row["auc"] for row in spec["layer"][0]["data"]["values"]] == [0.80, 0.85]
    assert "2 of them are not beaten" in spec["description"]
    notices = [f"{n.title} {n.text}" for n in better_baselines(outcome)]
    assert any("AUC" in text and "everyone" in text for text in notices)


def test_runs_of_before_have_no_point(runs: dict[str, pl.DataFrame]) -> None:
    outcome = outcome_of({**runs, "old": metrics(0.5, 1)})
    assert outcome is not None
    assert [p.label for p in of_outcome(outcome.final)] == ["chosen", "everyone", "random"]


def test_forecast_federations(pool: fw.Pool, selection: Selection) -> None:
    found = forecaster(estimate(pool))
    assert found is not None
    points = of_forecast(found, selection.clients, seed=1)
    assert [p.kind for p in points[:2]] == ["chosen", "all clients"]
    assert len(points) == RANDOM + 2
    sums = found.rows[found.positions(selection.clients)].sum(axis=0)[None]
    assert [points[0].auc, points[0].eod] == pytest.approx(found.values(sums, ("auc", "eod@rate"))[0])
    best = [p for p in points if p.best]
    assert best
    for p in best:
        assert not any(q.auc >= p.auc and q.eod < p.eod for q in points)
    assert of_forecast(None, selection.clients) == []


def test_the_page_has_both_thresholds_the_reason_and_the_pictures(
    pool: fw.Pool, selection: Selection, runs: dict[str, pl.DataFrame]
) -> None:
    report = Report.of(pool, selection, runs=runs, frontier=False)
    assert {"trade-off", "trade-off-trained", "curve-auc"} <= set(report.specs)
    page = report.html()
    for words in ("Balanced accuracy, rate-matched", "Brier score", BOTH.split(":")[0]):
        assert words in page, words
    values = report.to_dict()
    assert {"auc", "eod", "eod@rate"} <= {m["metric"] for m in values["verdict"]["forecast"]}
    assert values["trade_offs"][0]["kind"] == "chosen"
    # A forecaster that is there already is used as it is.
    again = Report.of(pool, selection, frontier=False, forecast=forecaster(estimate(pool)) or False)
    assert again.values.trade_offs == report.values.trade_offs
    bare = Report.of(pool, selection, frontier=False, forecast=False)
    assert bare.values.trade_offs == []
    assert "trade-off" not in bare.specs
