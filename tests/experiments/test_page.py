"""The page on made-up evidence: every part is there, figures are those of the tables, nothing is hidden."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import evidence_tables
import figures
import findings
import instruments
import page
import polars as pl
import prose
import pytest
from claims import examine
from comparisons import load
from evidence_table import TASKS, make
from results import Results
from store import RESULTS

pytest.importorskip("vl_convert", reason="needs the explore extra")


@pytest.fixture(scope="module")
def results() -> Results:
    stored = Results.load(RESULTS)
    table, listed = make(tasks=(*TASKS, "mobility2024areas"), shift=6.0)
    return replace(stored, tables={**stored.tables, "evidence": table, "evidence_federations": listed})


def test_page_has_every_part(results: Results) -> None:
    text = page.render(results, ["pareto.svg"], "results")
    for heading in (
        "In short", "Verdicts", "Why: label rates", "Chosen against random", "Chosen against all clients", "Held out",
        "What choosing is for", "What these figures can bear", "Data and protocol",
    ):  # fmt: skip
        assert f"\n## {heading}\n" in text
    assert "nan" not in text
    assert "(results/pareto.svg)" in text


def test_effect_that_was_put_in_is_found_and_no_other(results: Results) -> None:
    evidence = load(results)
    assert evidence is not None
    words = findings.words(evidence, "pfl")
    assert words.pop("eod@rate") == "reproduced"
    assert set(words.values()) == {"not reproduced"}
    assert "▲" in findings.by_task(evidence, "pfl")
    assert "▲" not in findings.by_task(evidence, "size")


def test_long_tables_have_every_comparison(results: Results) -> None:
    parts = "\n".join(evidence_tables.render(results))
    # Three ways of choosing and all clients, five metrics, six tasks.
    section = parts.split("## Chosen against random at matched rates")[1].split("\n## ")[0]
    assert section.count("\n| network |") == 4 * 5 * 6


def test_picture_has_a_panel_for_each_task(results: Results) -> None:
    spec = figures.pareto(results)
    assert spec is not None
    lines = pl.DataFrame(spec["data"]["values"])
    assert lines["title"].n_unique() == 6
    assert lines.filter(pl.col("group") == "random").height == 6 * 200
    assert lines.filter("front").height >= 6


def test_instruments_sum_up_raw_tables() -> None:
    coverage = pl.DataFrame(
        {
            "task": ["income2018"] * 4, "epsilon": [1.0] * 4, "kind": ["selected"] * 3 + ["random"],
            "estimated": [0.0] * 4, "std_error": [1.0] * 4, "low": [-1.0] * 4, "high": [1.0] * 4,
            "true": [0.0, 1.5, 5.0, 9.0],
        }
    )  # fmt: skip
    swaps = pl.DataFrame({"epsilon": [1.0, 1.0], "chance": [0.2, 0.4], "better": [0, 1]})
    power = pl.DataFrame(
        {"epsilon": [1.0, 1.0], "factor": [1.0, 1.5], "audits": [400, 400], "epsilon_bound": [0.0, 0.0],
         "mu_bound": [0.01, 0.97]}
    )  # fmt: skip
    text = instruments.render(
        Results(Path(), {}, {"coverage": coverage, "swap_chance": swaps, "audit_power": power})
    )
    assert "| 1 | 33% | 67% | 0.30 | 0.50 |" in text
    assert "Income 2018: 33%" in text
    assert "in 97% of 400 runs" in text
    assert instruments.render(Results(Path(), {})) == ""


def test_readme_says_what_the_page_says() -> None:
    stored = Results.load(RESULTS)
    evidence = load(stored)
    assert evidence is not None
    text = " ".join((RESULTS.parents[1] / "README.md").read_text(encoding="utf-8").split())
    section = text.split("## What is not")[1].split("## Learn more")[0]
    assert prose.tally(examine(stored)) in section
    for won, every in (prose.beaten_post(evidence), prose.beaten_dirty(stored)):
        assert f"{won} of {every}" in section
