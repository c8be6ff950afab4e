"""Margins: how far each client is from belonging to the best federation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .constraints import Limits
from .control import Control
from .neighbourhood import best_swaps
from .problem import Problem

Floats = npt.NDArray[np.float64]


def margins(problem: Problem, limits: Limits, members: tuple[int, ...], *, control: Control) -> Floats:
    """Signed margin of every client: by how much the loss rises at least if it must join, or minus, if it must leave.

    Beyond all others for a client that cannot join, and below all others for one that must stay.
    """
    inside = np.asarray(members, dtype=np.int64)
    pairs = len(inside) * (len(problem.clients) - len(inside))
    swaps = best_swaps(problem, limits, inside, control=control, keep=max(pairs, 1))
    rise = np.maximum(swaps.losses - problem.loss(inside), 0.0)
    found = np.full(len(problem.clients), np.inf)
    np.minimum.at(found, swaps.ins, rise)
    leave = np.full(len(problem.clients), np.inf)
    np.minimum.at(leave, swaps.outs, rise)
    found[inside] = -np.maximum(leave[inside], np.finfo(np.float64).tiny)
    widest = float(rise.max(initial=0.0)) + 1.0
    return np.asarray(np.clip(found, -widest, widest), dtype=np.float64)
