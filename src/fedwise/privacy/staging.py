"""Staging: noise in several stages, so that the total after each is a promise of its own.

Gaussian releases of scales σ_s of the same count are together one Gaussian release of precision Σ_s σ_s⁻². If
s(ε) is the scale that a promise ε needs of one release, the stages up to t must have precision 1/s(ε_t)², so stage t
adds

    1/σ_t² = 1/s(ε_t)² − Σ_{r<t} 1/σ_r²,

shared among the tables as in a plan of one stage. The sum of the ε of the stages plays no part. Each total is then
checked with the accountant of the discrete noise, all tables of all stages so far together, and enlarged until it
keeps its promise.

The second stage may ask for one number in place of the tables: the sum of a score between −1 and 1 for each record,
in tenths. One record changes it by 1 at most, as it changes one cell of a table. Its noise is drawn in tenths too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import PlanError
from .accounting import LossDistribution
from .judgement import EXACT_BELOW, composed
from .scales import (
    ROUNDING,
    SLACK,
    check_calibration,
    check_promise,
    covering_mu,
    keeps,
    rdp_scale,
    round_up,
    tight_scale,
)

Floats = npt.NDArray[np.float64]

#: A stage adds at least this part of the precision of all stages up to it.
LEAST_PART = 0.01
#: The stage that asks for a score, in a plan that has one, and how many parts a whole score has.
SCORE_STAGE, SCORE_PARTS = 2, 10
#: Most that covers noise beside a score, relatively: beyond it the accountant's own rounding would be charged.
MOST_COVER = 1.01
#: Least noise of a score: then parts are so fine beside it that the accountant's Gaussian covers it.
LEAST_SCORE_SIGMA = 5.0


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One stage of a plan: total ε after it, μ that covers all stages up to it, and its own noise by table.

    `asks` is ``score`` where it asks for the sum of a score: then there is one scale, the sum's, in whole scores.
    """

    epsilon: float
    mu: float
    sigmas: tuple[float, ...]
    asks: Literal["score"] | msgspec.UnsetType = msgspec.UNSET

    @property
    def scored(self) -> bool:
        """Whether it asks for a score in place of the tables."""
        return self.asks is not msgspec.UNSET

    @property
    def own_mu(self) -> float:
        """μ that covers the noise of this stage alone."""
        return (1.0 + SLACK) * math.sqrt(math.fsum(sigma**-2.0 for sigma in self.sigmas)) * (1.0 - 1e-12)

    @property
    def drawn(self) -> tuple[float, ...]:
        """Scale of the noise of each number that leaves, by table; a score leaves in parts."""
        return tuple(SCORE_PARTS * sigma for sigma in self.sigmas) if self.scored else self.sigmas


def stage_scales(
    totals: Sequence[float],
    epsilon: float,
    delta: float,
    shares: Floats,
    *,
    calibration: str = "tight",
    score: bool = False,
) -> tuple[Stage, ...]:
    """Noise of each stage.

    Parameters
    ----------
    totals
        Total ε after each stage, growing.
    epsilon, delta
        The promise of all stages together: the last total, and the δ of every total.
    shares
        Precision shares of the tables, positive, summing to 1.
    calibration
        ``tight`` or ``rdp``, as in `scales.calibrate`.
    score
        Whether the second stage asks for the sum of a score.

    Raises
    ------
    PlanError
        Stages do not grow, or grow by too little to be worth a release.
    """
    check_calibration(calibration)
    check_stages(totals, delta)
    if totals[-1] != epsilon:
        raise PlanError(
            f"stages must end at the plan's epsilon {epsilon:g}, got {totals[-1]:g}; pass epsilon={totals[-1]:g}"
        )
    if score and len(totals) > SCORE_STAGE + 1:
        raise PlanError(f"stages must be three beside a score, got {_listed(totals)}; give [0.05, 0.1, 1.0]")
    made: list[Stage] = []
    before = _Drawn(np.empty(0), None)
    for number, total in enumerate(totals, 1):
        scored = score and number == SCORE_STAGE
        sigmas, before = _stage(total, delta, shares, before, calibration, scored=scored)
        if scored and sigmas[0] < LEAST_SCORE_SIGMA:
            raise PlanError(
                f"stages must ask for a score at a small epsilon, got a total of {total:g}; give [0.05, 0.1, 1.0]"
            )
        mu = covering_mu(before.every, before.losses)
        if score and mu > MOST_COVER * math.sqrt(float(np.sum(before.every**-2.0))):
            raise PlanError(
                f"stages beside a score must begin smaller, got {_listed(totals)}; give [0.05, 0.1, 1.0]"
            )
        made.append(
            Stage(float(total), mu, tuple(sigmas.tolist()), asks="score" if scored else msgspec.UNSET)
        )
    return tuple(made)


def check_stages(epsilons: Sequence[float], delta: float) -> None:
    """Refuse totals that mean nothing, or do not grow."""
    for epsilon in epsilons:
        check_promise(epsilon, delta)
    if len(epsilons) < 2 or any(math.isinf(epsilon) for epsilon in epsilons):
        raise PlanError(
            f"stages must be at least two finite totals of epsilon, got {_listed(epsilons)}; give [0.1, 1.0]"
        )
    if any(b <= a for a, b in pairwise(epsilons)):
        raise PlanError(
            f"stages must grow, each the total epsilon after it, got {_listed(epsilons)}; give [0.1, 1.0]"
        )


def check_parts(
    stages: Sequence[Stage],
    sigmas: Floats,
    *,
    total: tuple[float, float],
    delta: float,
    bounds: tuple[float, float],
    where: str,
) -> None:
    """Refuse stages that contradict the plan they belong to.

    Parameters
    ----------
    sigmas
        Noise scale of each table, all stages together.
    total
        ε and μ of the plan.
    bounds
        A scale is above the first and at most the second.
    where
        What the plan is called in an error.
    """
    check_stages([stage.epsilon for stage in stages], delta)
    scored = any(stage.scored for stage in stages)
    if any(stage.scored != (scored and number == SCORE_STAGE) for number, stage in enumerate(stages, 1)):
        raise PlanError(f"{where} asks for a score in another stage than {SCORE_STAGE}; ask for a new copy")
    if scored and len(stages) > SCORE_STAGE + 1:
        raise PlanError(f"{where} has more than one stage after its score; ask for a new copy")
    fitting = all(len(stage.sigmas) == (1 if stage.scored else len(sigmas)) for stage in stages)
    if not fitting or not all(bounds[0] < sigma <= bounds[1] for stage in stages for sigma in stage.sigmas):
        raise PlanError(f"{where} has a stage whose noise scales do not fit its tables; ask for a new copy")
    if any(stage.scored and stage.sigmas[0] < LEAST_SCORE_SIGMA for stage in stages):
        raise PlanError(f"{where} asks for a score with too little noise to check; do not answer it")
    together = (
        np.sum([np.array(stage.sigmas) ** -2.0 for stage in stages if not stage.scored], axis=0) ** -0.5
    )
    growing = all(a.mu < b.mu for a, b in pairwise(stages))
    same = bool(np.allclose(together, sigmas, rtol=1e-5, atol=0))
    if not (same and growing and (stages[-1].epsilon, stages[-1].mu) == total):
        raise PlanError(f"{where} has stages that do not sum to its promise; ask for a new copy")


def _listed(epsilons: Sequence[float]) -> str:
    return f"[{', '.join(f'{epsilon:g}' for epsilon in epsilons)}]"


class _Drawn(NamedTuple):
    """Noise of all stages so far: scales of the tables, and of a score in whole scores."""

    tables: Floats
    score: float | None

    @property
    def every(self) -> Floats:
        """All scales."""
        return self.tables if self.score is None else np.append(self.tables, self.score)

    @property
    def losses(self) -> LossDistribution:
        """Privacy loss of all of it."""
        if self.score is None and not np.any(self.tables < EXACT_BELOW):
            return LossDistribution.of(self.tables)
        return composed(self.tables, score=self.score)


def _stage(
    epsilon: float, delta: float, shares: Floats, before: _Drawn, calibration: str, *, scored: bool
) -> tuple[Floats, _Drawn]:
    """Scales of one stage, and of all up to it."""
    slack = SLACK
    spent = float(np.sum(before.every**-2.0))
    while True:
        scale = (
            tight_scale(epsilon, delta) * (1 + slack) if calibration == "tight" else rdp_scale(epsilon, delta)
        )
        more = scale**-2.0 - spent
        if more < LEAST_PART * scale**-2.0:
            raise PlanError(
                f"stages must differ by more, got a stage of total epsilon {epsilon:g} that adds almost nothing; "
                "leave it out"
            )
        sigmas = round_up(1.0 / np.sqrt(more * (np.ones(1) if scored else shares)))
        drawn = (
            before._replace(score=float(sigmas[0]))
            if scored
            else before._replace(tables=np.concatenate([before.tables, sigmas]))
        )
        if keeps(drawn.losses, epsilon, delta * (1 - 1e-6) - ROUNDING):
            return sigmas, drawn
        slack *= 1.5
