"""Hidden: what a person's record tells of the label beyond the tables that were asked.

In the log-linear model behind people the label's log-odds are a sum over features. Those of rows are not: features act
together, and a network trained on rows learns some of that. On doubles there is nothing of the kind to learn, so a
rehearsed network would look too weak, in all metrics at once. Which features act together no release tells; how much
it comes to is much the same on every census pool. So people have hidden log-odds

    h ~ N(0, η²),    chance = σ(κ_η·l + h)    for log-odds l by the tables,

and a network knows them as far as it has learnt what the tables tell, by b, the slope of its scores on l:

    score = κ_bη·z + b·h,    κ_η = √(1 + πη²/8).

κ keeps what is known without h: the mean of σ(κ_η·l + h) over h is σ(l), nearly. A score that is a sum over inputs
cannot learn h. η = 0.4, and at most half of the variance of l: features that tell little alone tell less together, as
products of small effects are smaller. How it was found, and on which pools: docs/theory/rehearsal.md.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..training.model import Vector
from ..training.ranking import probability

Floats = npt.NDArray[np.float64]

#: Standard deviation of the hidden log-odds, and the most of it as a share of the variance of log-odds by the tables.
HIDDEN, MOST_SHARE = 0.4, 0.5
#: Least chance, and least counter-chance, whose log-odds are told apart.
_LEAST = 1e-4
#: Least slope that is divided by.
_LEAST_SLOPE = 0.05


class Learnt(NamedTuple):
    """How far a model has learnt what the tables tell, from 0 to 1, and how much these tell: a spread of log-odds."""

    slope: float
    known: float

    @property
    def hidden(self) -> float:
        """Standard deviation of the hidden log-odds."""
        return min(HIDDEN, MOST_SHARE * self.known**2)


#: Of a model that cannot learn more than the tables tell.
NOTHING = Learnt(0.0, 0.0)


def learnt(
    scores: Vector, chance: Floats, own_scores: Vector | None = None, own_chance: Floats | None = None
) -> Learnt:
    """What a model has learnt, from its scores of people and their chances by the tables.

    Under noise the slope is that on people of the doubles' own half of the noise (`own_scores`, `own_chance`): noise in
    the log-odds of others would flatten it. What the tables tell is what the scores share with the log-odds of people
    of the other half: what noise alone tells is not in it, so it does not grow with the noise.
    """
    shared, spread = _moments(scores, chance)
    own = (shared, spread) if own_scores is None or own_chance is None else _moments(own_scores, own_chance)
    slope = min(max(own[0] / max(own[1], 1e-300), 0.0), 1.0)
    known = min(max(shared / max(slope, _LEAST_SLOPE), 0.0), spread)
    return Learnt(slope, math.sqrt(known))


def normal(count: int, seed: int) -> Floats:
    """What the hidden log-odds of so many people are drawn from."""
    return np.random.default_rng([seed, 0x41DDE2]).standard_normal(count)


def with_hidden(chance: Floats, drawn: Floats, spread: float) -> Floats:
    """Chances by everything in a record, from those by the tables."""
    return probability(_widened(spread) * log_odds(chance) + spread * drawn)


def knowing(scores: Vector, drawn: Floats, spread: float) -> Vector:
    """Scores of a model that knows hidden log-odds of this spread."""
    return np.asarray(_widened(spread) * scores + spread * drawn, dtype=scores.dtype)


def log_odds(chance: Floats) -> Floats:
    """Log-odds of chances that are neither 0 nor 1."""
    inside = np.clip(chance, _LEAST, 1.0 - _LEAST)
    return np.asarray(np.log(inside) - np.log1p(-inside))


def _moments(scores: Vector, chance: Floats) -> tuple[float, float]:
    """Covariance of scores with log-odds, and the variance of these, among people whose label is open.

    A label that is all but certain tells nothing of a slope, and its log-odds may be of any size: people count by the
    square of their label's variance.
    """
    wanted, weight = log_odds(chance), (chance * (1.0 - chance)) ** 2
    weight = weight / max(float(weight.sum()), 1e-300)
    wanted = wanted - float((weight * wanted).sum())
    return float((weight * wanted * scores).sum()), float((weight * wanted**2).sum())


def _widened(spread: float) -> float:
    """κ: by how much the known part widens when a normal part is added and the mean chance is to stay."""
    return math.sqrt(1.0 + math.pi * spread**2 / 8.0)
