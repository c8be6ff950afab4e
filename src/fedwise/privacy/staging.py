"""Staging: noise in several stages, so that the total after each is a promise of its own.

Gaussian releases of scales σ_s of the same count are together one Gaussian release of precision Σ_s σ_s⁻². If
s(ε) is the scale that a promise ε needs of one release, the stages up to t must have precision 1/s(ε_t)², so stage t
adds

    1/σ_t² = 1/s(ε_t)² − Σ_{r<t} 1/σ_r²,

shared among the tables as in a plan of one stage. The sum of the ε of the stages plays no part. Each total is then
checked with the accountant of the discrete noise, all tables of all stages so far together, and enlarged until it
keeps its promise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

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


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One stage of a plan: total ε after it, μ that covers all stages up to it, and its own noise by table."""

    epsilon: float
    mu: float
    sigmas: tuple[float, ...]


def stage_scales(
    totals: Sequence[float], epsilon: float, delta: float, shares: Floats, *, calibration: str = "tight"
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
    made: list[Stage] = []
    before = np.empty(0)
    for total in totals:
        sigmas = _stage(total, delta, shares, before, calibration)
        before = np.concatenate([before, sigmas])
        made.append(Stage(float(total), covering_mu(before, _losses(before)), tuple(sigmas.tolist())))
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


def _listed(epsilons: Sequence[float]) -> str:
    return f"[{', '.join(f'{epsilon:g}' for epsilon in epsilons)}]"


def _stage(epsilon: float, delta: float, shares: Floats, before: Floats, calibration: str) -> Floats:
    slack = SLACK
    spent = float(np.sum(before**-2.0))
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
        sigmas = round_up(1.0 / np.sqrt(more * shares))
        if keeps(_losses(np.concatenate([before, sigmas])), epsilon, delta * (1 - 1e-6) - ROUNDING):
            return sigmas
        slack *= 1.5


def _losses(sigmas: Floats) -> LossDistribution:
    return composed(sigmas) if np.any(sigmas < EXACT_BELOW) else LossDistribution.of(sigmas)
