"""Gap: what doubles lack, as a standard deviation of trained minus rehearsed metrics beyond noise and drawing.

Doubles know pairs of columns; real rows hold more. How much that matters was estimated on three census pools with
benchmarks/rehearsal.py (docs/theory/rehearsal.md says how), and four others checked it. Two further pools of
benchmarks/hidden.py widened that of SPD at the matched rate. A gap is mostly a level that all federations of a pool
share: it widens intervals and leaves comparisons alone.
"""

from __future__ import annotations

from ..objective import interval

#: Root mean square over the calibration pools of what is left of trained − rehearsed, by metric without attribute.
CALIBRATED_GAP = {
    "auc": 0.0129, "loss": 0.0137, "balanced_accuracy": 0.0164, "balanced_accuracy@rate": 0.0105, "spd": 0.0187,
    "eod": 0.0413, "spd@rate": 0.0293, "eod@rate": 0.0360,
}  # fmt: skip
#: Student's t with 3 degrees of freedom, one for each pool: 95%.
_QUANTILE = 2.3534


def gap_of(metric: str) -> float:
    """Standard deviation by which a trained metric differs from its rehearsal for lack of structure in doubles."""
    return interval.gap_of(metric, CALIBRATED_GAP, _QUANTILE)
