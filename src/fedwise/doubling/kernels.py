"""Compiled loops over artificial records: sampling a pairwise model, learning it, and fitting records to tables.

Records are rows of codes, shape (records, variables). Factors of the model are stored twice, once for each variable
of a pair as the one that is drawn, so that the levels to choose from lie side by side: the factors of variable v
given level c of variable u start at ``place[v, u] + c * sizes[v]``; ``place[v, u]`` is -1 where the plan asked for no
such table.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Records = npt.NDArray[np.int16]
#: State of a generator: one word, never 0.
State = npt.NDArray[np.uint64]

#: Least by which a change of a record must lower the sum of squares to be taken, for each table that it touches. Noise
#: offers many changes that lower it by less; taken, they wear away what the model knows beyond pairs.
_WORTH = 0.03
#: Bounds of a factor, so that products of many stay finite.
_LEAST, _MOST = 1e-6, 1e6


@numba.njit(cache=True, nogil=True)
def _uniform(state: State) -> float:
    """The next number between 0 and 1, by xorshift64*: simulation only, no privacy rests on it."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return float((x * np.uint64(2685821657736338717)) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@numba.njit(cache=True, nogil=True)
def _chances(row: npt.NDArray[np.int16], v: int, factors: Floats, place: Ints, size: int, p: Floats) -> float:
    """Unscaled chances of the levels of variable v, given the rest of the record; returns their sum."""
    for level in range(size):
        p[level] = 1.0
    for u in range(row.size):
        if place[v, u] >= 0:
            first = place[v, u] + row[u] * size
            for level in range(size):
                p[level] *= factors[first + level]
    total = 0.0
    for level in range(size):
        total += p[level]
    return total


@numba.njit(cache=True, nogil=True)
def _pick(p: Floats, size: int, mark: float) -> int:
    """The level at which the running sum of chances passes `mark`."""
    level, running = 0, p[0]
    while level < size - 1 and running < mark:
        level += 1
        running += p[level]
    return level


@numba.njit(cache=True, nogil=True)
def sweep(rows: Records, factors: Floats, place: Ints, sizes: Ints, sweeps: int, state: State) -> None:
    """Draw every variable of every record anew, given the others (Gibbs), in place."""
    p = np.empty(sizes.max())
    for _ in range(sweeps):
        for r in range(rows.shape[0]):
            row = rows[r]
            for v in range(row.size):
                total = _chances(row, v, factors, place, sizes[v], p)
                row[v] = _pick(p, sizes[v], _uniform(state) * total)


@numba.njit(cache=True, nogil=True)
def expect(rows: Records, factors: Floats, place: Ints, sizes: Ints, state: State, expected: Floats) -> None:
    """One sweep that also adds up the chances of every level beside every other variable.

    The chances are far less noisy than the levels drawn. `expected` is laid out as the factors.
    """
    p = np.empty(sizes.max())
    expected[:] = 0.0
    for r in range(rows.shape[0]):
        row = rows[r]
        for v in range(row.size):
            size = sizes[v]
            total = _chances(row, v, factors, place, size, p)
            for level in range(size):
                p[level] /= total
            for u in range(row.size):
                if place[v, u] >= 0:
                    first = place[v, u] + row[u] * size
                    for level in range(size):
                        expected[first + level] += p[level]
            row[v] = _pick(p, size, _uniform(state))


@numba.njit(cache=True, nogil=True)
def adjust(
    factors: Floats, expected: Floats, goal: Floats, pairs: Ints, offsets: Ints, place: Ints, sizes: Ints,
    records: int, step: float, least: float,
) -> float:  # fmt: skip
    """Move the factors towards tables of the shares `goal`; returns how far the shares were off, in mean.

    Each factor is multiplied by 1 + 2·step·(goal − found)/(goal + found + least): a step of log goal/found, bounded
    where one of them is nearly 0.
    """
    off = 0.0
    for j in range(pairs.shape[0]):
        x, y = pairs[j, 0], pairs[j, 1]
        a, b = sizes[x], sizes[y]
        for i in range(a):
            for k in range(b):
                given_x, given_y = place[y, x] + i * b + k, place[x, y] + k * a + i
                wanted = goal[offsets[j] + i * b + k]
                found = (expected[given_x] + expected[given_y]) / (2 * records)
                off += abs(found - wanted)
                factor = 1.0 + 2.0 * step * (wanted - found) / (wanted + found + least)
                factors[given_x] = min(max(factors[given_x] * factor, _LEAST), _MOST)
                factors[given_y] = min(max(factors[given_y] * factor, _LEAST), _MOST)
    return float(off / 2 / max(pairs.shape[0], 1))


@numba.njit(cache=True, nogil=True)
def tally(rows: Records, pairs: Ints, offsets: Ints, sizes: Ints, counts: Floats) -> None:
    """Pair tables of records."""
    counts[:] = 0.0
    for r in range(rows.shape[0]):
        row = rows[r]
        for j in range(pairs.shape[0]):
            x, y = pairs[j, 0], pairs[j, 1]
            counts[offsets[j] + row[x] * sizes[y] + row[y]] += 1.0


@numba.njit(cache=True, nogil=True)
def refine(
    rows: Records, counts: Floats, goal: Floats, factors: Floats, place: Ints, sizes: Ints, steps: Ints, sweeps: int,
    state: State,
) -> int:  # fmt: skip
    """Change records one variable at a time until their tables are those of `goal`, in place.

    Proposals are drawn from the model, so what lies beyond pairs stays as the model has it; one is taken when it
    lowers Σ (counts − goal)² / (goal + 1) by at least `_WORTH` for each table it touches. ``steps[v, u]`` holds the
    first cell of the table of v and u, and how far apart two levels of v and of u lie in it.

    Returns
    -------
    taken
        Number of changes.
    """
    p = np.empty(sizes.max())
    taken = 0
    for _ in range(sweeps):
        before = taken
        for r in range(rows.shape[0]):
            row = rows[r]
            for v in range(row.size):
                total = _chances(row, v, factors, place, sizes[v], p)
                new, old = _pick(p, sizes[v], _uniform(state) * total), row[v]
                if new == old:
                    continue
                change, tables = 0.0, 0
                for u in range(row.size):
                    if place[v, u] >= 0:
                        tables += 1
                        base = steps[v, u, 0] + row[u] * steps[v, u, 2]
                        out, into = base + old * steps[v, u, 1], base + new * steps[v, u, 1]
                        change += (1.0 - 2.0 * (counts[out] - goal[out])) / (goal[out] + 1.0)
                        change += (1.0 + 2.0 * (counts[into] - goal[into])) / (goal[into] + 1.0)
                if change < -_WORTH * tables:
                    for u in range(row.size):
                        if place[v, u] >= 0:
                            base = steps[v, u, 0] + row[u] * steps[v, u, 2]
                            counts[base + old * steps[v, u, 1]] -= 1.0
                            counts[base + new * steps[v, u, 1]] += 1.0
                    row[v] = new
                    taken += 1
        if (taken - before) * 200 < rows.shape[0]:
            break
    return taken


@numba.njit(cache=True, nogil=True)
def chances(rows: Records, v: int, factors: Floats, place: Ints, sizes: Ints, out: Floats) -> None:
    """Chance of each level of variable v in every record, given the rest of it: shape (records, levels)."""
    for r in range(rows.shape[0]):
        total = _chances(rows[r], v, factors, place, sizes[v], out[r])
        for level in range(sizes[v]):
            out[r, level] /= total
