"""Results: Flower's own history of metrics as the records of a run directory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from flwr.serverapp.strategy import Result

from ..training.records import Record

#: What Flower calls each history, and which rows it is about: the server's test rows, those of the members, training.
_HISTORIES = (
    ("evaluate_metrics_serverapp", "all"),
    ("evaluate_metrics_clientapp", "own"),
    ("train_metrics_clientapp", "training"),
)


def records_of(result: Result) -> list[Record]:
    """Every number of every round; lists and what is not finite are left out."""
    found: list[Record] = []
    for name, rows in _HISTORIES:
        history: Mapping[int, Mapping[str, Any]] = getattr(result, name, None) or {}
        for number, metrics in sorted(history.items()):
            for metric, value in sorted(metrics.items()):
                if isinstance(value, int | float) and math.isfinite(value):
                    found.append(Record(int(number), rows, "", _name(metric), "", float(value)))
    return found


def _name(metric: str) -> str:
    """Flower's apps write ``eval_acc`` and ``val-loss``; a report knows ``accuracy`` and ``loss``."""
    plain = metric.lower().replace("-", "_")
    for prefix in ("eval_", "evaluate_", "val_", "test_", "train_", "cen_"):
        plain = plain.removeprefix(prefix)
    return {"acc": "accuracy"}.get(plain, plain)
