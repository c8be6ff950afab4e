"""Claims about trained models: correlations with the loss, and chosen against random federations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl
from comparisons import TITLES, Comparison, Evidence, adjusted, load
from contrasts import place, rounds_to
from intervals import correlation_p, spearman
from ranks import Rank, holm, pool, rank
from results import Results
from verdicts import BETTER, OPEN, UNCLEAR, WORSE, Sided, Verdict, readings, tally, word

#: The paper's signs of the correlations with the loss.
SIGNS = {"accuracy": -1, "f1": -1, "eod": 1, "mad": 1}


def correlation(results: Results) -> Verdict:
    """How the loss ranks federations."""
    name = "Ranking of federations"
    claim = "The loss ranks federations as training does (Spearman −0.84 accuracy, −0.77 F1, positive gaps)"
    evidence = load(results)
    found = _of_evidence(evidence) if evidence is not None else _of_calibration(results)
    if not found:
        return Verdict(name, claim, OPEN)
    tested, rows = [], []
    for title, values, clients, federations in found:
        tested += [
            Sided(
                correlation_p(values[m], clients=clients, federations=federations), values[m] * SIGNS[m] > 0
            )
            for m in SIGNS
        ]
        rows.append([title, *(f"{values[m]:+.2f}" for m in (*SIGNS, "balanced_accuracy") if m in values)])
    words = readings(tested)
    for at, reading in enumerate(words):
        row, column = divmod(at, len(SIGNS))
        if reading != UNCLEAR:
            rows[row][column + 1] = f"**{rows[row][column + 1]}**"
    extra = ("balanced accuracy",) if len(rows[0]) > 5 else ()
    return Verdict(
        name, claim, word(tested),
        f"right sign on {words.count(BETTER)} of {len(words)} correlations, wrong on {words.count(WORSE)}",
        ("task", "accuracy", "F1", "EOD", "MAD", *extra), rows,
        f"Paper's weights, exact tables, {found[0][3]} random federations a task. Bold: significant after Holm's "
        "correction over the four metrics and all tasks, with clients as the sample. The paper correlates *weighted* "
        "accuracy, which may be balanced accuracy; that column is not part of the test.",
    )  # fmt: skip


Correlations = list[tuple[str, dict[str, float], int, int]]


def _of_evidence(evidence: Evidence) -> Correlations:
    out: Correlations = []
    for task in evidence.design():
        _, _, losses = evidence.grid(task, "random", "pfl_true")
        values = {
            metric: spearman(losses.mean(axis=0), evidence.grid(task, "random", metric)[2].mean(axis=0))
            for metric in (*SIGNS, "balanced_accuracy")
        }
        out.append((TITLES.get(task, task), values, evidence.clients(task), losses.shape[1]))
    return out


def _of_calibration(results: Results) -> Correlations:
    clients = {task["name"]: int(task["clients"]) for task in results.facts.get("tasks", [])}
    out: Correlations = []
    for one in results.facts.get("calibrations") or []:
        judged = {j["name"]: j for j in one["judgements"]}
        values = {c["metric"]: float(c["value"]) for c in judged["paper"]["correlations"]}
        values = {metric: 0.0 if math.isnan(value) else value for metric, value in values.items()}
        title = dict(results.tasks).get(one["task"], one["task"])
        out.append((title, values, clients.get(one["task"], 50), int(one["judged_on"])))
    return out


def trained(results: Results, metric: str, name: str, claim: str) -> Verdict:
    """Federations of least loss against random ones, by one metric of the trained model."""
    evidence = load(results)
    if evidence is not None:
        found = evidence.claim("pfl", metric, evidence.design())
        return of_comparisons(name, claim, found)
    runs = results.runs
    if runs is None:
        return Verdict(name, claim, OPEN)
    places = [
        (title, place(runs, metric, task=task, k=results.first, group="chosen"))
        for task, title in results.tasks
    ]
    there = [(title, one) for title, one in places if one is not None]
    ranks = [one for _, one in there]
    p = holm([one.p for one in ranks])
    rows = [
        (title, f"{one.standing:.0%}", f"{adjusted:.2g}")
        for (title, one), adjusted in zip(there, p, strict=True)
    ]
    return Verdict(
        name, claim, word(ranks), tally(readings(ranks)), ("task", "random ones beaten", "p (Holm)"), rows
    )  # fmt: skip


def of_comparisons(name: str, claim: str, found: Sequence[Comparison]) -> Verdict:
    """The verdict over comparisons, with the numbers of each."""
    if not found:
        return Verdict(name, claim, OPEN)
    ranks = [one.rank for one in found]
    words = readings(ranks)
    rows = [
        (
            TITLES.get(one.task, one.task), f"{one.value:.4f}", f"{one.random:.4f}", one.interval.text(4),
            f"{one.rank.standing:.0%}", f"{p:.2g}", reading,
        )
        for one, p, reading in zip(found, adjusted(found), words, strict=True)
    ]  # fmt: skip
    columns = ("task", "chosen", "random", "difference (95%)", "random ones beaten", "p (Holm)", "reading")
    return Verdict(name, claim, word(ranks), tally(words), columns, rows)


def faster(results: Results) -> Verdict:
    """Rounds until the accuracy of a random federation is nearly reached."""
    name = "Rounds"
    claim = "Chosen federations converge in fewer rounds"
    if results.curves is None:
        return Verdict(name, claim, OPEN)
    ranks, rows = [], []
    for task, title in results.tasks:
        here = results.curves.filter(
            (pl.col("task") == task) & (pl.col("k") == results.first) & (pl.col("strategy") == "fedavg")
            & (pl.col("sampler") == "full")
        )  # fmt: skip
        random = here.filter(pl.col("group") == "random")
        if random.is_empty() or here.filter(pl.col("group") == "chosen").is_empty():
            continue
        last = random.filter(pl.col("round") == pl.col("round").max())["accuracy"].median()
        assert isinstance(last, float)
        first = random.filter(pl.col("round") == 0)["accuracy"].median() or 0.0
        target = float(first) + 0.95 * (last - float(first))  # type: ignore[arg-type]
        reached = rounds_to(here, metric="accuracy", target=target).with_columns(
            pl.col("reached").cast(pl.Float64).fill_null(np.inf)
        )
        rounds = {
            group: reached.filter(pl.col("group") == group)["reached"].to_numpy()
            for group in ("chosen", "random", "matched")
        }
        found = rank(float(np.median(rounds["chosen"])), rounds["random"], "rounds")
        ranks.append(found)
        medians = [_rounds(values) for values in rounds.values()]
        rows.append((title, f"{target:.3f}", *medians, f"{found.standing:.0%}"))
    return _pooled(
        name, claim, [("all tasks", ranks)] if ranks else [],
        ("task", "accuracy to reach", "chosen", "random", "random, as many rows", "random ones beaten"), rows,
        "Median rounds over trainings; the accuracy to reach is 95% of the way of the median random federation. "
        "One comparison: ranks pooled over tasks.",
    )  # fmt: skip


def _rounds(values: np.ndarray) -> str:  # type: ignore[type-arg]
    if not len(values):
        return "–"
    found = float(np.median(values))
    return "never" if np.isinf(found) else f"{found:g}"


def _pooled(
    name: str, claim: str, groups: Sequence[tuple[str, Sequence[Rank]]], columns: Sequence[str],
    rows: Sequence[Sequence[object]], note: str,
) -> Verdict:  # fmt: skip
    """A verdict over comparisons that are pooled over tasks, for few random federations a task."""
    if not groups:
        return Verdict(name, claim, OPEN)
    pooled = [pool(ranks) for _, ranks in groups]
    words = readings(pooled)
    least = min(one.p for one in pooled)
    short = tally(words, "pooled comparisons") if len(words) > 1 else (
        f"beats {pooled[0].standing:.0%} of random federations on average (p = {least:.2g})"
    )  # fmt: skip
    return Verdict(name, claim, word(pooled), short, columns, rows, note)


def rivals(results: Results, kind: str, methods: tuple[str, ...], words: str) -> Verdict:
    """Chosen federations with FedAvg against random federations with another method."""
    claim = f"Chosen federations with plain FedAvg beat {words}"
    name = f"Against other {'strategies' if kind == 'strategy' else 'samplers'}"
    runs = results.runs
    if runs is None:
        return Verdict(name, claim, OPEN)
    groups = []
    for method in methods:
        for metric in ("accuracy", "eod"):
            ranks = [
                place(runs, metric, task=task, k=results.first, group="chosen", **{kind: method})
                for task, _ in results.tasks
            ]
            there = [one for one in ranks if one is not None]
            if there:
                groups.append((f"{method} {metric}", there))
    pooled = [pool(ranks) for _, ranks in groups]
    adjusted_p = holm([one.p for one in pooled])
    rows = [
        (f"`{label.split()[0]}`", {"accuracy": "accuracy", "eod": "EOD"}[label.split()[1]], ranks[0].n,
         f"{one.standing:.0%}", f"{p:.2g}")
        for (label, ranks), one, p in zip(groups, pooled, adjusted_p, strict=True)
    ]  # fmt: skip
    return _pooled(
        name, claim, groups, ("against", "metric", "random federations a task", "beaten", "p (Holm)"), rows,
        "Runs of version 0.1.0; ranks pooled over the five tasks, as there are few random federations for each method.",
    )  # fmt: skip
