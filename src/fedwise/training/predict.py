"""Predict: a trained model on rows that may lack the target."""

from __future__ import annotations

import numpy as np
import polars as pl

from ..schema.frame import FrameLike
from .local import predict
from .run import Run


def predict_frame(run: Run, frame: FrameLike) -> pl.DataFrame:
    """Probability and label for each row that satisfies the schema's filter.

    Only the model's inputs and the columns of the filter are read; what else the schema names may be absent
    from `frame`, or hold anything.

    Returns
    -------
    table
        Columns ``row`` (position in the input, from 0), ``probability`` of the positive class, and
        ``prediction``: the target's label at the threshold ½.
    """
    positions, rows = run.encoder.encode_inputs(frame)
    logits = predict(run.model, run.parameters(), rows)
    target = run.schema.columns[run.schema.target]
    labels = np.array(target.labels[:2], dtype=object)
    return pl.DataFrame(
        {
            "row": positions,
            "probability": 1.0 / (1.0 + np.exp(-logits.astype(np.float64))),
            "prediction": labels[(logits > 0).astype(np.int64)].astype(str),
        }
    )
