"""Outcomes: tables of training metrics in, curves and final values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import polars as pl

from ..errors import FedwiseError
from ..objective.metric import parse

#: Metrics shown, with the words people read. Fairness gaps are absolute.
METRICS = {
    "auc": "AUC",
    "macro_auc": "Macro AUC",
    "macro_f1": "Macro-F1",
    "mae": "Mean absolute error",
    "rmse": "Root mean squared error (RMSE)",
    "loss": "Log loss",
    "brier": "Brier score",
    "balanced_accuracy": "Balanced accuracy",
    "balanced_accuracy@rate": "Balanced accuracy, rate-matched",
    "f1": "F1",
    "f1@rate": "F1, rate-matched",
    "spd": "Statistical parity gap (SPD)",
    "spd@rate": "Statistical parity gap (SPD), rate-matched",
    "eod": "Equal opportunity gap (EOD)",
    "eod@rate": "Equal opportunity gap (EOD), rate-matched",
    "mad": "Accuracy gap (MAD)",
    "error_gap": "Gap of the mean error",
    "mae_gap": "Gap of the mean absolute error",
}
GAPS = ("spd", "eod", "mad", "error_gap", "mae_gap")
#: Why a table has both.
BOTH = (
    "Metrics are at probability ½ unless they say rate-matched: then the threshold is moved until as many rows are "
    "predicted positive as are positive. At ½ a model that says yes more often can look better, or fairer, for that "
    "alone; at the same positive rate it cannot."
)
#: Metrics that only the last round has: no line can be drawn.
_LAST = frozenset({"brier", *(metric for metric in METRICS if "@" in metric)})
#: Which rows were tested, in words.
SCOPES = {"all": "held-out rows of all clients", "own": "held-out rows of the federation's own clients"}

Runs = Mapping[str, pl.DataFrame | Sequence[pl.DataFrame]]


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """A number people know, with an interval where there is one: at 95% of a training, at 90% of a forecast.

    `attribute` is set where groups are compared. `known` is false where the noise drowns a forecast.
    """

    label: str
    metric: str
    value: float
    low: float | None = None
    high: float | None = None
    attribute: str = ""
    known: bool = True


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one training over the rounds: mean over seeds, smallest and largest."""

    label: str
    metric: str
    attribute: str = ""
    seeds: int
    rounds: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]

    @property
    def still_falling(self) -> bool:
        """Whether a loss was still falling when training stopped: the last fifth of the rounds brought more than a
        twentieth of all that it fell. Fewer than three tested rounds show nothing.
        """
        if len(self.mean) < 3:
            return False
        late = self.mean[-1 - max(1, len(self.mean) // 5)] - self.mean[-1]
        return late > 0.05 * (self.mean[0] - self.mean[-1]) > 0


class TrainingOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of training, chosen federation first, baselines after it; gaps between the groups of every attribute."""

    scope: str
    #: The first of `attributes`: the name that readers of 0.1.0's reports know.
    attribute: str
    attributes: list[str]
    curves: list[Curve]
    final: list[Measure]


def outcome_of(runs: Runs, *, scope: str = "all") -> TrainingOutcome | None:
    """Curves and final values of each labelled training.

    Parameters
    ----------
    runs
        Label to a table of metrics, or to a table for each seed; columns as `fedwise.training.run` writes them. The
        first is the chosen federation, the others are baselines.
    scope
        Which tested rows: ``all`` (every method on the same rows) or ``own``.

    Raises
    ------
    FedwiseError
        A table lacks the columns of a table of metrics.
    """
    curves: list[Curve] = []
    final: list[Measure] = []
    attributes: list[str] = []
    for label, frames in runs.items():
        seeds = [frames] if isinstance(frames, pl.DataFrame) else list(frames)
        for frame in seeds:
            missing = {"round", "rows", "metric", "attribute", "value"} - set(frame.columns)
            if missing:
                raise FedwiseError(
                    f"metrics of '{label}' must have a column '{sorted(missing)[0]}'; pass the metrics.parquet of a run"
                )
        kept = [_tested(frame, scope) for frame in seeds]
        kept = [frame for frame in kept if frame.height]
        if not kept:
            continue
        # In the order of the table, which is that of the schema.
        known = [a for frame in kept for a in frame["attribute"].unique(maintain_order=True).to_list() if a]
        attributes += [a for a in dict.fromkeys(known) if a not in attributes]
        for metric in METRICS:
            for by in attributes if parse(metric).compares_groups else [""]:
                curve = _curve(label, metric, by, kept)
                if curve is not None:
                    final.append(_final(curve, by, kept))
                    if metric not in _LAST:
                        curves.append(curve)
    if not curves:
        return None
    first = attributes[0] if attributes else ""
    return TrainingOutcome(
        scope=SCOPES.get(scope, scope), attribute=first, attributes=attributes, curves=curves, final=final
    )


def _tested(frame: pl.DataFrame, scope: str) -> pl.DataFrame:
    return frame.filter((pl.col("rows") == scope) & pl.col("value").is_finite())


def _curve(label: str, metric: str, attribute: str, frames: Sequence[pl.DataFrame]) -> Curve | None:
    lines = [
        frame.filter((pl.col("metric") == metric) & (pl.col("attribute") == attribute)).select(
            "round", "value"
        )
        for frame in frames
    ]
    lines = [line for line in lines if line.height]
    if not lines:
        return None
    table = (
        pl.concat(lines)
        .group_by("round")
        .agg(
            pl.col("value").mean().alias("mean"),
            pl.col("value").min().alias("low"),
            pl.col("value").max().alias("high"),
            pl.len().alias("seeds"),
        )
        .sort("round")
    )
    return Curve(
        label=label,
        metric=metric,
        attribute=attribute,
        seeds=len(lines),
        rounds=table["round"].to_list(),
        mean=table["mean"].to_list(),
        low=table["low"].to_list(),
        high=table["high"].to_list(),
    )


def _final(curve: Curve, attribute: str, frames: Sequence[pl.DataFrame]) -> Measure:
    """Last round: the spread over seeds, or the bootstrap interval of a single run where one was made."""
    low: float | None = curve.low[-1]
    high: float | None = curve.high[-1]
    if curve.seeds == 1:
        low = high = None
        if "low" in frames[0].columns:
            last = frames[0].filter(
                (pl.col("metric") == curve.metric)
                & (pl.col("attribute") == attribute)
                & (pl.col("round") == curve.rounds[-1])
            )
            bounds = last.select("low", "high").row(0)
            if all(bound is not None and bound == bound for bound in bounds):
                low, high = bounds
    return Measure(
        label=curve.label, metric=curve.metric, value=curve.mean[-1], low=low, high=high, attribute=attribute
    )
