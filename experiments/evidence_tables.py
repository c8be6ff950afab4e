"""The long tables of the trained evidence, of every claim, and of the null simulation."""

from __future__ import annotations

import broken_tables
from claims import examine
from comparisons import FREE, KINDS, TITLES, Evidence, adjusted, load
from findings import CHOSEN, SIMPLE, present
from fronts import GAP, RIVALS, dominated, settings
from instruments import NAMES
from results import Results
from verdicts import readings
from writing import sections, table

MODELS = {"mlp": "network", "logistic": "logistic regression"}
#: The paper's metrics, at ½, and the gaps by race.
OTHERS = {
    "accuracy": "accuracy at ½",
    "f1": "F1 at ½",
    "eod": "EOD at ½",
    "spd": "SPD at ½",
    "eod:WHITE@rate": "EOD by race",
    "spd:WHITE@rate": "SPD by race",
}


def claims(results: Results) -> str:
    """Every claim with its numbers."""
    parts = ["## Claims"]
    for number, verdict in enumerate(examine(results), start=1):
        parts.append(f"### {number}. {verdict.name}\n\n{verdict.claim}: **{verdict.word}**.")
        if verdict.rows:
            parts.append(table(verdict.columns, verdict.rows))
            parts.append(verdict.note)
    return sections(parts)


def render(results: Results) -> list[str]:
    """All tables of the evidence, the main model first."""
    main = load(results)
    if main is None:
        return [broken_tables.render(results), _null(results)]
    found = [load(results, model=model) for model in sorted(MODELS, key=lambda name: name != main.model)]
    both = [one for one in found if one is not None]
    return [
        _random(both),
        _at_half(both),
        _matched(both),
        _settings(both),
        _fronts(both),
        broken_tables.render(results),
        _null(results),
    ]


def _random(found: list[Evidence]) -> str:
    rows = []
    for evidence in found:
        for kind in present(evidence, (*CHOSEN, "pfl_exact", *SIMPLE, "all")):
            for metric, name in FREE.items():
                for tasks in (evidence.design(), evidence.held_out()):
                    rows += _rows(evidence, kind, metric, name, tasks)
    columns = (
        "model", "chosen by", "metric", "task", "chosen", "random", "difference (95%)", "beaten", "p", "p (Holm)",
        "reading",
    )  # fmt: skip
    return (
        "## Chosen against random at matched rates\n\n"
        "Means over splits and draws of the noise, ranked among random federations of the same size; balanced "
        "accuracy, EOD and SPD at the threshold where predicted positives are as many as real ones. Intervals by "
        "bootstrap over splits, draws and clients. Holm's correction here runs over the tasks of one "
        "metric, held-out tasks apart.\n\n" + table(columns, rows)
    )


def _rows(evidence: Evidence, kind: str, metric: str, name: str, tasks: list[str]) -> list[tuple[str, ...]]:
    made = evidence.claim(kind, metric, tasks)
    read = readings([one.rank for one in made])
    return [
        (
            MODELS[evidence.model], KINDS[kind], name, TITLES.get(one.task, one.task), f"{one.value:.4f}",
            f"{one.random:.4f}", one.interval.text(4), f"{one.rank.standing:.0%}", f"{one.rank.p:.3f}", f"{p:.3f}",
            reading,
        )
        for one, p, reading in zip(made, adjusted(made), read, strict=True)
    ]  # fmt: skip


def _at_half(found: list[Evidence]) -> str:
    rows = []
    for evidence in found:
        for kind in present(evidence, CHOSEN):
            for task in evidence.tasks:
                cells = []
                for metric in OTHERS:
                    there = metric in evidence.table.columns
                    one = evidence.compare(task, kind, metric) if there else None
                    cells.append("–" if one is None else f"{one.rank.standing:.0%}")
                rows.append((MODELS[evidence.model], KINDS[kind], TITLES.get(task, task), *cells))
    return (
        "## At the threshold ½, and by race\n\n"
        "Share of random federations that are beaten; gaps by race (white or not) at matched rates, though sex was the "
        "attribute that was chosen for.\n\n" + table(("model", "chosen by", "task", *OTHERS.values()), rows)
    )


def _matched(found: list[Evidence]) -> str:
    rows = []
    for evidence in found:
        for task in evidence.tasks:
            made = [evidence.compare(task, "pfl", metric, "row_matched") for metric in FREE]
            if all(one is not None for one in made):
                cells = [f"{one.rank.standing:.0%}" for one in made if one is not None]
                count = next(one.rank.n for one in made if one is not None)
                rows.append((MODELS[evidence.model], TITLES.get(task, task), count, *cells))
    if not rows:
        return ""
    return (
        "## Least loss against random federations with as many rows\n\n"
        "Share of them that is beaten, at matched rates.\n\n"
        + table(("model", "task", "federations", *FREE.values()), rows)
    )


def _settings(found: list[Evidence]) -> str:
    rows = []
    for evidence in found:
        kinds = (*CHOSEN, *SIMPLE, "pfl_threshold_optimizer_tpr", "pfl_threshold_optimizer_eo")
        rivals = (*RIVALS, "all_shifted_50", "all_shifted_100")
        for one in settings(evidence, tuple(present(evidence, kinds)), rivals):
            means = [evidence.mean(one.task, kind, GAP) for kind in (one.kind, one.rival)]
            rows.append(
                (
                    MODELS[evidence.model], TITLES.get(one.task, one.task), KINDS[one.kind], KINDS[one.rival],
                    *("–" if mean is None else f"{mean:.4f}" for mean in means), one.eod.text(4), one.auc.text(4),
                    "smaller at equal AUC" if one.won else "smaller" if one.smaller_gap
                    else "larger" if one.eod.low > 0 else "unclear",
                )
            )  # fmt: skip
    columns = (
        "model", "task", "chosen by", "minus", "EOD", "its EOD", "difference (95%)", "AUC, difference (95%)", "EOD is",
    )  # fmt: skip
    return (
        "## Chosen against all clients\n\n"
        "EOD at matched rates and AUC, paired by split, with bootstrap intervals over splits and draws. "
        "Post-processing (fairlearn's threshold optimizer, fitted on training rows) changes decisions, not scores, and "
        "is given the sex of the person at prediction; at the matched rate it decides yes for as many rows as there "
        "are positives. *Equal AUC*: the interval stays above −0.005.\n\n" + table(columns, rows)
    )


def _fronts(found: list[Evidence]) -> str:
    rows = []
    for evidence in found:
        for kind in present(evidence, (*CHOSEN, *SIMPLE, "all")):
            for task in evidence.tasks:
                means = [evidence.mean(task, kind, metric) for metric in ("auc", GAP)]
                if None in means:
                    continue
                random = [evidence.grid(task, "random", metric)[2].mean(axis=0) for metric in ("auc", GAP)]
                share = dominated(means[0] or 0.0, means[1] or 0.0, random[0], random[1])
                rows.append(
                    (MODELS[evidence.model], KINDS[kind], TITLES.get(task, task), *(f"{m:.4f}" for m in means),
                     f"{share:.0%}")
                )  # fmt: skip
    return (
        "## AUC and EOD together\n\n"
        "*Dominated by*: share of random federations with a higher AUC and a smaller EOD at matched rates.\n\n"
        + table(("model", "chosen by", "task", "AUC", "EOD", "dominated by"), rows)
    )


def _null(results: Results) -> str:
    found = results.tables.get("null")
    if found is None:
        return ""
    rows = [
        (
            line["rule"], line["evidence"], NAMES.get(line["claim"], line["claim"]),
            *("–" if line[name] is None or line[name] != line[name] else f"{line[name]:.3f}"
              for name in ("supported", "contradicted", "either")),
        )
        for line in found.to_dicts()
    ]  # fmt: skip
    return (
        "## False verdicts under the null\n\n"
        "Random federations taken for chosen ones (`experiments/null.py`); shares of claims. For the old rule, which "
        "has no word for it, *contradicted* is worse on at least one task.\n\n"
        + table(("rule", "evidence", "claim", "supported", "contradicted", "either"), rows)
    )
