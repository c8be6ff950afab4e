"""Class population: the people whose predictions count, with a chance of every class or bin."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..objective.sample import Sample
from . import kernels
from .class_anchor import chances, compress, fit_classes
from .design import Design
from .population import grouped_design, groups_of
from .thinning import thin

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ClassPopulation:
    """Records of the target, ready to be scored.

    Parameters
    ----------
    design
        How the model sees a record.
    sample
        Records and weights.
    chance
        Shape (records, levels): probability of every level of the target. Counting a record in all of them by its
        chances, instead of by a drawn label, removes the labels' noise.
    ramp
        Lead of a class, in units of the score, from which on the decision is wholly for it.
    """

    design: Design
    sample: Sample
    chance: Floats
    ramp: float

    @cached_property
    def groups(self) -> Ints:
        """Group of each record."""
        return groups_of(self.design, self.sample.codes)

    @cached_property
    def shares(self) -> Floats:
        """Share of each group and level, shape (groups, levels)."""
        attribute = self.design.attribute
        count = 1 if attribute is None else self.design.schema.sizes[attribute]
        weights = self.sample.weights[:, None] * self.chance
        return np.stack([np.bincount(self.groups, line, count) for line in weights.T], axis=1)

    def scores(self, beta: Floats) -> Floats:
        """Scores of each record under coefficients of the design's inputs: shape (records, outputs)."""
        levels = self.design.projection @ beta.reshape(-1, self.design.inputs).T
        return np.asarray(levels[self.design.indicators(self.sample.codes)].sum(axis=1), dtype=np.float64)

    def scorer(self, beta: Floats, records: int) -> kernels.Scorer:
        """At most `records` records for the compiled kernel, spread evenly along what `beta` expects of them."""
        sample, chance = self.sample, self.chance
        if len(chance) > records or len(np.unique(sample.weights)) > 1:
            scores = self.scores(beta)
            number = self.design.labels.kind == "number"
            expected = scores[:, 0] if number else chances(scores) @ np.arange(chance.shape[1])
            sample, chosen = thin(sample, np.lexsort((expected, self.groups)), records)
            chance = chance[chosen]
        return self._arrange(sample, chance)

    def all_records(self) -> kernels.Scorer:
        """Every record for the compiled kernel in double precision, with its weight in its chances."""
        chance = self.chance * self.sample.weights[:, None] * len(self.chance)
        order = np.argsort(self.groups, kind="stable")
        return self._arrange(self.sample, chance)._replace(chance=chance[order])  # type: ignore[arg-type]

    def _arrange(self, sample: Sample, chance: Floats) -> kernels.Scorer:
        return kernels.scorer(
            sample.codes,
            groups_of(self.design, sample.codes),
            chance,
            groups=len(self.shares),
            variables=self.design.variables,
            first=self.design.first,
            sizes=self.design.schema.sizes,
            threshold=0.0,
            ramp=self.ramp,
        )


def class_chances(design: Design, sample: Sample, marginals: Floats) -> Floats:
    """Chance of every level of the target for drawn records: the softmax fit that pairs imply (see `label_chance`)."""
    design = grouped_design(design, marginals)
    cells, counts = compress(design, sample)
    beta = fit_classes(design.matrix(cells.codes), counts)
    return chances(design.matrix(sample.codes) @ beta.T)
