"""Screen: which releases cannot be what they claim, and which deserve a second look.

A *flag* is a contradiction: an honest release almost never shows it, whatever its data. Flagged releases
are refused unless accepted by hand.

- consistency: the same marginals and the total appear in many tables; under the plan's own noise their
  disagreement is χ² distributed, and both tails are suspicious (`estimation.consistency`);
- negative: counts are never negative, so no cell, marginal or total falls far below 0;
- size: more records than there are people;
- copy: two releases closer than independent noise allows (`copies`).

An *alert* is something rare that honest clients show sometimes, so the release stays and people look.

- size: a client far larger or smaller than the others, or larger than all others together;
- association: a client whose associations lie far from the pool's (`outliers`);
- same: two clients with equal tables, where there is no noise by which to recognise a copy.

What no screen can see: a consistent, well-sized data set that is made up (docs/limits.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from ..estimation.consistency import Consistency, combine, variances
from ..planning import Plan
from .copies import twins
from .outliers import LEAST_CLIENTS, Counts, association_scores, standardised

Floats = npt.NDArray[np.float64]

#: Chance that an honest release is flagged for what it holds, and that an honest pool has any flagged copy.
FALSE_ALARM = 1e-6
#: Least noise scale for which too much agreement is suspicious.
TOO_GOOD_FROM = 0.75
#: More records than people on earth; sums over ten thousand such clients still fit their integers.
MOST_RECORDS = 10**10
#: Robust distances from which an association, or the logarithm of a size, is alerted.
ODD_ASSOCIATION = 7.0
ODD_SIZE = 4.0
#: Spread of log sizes below which clients count as equally large: a factor of about two.
_LIKE_SIZED = 0.5
#: Of two releases made from one another, one whose own tables fit its noise worse than this is the copy.
_BLAME = 1e-3


class Flag(msgspec.Struct, frozen=True):
    """Why a client's release is not to be trusted as it is."""

    client: str
    reason: str
    p_value: float | None = None
    kind: Literal["consistency", "negative", "size", "copy"] = "consistency"


class Alert(msgspec.Struct, frozen=True):
    """What is unusual about a client's release, though an honest one may be."""

    client: str
    reason: str
    score: float
    kind: Literal["size", "association", "same"]


@dataclass(frozen=True)
class Screen:
    """What a pool's screen found: at most one flag for each client, any number of alerts."""

    flags: tuple[Flag, ...]
    alerts: tuple[Alert, ...]


@dataclass(frozen=True, eq=False)
class _Evidence:
    """What all tests share: combined totals and effects, their noise, and the disagreement."""

    clients: Sequence[str]
    matrix: Counts
    plan: Plan
    sigmas: Floats
    totals: Floats
    effects: Floats
    total_variance: Floats
    effect_variances: Floats
    consistency: Consistency

    @classmethod
    def of(
        cls, clients: Sequence[str], matrix: Counts, plan: Plan, sigmas: Floats | None = None
    ) -> _Evidence:
        shape = (len(matrix), plan.layout.tables)
        scales = np.broadcast_to(plan.sigmas if sigmas is None else sigmas, shape)
        totals, effects, consistency = combine(matrix, plan.layout, scales)
        noise = variances(plan.layout, scales)
        return cls(
            clients, matrix, plan, scales, totals, effects,
            noise.total if plan.private else np.zeros(len(totals)),
            noise.effects if plan.private else np.zeros_like(noise.effects), consistency,
        )  # fmt: skip


def screen(clients: Sequence[str], matrix: Counts, plan: Plan, sigmas: Floats | None = None) -> Screen:
    """Flags and alerts of a pool.

    Parameters
    ----------
    clients
        Names of the rows of the matrix.
    matrix
        Shape (clients, cells): released counts.
    plan
        The plan they answer.
    sigmas
        Shape (clients, tables): noise of each client, where it is not the plan's.
    """
    evidence = _Evidence.of(clients, matrix, plan, sigmas)
    return Screen(tuple(_flags(evidence)), tuple(_alerts(evidence)))


def flagged(clients: Sequence[str], matrix: Counts, plan: Plan, sigmas: Floats | None = None) -> list[Flag]:
    """Only the flags, at most one for each client, in the order of the clients.

    An honest release is flagged for what it holds with probability at most `FALSE_ALARM`, half of it for
    disagreement of its tables and half for negative counts. Independently drawn noises make a pool in which
    any two releases are flagged as copies with probability at most `FALSE_ALARM`.
    """
    return _flags(_Evidence.of(clients, matrix, plan, sigmas))


def _flags(evidence: _Evidence) -> list[Flag]:
    found: dict[str, Flag] = {}
    for flag in (*_size_flags(evidence), *_consistency_flags(evidence), *_negative_flags(evidence)):
        found.setdefault(flag.client, flag)
    # A client flagged by itself is not compared: of a client and a faulty copy only the copy is flagged.
    alone = np.array([i for i, name in enumerate(evidence.clients) if name not in found], dtype=np.int64)
    for flag in _copy_flags(evidence, alone):
        found.setdefault(flag.client, flag)
    return [found[name] for name in evidence.clients if name in found]


def _size_flags(evidence: _Evidence) -> list[Flag]:
    beyond = np.flatnonzero(evidence.totals > MOST_RECORDS)
    reason = "it claims more records than there are people"
    return [Flag(evidence.clients[i], reason, 0.0, "size") for i in beyond.tolist()]


def _consistency_flags(evidence: _Evidence) -> list[Flag]:
    """Tables that contradict one another, or agree too well. A single table has nothing to disagree with."""
    plan, found = evidence.plan, evidence.consistency
    if found.dof == 0:
        return []
    # Below σ of about 0.7 the discrete Gaussian has less variance than σ²: agreement proves nothing then.
    coarse = evidence.sigmas.min(axis=1) < TOO_GOOD_FROM
    flags = []
    for i, (name, p_value) in enumerate(zip(evidence.clients, found.p_value.tolist(), strict=True)):
        both = plan.private and not coarse[i]
        alarm = FALSE_ALARM / 4 if both else FALSE_ALARM / 2
        if p_value < alarm:
            flags.append(Flag(name, "its tables contradict one another beyond their noise", p_value))
        elif both and p_value > 1 - alarm:
            flags.append(Flag(name, "its tables agree better than their noise allows", p_value))
    return flags


def _negative_flags(evidence: _Evidence) -> list[Flag]:
    """Cells, marginals and totals are at least 0 before noise, and noise rarely goes far below.

    Sums of discrete Gaussians are subgaussian with their nominal variance (Canonne, Kamath, Steinke 2020),
    so P(x ≤ −z·sd) ≤ exp(−z²/2) holds for every σ; the chance is shared over all numbers looked at.
    """
    lowest, tests = _lowest(evidence)
    reason = "it holds counts below zero beyond their noise"
    with np.errstate(over="ignore"):
        chances = np.where(lowest < 0, tests * np.exp(-(lowest**2) / 2), 1.0)
    below = np.flatnonzero(chances < FALSE_ALARM / 2)
    return [Flag(evidence.clients[i], reason, float(chances[i]), "negative") for i in below.tolist()]


def _lowest(evidence: _Evidence) -> tuple[Floats, int]:
    """Each client's lowest cell, marginal or total in standard deviations, and how many were looked at."""
    layout, sigmas = evidence.plan.layout, evidence.sigmas
    cells = np.stack([evidence.matrix[:, layout.slice(j)].min(axis=1) for j in range(layout.tables)], axis=1)
    if not evidence.plan.private:
        return np.where(cells.min(axis=1) < 0, -np.inf, 0.0), layout.cells
    sizes = np.asarray(layout.sizes, dtype=np.float64)
    marginals = evidence.effects + evidence.totals[:, None] / np.repeat(sizes, layout.sizes)
    spread = evidence.effect_variances * (1 - 1 / sizes) + evidence.total_variance[:, None] / sizes**2
    lowest = np.minimum.reduce(
        [
            (cells / sigmas).min(axis=1),
            (marginals / np.sqrt(np.repeat(spread, layout.sizes, axis=1))).min(axis=1),
            evidence.totals / np.sqrt(evidence.total_variance),
        ]
    )
    return np.asarray(lowest, dtype=np.float64), layout.cells + sum(layout.sizes) + 1


def _copy_flags(evidence: _Evidence, alone: npt.NDArray[np.int64]) -> list[Flag]:
    """The one of a pair whose tables fit its own noise badly, else both: the numbers do not tell which copied."""
    plan = evidence.plan
    if not plan.private or len(alone) < 2:
        return []
    alike = bool((evidence.sigmas == evidence.sigmas[:1]).all())
    # Scales of every cell of every client need as much memory as the releases: only where clients differ.
    scales = plan.layout.per_cell(evidence.sigmas[:1] if alike else evidence.sigmas[alone])
    usable = (scales >= TOO_GOOD_FROM).all(axis=0)
    among = evidence.matrix if len(alone) == len(evidence.matrix) else evidence.matrix[alone]
    if not usable.all():
        among, scales = among[:, usable], scales[:, usable]
    fits = evidence.consistency.p_value
    flags = []
    for pair in twins(among, scales, false_alarm=FALSE_ALARM):
        both = int(alone[pair.first]), int(alone[pair.second])
        # Noise added to a copy shows as disagreement of its tables; the noise of the honest one fits.
        bad = [i for i in both if fits[i] < _BLAME]
        for i in bad if len(bad) == 1 else both:
            other = evidence.clients[both[0] if i == both[1] else both[1]]
            reason = f"its noise is not independent of that of '{other}': one is made from the other"
            flags.append(Flag(evidence.clients[i], reason, pair.p_value, "copy"))
    return flags


def _alerts(evidence: _Evidence) -> list[Alert]:
    found = [*_size_alerts(evidence), *_association_alerts(evidence)]
    if not evidence.plan.private:
        found += _same_alerts(evidence)
    at = {name: i for i, name in enumerate(evidence.clients)}
    return sorted(found, key=lambda alert: at[alert.client])


def _size_alerts(evidence: _Evidence) -> list[Alert]:
    """A client larger than all others together, or far off on the scale of logarithms.

    Far too small is worth a look too: an empty client changes no sum, and so takes the place of a real one.
    """
    clients = len(evidence.clients)
    if clients < 3:
        return []
    sizes = np.maximum(evidence.totals, np.maximum(np.sqrt(evidence.total_variance), 1.0))
    share = sizes / sizes.sum()
    odd = np.zeros(clients)
    if clients >= LEAST_CLIENTS:
        logs = np.log(sizes / np.median(sizes))[:, None]
        odd = standardised(logs, np.full((clients, 1), _LIKE_SIZED**2))[:, 0]
    alerts = []
    for i, name in enumerate(evidence.clients):
        times = sizes[i] / float(np.median(sizes))
        if share[i] > 0.5:
            reason = f"it claims more records than all other clients together ({share[i]:.0%} of the pool)"
            alerts.append(Alert(name, reason, float(share[i]), "size"))
        elif odd[i] > ODD_SIZE:
            reason = f"it claims {times:,.0f} times the records of the median client"
            alerts.append(Alert(name, reason, float(odd[i]), "size"))
        elif odd[i] < -ODD_SIZE:
            reason = f"it has at most {times:.1%} of the records of the median client, perhaps none"
            alerts.append(Alert(name, reason, float(-odd[i]), "size"))
    return alerts


def _association_alerts(evidence: _Evidence) -> list[Alert]:
    layout = evidence.plan.layout
    found = association_scores(
        evidence.matrix, layout, evidence.sigmas,
        totals=evidence.totals, total_variance=evidence.total_variance,
    )  # fmt: skip
    alerts = []
    for i in np.flatnonzero(found.score > ODD_ASSOCIATION).tolist():
        x, y = layout.pairs[found.table[i]]
        how = "stronger than" if found.stronger[i] else "weaker than, or the reverse of,"
        reason = f"its association of {layout.names[x]} and {layout.names[y]} is far {how} the pool's"
        alerts.append(Alert(evidence.clients[i], reason, float(found.score[i]), "association"))
    return alerts


def _same_alerts(evidence: _Evidence) -> list[Alert]:
    """Exact counts carry no noise by which to recognise copies; equal tables of people are still worth a look."""
    first: dict[bytes, str] = {}
    alerts = []
    for name, row in zip(evidence.clients, evidence.matrix, strict=True):
        if not row.any():
            continue
        other = first.setdefault(hashlib.sha256(row.tobytes()).digest(), name)
        if other != name:
            alerts.append(Alert(name, f"its tables equal those of '{other}'", 1.0, "same"))
    return alerts
