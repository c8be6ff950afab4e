"""Forecast: the trained model's metrics as the tables predict them, in the words of the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import FedwiseError
from ..estimation.estimates import Estimates
from ..objective.metric import parse
from .outcomes import Measure

if TYPE_CHECKING:
    from ..forecasting import Forecaster

#: Metrics shown, with the words people read.
METRICS = {
    "auc": "AUC",
    "balanced_accuracy": "Balanced accuracy",
    "balanced_accuracy@rate": "Balanced accuracy, rate-matched",
    "macro_f1": "Macro-F1",
    "rmse": "RMSE",
    "mae": "Mean absolute error",
    "f1": "F1",
    "spd": "Parity gap (SPD)",
    "spd@rate": "Parity gap (SPD), rate-matched",
    "eod": "Opportunity gap (EOD)",
    "eod@rate": "Opportunity gap (EOD), rate-matched",
    "error_gap": "Gap of mean error",
    "mae_gap": "Gap of absolute error",
}
#: Pools above this many cells (clients × cells) get no error bars: redrawing their noise takes minutes.
_MOST_CELLS = 1_000_000


def forecaster(estimates: Estimates, model: str = "mlp") -> Forecaster | None:
    """What predicts any federation of a pool; ``None`` where the plan lacks the tables for it.

    `model` is the one that was or will be trained: the forecast follows it.
    """
    from ..forecasting import Forecaster, Settings

    try:
        return Forecaster(estimates, settings=Settings.for_model(model))
    except FedwiseError:
        return None


def measures(
    found: Forecaster | None, clients: Sequence[str], *, draws: int = 16, seed: int = 0
) -> list[Measure]:
    """Predicted metrics of a federation, with 90% intervals for those of the trained model."""
    if found is None:
        return []
    noisy = bool(np.any(found.estimates.sigmas > 0))
    if noisy and found.estimates.cells.size > _MOST_CELLS:
        draws = 0
    predicted = found.predict(list(clients), draws=draws, seed=seed)
    schema, first = found.estimates.schema, found.design.attribute
    name = schema.names[first] if first is not None else ""
    out = []
    for metric, label in _shown(found).items():
        value = predicted.metrics.value(metric)
        low, high, known = predicted.interval(metric) or (None, None, True)
        by = name if parse(metric).compares_groups else ""
        shown = f"{label} of {by}" if by and len(schema.sensitive) > 1 else label
        out.append(
            Measure(label=shown, metric=metric, value=value, low=low, high=high, attribute=by, known=known)
        )
    return out + _other_attributes(found, clients)


def _shown(found: Forecaster) -> dict[str, str]:
    """The metrics shown of this target, with their words."""
    return {metric: label for metric, label in METRICS.items() if metric in found.names}


def _other_attributes(found: Forecaster, clients: Sequence[str]) -> list[Measure]:
    """Gaps between the groups of the other sensitive attributes; no intervals."""
    schema, first = found.estimates.schema, found.design.attribute
    columns = [metric for metric in _shown(found) if parse(metric).compares_groups]
    asked = [
        (column, parse(column)._replace(attribute=schema.names[i]))
        for i in schema.sensitive
        if i != first
        for column in columns
    ]
    if not asked:
        return []
    try:
        sums = found.rows[found.positions(list(clients))].sum(axis=0)
        values = found.values(sums[None, :], [str(metric) for _, metric in asked])[0]
    except FedwiseError:
        return []
    return [
        Measure(
            label=f"{METRICS[column]} of {metric.attribute}",
            metric=column,
            value=float(value),
            attribute=metric.attribute,
        )
        for (column, metric), value in zip(asked, values, strict=True)
    ]
