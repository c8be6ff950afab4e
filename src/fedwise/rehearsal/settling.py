"""Settling: a training's mean chance beside the label rate of the records it was trained on.

A model that has learnt has on its own records a mean chance that is their label rate, but every step of the training
moves it a little, and where it stands after the last round is chance: on the census tasks it is off by about .005,
another way in every round and for every order of the records. That matters where many scores lie near the threshold
that decides who passes ½: on TravelTime .005 of the mean chance is .02 of SPD. The coming training's own chance cannot
be foreseen, so a rehearsed model is judged as if it had none: its scores are moved until the mean chance is the label
rate.

More than `STRAY` is no chance but the training itself (too few rounds), and stays. So does everything that noise in
training does (DP-SGD).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..training.encoding import Rows
from ..training.local import predict
from ..training.model import Model, Vector
from ..training.ranking import probability
from ..training.simulate import Config
from .judging import shifted

#: Most of the difference of mean chance and label rate that is taken for chance.
STRAY = 0.01


def settled(model: Model, parameters: Vector, trained_on: Rows, config: Config) -> Callable[[Rows], Vector]:
    """What gives a model's scores of any rows, moved by one number: the one that settles it on its own records."""

    def scores(rows: Rows) -> Vector:
        return predict(model, parameters, rows, engine=config.engine)

    if model.task.kind != "binary" or config.privacy is not None or not len(trained_on):
        return scores
    move = np.float32(offset(scores(trained_on), trained_on.y))
    return lambda rows: np.asarray(scores(rows) + move)


def offset(scores: Vector, labels: npt.NDArray[np.float32]) -> float:
    """By how much scores move until their mean chance is the label rate, or `STRAY` nearer to it."""
    mean = float(probability(scores).mean())
    off = float(np.clip(mean - float(labels.mean(dtype=np.float64)), -STRAY, STRAY))
    return float(np.mean(shifted(scores, mean - off) - scores, dtype=np.float64))
