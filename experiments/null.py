"""Null: how often a rule speaks of an effect when random federations are taken for chosen ones.

python experiments/null.py          # docs/results/null.csv, half a minute

*Old rule* (version 0.1.0): Welch's 95% interval of three trainings of one federation against one training of each
of 24 others; "reproduced in part" when it is better on any task. *New rule*: `experiments/verdicts.py`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.stats import spearmanr

sys.path.insert(0, str(Path(__file__).parent))

from comparisons import FREE, Evidence, load
from contrasts import Floats, difference, pick
from intervals import correlation_p, spearman
from ranks import Rank, larger, pool, rank
from results import Results
from store import RESULTS, write_table
from verdicts import AGAINST, BETTER, PART, WORSE, YES, words_of_many

#: The paper's claims about trained models, and the same without a threshold.
CLAIMS = ("accuracy", "f1", "eod", "spd", *FREE)
REPETITIONS = 400_000
Bools = npt.NDArray[np.bool_]


def ranks_of_random(
    values: Floats, metric: str, repetitions: int, rng: np.random.Generator, together: int = 1
) -> tuple[Floats, Bools]:
    """Two-sided p-values and sides of random federations among the others.

    Parameters
    ----------
    together
        The mean of so many federations is taken for the chosen one, as when each draw of the noise chooses another.
    """
    signed = values if larger(metric) else -values
    if together == 1:
        ranks = [rank(value, np.delete(values, at), metric) for at, value in enumerate(values)]
        drawn = rng.integers(len(values), size=repetitions)
        return np.array([one.p for one in ranks])[drawn], np.array([one.good for one in ranks])[drawn]
    n = len(signed) - together
    taken = rng.random((repetitions, len(signed))).argsort(axis=1)[:, :together]
    found = signed[taken].mean(axis=1, keepdims=True)
    as_good = (signed[None] >= found).sum(axis=1) - (signed[taken] >= found).sum(axis=1)
    as_bad = (signed[None] <= found).sum(axis=1) - (signed[taken] <= found).sum(axis=1)
    better, worse = (1 + as_good) / (1 + n), (1 + as_bad) / (1 + n)
    return np.minimum(1.0, 2 * np.minimum(better, worse)), better < worse


def new_rule(
    evidence: Evidence, metric: str, rng: np.random.Generator, *, repetitions: int, together: int = 1
) -> npt.NDArray[np.str_]:
    """The words of the rule under the null, on the random federations that were trained."""
    made = []
    for task in evidence.design():
        _, _, values = evidence.grid(task, "random", metric)
        made.append(ranks_of_random(values.mean(axis=0), metric, repetitions, rng, together))
    p, good = (np.stack(part, axis=1) for part in zip(*made, strict=True))
    return words_of_many(p, good)


def old_rule(ready: Sequence[tuple[Floats, Floats]], metric: str) -> tuple[float, float]:
    """Chance that the old rule says "better" on any task, and "worse" on any.

    Parameters
    ----------
    ready
        For each task: three trainings of a federation and one of each other, shapes (cases, 3) and (cases, others).
    """
    free: dict[str, list[float]] = {BETTER: [], WORSE: []}
    for firsts, others in ready:
        words = [difference(a, b).verdict(metric) for a, b in zip(firsts, others, strict=True)]
        for side, chances in free.items():
            chances.append(1 - words.count(side) / len(words))
    return 1 - float(np.prod(free[BETTER])), 1 - float(np.prod(free[WORSE]))


def stored_cases(results: Results, metric: str, rng: np.random.Generator) -> list[tuple[Floats, Floats]]:
    """Old evidence: 24 random federations, trained once; two more trainings by the spread over seeds of others."""
    runs = results.runs
    assert runs is not None
    ready = []
    for task, _ in results.tasks:
        random = pick(runs, metric, task=task, k=results.first, group="random")
        groups = sorted(set(runs["group"]) - {"random", "matched", "sweep", "everyone"})
        seeded = [pick(runs, metric, task=task, k=results.first, group=group) for group in groups]
        spread = float(np.sqrt(np.mean([v.var(ddof=1) for v in seeded if len(v) > 1])))
        cases = np.repeat(np.arange(len(random)), 40)
        firsts = random[cases, None] + rng.normal(0, spread, (len(cases), 3))
        ready.append((firsts, np.stack([np.delete(random, case) for case in cases])))
    return ready


def split_cases(evidence: Evidence, metric: str, rng: np.random.Generator) -> list[tuple[Floats, Floats]]:
    """New evidence: three splits of a random federation, and the first split of 24 others."""
    ready = []
    for task in evidence.design():
        splits, _, values = evidence.grid(task, "random", metric)
        if len(splits) < 3:
            return []
        count = values.shape[1]
        firsts, others = [], []
        for _ in range(2000):
            drawn = rng.permutation(count)[:25]
            firsts.append(values[:3, drawn[0]])
            others.append(values[0, drawn[1:]])
        ready.append((np.stack(firsts), np.stack(others)))
    return ready


def pooled_rule(
    results: Results, metric: str, rng: np.random.Generator, repetitions: int
) -> tuple[float, float]:
    """Chance of a significant sum of ranks over tasks, on either side, among 24 random federations a task."""
    runs = results.runs
    assert runs is not None
    values = [pick(runs, metric, task=task, k=results.first, group="random") for task, _ in results.tasks]
    sign = 1.0 if larger(metric) else -1.0
    better = worse = 0
    for _ in range(repetitions):
        made = []
        for random in values:
            at = int(rng.integers(len(random)))
            rest = sign * np.delete(random, at)
            found = sign * random[at]
            made.append(Rank(int((rest >= found).sum()), int((rest <= found).sum()), len(rest)))
        together = pool(made)
        better += together.p <= 0.05 and together.good
        worse += together.p <= 0.05 and not together.good
    return better / repetitions, worse / repetitions


def correlations(
    rng: np.random.Generator,
    *,
    clients: int = 50,
    federations: int = 200,
    k: int = 5,
    repetitions: int = 2000,
) -> tuple[float, float]:
    """False alarms at .05 of rank correlations over federations, by clients and by federations as the sample size.

    Two unrelated scores of clients are summed over the members of random federations.
    """
    by_clients = by_federations = 0
    for _ in range(repetitions):
        members = np.stack([rng.permutation(clients)[:k] for _ in range(federations)])
        first, second = (rng.normal(size=clients)[members].sum(axis=1) for _ in range(2))
        found = spearman(first, second)
        by_clients += correlation_p(found, clients=clients, federations=federations) <= 0.05
        by_federations += float(spearmanr(first, second).pvalue) <= 0.05
    return by_clients / repetitions, by_federations / repetitions


def simulate(results: Results, *, repetitions: int = REPETITIONS, seed: int = 0) -> pl.DataFrame:
    """A row for each rule, evidence and claim."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, object]] = []

    def add(rule: str, data: str, claim: str, supported: float, contradicted: float, either: float) -> None:
        rows.append(
            {"rule": rule, "evidence": data, "claim": claim, "supported": supported, "contradicted": contradicted,
             "either": either}
        )  # fmt: skip

    if results.runs is not None:
        for metric in ("accuracy", "f1", "eod", "spd"):
            better, worse = old_rule(stored_cases(results, metric, rng), metric)
            add("old", "24 random federations", metric, better, worse, float("nan"))
        for metric in ("accuracy", "eod"):
            better, worse = pooled_rule(results, metric, rng, min(repetitions, 4000))
            add(
                "new, ranks pooled over tasks", "24 random federations", metric, better, worse, better + worse
            )
    evidence = load(results)
    if evidence is not None:
        for metric in CLAIMS:
            cases = split_cases(evidence, metric, rng)
            if cases:
                better, worse = old_rule(cases, metric)
                add("old", "200 random federations", metric, better, worse, float("nan"))
        for together, rule in ((1, "new"), (5, "new, mean of five federations")):
            for metric in CLAIMS:
                count = repetitions if together == 1 else repetitions // 20
                words = new_rule(evidence, metric, rng, repetitions=count, together=together)
                good, bad = np.isin(words, [YES, PART]).mean(), (words == AGAINST).mean()
                add(rule, "200 random federations", metric, float(good), float(bad), float(good + bad))
    by_clients, by_federations = correlations(rng, repetitions=min(repetitions, 2000))
    add("new, one correlation", "simulated clients", "no relation", float("nan"), float("nan"), by_clients)
    add(
        "old, one correlation", "simulated clients", "no relation", float("nan"), float("nan"), by_federations
    )
    return pl.DataFrame(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory of the tables")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    options = parser.parse_args(arguments)
    found = simulate(Results.load(options.results), repetitions=options.repetitions)
    write_table(found, options.results / "null.csv")
    with pl.Config(tbl_rows=-1, tbl_hide_dataframe_shape=True, fmt_str_lengths=40):
        print(found)


if __name__ == "__main__":
    main()
