"""Prose: the sentences of the page, with figures from the evidence."""

from __future__ import annotations

from collections.abc import Sequence

import broken_tables
import numpy as np
import polars as pl
from comparisons import TITLES, Evidence, load
from findings import CHOSEN, REGISTERED, present, rates, span, stands, words
from fronts import setting, settings
from results import Results
from verdicts import WORDS, Verdict

NOTHING = "Nothing was trained yet: `python experiments/evidence.py`."
MODELS = {"mlp": "the paper's network", "logistic": "logistic regression"}


def tally(found: Sequence[Verdict]) -> str:
    """How many claims got each word."""
    counts = {word: sum(v.word == word for v in found) for word in WORDS}
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count)


def in_short(results: Results, evidence: Evidence | None, found: Sequence[Verdict]) -> str:
    """What holds and what does not, in a few lines."""
    if evidence is None:
        return f"## In short\n\nOf {len(found)} claims: {tally(found)}."
    half, matched = (
        np.mean(stands(evidence, "forecast_balanced", m))
        for m in ("balanced_accuracy", "balanced_accuracy@rate")
    )
    lines = [
        f"- Of {len(found)} claims of the paper: {tally(found)}.",
        "- **Gains at a threshold of ½ are mostly label rates.** The federation that the forecast chooses beats "
        f"{half:.0%} of random ones in balanced accuracy at ½, on average over tasks, and {matched:.0%} when every "
        "model predicts as many positives as there are.",
        "- **The federation of least loss is a worse classifier than most.** It beats "
        f"{np.mean(stands(evidence, 'pfl', 'auc')):.0%} of random federations in AUC and "
        f"{np.mean(stands(evidence, 'pfl', 'loss')):.0%} in log loss.",
        f"- **Gaps between the sexes at equal rates.** Least loss: {_gaps(evidence, 'pfl')}. The forecast that "
        f"is asked for a small EOD: {_gaps(evidence, 'forecast_fair')}.",
        f"- {_post(evidence)}",
    ]
    return "## In short\n\n" + "\n".join(lines)


def _gaps(evidence: Evidence, kind: str) -> str:
    """Where a kind stands in EOD and SPD, with the rule's words."""
    if not present(evidence, [kind]):
        return "not run"
    word = words(evidence, kind)
    eod, spd = (np.mean(stands(evidence, kind, m)) for m in ("eod@rate", "spd@rate"))
    return f"beats {eod:.0%} in EOD (*{word['eod@rate']}*) and {spd:.0%} in SPD (*{word['spd@rate']}*)"


def beaten_post(evidence: Evidence) -> tuple[int, int]:
    """Settings in which choosing has a smaller EOD at equal AUC than all clients with post-processing, and all."""
    found = settings(evidence, tuple(present(evidence, CHOSEN)), ("all_threshold_optimizer_tpr",))
    return sum(one.won for one in found), len(found)


def beaten_dirty(results: Results) -> tuple[int, int]:
    """The same in pools with broken data, with post-processing on both sides."""
    made = [
        one for evidence in broken_tables.by_dirt(results).values() for one in broken_tables.mended(evidence)
    ]
    return sum(one.won for one in made), len(made)


def _post(evidence: Evidence) -> str:
    won, every = beaten_post(evidence)
    return (
        f"**All clients with post-processing are fairer still**: in {won} of {every} settings choosing had a smaller "
        "EOD at equal AUC than all clients with true positive rates equalised."
    )


def label_rates(evidence: Evidence) -> str:
    """Why F1 and balanced accuracy rise at ½."""
    design = evidence.design()
    more = [(found, random) for task, found, random in rates(evidence, "forecast_balanced") if task in design]
    return (
        "Every metric of the paper cuts predictions at ½. A federation with more positive labels predicts more "
        "positives, which raises F1 and balanced accuracy where positives are fewer than half, whatever the model "
        "knows. Federations that the forecast chooses hold "
        f"{span([found for found, _ in more])} positive labels, random ones {span([random for _, random in more])}. "
        "Below: Spearman's ρ with trained balanced accuracy over 200 random federations, and the share of them that "
        "the chosen one beats. At the *matched rate* every model predicts as many positives as there are. (Employment "
        "has more than half positives.)"
    )


def random(evidence: Evidence, where: str) -> str:
    """How to read the table of ways to choose."""
    return (
        f"Share of random federations beaten, mean over the design tasks, {MODELS[evidence.model]}; balanced accuracy, "
        "EOD and SPD at the matched rate. ▲ ▼: clearly better or worse on some task, Holm over the tasks. By task, "
        f"with p-values and intervals: [tables]({where}#chosen-against-random-at-matched-rates)."
    )


def all_clients(evidence: Evidence, where: str) -> str:
    """How to read the tables against all clients."""
    return (
        "EOD at the matched rate of the federation of least loss, of random ones, and of a model of all clients: as it "
        "is, reweighed, and with group thresholds that equalise true positive rates or odds. A *setting* is a way of "
        "choosing on one task; only intervals that exclude zero count "
        f"([tables]({where}#chosen-against-all-clients)). *Equal AUC*: not lower by more than .005. In "
        "the picture the full line is the front of random federations, the dashed one that of all clients with scores "
        "shifted between the sexes."
    )


def held_out(evidence: Evidence) -> str:
    """What was registered, and what came."""
    smaller = []
    for task in evidence.held_out():
        for kind in present(evidence, REGISTERED):
            one = setting(evidence, task, kind, "all_threshold_optimizer_tpr")
            smaller.append(one is not None and one.won)
    return (
        "Registered in `experiments/HELD_OUT.md` before any number was seen, and run once. Share of random federations "
        "beaten; ▲ ▼ by Holm over the five metrics. Smaller EOD than all clients with post-processing at equal AUC: "
        f"{sum(smaller)} of {len(smaller)} choices."
    )


def purpose(results: Results, evidence: Evidence | None) -> str:
    """What choosing is for."""
    if evidence is None:
        return ""
    share = [rows_share(evidence, task) for task in evidence.design()]
    lost, by_size = (
        [
            one.value
            for task in evidence.design()
            if (one := evidence.minus(task, kind, "all", "auc")) is not None
        ]
        for kind in ("pfl", "size")
    )
    lines = [
        "## What choosing is for\n",
        "- **Fairness at equal rates**: the federation of least loss has a smaller EOD than all clients as they are on "
        f"{_smaller(results)}. Group thresholds or reweighing do more, where they may be used.",
        f"- **Cost**: five clients of about 50 train in place of all, with {span(share, '.0%')} of the rows. AUC "
        f"changes by {span(lost, '+.3f')} against all clients, for the five with most rows by "
        f"{span(by_size, '+.3f')}. If only AUC counts, take the largest clients.",
    ]
    return "\n".join([*lines, *_dirty(results)])


def _smaller(results: Results) -> str:
    """On how many tasks the gap of least loss is below that of all clients, for each model."""
    parts = []
    for model, name in (("mlp", "the network"), ("logistic", "logistic regression")):
        found = load(results, model=model)
        if found is None:
            continue
        gaps = [found.minus(task, "pfl", "all", "eod@rate") for task in found.design()]
        there = [one for one in gaps if one is not None]
        below, clear = sum(one.value < 0 for one in there), sum(one.high < 0 for one in there)
        parts.append(f"{below} of {len(there)} tasks with {name} (clearly on {clear})")
    return " and ".join(parts)


def rows_share(evidence: Evidence, task: str) -> float:
    """Rows of the federation of least loss over the rows of all clients."""
    found, everyone = (evidence.mean(task, kind, "rows") for kind in ("pfl", "all"))
    return (found or 0.0) / everyone if everyone else float("nan")


def _dirty(results: Results) -> list[str]:
    if "broken" not in results.tables:
        return []
    won, made = beaten_dirty(results)
    worst = results.tables["broken"].filter(pl.col("kind") == "pfl")["auc"].min()
    return [
        "- **Dirty pools, with care.** Below, three in ten clients hold broken data (logistic regression; EOD after "
        f"true positive rates were equalised on both sides). In {won} of {made} cases chosen clients had a smaller EOD "
        "than all clients at equal AUC. But mutual information cannot tell inverted labels from right ones: where all "
        f"chosen clients held them, AUC fell to {worst:.2f}. Read the [alerts](limits.md) of chosen clients."
    ]


def bearing(evidence: Evidence | None) -> str:
    """What the figures cannot carry."""
    if evidence is None:
        return "## What these figures can bear\n\nNothing yet."
    return (
        "## What these figures can bear\n\n"
        "- The rule is strict: on five tasks a chosen federation counts first when it is the best or the worst of 200. "
        "*Not reproduced* does not mean that there is no effect.\n"
        "- One country, tabular records, k = 5, ε = 1, the paper's weights, gaps by sex; gaps by race are in the "
        "tables. Intervals over splits rest on few of them.\n"
        "- Five tasks were used to design the product; the held-out ones were not.\n"
        "- The paper correlates *weighted* accuracy, which is ambiguous; its records were not capped."
    )


def _splits(evidence: Evidence) -> str:
    """How many splits there are: of all tasks alike, or how many of which task."""
    counts = {task: len(evidence.grid(task, "random", "auc")[0]) for task in evidence.tasks}
    most = max(counts.values())
    fewer = [f"{TITLES.get(task, task)}: {count}" for task, count in counts.items() if count < most]
    return f"{most} splits" + (f" ({'; '.join(fewer)})" if fewer else "")


def protocol(evidence: Evidence | None, folder: str) -> str:
    """Data, splits, draws, models."""
    head = (
        "## Data and protocol\n\nAmerican Community Survey person records; each state is a client, areas in Mobility "
        f"([sizes]({folder}/tables.md#tasks))."
    )
    if evidence is None:
        return head
    return (
        f"{head} 2018 is capped at 20,000 records per state; 2024 lacks California, Texas and some variables. "
        f"{_splits(evidence)}, 20% of every client's rows held out; ten draws of simulated noise on "
        "each (ε = 1, δ = 1e-5), k = 5, 200 random federations. Tables come from all training rows; models train on "
        "4,000 rows per client on average and are tested on the same 30,000 held-out rows of *all* clients. Network: "
        "MLP 32-32-32, FedAvg, Adam 1e-3, 20 rounds; logistic regression is in the tables. Rounds, strategies and "
        "samplers are from the runs of version 0.1.0: 24 and 8 random federations a task, one split, Adam 1e-4, 50 "
        "rounds. To run again: `experiments/evidence.py`, `experiments/null.py`, `experiments/broken.py`, "
        "`experiments/figures.py`."
    )
