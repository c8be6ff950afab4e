"""Class forecaster: the forecast of a target with several classes, and of a number in public bins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError
from ..objective.sample import Sample
from ..schema.schema import Schema
from .anchor import Anchor
from .class_anchor import ClassAnchor
from .class_kernels import batch_confusions, batch_errors
from .class_metrics import NamedMetrics, of_confusions, of_errors
from .class_population import ClassPopulation, class_chances
from .forecaster import RAMP, Forecaster
from .kernels import Scorer
from .labels import Labels
from .metrics import CLASS_NAMES, NUMBER_NAMES, check_name
from .moments import Moments
from .ranking import MOST_LOSS

Floats = npt.NDArray[np.float64]

#: More coefficients than this take minutes to solve for in a search.
_MOST_COEFFICIENTS = 1000


class ClassForecaster(Forecaster):
    """A `Forecaster` of several classes: softmax regression expanded about the pool's own model."""

    quick: tuple[str, ...] = CLASS_NAMES

    def reach(self, name: str) -> float:
        """The most that a metric can differ between federations."""
        return {"loss": MOST_LOSS, "brier": 2.0}.get(check_name(name).base, 1.0)

    def _fit(self, whole: Sample, pool: Moments) -> Anchor | ClassAnchor:
        labels = self.design.labels
        if self.settings.link != "logistic":
            raise FedwiseError("link must be 'logistic' for a target of more than two classes; drop it")
        if labels.outputs * self.design.inputs > _MOST_COEFFICIENTS:
            raise FedwiseError(
                f"forecast must have at most {_MOST_COEFFICIENTS} coefficients, and {len(labels.names)} classes with "
                f"{self.design.inputs} inputs have {labels.outputs * self.design.inputs}; merge levels of the schema"
            )
        return ClassAnchor.softmax(self.design, whole, pool)

    def _known(self, labels: npt.NDArray[np.integer]) -> Floats:
        return np.asarray(np.eye(len(self.design.labels.names))[labels], dtype=np.float64)

    def _chance(self, sample: Sample) -> Floats:
        return class_chances(self.design, sample, self._counts[1].sum(axis=0))

    def _population(self, sample: Sample, chance: Floats, found: Moments | None) -> ClassPopulation:
        return ClassPopulation(self.design, sample, chance, RAMP["logistic"])

    def _measure(self, row: Floats) -> NamedMetrics:
        assert isinstance(self.population, ClassPopulation)
        found = self._score(self.population, self.population.all_records(), row[None])
        return NamedMetrics(values={name: float(value[0]) for name, value in found.items()})

    def _columns(self, attribute: str, columns: Sequence[str], sums: Floats) -> dict[str, Floats]:
        population, scorer = self._view(attribute)
        assert isinstance(population, ClassPopulation)
        return self._score(population, scorer, sums)

    def _score(self, population: ClassPopulation, scorer: Scorer, sums: Floats) -> dict[str, Floats]:
        """Every metric of each summed row."""
        rates, costs = batch_confusions(self.solver, scorer, np.ascontiguousarray(sums))
        return of_confusions(rates, costs, population.shares, self.design.labels.names)


class NumberForecaster(ClassForecaster):
    """A `Forecaster` of a number: linear regression of the middle of its bin, exact in the pair tables."""

    quick: tuple[str, ...] = NUMBER_NAMES

    def reach(self, name: str) -> float:
        """The most that a metric can differ between federations: the whole range, in the number's own unit."""
        edges, base = self.design.labels.edges, check_name(name).base
        whole = float(edges.max() - edges.min())
        return {"loss": whole**2, "r2": 2.0}.get(base, whole * self.design.labels.unit)

    def _fit(self, whole: Sample, pool: Moments) -> Anchor | ClassAnchor:
        return Anchor.regression(self.design, pool)

    def _score(self, population: ClassPopulation, scorer: Scorer, sums: Floats) -> dict[str, Floats]:
        labels = self.design.labels
        found = batch_errors(self.solver, scorer, labels.edges, np.ascontiguousarray(sums))
        return of_errors(found, population.shares, labels.edges, labels.unit)


def for_target(schema: Schema) -> type[Forecaster]:
    """The forecaster of a schema's target."""
    kinds: dict[str, type[Forecaster]] = {"classes": ClassForecaster, "number": NumberForecaster}
    return kinds.get(Labels.of(schema).kind, Forecaster)
