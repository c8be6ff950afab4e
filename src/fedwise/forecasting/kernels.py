"""Kernels: solve a federation's model from its summed row, and score it on the target's sample."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..machine_code import compiled

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Joint look-up tables of several variables hold at most this many numbers: they must stay in cache.
_TABLE = 1024
#: Records scored at a time.
BLOCK = 512


class Scorer(NamedTuple):
    """The target's sample, arranged for scoring.

    Records are sorted by group of people; variables are joined into bundles, each with one look-up
    table of summed level scores, so that a record costs one look-up per bundle.

    Attributes
    ----------
    lookup
        Shape (bundles, records): where a record looks in the tables.
    parts
        Shape (entries, most variables of a bundle): indicators summed in each table entry, -1 for none.
    chance
        Shape (records,): probability of the positive class. Counting each record in both classes by
        its chance removes the noise of drawn labels.
    groups
        Shape (groups + 1,): first record of each group.
    threshold, ramp
        A score above the threshold is a yes; within ±ramp of it the yes counts in part, which smooths
        the steps that a finite sample makes.
    """

    lookup: npt.NDArray[np.int32]
    parts: npt.NDArray[np.int32]
    chance: npt.NDArray[np.float32]
    groups: Ints
    threshold: float
    ramp: float


class Solver(NamedTuple):
    """What turns summed rows into coefficients.

    A row is the lower triangle of H, then g, then records and members (a client of more noise counts as several,
    one of less as a part). The ridge, in records, is
    the larger of `ridge` and `noise`·√members / records; it pulls to the anchor. Scores are then
    drawn together towards their mean by the factor `spread`; `mean` holds the mean of every input.

    Coefficients of several classes follow one another, the inputs of each together; the first class has none. The
    ridge is then twice that of the classes' scores around their mean, r·2(δ_cd − 1/classes), which treats all
    classes alike, and is r for two of them.
    """

    beta: Floats
    projection: Floats
    ridge: float
    noise: float
    spread: float = 1.0
    mean: Floats = np.zeros(0)


def scorer(
    codes: npt.NDArray[np.integer],
    group: Ints,
    chance: Floats,
    *,
    groups: int,
    variables: tuple[int, ...],
    first: Ints,
    sizes: tuple[int, ...],
    threshold: float,
    ramp: float,
) -> Scorer:
    """Arrange records of equal weight for scoring. `group` is each record's group, below `groups`."""
    order = np.argsort(group, kind="stable")
    bundles: list[list[int]] = []
    product = _TABLE + 1
    for i, v in enumerate(variables):
        if product * sizes[v] > _TABLE:
            bundles.append([])
            product = 1
        bundles[-1].append(i)
        product *= sizes[v]
    deepest = max(len(bundle) for bundle in bundles)
    lookup = np.empty((len(bundles), len(order)), np.int32)
    parts: list[npt.NDArray[np.int32]] = []
    start = 0
    for row, bundle in enumerate(bundles):
        shape = tuple(sizes[variables[i]] for i in bundle)
        levels = tuple(codes[variables[i]][order].astype(np.int64) for i in bundle)
        flat = np.ravel_multi_index(levels, shape)
        lookup[row] = start + flat
        entries = np.full((int(np.prod(shape)), deepest), -1, np.int32)
        at = np.unravel_index(np.arange(len(entries)), shape)
        for column, i in enumerate(bundle):
            entries[:, column] = first[i] + at[column]
        parts.append(entries)
        start += len(entries)
    bounds = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=groups))]).astype(np.int64)
    return Scorer(lookup, np.concatenate(parts), chance[order].astype(np.float32), bounds, threshold, ramp)


@compiled(fastmath={"reassoc", "contract", "nsz"})
def factor(matrix: Floats) -> bool:
    """Cholesky factor in the lower triangle, in place; False where the matrix is not positive definite."""
    p = matrix.shape[0]
    for i in range(p):
        row = matrix[i]
        for j in range(i):
            other = matrix[j]
            total = row[j]
            for c in range(j):
                total -= row[c] * other[c]
            row[j] = total / other[j]
        pivot = row[i]
        scale = abs(pivot)
        for c in range(i):
            pivot -= row[c] * row[c]
        if not pivot > 1e-12 * scale:
            return False
        row[i] = np.sqrt(pivot)
    return True


@compiled(fastmath={"reassoc", "contract", "nsz"})
def substitute(triangle: Floats, right: Floats) -> None:
    """Solve L Lᵀ x = right, in place."""
    p = right.size
    for i in range(p):
        total = right[i]
        for c in range(i):
            total -= triangle[i, c] * right[c]
        right[i] = total / triangle[i, i]
    for i in range(p - 1, -1, -1):
        value = right[i] / triangle[i, i]
        right[i] = value
        for c in range(i):
            right[c] -= triangle[i, c] * value


@compiled()
def solve(solver: Solver, row: Floats, work: Floats, beta: Floats) -> None:
    """The coefficients of one summed row, into `beta`, their scores drawn together by the solver's spread."""
    step_from_anchor(solver, row, work, beta)
    if solver.spread < 1.0:
        inputs = solver.projection.shape[1]
        for first in range(0, beta.size, inputs):
            shift = 0.0
            for i in range(1, inputs):
                shift += solver.mean[i] * beta[first + i]
                beta[first + i] *= solver.spread
            beta[first] += (1.0 - solver.spread) * shift


@compiled()
def step_from_anchor(solver: Solver, row: Floats, work: Floats, beta: Floats) -> None:
    """β = β₀ + (H + R)⁻¹ g of one summed row, into `beta`.

    Noise can leave H + R with a negative eigenvalue; the ridge is then doubled until it has none,
    which is the nearest positive definite matrix of the form H + r·I up to that factor.
    """
    p, inputs = solver.beta.size, solver.projection.shape[1]
    classes = p // inputs + 1
    triangle = p * (p + 1) // 2
    records, members = row[triangle + p], row[triangle + p + 1]
    beta[:] = solver.beta
    if records <= 0.0:
        return
    ridge = max(solver.ridge * records, solver.noise * np.sqrt(max(members, 0.0)))
    for _ in range(60):
        at = 0
        for i in range(p):
            for j in range(i + 1):
                work[i, j] = row[at]
                at += 1
            if i % inputs:
                for j in range(i % inputs, i, inputs):
                    work[i, j] -= ridge * 2.0 / classes
                work[i, i] += ridge * (2.0 - 2.0 / classes)
            else:
                work[i, i] += 1e-9 * records
        if factor(work):
            step = row[triangle : triangle + p].copy()
            substitute(work, step)
            beta += step
            return
        ridge = max(2.0 * ridge, 1e-6 * records)


@compiled()
def level_scores(projection: Floats, beta: Floats, out: Floats) -> None:
    """Score of each indicator: projection · β."""
    for i in range(projection.shape[0]):
        total = 0.0
        for j in range(projection.shape[1]):
            total += projection[i, j] * beta[j]
        out[i] = total


@compiled(fastmath={"reassoc", "contract", "nsz"})
def fill_table(spec: Scorer, levels: Floats, table: npt.NDArray[np.float32]) -> None:
    """Summed level scores of each entry of the look-up tables, into `table`."""
    for e in range(spec.parts.shape[0]):
        total = 0.0
        for c in range(spec.parts.shape[1]):
            if spec.parts[e, c] >= 0:
                total += levels[spec.parts[e, c]]
        table[e] = total


@compiled(fastmath={"reassoc", "contract", "nsz"})
def score(spec: Scorer, levels: Floats, table: npt.NDArray[np.float32], rates: Floats) -> None:
    """Share of yes in each group and class, into `rates` of shape (groups, 2)."""
    fill_table(spec, levels, table)
    shift = np.float32(levels[0] - spec.threshold)
    slope = np.float32(0.5 / spec.ramp)
    half, one, zero = np.float32(0.5), np.float32(1.0), np.float32(0.0)
    bundles = spec.lookup.shape[0]
    value = np.empty(BLOCK, np.float32)
    for group in range(rates.shape[0]):
        yes, true, positive = np.float64(0.0), np.float64(0.0), np.float64(0.0)
        for start in range(spec.groups[group], spec.groups[group + 1], BLOCK):
            size = min(BLOCK, spec.groups[group + 1] - start)
            value[:size] = shift
            for g in range(bundles):
                lookup = spec.lookup[g, start : start + size]
                for r in range(size):
                    value[r] += table[lookup[r]]
            chance = spec.chance[start : start + size]
            part_yes, part_true, part_positive = zero, zero, zero
            for r in range(size):
                says = min(max(half + slope * value[r], zero), one)
                part_yes += says
                part_true += says * chance[r]
                part_positive += chance[r]
            yes += part_yes
            true += part_true
            positive += part_positive
        count = spec.groups[group + 1] - spec.groups[group]
        rates[group, 1] = true / positive if positive > 0.0 else 0.0
        rates[group, 0] = (yes - true) / (count - positive) if count > positive else 0.0


@compiled()
def batch_rates(solver: Solver, spec: Scorer, sums: Floats) -> Floats:
    """Rates of yes for each summed row. Shape (batch, groups, 2)."""
    p = solver.beta.size
    work = np.empty((p, p))
    beta = np.empty(p)
    levels = np.empty(solver.projection.shape[0])
    table = np.empty(spec.parts.shape[0], np.float32)
    rates = np.empty((sums.shape[0], spec.groups.size - 1, 2))
    for b in range(sums.shape[0]):
        solve(solver, sums[b], work, beta)
        level_scores(solver.projection, beta, levels)
        score(spec, levels, table, rates[b])
    return rates
