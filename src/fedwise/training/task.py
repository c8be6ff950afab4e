"""Task: what a model is trained to tell: one of two classes, one of many, or a number.

The target's column decides. Two levels are two classes: the score is the log-odds of the second. More are
classes: a score for each, and probabilities by softmax. A target with ``model = "scaled"`` or ``"binned"`` is a
number: the score is ``(x − centre) / width``, of the raw number or of the middle of its bin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..schema.schema import Column, Schema

Floats = npt.NDArray[np.float64]
Kind = Literal["binary", "classes", "number"]

#: Each kind as the kernels know it.
CODES: dict[Kind, int] = {"binary": 0, "classes": 1, "number": 2}


@dataclass(frozen=True)
class Task:
    """Kind of the target, with what turns scores into answers.

    Parameters
    ----------
    labels
        Names of the classes, in code order.
    centre, width
        Of a number: its value is ``centre + width · score``.
    """

    kind: Kind = "binary"
    labels: tuple[str, ...] = ("no", "yes")
    centre: float = 0.0
    width: float = 1.0

    @classmethod
    def of(cls, schema: Schema) -> Task:
        """The task of a schema's target."""
        target = schema.columns[schema.target]
        labels = target.labels[: target.size - target.has_other]
        if len(labels) == 2:
            return cls("binary", labels)
        if target.model in ("scaled", "binned"):
            return cls("number", labels, *scale_of(target))
        return cls("classes", labels)

    @property
    def outputs(self) -> int:
        """How many scores a row has."""
        return len(self.labels) if self.kind == "classes" else 1

    @property
    def code(self) -> int:
        """The kind as the kernels know it."""
        return CODES[self.kind]

    def losses(self, scores: npt.NDArray[Any], y: npt.NDArray[Any]) -> Floats:
        """What training minimises, of each row: log loss, or half the squared error of a number's score."""
        if self.kind == "binary":
            return log_losses(scores, y)
        if self.kind == "number":
            squares: Floats = 0.5 * (scores.astype(np.float64) - y) ** 2
            return squares
        logs = log_chances(scores)
        return np.asarray(-logs[np.arange(len(y)), y.astype(np.int64)], dtype=np.float64)

    def decide(self, scores: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """The most likely class of each row."""
        if self.kind == "binary":
            return (scores > 0).astype(np.int64)
        return np.asarray(scores.argmax(axis=1), dtype=np.int64)

    def accuracy(self, scores: npt.NDArray[Any], y: npt.NDArray[Any]) -> float:
        """Share of rows decided rightly; of a number, the share of its variance that is explained."""
        if self.kind == "number":
            spread = float(np.var(y.astype(np.float64)))
            return 1.0 - float(np.mean((scores - y) ** 2)) / spread if spread > 0 else float("nan")
        return float((self.decide(scores) == y).mean())


#: What most of the code is about, and everything was before.
BINARY = Task()


def scale_of(column: Column) -> tuple[float, float]:
    """Centre and width by which a numeric column is scaled: as declared, or middle and half width of its bins."""
    if column.scale is not None:
        return column.scale
    assert column.bins is not None  # the schema checks it
    return (column.bins[0] + column.bins[-1]) / 2, (column.bins[-1] - column.bins[0]) / 2


def log_losses(logits: npt.NDArray[Any], y: npt.NDArray[Any]) -> Floats:
    """Log loss of each row of two classes: max(z, 0) − z·y + log(1 + e^−|z|)."""
    z = logits.astype(np.float64)
    losses: Floats = np.maximum(z, 0) - z * y + np.log1p(np.exp(-np.abs(z)))
    return losses


def log_chances(scores: npt.NDArray[Any]) -> Floats:
    """Logarithm of the softmax of scores, shape (rows, classes)."""
    z = scores.astype(np.float64)
    z = z - z.max(axis=1, keepdims=True)
    found: Floats = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    return found
