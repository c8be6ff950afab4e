"""Reports of targets with more than two classes and of numbers, with a crossed attribute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fedwise as fw

SEX = fw.Column("SEX", "sensitive", levels=(1, 2))
RACE = fw.Column("RACE", "sensitive", levels=("a", "b"))
BOTH = fw.Column("SEX by RACE", "sensitive", cross=(SEX, RACE), model="drop")
TARGETS = {
    "Macro-F1": fw.Column("K", "target", levels=(0, 1, 2)),
    "Root mean squared error": fw.Column("K", "target", bins=(0, 1, 2, 3), model="binned"),
}


def rows(number: int) -> pl.DataFrame:
    rng = np.random.default_rng(number)
    a = rng.integers(3, size=90)
    race = np.array(["a", "b"])[rng.integers(2, size=90)]
    return pl.DataFrame(
        {"A": a, "SEX": rng.integers(1, 3, size=90), "RACE": race, "K": (a + rng.integers(2, size=90)) % 3}
    )


@pytest.mark.parametrize("metric", TARGETS)
def test_a_report_shows_the_metrics_of_its_target_and_the_intersection(metric: str, tmp_path: Path) -> None:
    schema = fw.Schema((fw.Column("A", "feature", levels=(0, 1, 2)), BOTH, TARGETS[metric]))
    frames = {f"c{i}": rows(i) for i in range(4)}
    plan = fw.plan(schema, 5.0)
    pool = fw.Pool.of(
        fw.release(plan, frame, client=name, simulated=True, seed=i)
        for i, (name, frame) in enumerate(frames.items())
    )
    selection = fw.select(pool, 2)
    assert selection.terms.direct_bias != 0
    settings = fw.Training(rounds=2, replicates=10, lr=0.01, model="4")
    run = fw.train(frames, schema, selection, settings, output=tmp_path / "run", plan=plan)
    gap = "error_gap" if "error" in metric else "eod"
    assert any((r.metric, r.attribute) == (gap, "SEX by RACE") for r in run.final())
    page = fw.report(run, tmp_path / "report.html", releases=pool)
    text = (tmp_path / "report.html").read_text()
    assert metric in text
    assert "SEX by RACE" in text
    assert page is not None
