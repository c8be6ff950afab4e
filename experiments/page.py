"""The page of results for people: what the paper claims, what holds, what does not, why, and what choosing is for.

Every figure is computed from the stored tables; the sentences are in `prose.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import broken_tables
import findings
import instruments
import prose
from claims import examine
from comparisons import Evidence, load
from results import Results
from store import machine
from verdicts import RULE, Verdict
from writing import picture, sections, table


def render(results: Results, figures: Sequence[str], folder: str) -> str:
    """The whole page."""
    evidence = load(results)
    found = examine(results)
    parts = [
        _head(results, folder),
        prose.in_short(results, evidence, found),
        _verdicts(results, found, folder),
        "## Why: label rates",
        *([prose.NOTHING] if evidence is None else _evidence(results, evidence, figures, folder)),
        prose.purpose(results, evidence),
        broken_tables.short(results),
        instruments.render(results),
        prose.bearing(evidence),
        prose.protocol(evidence, folder),
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


def _evidence(results: Results, evidence: Evidence, figures: Sequence[str], folder: str) -> list[str]:
    where = f"{folder}/tables.md"
    return [
        prose.label_rates(evidence),
        findings.label_rates(evidence),
        "## Chosen against random",
        prose.random(evidence, where),
        findings.overview(evidence),
        "Least loss, by task:",
        findings.by_task(evidence, "pfl"),
        "## Chosen against all clients",
        prose.all_clients(evidence, where),
        findings.against_all(evidence),
        findings.wins(evidence),
        picture(
            "pareto.svg", "AUC against EOD at matched rates, a panel for each task", figures, f"{folder}/"
        ),
        *(
            ["## Held out", prose.held_out(evidence), findings.held_out(evidence)]
            if evidence.held_out()
            else []
        ),
    ]


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
