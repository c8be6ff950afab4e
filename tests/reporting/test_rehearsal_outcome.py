"""Rehearsal against outcome: what was expected beside what the trained model reached, in the report."""

from __future__ import annotations

from types import SimpleNamespace

from fedwise.reporting.page import _rehearsal_rows
from fedwise.view.outcomes import Measure
from fedwise.view.rehearsals import RehearsalRow


def row(metric: str, value: float | None, low: float | None, high: float | None) -> RehearsalRow:
    return RehearsalRow(
        title=metric, metric=metric, value=value, low=low, high=high, random=None, everyone=None, word=""
    )


def test_each_metric_lies_inside_or_outside_its_interval() -> None:
    final = [
        Measure(label="Chosen", metric="auc", value=0.8),
        Measure(label="Chosen", metric="eod@rate", attribute="SEX", value=0.3),
        Measure(label="Chosen", metric="loss", value=0.5),
        Measure(label="Random", metric="auc", value=0.1),
    ]
    rows = [row("auc", 0.79, 0.77, 0.81), row("eod:SEX@rate", 0.1, 0.05, 0.15), row("loss", 0.6, None, None)]
    values = SimpleNamespace(
        training=SimpleNamespace(final=final),
        rehearsal=SimpleNamespace(same=True, quick=False, rows=[*rows, row("f1", 0.1, 0, 1)]),
    )
    assert _rehearsal_rows(values, ["Chosen", "Random"]) == [
        ("auc", 0.79, "0.7700 to 0.8100", 0.8, "inside"),
        ("eod:SEX@rate", 0.1, "0.0500 to 0.1500", 0.3, "outside"),
        ("loss", 0.6, "", 0.5, ""),
    ]
    values.rehearsal.same = False
    assert _rehearsal_rows(values, ["Chosen"]) == []
