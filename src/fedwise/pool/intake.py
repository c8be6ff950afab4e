"""Intake: releases read one by one into the rows of a pool.

Releases of different ε form one pool where they have the same schema and the same tables: their noise scales are
kept for each client and table. Several releases of one client are independent measurements of the same counts, and
become one by precision:

    x = Σ_s w_s x_s,   w_s = σ_s⁻² / Σ_s σ_s⁻²,   σ⁻² = Σ_s σ_s⁻²    (table by table)

which is the most precise unbiased combination of them. Of several editions of a plan the latest counts: the data
changed between them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ..deferred import Deferred
from ..errors import PoolError
from ..owner.release import Release
from ..planning import Plan
from ..privacy.staging import SCORE_PARTS
from ..schema.layout import Layout
from .outliers import Counts
from .screen import FALSE_ALARM, TOO_GOOD_FROM, Flag
from .spending import Part, Spending

if TYPE_CHECKING:
    from scipy import special
else:
    special = Deferred("scipy.special")

Floats = npt.NDArray[np.float64]


class Taken(NamedTuple):
    """One release: its counts, its noise scales, what it cost and where it came from; of a score, what it scored by."""

    counts: npt.NDArray[np.int64]
    sigmas: Floats
    part: Part
    source: str
    edition: int = 1
    score: str | None = None


class Scores(NamedTuple):
    """Answers to a score, in whole scores: each client's noisy sum, NaN where it was not asked, and its noise scale."""

    sums: Floats
    sigmas: Floats

    def of(self, kept: list[int]) -> Scores:
        """The answers of some of the clients."""
        return Scores(self.sums[kept], self.sigmas[kept])


class Gathered(NamedTuple):
    """The rows of a pool, clients in the order of their names."""

    clients: list[str]
    plan: Plan
    matrix: Counts
    sigmas: Floats
    spendings: list[Spending]
    sources: list[str]
    flags: list[Flag]
    scores: Scores | None = None


class Intake:
    """Collects releases one by one, keeping only their counts."""

    def __init__(self) -> None:
        self.plans: dict[str, Plan] = {}
        self.answered: Counter[str] = Counter()
        self.rows: dict[str, list[Taken]] = {}
        self.fingerprints: dict[bytes, str] = {}
        self.first = ""
        self.simulated = False
        self.charged = True

    def add(self, found: Release, source: str) -> None:
        """Take one release in.

        Raises
        ------
        PoolError
            It has other tables than those before it, was taken in already, or is a copy.
        """
        self._check_related(found, source)
        own, part = self.rows.setdefault(found.client, []), _part(found)
        for other in own:
            if (other.part.plan, other.part.stage) == (part.plan, part.stage):
                raise PoolError(
                    f"client '{found.client}' appears twice: {other.source} and {source}; remove one"
                )
        counts = found.counts
        fingerprint = hashlib.sha256(counts.tobytes()).digest()
        if found.private and not found.scored and fingerprint in self.fingerprints:
            raise PoolError(
                f"{source} holds exactly the noisy counts of client '{self.fingerprints[fingerprint]}'; "
                "independent noise never repeats, so one of the two is a copy: remove it"
            )
        self.plans.setdefault(found.plan_digest, found.plan)
        self.answered[found.plan_digest] += 1
        self.first = self.first or source
        if not found.scored:  # single numbers may well be equal
            self.fingerprints[fingerprint] = found.client
        score = None if found.score is msgspec.UNSET else found.score
        self._check_score(score, source)
        own.append(Taken(counts, found.sigmas, part, source, found.plan.number, score))
        self.simulated |= found.simulated
        self.charged &= found.charged

    def gather(self) -> Gathered:
        """The rows of all clients; what was collected is given away.

        Raises
        ------
        PoolError
            Nothing was taken in.
        """
        if not self.rows:
            raise PoolError("pool must hold at least one release, got none")
        clients, plan = sorted(self.rows), self._plan()
        spent = [sorted(self.rows[name], key=lambda one: (one.edition, one.part.stage)) for name in clients]
        self.rows.clear()
        self._refuse_bare(spent)
        scores = _scores(spent)
        taken = [latest([one for one in own if one.score is None]) for own in spent]
        several = any(len(own) > 1 for own in taken)
        rows = [combined(own, plan.layout) for own in taken] if several else None
        return Gathered(
            clients,
            plan,
            np.stack([own[0].counts for own in taken])
            if rows is None
            else np.stack([row for row, _ in rows]),
            np.stack([own[0].sigmas for own in taken] if rows is None else [scales for _, scales in rows]),
            [
                Spending(name, tuple(one.part for one in own))
                for name, own in zip(clients, spent, strict=True)
            ],
            [" and ".join(one.source for one in own) for own in taken],
            [
                flag
                for name, own in zip(clients, taken, strict=True)
                if (flag := disagreement(name, own, plan.layout)) is not None
            ],
            scores,
        )

    def _check_score(self, score: str | None, source: str) -> None:
        """All clients must have scored by the same."""
        if score is None:
            return
        first = next((one for own in self.rows.values() for one in own if one.score is not None), None)
        if first is not None and first.score != score:
            raise PoolError(
                f"{source} answers another score than {first.source}; remove the ones that answer an older shortlist"
            )

    def _refuse_bare(self, spent: list[list[Taken]]) -> None:
        """A score alone says nothing of a client's tables."""
        for own in spent:
            if all(one.score is not None for one in own):
                raise PoolError(
                    f"{own[0].source} answers a score, and no tables of its client are there; add its stage 1, "
                    "or remove this one"
                )

    def _plan(self) -> Plan:
        """The plan that most releases answer; of several the one of the largest ε."""
        best = max(
            self.answered, key=lambda digest: (self.answered[digest], self.plans[digest].epsilon, digest)
        )
        return self.plans[best]

    def _check_related(self, found: Release, source: str) -> None:
        if not self.plans or found.plan_digest in self.plans:
            return
        plan = next(iter(self.plans.values()))
        about = f"{source} answers plan {found.plan_digest[:12]}, but {self.first} answers {plan.digest[:12]}"
        if found.schema_digest != plan.schema_digest:
            raise PoolError(
                f"{about}, which is for another schema; a pool needs releases of one schema and the same tables"
            )
        if found.plan.layout != plan.layout:
            raise PoolError(
                f"{about}, which asks for other tables; a pool needs releases of one schema and the same tables"
            )
        if found.private != plan.private:
            raise PoolError(f"{about}, and only one of them is private; a pool must not mix the two")


def _part(found: Release) -> Part:
    return Part(
        plan=found.plan_digest,
        stage=found.number,
        epsilon=float(found.epsilon),
        delta=found.delta,
        mu=found.plan.stage(found.number).mu,
        asked=None if found.asked is msgspec.UNSET else found.asked.epsilon,
        family=found.plan_digest if found.asked is msgspec.UNSET else found.asked.plan,
    )


def _scores(spent: list[list[Taken]]) -> Scores | None:
    """The answers to a score, client by client; None where nobody was asked."""
    if not any(one.score for own in spent for one in own):
        return None
    sums, sigmas = np.full(len(spent), np.nan), np.full(len(spent), np.nan)
    for i, own in enumerate(spent):
        # Of the plan, and its edition, that the client's tables answer: others are of other data, or another slope.
        families = {one.part.family for one in latest([one for one in own if one.score is None])}
        for one in own:
            if one.score is not None and one.part.family in families:
                sums[i], sigmas[i] = one.counts[0] / SCORE_PARTS, one.sigmas[0] / SCORE_PARTS
    return Scores(sums, sigmas)


def latest(taken: list[Taken]) -> list[Taken]:
    """The releases of a client's latest edition: its data changed since the earlier ones, which only cost."""
    last = max(one.edition for one in taken)
    return [one for one in taken if one.edition == last]


def combined(taken: list[Taken], layout: Layout) -> tuple[Floats, Floats]:
    """Counts and noise scales of several releases of one client, as one release by precision.

    Without noise the first is as good as all.
    """
    scales = np.stack([one.sigmas for one in taken])
    if len(taken) == 1 or not scales.all():
        return taken[0].counts.astype(np.float64), taken[0].sigmas
    precision = scales**-2.0
    weights = layout.per_cell(precision / precision.sum(axis=0))
    return np.einsum("sc,sc->c", weights, np.stack([one.counts for one in taken])), precision.sum(
        axis=0
    ) ** -0.5


def disagreement(client: str, taken: list[Taken], layout: Layout) -> Flag | None:
    """A flag where releases of one client contradict one another, or agree better than independent noise can.

    Σ_s (x_s − x)²/σ_s² over all cells is χ² with (releases − 1)·cells degrees of freedom.
    """
    scales = np.stack([one.sigmas for one in taken])
    if len(taken) == 1 or not scales.all():
        return None
    mean, _ = combined(taken, layout)
    deviation = (np.stack([one.counts for one in taken]) - mean) / layout.per_cell(scales)
    statistic, freedom = float(np.sum(deviation**2)), (len(taken) - 1) * layout.cells
    above, below = float(special.chdtrc(freedom, statistic)), float(special.chdtr(freedom, statistic))
    if above < FALSE_ALARM / 4:
        return Flag(client, "its releases contradict one another beyond their noise", above)
    if below < FALSE_ALARM / 4 and scales.min() >= TOO_GOOD_FROM:
        return Flag(client, "its releases agree better than independent noise allows", 1 - below)
    return None
