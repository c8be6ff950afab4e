"""Drawn judges: metrics of many classes or a number on artificial people, by the targets drawn for them."""

from __future__ import annotations

from dataclasses import dataclass

from ..objective.metric import Metric
from ..training.encoding import Rows
from ..training.metrics import evaluate
from ..training.model import Vector
from ..training.task import Task
from .judging import GroupRates


@dataclass(frozen=True, eq=False)
class DrawnJudges:
    """People with a drawn target each; `Judges` counts those of two classes by their chances instead.

    Parameters
    ----------
    rows
        Their records, as the model reads them.
    task
        What is told about them.
    attributes
        Names of the sensitive attributes.
    """

    rows: Rows
    task: Task
    attributes: tuple[str, ...]

    def curve(self, scores: Vector) -> dict[str, float]:
        """The metrics of a learning curve."""
        return self._found(scores, extended=False)

    def measure(self, scores: Vector) -> tuple[dict[str, float], list[GroupRates]]:
        """Every metric by full name; rates of groups are for two classes."""
        return self._found(scores, extended=True), []

    def _found(self, scores: Vector, *, extended: bool) -> dict[str, float]:
        values = evaluate(scores, self.rows, self.attributes, extended=extended, task=self.task)
        return {str(Metric(v.metric, v.attribute)): v.value for v in values}
