"""Population: the people whose predictions count, as weighted records with a group and a chance."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..objective.sample import Sample
from . import kernels
from .anchor import fit
from .design import Design
from .metrics import MATCHED, NAMES, Metrics, auc, from_rates, matched_yes
from .moments import Moments
from .ranking import costs
from .thinning import thin

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Population:
    """Records of the target, ready to be scored.

    Parameters
    ----------
    design
        How the model sees a record.
    sample
        Records and weights.
    chance
        Shape (records,): probability of the positive class. Counting a record in both classes by its
        chance, instead of by a drawn label, removes the labels' noise.
    moments
        The population's own moments, where it is made of tables.
    logistic
        Whether scores are logits; otherwise they are probabilities themselves.
    ramp
        Half width of the smoothed threshold, in units of the score.
    """

    design: Design
    sample: Sample
    chance: Floats
    moments: Moments | None
    logistic: bool
    ramp: float

    @property
    def threshold(self) -> float:
        """Scores above it are predicted positive."""
        return 0.0 if self.logistic else 0.5

    @cached_property
    def groups(self) -> Ints:
        """Group of each record."""
        return groups_of(self.design, self.sample.codes)

    @cached_property
    def shares(self) -> Floats:
        """Share of each group and class, shape (groups, 2)."""
        return np.stack([self.sums(1 - self.chance), self.sums(self.chance)], axis=1)

    def sums(self, values: Floats) -> Floats:
        """Weighted sum over the records of each group."""
        attribute = self.design.attribute
        count = 1 if attribute is None else self.design.schema.sizes[attribute]
        found = np.bincount(self.groups, self.sample.weights * values, count)
        return np.asarray(found, dtype=np.float64)

    def scores(self, beta: Floats) -> Floats:
        """Score of each record under coefficients of the design's inputs."""
        levels = self.design.projection @ beta
        return np.asarray(levels[self.design.indicators(self.sample.codes)].sum(axis=1), dtype=np.float64)

    def scorer(self, beta: Floats, records: int) -> kernels.Scorer:
        """At most `records` records for the compiled kernel, spread evenly along the scores of `beta`."""
        sample, chance = self.sample, self.chance
        if len(chance) > records or len(np.unique(sample.weights)) > 1:
            order = np.lexsort((self.scores(beta), self.groups))
            sample, chosen = thin(sample, order, records)
            chance = chance[chosen]
        count = len(self.shares)
        return kernels.scorer(
            sample.codes,
            groups_of(self.design, sample.codes),
            chance,
            groups=count,
            variables=self.design.variables,
            first=self.design.first,
            sizes=self.design.schema.sizes,
            threshold=self.threshold,
            ramp=self.ramp,
        )

    def metrics(self, beta: Floats) -> Metrics:
        """All metrics of one model on all records; a linear model's means exactly from the moments."""
        scores, weights, chance = self.scores(beta), self.sample.weights, self.chance
        yes = np.clip(0.5 + (scores - self.threshold) / (2 * self.ramp), 0.0, 1.0)
        predicted = 1.0 / (1.0 + np.exp(-scores)) if self.logistic else scores
        joint = self._joint(yes)
        by_group = self.shares.sum(axis=1)
        matched = from_rates(
            self._rates(self._joint(matched_yes(scores, chance, weights)))[None], self.shares
        )
        at_rate = {f"{name}@rate": value for name, value in zip(NAMES, matched[0][0].tolist(), strict=True)}
        loss, _ = costs(scores, logistic=self.logistic)
        with np.errstate(invalid="ignore", divide="ignore"):
            rates = self._rates(joint)
            group_rates = np.nan_to_num(joint.sum(axis=1) / by_group)
            group_scores = np.nan_to_num(self.sums(predicted) / by_group)
        values, spd, eod = from_rates(rates[None], self.shares)
        mse = float(weights @ (predicted**2 - 2 * predicted * chance + chance))
        mean = float(weights @ predicted)
        if not self.logistic and self.moments is not None:
            mean, mse, exact = self._linear_summary(beta, self.moments)
            group_scores = group_scores if exact is None else np.nan_to_num(exact)
        return Metrics(
            **dict(zip(NAMES, values[0].tolist(), strict=True)),
            spd_signed=float(spd[0]),
            eod_signed=float(eod[0]),
            auc=auc(scores, chance, weights),
            mse=mse,
            mean_score=mean,
            group_rates=tuple(group_rates.tolist()),
            group_scores=tuple(group_scores.tolist()),
            loss=float(weights @ ((1 - chance) * loss[0] + chance * loss[1])),
            matched={name: at_rate[name] for name in MATCHED},
        )

    def _joint(self, yes: Floats) -> Floats:
        """Share of the population that is decided yes, by group and class."""
        return np.stack([self.sums(yes * (1 - self.chance)), self.sums(yes * self.chance)], axis=1)

    def _rates(self, joint: Floats) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.nan_to_num(joint / self.shares), dtype=np.float64)

    def _linear_summary(self, beta: Floats, target: Moments) -> tuple[float, float, Floats | None]:
        """Mean score, mean squared error and group means: u·G₀/n, (uᵀGu − 2uᵀb + Σy)/n, G_s·u/n_s."""
        design = self.design
        levels, n = design.projection @ beta, float(target.totals)
        mean = float(levels @ target.gram[0]) / n
        mse = float(levels @ target.gram @ levels - 2 * levels @ target.cross + target.cross[0]) / n
        if design.attribute is None or design.attribute not in design.variables:
            return mean, mse, None
        first = int(design.first[design.variables.index(design.attribute)])
        here = slice(first, first + design.schema.sizes[design.attribute])
        with np.errstate(invalid="ignore", divide="ignore"):
            groups = target.gram[here] @ levels / target.gram[0, here]
        return mean, mse, np.asarray(groups, dtype=np.float64)


def groups_of(design: Design, codes: npt.NDArray[np.integer]) -> Ints:
    """Group of each record: its level of the sensitive attribute, 0 where there is none."""
    if design.attribute is None:
        return np.zeros(codes.shape[1], np.int64)
    return np.asarray(codes[design.attribute], dtype=np.int64)


def label_chance(design: Design, sample: Sample, marginals: Floats) -> Floats:
    """Chance of the positive class of drawn records.

    Raked to pairs alone, the label depends on the other variables through an additive logit: the
    logistic fit on the sample, with the group among its inputs whether or not the model sees it.
    """
    design = grouped_design(design, marginals)
    _, scores = fit(design, sample)
    return np.asarray(1.0 / (1.0 + np.exp(-scores)), dtype=np.float64)


def grouped_design(design: Design, marginals: Floats) -> Design:
    """The design with the compared attribute among its inputs, whether or not the model sees it."""
    if design.attribute is None or design.attribute in design.variables:
        return design
    name = design.schema.names[design.attribute]
    return Design.of(design.schema, marginals, use_sensitive=False, attribute=name, with_attribute=True)
