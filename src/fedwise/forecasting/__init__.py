"""Forecast: the trained model's accuracy and fairness, predicted from the tables before anyone trains.

The pair tables of one-hot variables are the second moments of a linear model, so the model a federation
would learn can be solved for, and scored on records drawn from the target population's tables. Nothing
but released tables is used: no privacy is spent. Derivation and limits: docs/theory/forecast.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..estimation import Releases, estimate
from ..estimation.estimates import Estimates
from ..schema.frame import FrameLike
from ..search.problem import Objective
from ..search.selection import ForecastValue, Selection
from .class_metrics import names_for
from .design import Design
from .forecaster import Forecaster
from .labels import Labels
from .members import Federation
from .metrics import ALL, GAPS, NAMES, Metrics
from .objective import Forecast
from .settings import Prediction, Settings
from .valuation import Effect, TradeOff, effects, front

__all__ = [
    "ALL",
    "GAPS",
    "NAMES",
    "Design",
    "Effect",
    "Forecast",
    "Forecaster",
    "Labels",
    "Metrics",
    "Prediction",
    "Settings",
    "TradeOff",
    "effects",
    "front",
    "names_for",
    "predict",
    "with_forecast",
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


def with_forecast(
    selection: Selection,
    pool: Releases | Estimates,
    *,
    objective: Objective | None = None,
    model: str = "mlp",
) -> Selection:
    """The selection, with the forecast metrics of the model its federation would train, and 90% intervals for them.

    Parameters
    ----------
    pool
        What the selection was made from.
    objective
        What the search minimised. Where that is a forecast, its target and settings are shown.
    model
        The model that will be trained, ``mlp`` or ``logistic``, for any other objective.
    """
    made = getattr(objective, "forecaster", None)
    if made is None:
        estimates = pool if isinstance(pool, Estimates) else estimate(pool, selection.estimator)
        made = Forecaster(estimates, settings=Settings.for_model(model))
    found = made.predict(selection.clients, seed=selection.seed)
    values = []
    for name in made.names:
        bounds = found.interval(name) or (None, None, True)
        values.append(ForecastValue(name, found.metrics.value(name), found.std_errors.get(name), *bounds))
    return msgspec.structs.replace(selection, forecast=tuple(values))
