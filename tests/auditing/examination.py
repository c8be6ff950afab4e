"""An examination of the release from the outside: neighbouring data, many real releases, and every test we know.

All tests look at released files only. Each has its share of `FALSE_ALARM`, so that an honest release fails an
examination with probability `FALSE_ALARM` at most; noise has no seed, so no fixed seed can hide behind.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.stats import beta, chi2, poisson, t

import fedwise as fw
from fedwise.owner.tables import count

#: Chance that one examination accuses an honest release.
FALSE_ALARM = 1e-8

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sample:
    """Released counts of one data set, and what the rest of each file says: shapes (runs, cells) and (runs,)."""

    counts: Ints
    rest: npt.NDArray[np.str_]

    @classmethod
    def draw(cls, plan: fw.Plan, frame: pl.DataFrame, runs: int) -> Sample:
        """Release the same rows `runs` times, and read the files as anybody would."""
        counts, rest = [], []
        for _ in range(runs):
            tree = json.loads(fw.release(plan, frame, client="x", uncharged=True).encode())
            counts.append([number for table in tree["tables"] for number in table.pop("counts")])
            rest.append(hashlib.sha256(json.dumps(tree).encode()).hexdigest())
        return cls(np.array(counts, dtype=np.int64), np.array(rest))


@dataclass(frozen=True)
class Examination:
    """What was found: the largest ε refuted, and the least p-values of the tests on the noise."""

    epsilon: float
    noise: float
    independence: float
    repeats: float

    def verdict(self, plan: fw.Plan) -> list[str]:
        """Accusations; empty for an honest release."""
        share = FALSE_ALARM / 4
        return [
            name
            for name, accused in {
                "epsilon": self.epsilon > plan.epsilon,
                "noise": self.noise < share,
                "independence": self.independence < share,
                "repeats": self.repeats < share,
            }.items()
            if accused
        ]


def examine(plan: fw.Plan, without: pl.DataFrame, target: pl.DataFrame, *, runs: int) -> Examination:
    """Release `without` and `without` plus `target`, `runs` times each."""
    with_target = pl.concat([without, target])
    out, inside = Sample.draw(plan, without, runs), Sample.draw(plan, with_target, runs)
    base = count(plan.schema.encode(without), plan.layout).exact
    touched = count(plan.schema.encode(target), plan.layout).exact
    noise = np.vstack([out.counts - base, inside.counts - base - touched])
    return Examination(
        epsilon=_refuted(plan, out, inside, base, touched.astype(bool)),
        noise=_noise(plan, noise),
        independence=_independence(noise, runs),
        repeats=_repeats(plan, noise),
    )


def _refuted(plan: fw.Plan, out: Sample, inside: Sample, base: Ints, cells: npt.NDArray[np.bool_]) -> float:
    """Largest ε that some event refutes: P(event | one) ≤ e^ε·P(event | other) + δ, by Clopper–Pearson."""
    pairs = list(_events(plan, out, inside, base, cells))
    risk = FALSE_ALARM / 4 / (4 * len(pairs))
    found = 0.0
    for first, second in pairs:
        # The event and its contrary, either way round.
        for a, b in ((first, second), (second, first), (~first, ~second), (~second, ~first)):
            low = float(beta.ppf(risk, a.sum(), len(a) - a.sum() + 1)) if a.any() else 0.0
            high = float(beta.isf(risk, b.sum() + 1, len(b) - b.sum())) if not b.all() else 1.0
            if low > plan.delta:
                found = max(found, math.log((low - plan.delta) / high))
    return found


def _events(
    plan: fw.Plan, out: Sample, inside: Sample, base: Ints, cells: npt.NDArray[np.bool_]
) -> Iterator[tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]]:
    """Events chosen before the data: thresholds of the best score, of every total, exact cells, and the rest."""
    variance = plan.layout.per_cell(plan.sigmas)[cells] ** 2
    mu = math.sqrt(float(np.sum(1 / variance)))
    scores = [((s.counts - base)[:, cells] - 0.5) @ (1 / variance) for s in (out, inside)]
    for step in (-1.5, -0.75, 0.0, 0.75, 1.5):
        yield scores[0] > step * mu, scores[1] > step * mu
    for j in range(plan.layout.tables):
        here = plan.layout.slice(j)
        totals = [(s.counts - base)[:, here].sum(axis=1) for s in (out, inside)]
        yield totals[0] > 0.5, totals[1] > 0.5
    for cell in np.flatnonzero(cells):
        yield out.counts[:, cell] == base[cell], inside.counts[:, cell] == base[cell]
    yield out.rest == out.rest[0], inside.rest == out.rest[0]


def _repeats(plan: fw.Plan, noise: Ints) -> float:
    """Chance of as many runs that repeat another's noise in every cell: pairs are few, so nearly Poisson.

    A table of six cells repeats by itself now and then; that is no sign of a seed.
    """
    runs = len(noise)
    found = runs - len(np.unique(noise, axis=0))
    equal = 1.0
    for j, sigma in enumerate(plan.sigmas.tolist()):
        outcomes = np.arange(-math.ceil(12 * sigma) - 2, math.ceil(12 * sigma) + 3)
        mass = np.exp(-(outcomes**2) / (2 * sigma * sigma))
        cells = plan.layout.slice(j).stop - plan.layout.slice(j).start
        equal *= float(np.sum((mass / mass.sum()) ** 2)) ** cells
    return float(poisson.sf(found - 1, runs * (runs - 1) / 2 * equal))


def _noise(plan: fw.Plan, noise: Ints) -> float:
    """Least p-value, over tables, of χ² against the exact discrete Gaussian; Bonferroni included."""
    worst = 1.0
    for j, sigma in enumerate(plan.sigmas):
        worst = min(worst, chi_square(noise[:, plan.layout.slice(j)].ravel(), float(sigma)))
    return min(1.0, worst * plan.layout.tables)


def chi_square(draws: Ints, sigma: float) -> float:
    """p-value of integer draws against exp(−z²/2σ²)/Σ, neighbouring outcomes pooled to 20 expected or more."""
    reach = math.ceil(12 * sigma) + 2
    outcomes = np.arange(-reach, reach + 1)
    mass = np.array([math.exp(-(z * z) / (2 * sigma * sigma)) for z in outcomes.tolist()])
    expected = len(draws) * mass / mass.sum()
    seen = np.bincount(np.clip(draws, -reach, reach) + reach, minlength=len(outcomes))
    pooled: list[tuple[float, float]] = []
    expects = sees = 0.0
    for e, s in zip(expected.tolist(), seen.tolist(), strict=True):
        expects, sees = expects + e, sees + s
        if expects >= 20:
            pooled.append((expects, sees))
            expects = sees = 0.0
    pooled[-1] = (pooled[-1][0] + expects, pooled[-1][1] + sees)
    e, s = np.array(pooled).T
    return float(chi2.sf(float(((s - e) ** 2 / e).sum()), len(e) - 1))


def _independence(noise: Ints, runs: int) -> float:
    """Least p-value over correlations of any two cells, of one cell with its next run, and of both data sets."""
    lines = (noise - noise.mean(axis=0)) / np.maximum(noise.std(axis=0), 1e-12)
    cells = noise.shape[1]
    together = (lines.T @ lines / len(lines))[np.triu_indices(cells, 1)]
    following = (lines[1:].T @ lines[:-1] / (len(lines) - 1)).ravel()
    across = (lines[:runs].T @ lines[runs:] / runs).ravel()
    p_values = [
        correlation_p(r, n) for r, n in ((together, len(lines)), (following, len(lines)), (across, runs))
    ]
    return min(1.0, min((p.min() * p.size for p in p_values if p.size), default=1.0) * 3)


def correlation_p(r: Floats, n: int) -> Floats:
    """Two-sided p-values of correlations of n independent pairs."""
    r = np.clip(r, -1 + 1e-12, 1 - 1e-12)
    return np.asarray(2 * t.sf(np.abs(r) * np.sqrt((n - 2) / (1 - r**2)), n - 2))
