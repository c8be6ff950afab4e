"""Forecast: the trained model's accuracy and fairness, predicted from the tables before anyone trains.

The pair tables of one-hot variables are the second moments of a linear model, so the model a federation
would learn can be solved for, and scored on records drawn from the target population's tables. Nothing
but released tables is used: no privacy is spent. Derivation and limits: docs/theory/forecast.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..estimation.estimates import Estimates
from ..schema.frame import FrameLike
from .design import Design
from .forecaster import Federation, Forecaster, Prediction, Settings
from .metrics import GAPS, NAMES, Metrics
from .objective import Forecast
from .valuation import Effect, FrontPoint, effects, front

__all__ = [
    "GAPS",
    "NAMES",
    "Design",
    "Effect",
    "Forecast",
    "Forecaster",
    "FrontPoint",
    "Metrics",
    "Prediction",
    "Settings",
    "effects",
    "front",
    "predict",
]


def predict(
    estimates: Estimates,
    federation: Federation,
    *,
    target: Sequence[str] | Estimates | FrameLike | None = None,
    settings: Settings | None = None,
    draws: int = 32,
    seed: int = 0,
) -> Prediction:
    """Forecast one federation. For several, make one `Forecaster` and call its `predict`."""
    return Forecaster(estimates, target, settings=settings).predict(federation, draws=draws, seed=seed)
