"""Predict: a trained model on rows that may lack the target."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from ..errors import FedwiseError
from ..schema.frame import FrameLike
from .local import predict
from .model import Vector
from .ranking import Ranking, decide
from .records import final
from .run import Run
from .task import log_chances


def predict_frame(run: Run, frame: FrameLike, *, threshold: float | Literal["rate"] = 0.5) -> pl.DataFrame:
    """Probability and label for each row that satisfies the schema's filter.

    Only the model's inputs and the columns of the filter are read; what else the schema names may be absent
    from `frame`, or hold anything.

    Parameters
    ----------
    threshold
        The positive label is predicted above this probability. ``"rate"`` takes the threshold at which the share
        of rows predicted positive is the label rate of the run's held-out rows; rows of equal probability
        are predicted alike, so it is the closest share there is.

    Returns
    -------
    table
        Columns ``row`` (position in the input, from 0), ``probability`` of the positive class, and
        ``prediction``: the target's label. Of more than two classes the probability is that of the label predicted,
        and a column ``probability of LABEL`` follows for each; a number has ``row`` and ``prediction`` alone.
    """
    positions, rows = run.encoder.encode_inputs(frame)
    logits = predict(run.model, run.parameters(), rows)
    task = run.encoder.task
    if task.kind != "binary" and threshold != 0.5:
        raise FedwiseError("threshold must be left out for a target that has not two classes; drop it")
    if task.kind == "number":
        value = task.centre + task.width * logits.astype(np.float64)
        return pl.DataFrame({"row": positions, "prediction": value})
    labels = np.array(task.labels, dtype=object)
    if task.kind == "classes":
        chances, told = np.exp(log_chances(logits)), task.decide(logits)
        found = {"row": positions, "probability": chances.max(axis=1), "prediction": labels[told].astype(str)}
        each = {f"probability of {label}": chances[:, c] for c, label in enumerate(task.labels)}
        return pl.DataFrame({**found, **each})
    return pl.DataFrame(
        {
            "row": positions,
            "probability": 1.0 / (1.0 + np.exp(-logits.astype(np.float64))),
            "prediction": labels[_decide(run, logits, threshold).astype(np.int64)].astype(str),
        }
    )


def _decide(run: Run, logits: Vector, threshold: float | str) -> npt.NDArray[np.bool_]:
    if threshold == "rate":
        rate = final(run.metrics(), "positive_rate@rate")
        decided = decide(logits, *Ranking.of(logits, np.zeros(len(logits), dtype=bool)).matched(rate))
        return np.asarray(decided > 0.5)
    if isinstance(threshold, str) or not 0 <= threshold <= 1:
        raise FedwiseError(
            f"threshold must be a probability or 'rate', got {threshold!r}; the usual one is 0.5"
        )
    if threshold in (0, 1):
        return np.full(len(logits), threshold == 0)
    return np.asarray(decide(logits, math.log(threshold / (1 - threshold))))
