"""Interval: how far a trained metric may lie from what was predicted of it, for forecast and rehearsal alike.

Two things part a prediction from the trained value: the released noise with whatever else was drawn, whose variance is
known where the metric is predicted; and what the predicting model lacks, its *gap*, calibrated on census pools.

    value ± z · √(noise variance + gap²)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from .metric import parse

#: Two-sided normal quantile of the intervals: 90%.
Z = 1.6448536269514722
#: Noise drowns a metric whose interval would reach this far by noise alone; one without an upper bound, a share of it.
_DROWNED, _DROWNED_SHARE = 0.1, 0.5
#: What is said in place of a number that the noise drowns.
UNKNOWN = "not known at this epsilon"
#: Gap of a metric that was not calibrated.
OTHER_GAP = 0.03


class Interval(NamedTuple):
    """Bounds of a 90% interval; `known` is false where the noise drowns the answer."""

    low: float
    high: float
    known: bool = True


def interval(metric: str, value: float, *, noise: float, gap: float) -> Interval:
    """A 90% interval for the trained value, within what the metric can be.

    Parameters
    ----------
    noise
        Variance by noise and drawing; NaN where it is not known: the bounds are then those of the metric.
    gap
        Standard deviation by which the trained value differs for what the predicting model lacks.
    """
    least, most = parse(metric).bounds
    reach = Z * math.sqrt(noise + gap**2)
    drowned = _DROWNED if math.isfinite(most) else _DROWNED_SHARE * abs(value)
    known = not Z * math.sqrt(noise) > drowned
    return Interval(max(least, value - reach), min(most, value + reach), known)


def gap_of(metric: str, calibrated: Mapping[str, float], quantile: float) -> float:
    """The gap of a metric, from gaps by metric without attribute.

    A few pools tell a gap badly, so it is widened: `quantile` is that of Student's t with as many degrees of freedom as
    there were pools, in place of the normal one.
    """
    wanted = parse(metric)._replace(attribute="")
    return quantile / Z * calibrated.get(str(wanted), calibrated.get(wanted.base, OTHER_GAP))
