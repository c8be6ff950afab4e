"""The page of results for people: claims, verdicts, and what the figures can bear.

Every figure is computed from the stored tables, but for those of an outside statistical review, which are
quoted in `BEARING` and named as such.
"""

from __future__ import annotations

from collections.abc import Sequence

from claims import examine
from contrasts import difference, pick
from results import Results
from store import machine
from verdicts import Verdict
from writing import picture, sections, table

BEARING = """\
The words above, except those marked †, follow the rule in `experiments/verdicts.py`. An outside statistical review of
version 0.1.0 found that several of them say more than the evidence holds. Its figures are quoted here; this page did
not compute them.

- **Gains in F1 and balanced accuracy are an effect of label rates and thresholds.** All metrics here except AUC and
  log loss cut the prediction at ½. Chosen federations hold more positive labels, so their models predict more
  positives. With the threshold set so that predicted positives match the pool's label rate, the forecast's rank
  correlation with trained balanced accuracy fell from between .91 and .99 to between −.15 and .34 (four tasks).
  The table below shows AUC and log loss, which need no threshold.
- **What the review found to hold:** at matched rates the federation of least loss has a lower EOD than all clients
  together, on all five tasks.
- **The rule controls no error.** A federation drawn at random would earn at least *reproduced in part* with
  probability .73 (accuracy), .91 (F1), .69 (EOD) and .66 (SPD). Three seeds of one federation are compared with the
  mean of many, rounds to a target without a test, and nothing is corrected for the number of comparisons.
- **The certificate says less than its name.** Its assumptions held in 0 of 268 default selections. The printed ±
  covered the true loss of the selected federation in 81% of selections at ε = 1.
- **The audit's lower bound on ε has no power at ε ≤ 2.** Its checks of AUC and variance do.
- **Calibrated weights are not identified:** two seeds of the fit give very different weights.
- **No task and no year was kept out of the design.**
- The paper correlates *weighted* accuracy, which is ambiguous; this page reports plain accuracy.
"""


def render(results: Results, figures: Sequence[str], folder: str) -> str:
    """The whole page."""
    found = examine(results)
    parts = [
        _head(results, folder),
        _verdicts(found),
        _bearing(results),
        _protocol(results),
        _claims(found, folder),
        _pictures(figures, folder),
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
        f"`docs/results/`.{quick}\n\n"
        f"Machine: {facts.get('cores', '?')} cores, {facts.get('memory_gib', '?')} GiB of memory, shared with other "
        f"work, so seconds are processor seconds. Date: {facts.get('date', '?')}. To run again: "
        "`python experiments/noise.py`, `python experiments/audit.py`, `python experiments/paper.py` (continues where "
        "it stopped), `python experiments/figures.py`."
    )


def _verdicts(found: Sequence[Verdict]) -> str:
    rows = [(v.claim, f"**{v.word}**" + (" †" if v.judged else ""), v.short or "–") for v in found]
    return (
        "## Verdicts\n\n"
        "*Better* means that the 95% interval of the difference, chosen minus random, lies on the right side of zero. "
        "*Reproduced* means better on every task, *in part* on some, *not reproduced* on none. A claim can be "
        "reproduced in part and be clearly wrong on most tasks: read the last column. † The word was given by "
        "judgement, not by a rule.\n\n" + table(("claim of the paper", "verdict", "in short"), rows)
    )


def _bearing(results: Results) -> str:
    runs = results.runs
    rows = []
    for task, title in results.tasks:
        cells: list[str] = []
        for metric in ("auc", "log_loss"):
            values = [
                [] if runs is None else pick(runs, metric, task=task, k=results.first, group=group)
                for group in ("chosen", "random")
            ]
            if all(len(side) for side in values):
                gap = difference(*values)  # type: ignore[arg-type]
                cells += [f"{gap.value:+.4f}", gap.verdict(metric)]
        if cells:
            rows.append((title, *cells))
    shown = (
        table(("chosen minus random", "AUC", "reading", "log loss", "reading"), rows)
        if rows
        else "No training has been run yet."
    )
    return "## What these figures can bear\n\n" + BEARING + "\n" + shown


def _protocol(results: Results) -> str:
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
        + "\n\nAmerican Community Survey person records; each state is a client. 20% of every client's rows are held "
        "out. Tables come from all training rows; training uses the share shown. Every model is tested on the same "
        f"held-out rows of *all* clients. MLP 32-32-32, Adam 1e-4, batch 32, one local epoch, {facts['rounds']} "
        f"rounds. Chosen federations are trained with {facts['seeds']} seeds, random ones with one. Noise is "
        "simulated, δ = 1e-5. The records of 2018 are capped at 20,000 per state; those of 2024 lack California, Texas "
        "and some variables."
    )


def _claims(found: Sequence[Verdict], folder: str) -> str:
    parts = [
        "## Claim by claim\n\nTrained models: FedAvg, the smallest size trained, chosen minus random. Other sizes, "
        f"controls for the number of rows, strategies, samplers and race are in the [tables]({folder}/tables.md)."
    ]
    for number, verdict in enumerate(found, start=1):
        if verdict.rows:
            parts.append(f"### {number}. {verdict.name}")
            parts.append(table(verdict.columns, verdict.rows))
            parts.append(verdict.note)
    return sections(parts)


def _pictures(figures: Sequence[str], folder: str) -> str:
    return sections(
        [
            picture(
                "federations.svg", "Final accuracy, F1, EOD and SPD of every training", figures, f"{folder}/"
            ),
            picture("epsilon.svg", "True loss of the selection against ε", figures, f"{folder}/"),
            picture("audit_auc.svg", "AUC of the membership attack against ε", figures, f"{folder}/"),
        ]
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
