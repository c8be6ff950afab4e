"""Gap: how far trained metrics lie from their forecasts beyond the privacy noise.

The forecast's model is not the trained one: it is one step from the pool's, additive in its inputs, and never trained.
How much that matters was estimated on nine census pools with benchmarks/forecast_intervals.py, and four others checked
it (docs/results/forecast_intervals.md). Most of a gap is a level that all federations of a pool share.
"""

from __future__ import annotations

from ..objective import interval

#: Root mean square over the calibration pools of what is left of trained − forecast, by metric without attribute.
CALIBRATED_GAP = {
    "auc": 0.0162, "loss": 0.0158, "balanced_accuracy": 0.0258, "balanced_accuracy@rate": 0.0191, "spd": 0.0527,
    "eod": 0.0777, "spd@rate": 0.0528, "eod@rate": 0.0785,
}  # fmt: skip
#: Student's t with 9 degrees of freedom, one for each pool: 95%.
_QUANTILE = 1.8331


def gap_of(metric: str) -> float:
    """Standard deviation by which a trained metric differs from its forecast for what the forecast's model lacks."""
    return interval.gap_of(metric, CALIBRATED_GAP, _QUANTILE)
