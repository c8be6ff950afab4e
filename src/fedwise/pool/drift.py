"""Drift: what changed between two releases of one client, with the error that the noise leaves.

Both releases answer the same question, so their noise is independent and of known scale. The difference of the
noisy counts of a table that did not change is noise alone: Σ d²/(2σ²) has a chi-square law with as many degrees
of freedom as there are cells, and a large value speaks for a change. Nothing here costs privacy.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from scipy import stats

from ..errors import PoolError
from ..owner.release import Release

#: Chance that data which did not change is called changed.
FALSE_ALARM = 0.001


class Shift(msgspec.Struct, frozen=True):
    """Share of one level of a column before and after, and the change with its standard error."""

    column: str
    level: str
    before: float
    after: float
    change: float
    std_error: float


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """What changed between two releases of a client.

    Parameters
    ----------
    client
        Whose data.
    editions, versions
        Of the plan, and of the owner's data, before and after.
    chance
        Chance of a difference this large if no record had changed.
    changed
        Whether `chance` is below `FALSE_ALARM`.
    shifts
        Every level of every column, the largest change against its error first.
    """

    client: str
    editions: tuple[int, int]
    versions: tuple[int | None, int | None]
    chance: float
    changed: bool
    shifts: tuple[Shift, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    def __str__(self) -> str:
        verdict = "changed" if self.changed else "no change beyond the noise"
        lines = [f"{self.client}: {verdict} (a chance of {self.chance:.2g} without one)"]
        for shift in self.shifts[:3]:
            lines.append(
                f"  {shift.column} {shift.level}: {shift.before:.3f} to {shift.after:.3f}, "
                f"{shift.change:+.3f} ± {shift.std_error:.3f}"
            )
        return "\n".join(lines)


def drift(before: Release, after: Release) -> Drift:
    """Compare two releases of one client that answer the same question.

    Raises
    ------
    PoolError
        They are of two clients or two questions, or one is a copy of the other.
    """
    if before.client != after.client:
        raise PoolError(
            f"drift must compare releases of one client, got '{before.client}' and '{after.client}'"
        )
    if before.plan.question != after.plan.question:
        raise PoolError("drift must compare releases of one plan, or of two editions of it")
    if before.plan_digest == after.plan_digest:
        raise PoolError("drift must compare two editions, got the same one twice; ask for the next edition")
    plan = before.plan
    layout, difference = plan.layout, after.counts.astype(np.float64) - before.counts
    if plan.private:
        sizes = [int(np.prod(table.shape)) for table in plan.tables]
        variance = np.repeat(2 * plan.sigmas**2, sizes)
        chance = float(stats.chi2.sf(np.sum(difference**2 / variance), difference.size))
    else:
        chance = 0.0 if difference.any() else 1.0
    shifts: list[Shift] = []
    for place, column in enumerate(plan.schema.columns):
        tables = [j for j, pair in enumerate(layout.pairs) if place in pair]
        if not tables:
            continue
        # The table whose margin carries the least noise.
        j = min(tables, key=lambda j: plan.tables[j].sigma ** 2 * np.prod(plan.tables[j].shape))
        then, now = (_margin(made.counts, before, j, place) for made in (before, after))
        shifts += _shifts(column.name, column.labels, then, now, before, j, place)
    return Drift(
        client=before.client,
        editions=(plan.number, after.plan.number),
        versions=(before.version, after.version),
        chance=chance,
        changed=chance < FALSE_ALARM,
        shifts=tuple(sorted(shifts, key=lambda one: -abs(one.change) / max(one.std_error, 1e-12))),
    )


def _margin(counts: npt.NDArray[np.int64], of: Release, table: int, column: int) -> npt.NDArray[np.float64]:
    """Noisy counts of one column's levels, summed out of a table."""
    layout = of.plan.layout
    grid = np.asarray(counts[layout.slice(table)], dtype=np.float64).reshape(of.plan.tables[table].shape)
    margin: npt.NDArray[np.float64] = grid.sum(axis=1 if layout.pairs[table][0] == column else 0)
    return margin


def _shifts(
    name: str,
    levels: tuple[str, ...],
    then: npt.NDArray[np.float64],
    now: npt.NDArray[np.float64],
    of: Release,
    table: int,
    column: int,
) -> list[Shift]:
    """Change of each level's share; the error of share c/n is σ√w·√((1−c/n)² + (L−1)(c/n)²)/n for L levels."""
    shape, sigma = of.plan.tables[table].shape, of.plan.tables[table].sigma
    width = shape[1] if of.plan.layout.pairs[table][0] == column else shape[0]
    noise = sigma * float(np.sqrt(width))
    out = []
    totals = [max(float(part.sum()), 1.0) for part in (then, now)]
    shares = [np.clip(part / total, 0.0, 1.0) for part, total in zip((then, now), totals, strict=True)]
    for place, level in enumerate(levels):
        error = 0.0
        for share, total in zip(shares, totals, strict=True):
            spread = (1 - share[place]) ** 2 + (len(levels) - 1) * share[place] ** 2
            error += float(noise**2 * spread / total**2)
        first, second = float(shares[0][place]), float(shares[1][place])
        out.append(Shift(name, str(level), first, second, second - first, float(np.sqrt(error))))
    return out
