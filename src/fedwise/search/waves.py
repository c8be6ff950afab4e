"""Waves: a stage asked in parts, so that the first answers tell better who else is worth asking.

Where the first stage is mostly noise, so is what it tells of the pool: how much clients differ, and in what. Those
who answer the next stage show that, and the first releases of all others say more once it is known. So a stage can be
asked in several waves, each with a shortlist from all answers so far. Nobody is asked more than before, and the number
asked in all is the same; only their order is new. Figures: docs/theory/stages.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError, PoolError
from ..owner.shortlisted import Shortlist, Wave
from ..pool.pool import Pool

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

#: More waves than any stage is asked in.
MOST_WAVES = 100
#: Waves of a plan that asks for a score, unless another number is given: the first shows what to score by.
WITH_SCORE = 4


class Asking(TypedDict, total=False):
    """How many clients a shortlist asks, and in how many waves: keywords of `fedwise.shortlist`."""

    size: int | None
    most: int | None
    waves: int | None


@dataclass(frozen=True)
class Turn:
    """What is asked next: the stage, the wave of it, how many waves it has, and who was asked for it before."""

    stage: int
    number: int
    of: int
    before: tuple[str, ...]

    @property
    def left(self) -> int:
        """Waves from this one on."""
        return self.of - self.number + 1

    def wave(self, added: tuple[str, ...]) -> Wave | None:
        """This wave as the shortlist tells it; nothing where a stage is asked at once."""
        return Wave(self.number, self.of, added) if self.of > 1 else None


def next_turn(pool: Pool, waves: int | None) -> Turn:
    """The stage and wave that are asked next.

    A shortlist that the pool keeps and whose waves are not over goes on; else a new stage begins. In a plan that asks
    for a score, the first wave of the stage after it goes ahead: its tables show what to score by.

    Raises
    ------
    FedwiseError
        The number of waves is out of bounds, or another one than before.
    PoolError
        The plan has no stages, or all were asked.
    """
    if waves is None:
        waves = 1 if pool.plan.scored is None else WITH_SCORE
    if isinstance(waves, bool) or not 1 <= waves <= MOST_WAVES:
        raise FedwiseError(f"waves must be between 1 and {MOST_WAVES}, got {waves}; 4 is a good number")
    kept = pool.shortlist
    if kept is not None and kept.plan_digest != pool.plan.digest:
        kept = None
    if pool.plan.scored is not None:
        return _scored_turn(pool, waves, kept)
    if kept is None or kept.complete:
        return Turn(next_stage(pool, waves), 1, waves, ())
    _check_waves(kept, waves)
    assert isinstance(kept.wave, Wave)
    return Turn(kept.stage, kept.wave.number + 1, kept.wave.of, kept.clients)


def _check_waves(kept: Shortlist, waves: int) -> None:
    """Waves that have begun go on as they began."""
    if isinstance(kept.wave, Wave) and not 1 <= kept.wave.number <= kept.wave.of <= MOST_WAVES:
        raise FedwiseError(
            f"the shortlist beside the releases must have a wave of 1 to {kept.wave.of}, got {kept.wave.number}; "
            "restore it, or remove shortlist.json to begin the stage anew"
        )
    if isinstance(kept.wave, Wave) and waves != kept.wave.of:
        raise FedwiseError(
            f"waves must be {kept.wave.of}, as in the shortlist of wave {kept.wave.number} kept beside the releases, "
            f"got {waves}; give that number, or remove shortlist.json to begin the stage anew"
        )


def _scored_turn(pool: Pool, waves: int, kept: Shortlist | None) -> Turn:
    """The next turn of a plan that asks for a score: a first wave of tables, the score, then the other waves."""
    score, last = pool.plan.scored, len(pool.plan.staged)
    assert score is not None
    if kept is not None and kept.stage == score and last > score:
        _check_waves(kept, waves)
        number = 1 if kept.wave is msgspec.UNSET else kept.wave.number + 1
        return Turn(last, number, waves, () if kept.ahead is msgspec.UNSET else kept.ahead)
    if kept is not None and kept.stage == last and not kept.complete:
        _check_waves(kept, waves)
        assert isinstance(kept.wave, Wave)
        number = kept.wave.number
        return (
            Turn(score, 1, waves, kept.clients)
            if number == 1
            else Turn(last, number + 1, waves, kept.clients)
        )
    answered = tuple(spending.client for spending in pool.spendings if spending.stage == last)
    if kept is None and answered and pool.scores is None:  # the list of those who went ahead is lost
        return Turn(score, 1, waves, answered)
    stage = next_stage(pool, waves)  # refuses where all were asked
    ahead_first = stage == score and waves > 1 and last > score
    return Turn(last, 1, waves, ()) if ahead_first else Turn(stage, 1, 1 if stage == score else waves, ())


def next_stage(pool: Pool, waves: int = 1) -> int:
    """The stage that is asked next.

    Raises
    ------
    PoolError
        The plan has no stages, or all were asked.
    """
    stages = pool.plan.staged
    if not stages:
        raise PoolError(
            f"pool must answer a plan with stages, got plan {pool.plan.digest[:12]} without any; make one with "
            "fedwise plan --stages 0.1,1"
        )
    answered = max((spending.stage for spending in pool.spendings), default=1)
    if answered >= len(stages):
        go_on = "run fedwise select"
        if waves > 1:
            go_on += ", or keep the last wave's shortlist.json beside the releases to go on with its waves"
        raise PoolError(
            f"pool must have a stage left to ask, got releases of stage {answered}, the last one; {go_on}"
        )
    return answered + 1


def eliminate(
    chances: Floats,
    able: Flags,
    *,
    allowed: float,
    size: int | None = None,
    most: int | None = None,
    least: int = 1,
    before: Flags | None = None,
    waves: int = 1,
    gains: Floats | None = None,
) -> Flags:
    """Who is asked: the clients of the largest chances, so many that those left out sum to `allowed` at most.

    Where a number allows fewer than the chance needs, it is the clients of the largest gains.

    Parameters
    ----------
    chances
        Shape (clients,): chance of each to be in the best federation.
    able
        Who can be asked at all. The others count neither as asked nor as left out.
    size, most, least
        How many to ask instead; at most; at least.
    before
        Who was asked for this stage in earlier waves: they stay asked and count among the number.
    waves
        Waves that are left: of those still to ask, this one asks an equal part.
    gains
        Shape (clients,): by how much asking each may lower the loss. Default: the chances decide always.
    """
    asked = np.zeros(len(chances), dtype=np.bool_) if before is None else before.copy()
    already = int(asked.sum())
    free = able & ~asked
    order = np.flatnonzero(free)[np.argsort(-chances[free], kind="stable")]
    left = np.concatenate([np.cumsum(chances[order][::-1])[::-1], [0.0]])
    needed = max(int(np.argmax(left <= allowed)), least - already)
    wanted = needed if size is None else max(size - already, 0)
    number = min(max(wanted, 0), len(order), len(order) if most is None else max(most - already, 0))
    if gains is not None and number < needed:
        order = order[np.argsort(-gains[order], kind="stable")]  # equal gains: the larger chance first
    asked[order[: -(-number // waves)]] = True
    return asked
