"""Chosen against random federations and against all clients, on made-up evidence."""

from __future__ import annotations

from pathlib import Path

import findings
import numpy as np
import polars as pl
import pytest
from comparisons import Evidence, load
from evidence_table import make
from fronts import dominated, front, setting, settings
from ranks import rank
from results import Results
from verdicts import NO, UNTESTED, YES, word


def results_of(table: pl.DataFrame, federations: pl.DataFrame | None = None) -> Results:
    tables = {"evidence": table}
    if federations is not None:
        tables["evidence_federations"] = federations
    return Results(Path(), {}, tables)


def evidence_of(**options: object) -> Evidence:
    found = load(results_of(*make(**options)))  # type: ignore[arg-type]
    assert found is not None
    return found


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return evidence_of()


def test_comparison_is_the_rank_of_means_over_splits_and_draws(evidence: Evidence) -> None:
    table = evidence.table.filter(pl.col("task") == "travel2024")
    chosen = table.filter(kind="pfl")["auc"].mean()
    means = table.filter(kind="random").group_by("federation").agg(pl.col("auc").mean())["auc"].to_numpy()
    found = evidence.compare("travel2024", "pfl", "auc")
    assert found is not None
    assert found.rank == rank(float(chosen), means, "auc")  # type: ignore[arg-type]
    assert (found.splits, found.draws, found.rank.n) == (3, 2, 200)
    assert found.interval.value == pytest.approx(float(chosen) - means.mean())  # type: ignore[arg-type]


def test_only_splits_that_both_sides_have_in_full_are_compared(evidence: Evidence) -> None:
    part = evidence.table.filter(
        ~((pl.col("kind") == "random") & (pl.col("split") == 2) & (pl.col("federation") > "f3"))
    )
    found = Evidence(part, "mlp", 5).compare("income2018", "pfl", "auc")
    assert found is not None
    assert (found.splits, found.rank.n) == (2, 200)


def test_members_follow_the_order_of_federations(evidence: Evidence) -> None:
    found = evidence.members("income2018", "random")
    assert found is not None
    assert found.shape == (200, 30)
    assert (found.sum(axis=1) == 5).all()
    assert evidence.federations is not None
    first = evidence.grid("income2018", "random", "auc")[1][0]
    known = evidence.federations.filter(task="income2018", federation=first)["members"][0].split()
    assert [f"C{i:02d}" for i in np.flatnonzero(found[0])] == sorted(known)


def test_rule_on_no_effect_on_an_effect_and_on_too_few(evidence: Evidence) -> None:
    def verdict(of: Evidence) -> str:
        return word([one.rank for one in of.claim("pfl", "eod@rate", of.design())])

    assert verdict(evidence) == NO
    assert verdict(evidence_of(shift=6.0)) == YES
    assert verdict(evidence_of(random=24, shift=6.0)) == UNTESTED


def test_network_is_used_only_with_enough_random_federations() -> None:
    table, _ = make(random=60)
    few = pl.concat([table, table.with_columns(pl.lit("logistic").alias("model"))])
    found = load(results_of(few))
    assert found is not None
    assert found.model == "logistic"
    assert load(Results(Path(), {})) is None


def test_held_out_tasks_are_no_part_of_claims() -> None:
    found = evidence_of(tasks=("income2018", "mobility2024areas"))
    assert found.design() == ["income2018"]
    assert found.held_out() == ["mobility2024areas"]
    text = findings.held_out(found)
    assert "Mobility 2024, areas" in text
    assert "Income" not in text


def test_a_setting_is_won_by_a_smaller_gap_at_equal_auc() -> None:
    table, _ = make(tasks=("income2018",), shift=20.0)
    level = table.with_columns(
        pl.when(pl.col("kind").is_in(["pfl", "all"])).then(0.8).otherwise("auc").alias("auc")
    )
    found = setting(Evidence(level, "mlp", 5), "income2018", "pfl", "all_threshold_optimizer_eo")
    assert found is not None
    assert found.won
    lower = level.with_columns(pl.when(pl.col("kind") == "pfl").then(0.7).otherwise("auc").alias("auc"))
    lost = setting(Evidence(lower, "mlp", 5), "income2018", "pfl", "all_threshold_optimizer_eo")
    assert lost is not None
    assert lost.smaller_gap
    assert not lost.won
    assert len(settings(Evidence(level, "mlp", 5), ("pfl", "size"))) == 8


def test_front_is_what_no_other_point_beats() -> None:
    rng = np.random.default_rng(0)
    auc, gap = rng.integers(0, 6, (2, 40)).astype(float)
    expected = [
        not any(
            auc[j] >= auc[i] and gap[j] <= gap[i] and (auc[j] > auc[i] or gap[j] < gap[i]) for j in range(40)
        )
        for i in range(40)
    ]
    assert front(auc, gap).tolist() == expected
    assert dominated(2.0, 3.0, np.array([3.0, 3.0, 1.0]), np.array([1.0, 5.0, 1.0])) == pytest.approx(1 / 3)


def test_parts_of_the_page_have_a_row_for_each_task(evidence: Evidence) -> None:
    for text in (
        findings.label_rates(evidence),
        findings.by_task(evidence, "pfl"),
        findings.against_all(evidence),
    ):
        assert len(text.splitlines()) == 2 + 5
    assert "nan" not in findings.overview(evidence) + findings.wins(evidence)
