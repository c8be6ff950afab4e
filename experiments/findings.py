"""Findings: the parts of the page that rest on the trained evidence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from comparisons import FREE, KINDS, TITLES, Evidence
from fronts import BOTH, RIVALS, setting, settings
from intervals import spearman
from verdicts import BETTER, WORSE, readings, word
from writing import table

#: Ways of choosing that use private statistics, shown in this order.
CHOSEN = ("pfl", "forecast_balanced", "forecast_auc", "forecast_rate", "forecast_fair", "rehearsal")
#: Shown on the page; the others are in the long tables.
SHOWN = ("pfl", "forecast_balanced", "forecast_auc", "forecast_fair", "label_rate", "size", "distance", "all")
#: Shown on the page for held-out tasks: the loss and the forecast as the tasks were registered, and the fair forecast.
REGISTERED = ("pfl", "forecast_balanced", "forecast_fair")
#: Ways of choosing that need no fedwise.
SIMPLE = ("label_rate", "label_rate_pool", "size", "distance")


def present(evidence: Evidence, kinds: Sequence[str]) -> list[str]:
    """The kinds there is evidence for."""
    return [kind for kind in kinds if not evidence.of_kind(kind).is_empty()]


#: What ranks random federations, and by which trained metric they are ranked.
RANKED = {
    "forecast at ½": ("forecast_balanced_accuracy", "balanced_accuracy"),
    "label rate alone": ("estimated_label_rate", "balanced_accuracy"),
    "same forecast, matched rate": ("forecast_balanced_accuracy", "balanced_accuracy@rate"),
    "forecast for matched rate": ("forecast_balanced_accuracy@rate", "balanced_accuracy@rate"),
}


def ranked(evidence: Evidence, name: str) -> list[float]:
    """Spearman's correlations over random federations, one a design task."""
    first, second = RANKED[name]
    return [
        spearman(*(evidence.grid(task, "random", metric)[2].mean(axis=0) for metric in (first, second)))
        for task in evidence.design()
    ]


def stands(evidence: Evidence, kind: str, metric: str, tasks: Sequence[str] | None = None) -> list[float]:
    """Shares of random federations beaten, one a task."""
    found = evidence.claim(kind, metric, evidence.design() if tasks is None else tasks)
    return [one.rank.standing for one in found]


def span(values: Sequence[float], form: str = ".2f") -> str:
    """The least and the largest."""
    low, high = (format(v, form).replace("-", "−") for v in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def label_rates(evidence: Evidence) -> str:
    """What the forecast at ½ knows, and what is left when the threshold is taken away."""
    columns = [[f"{value:.2f}".replace("-", "−") for value in ranked(evidence, name)] for name in RANKED]
    for metric in ("balanced_accuracy", "balanced_accuracy@rate"):
        columns.append([f"{value:.0%}" for value in stands(evidence, "forecast_balanced", metric)])
    rows = [(TITLES[task], *cells) for task, *cells in zip(evidence.design(), *columns, strict=True)]
    return table(("task", *RANKED, "chosen at ½", "chosen, matched rate"), rows)


def rates(evidence: Evidence, kind: str) -> list[tuple[str, float, float]]:
    """Label rates of a kind's federations and of random ones, for each task."""
    out = []
    for task in evidence.tasks:
        found, random = evidence.mean(task, kind, "label_rate"), evidence.mean(task, "random", "label_rate")
        if found is not None and random is not None:
            out.append((task, found, random))
    return out


def standings(evidence: Evidence, kind: str, tasks: Sequence[str], metrics: Sequence[str]) -> list[list[str]]:
    """Shares of random federations beaten, a row for each task; starred where significant in the claim."""
    rows = [[TITLES.get(task, task)] for task in tasks]
    for metric in metrics:
        found = {one.task: one for one in evidence.claim(kind, metric, tasks)}
        read = dict(zip(found, readings([one.rank for one in found.values()]), strict=True))
        for row, task in zip(rows, tasks, strict=True):
            row.append(_standing(found[task].rank.standing, read[task]) if task in found else "–")
    return rows


def _standing(share: float, reading: str) -> str:
    return f"{share:.0%}" + {BETTER: " ▲", WORSE: " ▼"}.get(reading, "")


def by_task(evidence: Evidence, kind: str) -> str:
    """Where one kind stands on each task, in what needs no threshold."""
    return table(("task", *FREE.values()), standings(evidence, kind, evidence.design(), tuple(FREE)))


def overview(evidence: Evidence) -> str:
    """Every way of choosing: mean share of random federations beaten, and on how many tasks clearly so."""
    rows = []
    for kind in present(evidence, SHOWN):
        cells = []
        for metric in FREE:
            found = evidence.claim(kind, metric, evidence.design())
            if not found:
                cells.append("–")
                continue
            read = readings([one.rank for one in found])
            mean = np.mean([one.rank.standing for one in found])
            cells.append(f"{mean:.0%}" + " ▲" * (BETTER in read) + " ▼" * (WORSE in read))
        rows.append((KINDS[kind], *cells))
    return table(("chosen by", *FREE.values()), rows)


def words(evidence: Evidence, kind: str) -> dict[str, str]:
    """The rule's word for each metric that needs no threshold, over the design tasks."""
    return {
        metric: word([one.rank for one in evidence.claim(kind, metric, evidence.design())]) for metric in FREE
    }


def against_all(evidence: Evidence, kind: str = "pfl") -> str:
    """One kind against all clients at the same rate, and mended: EOD of each, and the difference in AUC."""
    rows = []
    for task in evidence.tasks:
        cells: list[str] = []
        for one in (kind, "random", *RIVALS[:3]):
            mean = evidence.mean(task, one, "eod@rate")
            cells.append("–" if mean is None else f"{mean:.3f}")
        auc = evidence.minus(task, kind, "all", "auc")
        rows.append((TITLES.get(task, task), *cells, "–" if auc is None else auc.text()))
    columns = ("task", "chosen", "random", "all", "reweighed", "TPR equalised", "AUC − all (95%)")
    return table(columns, rows)


def wins(evidence: Evidence, kinds: Sequence[str] = CHOSEN) -> str:
    """How often choosing has a smaller gap than each model of all clients, at equal AUC."""
    found = settings(evidence, tuple(present(evidence, kinds)))
    groups = [(KINDS[rival], [one for one in found if one.rival == rival]) for rival in RIVALS[:3]]
    both = [one for one in (setting(evidence, task, *BOTH) for task in evidence.tasks) if one is not None]
    rows = [
        (
            name, len(here), sum(one.smaller_gap for one in here), sum(one.eod.low > 0 for one in here),
            sum(one.won for one in here),
        )
        for name, here in (*groups, ("TPR equalised, and so is the chosen", both))
        if here
    ]  # fmt: skip
    return table(("against", "settings", "EOD smaller", "EOD larger", "smaller, equal AUC"), rows)


def held_out(evidence: Evidence) -> str:
    """The two held-out evaluations: Holm over the five metrics of each, as registered."""
    rows = []
    for task in evidence.held_out():
        for kind in present(evidence, REGISTERED):
            found = {metric: evidence.compare(task, kind, metric) for metric in FREE}
            there = {metric: one for metric, one in found.items() if one is not None}
            if not there:
                continue
            read = dict(zip(there, readings([one.rank for one in there.values()]), strict=True))
            cells = [
                _standing(there[metric].rank.standing, read[metric]) if metric in there else "–"
                for metric in FREE
            ]
            rows.append((TITLES[task], KINDS[kind], *cells))
    return table(("task", "chosen by", *FREE.values()), rows) if rows else ""
