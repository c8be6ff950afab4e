"""Gains: by how much asking a client again may lower the loss.

With m_i the margin of client i in the estimates and s_i the standard deviation of its pull on the loss, what a precise
answer shows is m_i − s_i·z. Asking i is worth the mean of what lies below zero,

    E max(0, s_i z − m_i) = s_i φ(u) − m_i Φ(−u),     u = m_i / s_i.

A chance to belong to the best federation would count a client that is hardly better than its replacement as much as one
that is far better. When only a number of clients can be asked, it is the loss that matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..deferred import Deferred
from ..estimation.estimates import Estimates
from .client_errors import client_errors
from .pfl import PFL
from .problem import Objective

if TYPE_CHECKING:
    from scipy import special
else:
    special = Deferred("scipy.special")

Floats = npt.NDArray[np.float64]


def expected_gain(margin: Floats, spread: Floats) -> Floats:
    """E max(0, −x) for x normal with these means and standard deviations; 0 spread leaves max(0, −margin)."""
    u = np.divide(margin, spread, out=np.zeros_like(margin), where=spread > 0)
    density = np.exp(-0.5 * u**2) / np.sqrt(2.0 * np.pi)
    found = spread * density - margin * special.ndtr(-u)
    return np.asarray(np.maximum(np.where(spread > 0, found, -margin), 0.0))


def spreads(estimates: Estimates, goal: Objective, members: tuple[int, ...], drawn: Floats) -> Floats:
    """Standard deviation of each client's margin at `members`, by the posterior where the loss has a known slope.

    Other objectives, and estimates without a posterior, have the spread of the margins over draws, `drawn`. That is
    wider: in a draw the members differ as well, and with them what every margin is measured against.
    """
    if not isinstance(goal, PFL) or estimates.posterior is None:
        return drawn
    everybody = np.arange(len(estimates.clients))
    chosen = np.asarray(members, dtype=np.int64)
    return client_errors(estimates, estimates.posterior, chosen, everybody, goal.weights)
