"""The page of results as Markdown, from tables and verdicts. Nothing in it is typed by hand but the frame."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import studies
from contrasts import SHOWN, difference, pick, standing
from store import machine
from studies import picture, table
from verdicts import Results, verdicts

GROUP_WORDS = {
    "chosen": "chosen (default, ε = 1)",
    "paper mode": "chosen in paper mode, ε = 1",
    "exact tables": "chosen from exact tables",
    "listed": "printed in the paper",
    "forecast accuracy": "chosen by forecast: accuracy, ε = 1",
    "forecast fair": "chosen by forecast: accuracy − EOD, ε = 1",
    "race": "chosen with race as the sensitive attribute, ε = 1",
    "random": "random",
    "matched": "random with as many rows (±5%)",
    "everyone": "all clients",
}


def render(results: Results, figures: Sequence[str], folder: str) -> str:
    """The whole page."""
    parts = [
        _head(results),
        _verdicts(results),
        _protocol(results),
        _federations(results),
        _trained(results, figures, folder),
        _rivals(results),
        _sizes(results, figures, folder),
        _epsilon(figures, folder, results),
        _race(results, figures, folder),
        studies.calibration(results, figures, folder),
        studies.noise(results, figures, folder),
        studies.audit(results, figures, folder),
        _missing(results),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(results: Results) -> str:
    facts = results.facts or machine()
    quick = (
        " **This is the quick variant: it shows that the code runs, not what is true.**"
        if facts.get("quick")
        else ""
    )
    return (
        "# Results\n\n"
        "What the paper claims, what came out when it was run again on census records, and a plain word for each "
        f"claim. This page is written by `experiments/figures.py` from the tables in `docs/results/`.{quick}\n\n"
        f"Machine: {facts.get('cores', '?')} cores, {facts.get('memory_gib', '?')} GiB of memory, shared with other "
        f"work; seconds of the search are therefore processor seconds. Date: {facts.get('date', '?')}. Run again: "
        "`python experiments/noise.py`, `python experiments/audit.py`, `python experiments/paper.py` (goes on where "
        "it stopped), `python experiments/figures.py`."
    )


def _verdicts(results: Results) -> str:
    rows = [(v.claim, f"**{v.word}**", v.numbers) for v in verdicts(results)]
    return (
        "## Verdicts\n\n"
        "Differences are chosen less random with 95% Welch intervals; a comparison counts as better only when its "
        "interval lies on the right side of zero. *Reproduced* means better for every task run, *in part* for some, "
        "*not reproduced* for none. The intervals ask whether this one federation differs from the average random "
        'one; "beats x%" says where it stands among them. Many comparisons are made and none is corrected for '
        "their number.\n\n" + table(("claim of the paper", "verdict", "numbers"), rows)
    )


def _protocol(results: Results) -> str:
    facts = results.facts
    if not facts:
        return ""
    rows = [
        (
            task["title"], task["clients"], f"{task['training_rows']:,}", f"{task['trained_share']:.0%}",
            f"{task['test_rows']:,}", f"{task['positive_rate']:.3f}", f"{task['tables']} / {task['cells']:,}",
            "; ".join(task["notes"]) or "–",
        )
        for task in facts["tasks"]
    ]  # fmt: skip
    return (
        "## Data and protocol\n\n"
        + table(
            (
                "task",
                "clients",
                "training rows",
                "trained on",
                "test rows",
                "positive",
                "tables / cells",
                "notes",
            ),
            rows,
        )
        + "\n\nAmerican Community Survey person records, one client a state. Every client is split once (20% held out, "
        "split seed 0). Tables come from all training rows. Training uses the share of each client's training rows "
        "in the table, in natural proportions, to bound the cost. Every model is tested on the same held-out rows of "
        f"*all* clients. MLP 32-32-32, Adam 1e-4, batch 32, one local epoch, {facts['rounds']} rounds; SCAFFOLD "
        "with the paper's SGD 0.01 and, matched, with Adam. Chosen federations are trained with "
        f"{facts['seeds']} seeds, every random federation with one of them. Releases carry simulated discrete "
        "Gaussian noise, δ = 1e-5, first draw of the noise unless stated. In 2018 the stored records are capped at "
        "20,000 a state; in 2024 California and Texas are missing and some variables are replaced (notes)."
    )


def _federations(results: Results) -> str:
    found = results.tables.get("federations")
    if found is None:
        return ""
    rows = []
    for line in found.to_dicts():
        best = found.filter(
            (pl.col("task") == line["task"])
            & (pl.col("k") == line["k"])
            & (pl.col("label") == "exact tables")
        )["members"][0]
        shared = len(set(best.split()) & set(line["members"].split()))
        seconds = line.get("cpu_seconds")
        rows.append(
            (
                dict(results.tasks).get(line["task"], line["task"]), line["k"], GROUP_WORDS[line["label"]],
                line["members"], f"{line['true_loss']:.4f}", f"{shared}/{line['k']}", f"{line['rows']:,}",
                "–" if seconds is None else f"{seconds:.2f}", line.get("status") or "–",
            )
        )  # fmt: skip
    return (
        "## Federations found\n\n"
        "The true loss is that of the exact training tables under the paper's weights; *shared* counts members in "
        "common with the selection from exact tables.\n\n"
        + table(
            (
                "task",
                "k",
                "federation",
                "members",
                "true loss",
                "shared",
                "training rows",
                "seconds",
                "search",
            ),
            rows,
        )
    )


def _trained(results: Results, figures: Sequence[str], folder: str) -> str:
    runs = results.runs
    if runs is None:
        return ""
    k = results.first
    rows = []
    for task, title in results.tasks:
        for group, words in GROUP_WORDS.items():
            size = (
                len(next(t for t in results.facts["tasks"] if t["name"] == task).get("clients_list", []))
                or None
            )
            here = runs.filter((pl.col("task") == task) & (pl.col("group") == group))
            k_here = k if group != "everyone" else (int(here["k"][0]) if here.height else size or 0)
            values = {m: pick(runs, m, task=task, k=k_here, group=group) for m in SHOWN}
            if not len(values["accuracy"]):
                continue
            random = {m: pick(runs, m, task=task, k=k, group="random") for m in SHOWN}
            cells = []
            for metric, found in values.items():
                spread = f" ± {found.std(ddof=1):.4f}" if len(found) > 1 else ""
                beats = (
                    standing(float(found.mean()), random[metric], metric)
                    if len(random[metric])
                    else float("nan")
                )
                mark = "" if group == "random" or np.isnan(beats) else f" ({beats:.0%})"
                cells.append(f"{found.mean():.4f}{spread}{mark}")
            rows.append((title, words, len(values["accuracy"]), *cells))
    return (
        f"## Trained with FedAvg, k = {k}\n\n"
        "Mean ± standard deviation over trainings (seeds for a fixed federation; federations and seeds for random "
        "ones), and in brackets the share of random federations that the mean beats.\n\n"
        + table(("task", "federation", "trainings", *SHOWN.values()), rows)
        + "\n\n"
        + _own(results)
        + "\n\n"
        + _size_control(results)
        + "\n\n"
        + picture("federations.svg", "Final accuracy, F1, EOD and SPD of every training", figures, folder)
        + "\n\n"
        + picture("convergence.svg", "Accuracy by round", figures, folder)
    )


def _own(results: Results) -> str:
    """Chosen against random when each is tested on its own states: the paper's protocol, and its flaw."""
    runs = results.runs
    assert runs is not None
    rows = []
    for task, title in results.tasks:
        for rows_of, prefix in (("all states", ""), ("its own states", "own_")):
            cells = []
            for metric in SHOWN:
                chosen = pick(runs, prefix + metric, task=task, k=results.first, group="chosen")
                random = pick(runs, prefix + metric, task=task, k=results.first, group="random")
                if len(chosen) and len(random):
                    found = difference(chosen, random)
                    cells.append(f"{found} ({found.verdict(metric)})")
            if cells:
                rows.append((title, rows_of, *cells))
    return (
        "**Which rows are tested?** The paper's code tests every federation on its own states, so a federation of "
        "easier states looks better. Chosen less random, both ways:\n\n"
        + table(("task", "tested on", *SHOWN.values()), rows)
    )


def _size_control(results: Results) -> str:
    runs = results.runs
    assert runs is not None
    lines = []
    for task, title in results.tasks:
        parts = []
        for metric, name in SHOWN.items():
            chosen = pick(runs, metric, task=task, k=results.first, group="chosen")
            matched = pick(runs, metric, task=task, k=results.first, group="matched")
            if len(chosen) > 1 and len(matched) > 1:
                found = difference(chosen, matched)
                parts.append(f"{name} {found} ({found.verdict(metric)})")
        if parts:
            lines.append(f"- {title}: " + ", ".join(parts))
    if not lines:
        return ""
    return (
        "**Is it only more data?** Chosen less random federations with about the same number of rows:\n\n"
        + "\n".join(lines)
    )


def _rivals(results: Results) -> str:
    runs = results.runs
    if runs is None:
        return ""
    rows = []
    for task, title in results.tasks:
        here = runs.filter((pl.col("task") == task) & (pl.col("k") == results.first))
        methods = here.filter(pl.col("group").is_in(["chosen", "random"])).select("strategy", "sampler").unique(
            maintain_order=True
        )  # fmt: skip
        if methods.height < 2:
            continue
        for strategy, sampler in methods.iter_rows():
            cells = []
            for group in ("chosen", "random"):
                for metric in ("accuracy", "eod", "spd"):
                    found = pick(
                        runs,
                        metric,
                        task=task,
                        k=results.first,
                        group=group,
                        strategy=strategy,
                        sampler=sampler,
                    )
                    spread = f" ± {found.std(ddof=1):.4f}" if len(found) > 1 else ""
                    cells.append(f"{found.mean():.4f}{spread}" if len(found) else "–")
            rows.append((title, strategy, sampler, *cells))
    if not rows:
        return ""
    columns = (
        "task", "strategy", "sampler", "chosen: accuracy", "EOD", "SPD", "random: accuracy", "EOD", "SPD",
    )  # fmt: skip
    return (
        "## Other strategies and samplers\n\n"
        "The same chosen and random federations under each method; samplers ask half of the federation a round. "
        "`scaffold` uses SGD 0.01 as the paper's code, `scaffold-adam` the same Adam as all others.\n\n"
        + table(columns, rows)
    )


def _sizes(results: Results, figures: Sequence[str], folder: str) -> str:
    runs = results.runs
    if runs is None or "sizes.svg" not in figures:
        return ""
    rows = []
    for task, title in results.tasks:
        for k in sorted(set(runs.filter((pl.col("task") == task) & (pl.col("group") == "chosen"))["k"])):
            cells = []
            for metric in ("accuracy", "eod", "spd"):
                chosen = pick(runs, metric, task=task, k=k, group="chosen")
                for group in ("random", "matched"):
                    other = pick(runs, metric, task=task, k=k, group=group)
                    cells.append(str(difference(chosen, other)) if len(chosen) and len(other) else "–")
            rows.append((title, k, *cells))
    columns = (
        "task",
        "k",
        *(f"{m} less {g}" for m in ("accuracy", "EOD", "SPD") for g in ("random", "matched")),
    )
    return (
        "## Size by size\n\nChosen federations less random ones, and less random ones with as many rows.\n\n"
        + table(columns, rows)
        + "\n\n"
        + picture("sizes.svg", "Accuracy, EOD and SPD by size of the federation", figures, folder)
    )


def _epsilon(figures: Sequence[str], folder: str, results: Results) -> str:
    if "epsilon.svg" not in figures:
        return ""
    swept = results.tables["sweep"]
    draws = int(swept["draw"].max()) + 1  # type: ignore[arg-type]
    return (
        "## From ε = 0.1 to no noise\n\n"
        f"True loss of what is selected (annealing, {draws} draws of the noise; mean, least and largest), and after "
        "training (the first draws only).\n\n"
        + picture("epsilon.svg", "True loss of the selection against ε", figures, folder)
        + "\n\n"
        + picture("epsilon_trained.svg", "Accuracy and EOD of the selection against ε", figures, folder)
    )


def _race(results: Results, figures: Sequence[str], folder: str) -> str:
    runs = results.runs
    if runs is None:
        return ""
    rows = []
    for task, title in results.tasks:
        for group in ("race", "chosen", "random"):
            values = [
                pick(runs, metric, task=task, k=results.first, group=group)
                for metric in ("accuracy", "eod_race", "spd_race", "eod", "spd")
            ]
            if len(values[0]):
                rows.append(
                    (
                        title,
                        GROUP_WORDS[group],
                        *(f"{v.mean():.4f} ± {np.std(v, ddof=min(1, len(v) - 1)):.4f}" for v in values),
                    )
                )
    if not rows:
        return ""
    return (
        "## Race as the sensitive attribute\n\n"
        "RAC1P binarised (white or not) takes the place of SEX in the tables, and SEX becomes a feature.\n\n"
        + table(
            ("task", "federation", "accuracy", "EOD by race", "SPD by race", "EOD by sex", "SPD by sex"), rows
        )
        + "\n\n"
        + picture("race.svg", "Accuracy and gaps by race", figures, folder)
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
    return "## Not run yet\n\n`python experiments/paper.py` goes on with:\n\n" + "\n".join(lines)
