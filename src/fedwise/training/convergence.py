"""Convergence: whether a training was stopped while its loss still fell."""

from __future__ import annotations

import polars as pl

#: Share of the rounds, at the end, over which the loss is looked at.
_TAIL = 0.2
#: A fall over them by more than this, relative to the last loss, means that the training was stopped early.
_FALL = 0.005


def still_falling(metrics: pl.DataFrame) -> str | None:
    """A sentence where the loss on held-out rows still fell when the training stopped; None where it did not.

    `metrics` is the table of a run. Trainings of fewer than five tested rounds are not judged.
    """
    wanted = (pl.col("rows") == "all") & (pl.col("metric") == "loss") & (pl.col("attribute") == "")
    table = metrics.filter(wanted, pl.col("value").is_finite(), pl.col("round") > 0).sort("round")
    rounds, losses = table["round"].to_list(), table["value"].to_list()
    if len(rounds) < 5:
        return None
    before = max(0, int(len(rounds) * (1 - _TAIL)) - 1)
    fall = (losses[before] - losses[-1]) / losses[-1]
    if fall <= _FALL:
        return None
    count = rounds[-1] - rounds[before]
    when = "in the last round" if count == 1 else f"over the last {count} rounds"
    return (
        f"stopped before convergence: the loss still fell by {fall:.1%} {when}; "
        "train for more rounds, or with a larger learning rate"
    )
