"""The page of results for people: what the paper claims, what holds, what does not, why, and what choosing is for.

Every figure is computed from the stored tables.
"""

from __future__ import annotations

from collections.abc import Sequence

import findings
import instruments
from claims import examine
from comparisons import Evidence, load
from results import Results
from store import machine
from verdicts import RULE, Verdict
from writing import picture, sections, table


def render(results: Results, figures: Sequence[str], folder: str) -> str:
    """The whole page."""
    evidence = load(results)
    parts = [
        _head(results, folder),
        _verdicts(results, examine(results), folder),
        *([] if evidence is None else _evidence(evidence, figures, folder)),
        instruments.render(results),
        _bearing(results, evidence),
        _protocol(results, evidence),
        _missing(results),
    ]
    return sections(parts) + "\n"


def _head(results: Results, folder: str) -> str:
    facts = results.facts or machine()
    quick = (
        " **This is the quick variant: it shows that the code runs, not what is true.**"
        if facts.get("quick")
        else ""
    )
    return (
        "# Results\n\n"
        "What the paper claims, and what came out when it was run again on census records. "
        f"`experiments/figures.py` writes this page and the [long tables]({folder}/tables.md) from the files in "
        f"`docs/results/`.{quick}"
    )


def _verdicts(results: Results, found: Sequence[Verdict], folder: str) -> str:
    rows = [(v.claim, f"**{v.word}**", v.short or "–") for v in found]
    return sections(
        [
            "## Verdicts",
            RULE + f" Numbers for every claim: [tables]({folder}/tables.md#claims).",
            table(("claim of the paper", "verdict", "in short"), rows),
            instruments.null(results),
        ]
    )


def _evidence(evidence: Evidence, figures: Sequence[str], folder: str) -> list[str]:
    name = {"mlp": "the paper's network", "logistic": "logistic regression"}[evidence.model]
    where = f"{folder}/tables.md"
    return [
        "## Why: label rates",
        findings.label_rates(evidence),
        f"## Against random federations\n\nShare of random federations that are beaten by the mean over splits and "
        f"noise draws, {name}, mean over the design tasks; balanced accuracy, EOD and SPD at matched rates. ▲ ▼: "
        f"clearly better or worse on some task. By task: [tables]({where}#chosen-against-random-at-matched-rates).",
        findings.overview(evidence),
        "Least loss, by task:",
        findings.by_task(evidence, "pfl"),
        "## Against all clients",
        findings.against_all(evidence),
        findings.wins(evidence),
        picture("pareto.svg", "AUC against EOD at matched rates", figures, f"{folder}/"),
        "## Held out" if evidence.held_out() else "",
        findings.held_out(evidence),
    ]


def _bearing(results: Results, evidence: Evidence | None) -> str:
    return "## What these figures can bear\n\nTo be written."


def _protocol(results: Results, evidence: Evidence | None) -> str:
    facts = results.facts
    if not facts:
        return ""
    rows = [
        (
            task["title"], task["clients"], f"{task['training_rows']:,}", f"{task['trained_share']:.0%}",
            f"{task['positive_rate']:.3f}",
        )
        for task in facts["tasks"]
    ]  # fmt: skip
    return (
        "## Data and protocol\n\n"
        + table(("task", "clients", "training rows", "share trained on", "positive labels"), rows)
        + "\n\nAmerican Community Survey person records; each state is a client."
    )


def _missing(results: Results) -> str:
    waves = {1: "k = 5 with FedAvg", 2: "other strategies and samplers, ε after training, all clients",
             3: "k = 10 and 15, calibration"}  # fmt: skip
    lines = []
    known = {task["name"]: task for task in results.facts.get("tasks", [])}
    for name in ("income2018", "income2024", "employment2024", "coverage2024", "travel2024"):
        if name not in known:
            lines.append(f"- {name}: nothing yet")
        else:
            left = [text for wave, text in waves.items() if wave > known[name]["waves"]]
            if left:
                lines.append(f"- {known[name]['title']}: {'; '.join(left)}")
    if not lines:
        return ""
    return "## Not run yet\n\n`python experiments/paper.py` continues with:\n\n" + "\n".join(lines)
