"""Gains: by how much asking a client again may lower the loss.

With m_i the margin of client i in the estimates and s_i the standard deviation of its pull on the loss, what a precise
answer shows is m_i − s_i·z. Asking i is worth the mean of what lies below zero,

    E max(0, s_i z − m_i) = s_i φ(u) − m_i Φ(−u),     u = m_i / s_i.

A chance to belong to the best federation would count a client that is hardly better than its replacement as much as one
that is far better. Where so few can be asked that the stated chance cannot be kept, it is the loss that matters. But
s_i is the largest for clients unlike all others. Where the releases show most of what tells clients apart, that order
asks those, and leaves out more members of the best federation than the chances do: there the chances decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..deferred import Deferred
from ..estimation.estimates import Estimates
from .client_errors import client_errors, known_share
from .pfl import PFL
from .problem import Objective
from .scores import Told

if TYPE_CHECKING:
    from scipy import special
else:
    special = Deferred("scipy.special")

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

#: Part of what tells clients apart that releases show, from which chances decide: small areas have .1 to .6 at ε = 0.1,
#: census states .7 to .9. Set by these shares.
SHOWN = 0.65


def expected_gain(margin: Floats, spread: Floats) -> Floats:
    """E max(0, −x) for x normal with these means and standard deviations; 0 spread leaves max(0, −margin)."""
    u = np.divide(margin, spread, out=np.zeros_like(margin), where=spread > 0)
    density = np.exp(-0.5 * u**2) / np.sqrt(2.0 * np.pi)
    found = spread * density - margin * special.ndtr(-u)
    return np.asarray(np.maximum(np.where(spread > 0, found, -margin), 0.0))


def gains(
    estimates: Estimates,
    goal: Objective,
    members: tuple[int, ...],
    margin: Floats,
    among: Flags,
    told: Told | None = None,
) -> Floats | None:
    """Expected gain of asking each client, where the releases of those still to be asked show little; else nothing.

    Parameters
    ----------
    members
        The federation that the estimates choose.
    margin
        Shape (clients,): margin of each client at it.
    among
        Who can still be asked.
    told
        What answers to a score say of the clients; with them gains decide, whatever the tables show.
    """
    if not isinstance(goal, PFL) or estimates.posterior is None or not among.any():
        return None
    if told is None and known_share(estimates, goal.weights, among, alone=True) >= SHOWN:
        return None
    everybody, chosen = np.arange(len(estimates.clients)), np.asarray(members, dtype=np.int64)
    spread = client_errors(estimates, estimates.posterior, chosen, everybody, goal.weights)
    if told is not None:
        margin, spread = margin + told.shift, spread * told.left
    return expected_gain(margin, spread)
