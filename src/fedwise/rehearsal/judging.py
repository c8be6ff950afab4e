"""Judging: metrics of scores on artificial people, each of whom counts in both classes by the chance of either.

A drawn label is a coin tossed again; the chance is what it was tossed with. Counting every record as positive by its
chance and as negative by the rest removes the labels' own noise, which blurs the rates of small groups most.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from ..objective.metric import DECISIONS, Metric
from ..training.confusion import fairness, overall
from ..training.encoding import Rows
from ..training.model import Vector
from ..training.ranking import Ranking, decide, probability
from .hidden import Learnt, knowing, normal, with_hidden

Floats = npt.NDArray[np.float64]

#: Least factor by which scores are drawn together.
_LEAST = 0.05
#: Newton steps that find a move of scores, and a step that is small enough.
_STEPS, _CLOSE = 50, 1e-7
#: Least mean chance, and least counter-chance, that scores are moved to.
_LEAST_RATE = 1e-6


class GroupRates(msgspec.Struct, frozen=True):
    """One group of people: how large, how often positive, and what the model decides about it.

    `threshold` is empty for ½ and ``rate`` for the rate-matched one; `share` and `label_rate` are the population's.
    """

    attribute: str
    level: str
    threshold: str
    share: float
    label_rate: float
    positive_rate: float
    recall: float
    false_positive_rate: float
    accuracy: float


@dataclass(frozen=True, eq=False)
class Judges:
    """The people who judge.

    Parameters
    ----------
    rows
        Their records, as the model reads them.
    chance
        Shape (rows,): chance of the positive class.
    attributes, levels
        Names of the sensitive attributes, and of the levels of each.
    seed
        Of what their records tell beyond the tables (`hidden`); ``None`` for rows, which tell it themselves.
    """

    rows: Rows
    chance: Floats
    attributes: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    seed: int | None = None

    def facing(self, scores: Vector, learnt: Learnt) -> tuple[Judges, Vector]:
        """The same people and scores of a model, with what their records tell beyond the tables."""
        spread = learnt.hidden
        if self.seed is None or learnt.slope * spread <= 0.0:
            return self, scores
        chance = with_hidden(self.chance, self._drawn, spread)
        return dataclasses.replace(self, chance=chance, seed=None), knowing(
            scores, self._drawn, learnt.slope * spread
        )

    @cached_property
    def _drawn(self) -> Floats:
        assert self.seed is not None
        return normal(len(self.chance), self.seed)

    def curve(self, scores: Vector) -> dict[str, float]:
        """The metrics of a learning curve."""
        ranking = Ranking.of(scores, self.chance)
        found = overall(self._counts(scores > 0, None)[0])
        return {"auc": ranking.auc(), "loss": self._loss(scores), **found}

    def measure(self, scores: Vector) -> tuple[dict[str, float], list[GroupRates]]:
        """Every metric by full name, at ½ and at the rate-matched threshold, and the rates of every group."""
        ranking = Ranking.of(scores, self.chance)
        p = probability(scores)
        found = {
            "loss": self._loss(scores),
            "auc": ranking.auc(),
            "brier": float((self.chance * (1 - p) ** 2 + (1 - self.chance) * p**2).mean()),
            "calibration_error": ranking.calibration_error(),
        }
        groups: list[GroupRates] = []
        for threshold, decided in (("", scores > 0), ("rate", decide(scores, *ranking.matched()))):
            of_all = overall(self._counts(decided, None)[0])
            found |= {str(Metric(name, "", threshold)): of_all[name] for name in DECISIONS}
            for at, attribute in enumerate(self.attributes):
                counts = self._counts(decided, at)
                gaps = fairness(counts)
                found |= {str(Metric(name, attribute, threshold)): gaps[name] for name in gaps}
                groups += _rates(counts, attribute, self.levels[at], threshold)
        return found, groups

    def _counts(self, decided: npt.NDArray[np.generic], attribute: int | None) -> Floats:
        """Expected records by group, class and decision: shape (groups, 2, 2)."""
        yes = decided.astype(np.float64)
        group = (
            np.zeros(len(yes), np.int64)
            if attribute is None
            else self.rows.groups[attribute].astype(np.int64)
        )
        size = int(group.max(initial=0)) + 1
        cells = [
            np.bincount(group, chance * choice, size)
            for chance in (1 - self.chance, self.chance)
            for choice in (1 - yes, yes)
        ]
        return np.asarray(np.stack(cells, axis=1).reshape(size, 2, 2), dtype=np.float64)

    def _loss(self, scores: Vector) -> float:
        z = scores.astype(np.float64)
        return float((np.logaddexp(0.0, z) - z * self.chance).mean()) if len(z) else math.nan


def reliability(judges: Judges, scores: Vector, own: Judges, own_scores: Vector) -> float:
    """How much of the scores' spread is signal: the factor that corrects them for noise (errors in variables).

    A model made from noisy tables has learnt their noise, so its scores spread too widely, and more of them pass ½. On
    people of its own half of the noise that spread seems right; on people of the other, independent half it does not:
    there the slope of the chance on the score is smaller by the share of signal. At most 1, and never so small that
    the order of scores is lost.
    """
    here, there = _slope(judges, scores), _slope(own, own_scores)
    return float(np.clip(here / there, _LEAST, 1.0)) if there > 0 else _LEAST


def of_the_whole(reliable: float) -> float:
    """The same factor of a model of the whole release, from that of one half of the noise: half the noise variance.

    With signal S and noise N in the scores of the half it is S/(S + N), so here S/(S + N/2).
    """
    return 2.0 * reliable / (1.0 + reliable)


def _slope(judges: Judges, scores: Vector) -> float:
    z = scores.astype(np.float64)
    z = z - z.mean()
    return float((z * judges.chance).mean() / max((z**2).mean(), 1e-300))


def corrected(scores: Vector, reliable: float) -> Vector:
    """Scores drawn together by a factor, with the mean chance they had.

    Drawn towards their own mean alone, a few people whose label is all but certain would pull everybody else past ½.
    """
    if reliable == 1.0 or not len(scores):
        return scores
    return shifted(reliable * scores, float(probability(scores).mean()))


def shifted(scores: Vector, rate: float) -> Vector:
    """Scores moved by the one number with which their mean chance is a rate."""
    move, rate = 0.0, min(max(rate, _LEAST_RATE), 1.0 - _LEAST_RATE)
    for _ in range(_STEPS):
        chance = probability(scores + move)
        # Newton's step, short enough where hardly anybody's label is open.
        step = (rate - float(chance.mean())) / max(float((chance * (1.0 - chance)).mean()), _LEAST_RATE)
        move += min(max(step, -1.0), 1.0)
        if abs(step) < _CLOSE:
            break
    return np.asarray(scores + move, dtype=scores.dtype)


def _rates(counts: Floats, attribute: str, levels: Sequence[str], threshold: str) -> list[GroupRates]:
    total, out = float(counts.sum()), []
    for level, table in zip(levels, counts, strict=False):
        rows = float(table.sum())
        if rows <= 0:
            continue
        of = overall(table)
        negatives = float(table[0].sum())
        out.append(
            GroupRates(
                attribute, level, threshold, rows / total, float(table[1].sum()) / rows, of["positive_rate"],
                of["recall"], float(table[0, 1]) / negatives if negatives else math.nan, of["accuracy"],
            )
        )  # fmt: skip
    return out


def mean_rates(stages: Sequence[Sequence[GroupRates]]) -> tuple[GroupRates, ...]:
    """The mean over stages of every group's rates, of the groups that all stages have."""
    keys = [{(g.attribute, g.level, g.threshold): g for g in stage} for stage in stages]
    fields = ("share", "label_rate", "positive_rate", "recall", "false_positive_rate", "accuracy")
    return tuple(
        GroupRates(*key, *(float(np.mean([getattr(stage[key], name) for stage in keys])) for name in fields))
        for key in keys[0]
        if all(key in stage for stage in keys)
    )
