"""Post-processing: decisions of one model that treat groups alike, fitted on training rows.

Two ways to the same constraint, and one that goes part of the way. `fit_fairlearn` is fairlearn's
ThresholdOptimizer, which takes the most accurate rule that satisfies it. `at_rate` is the rule that satisfies it
*and* decides yes for a given share of the rows judged, so that it can be compared with other models at the same
positive rate. Both may leave decisions to chance; an answer is the chance of a yes for each row. `offsets` are
amounts to take from the scores of each group: the whole of them gives equal true positive rates, a share of them
closes a part of the gap. What is left are scores with an AUC of their own: the front of AUC and EOD.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fedwise.training.ranking import Ranking, decide

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Constraints by short name, as fairlearn calls them.
CONSTRAINTS = {
    "eo": "equalized_odds",
    "tpr": "true_positive_rate_parity",
    "dp": "demographic_parity",
}
#: Percent of the offsets that are taken from the scores.
SHIFTS = (25, 50, 75, 100)
#: Training rows that a rule is fitted on; more change nothing but the time.
FIT_ROWS = 60_000
#: Halvings of the interval in which the level of a constraint is looked for.
_HALVINGS = 40

#: Chances of a yes from scores and groups.
Rule = Callable[[npt.NDArray[Any], Ints], Floats]


def thin(rows: int, *, seed: int = 0) -> Ints:
    """Positions of at most `FIT_ROWS` rows, at random."""
    if rows <= FIT_ROWS:
        return np.arange(rows)
    return np.sort(np.random.default_rng([seed, 0xF17]).permutation(rows)[:FIT_ROWS])


def fit_fairlearn(constraint: str, scores: npt.NDArray[Any], y: npt.NDArray[Any], group: Ints) -> Rule:
    """fairlearn's rule of greatest accuracy under a constraint, fitted on these rows."""
    from fairlearn.postprocessing import ThresholdOptimizer
    from sklearn.base import BaseEstimator

    class Scores(BaseEstimator):  # type: ignore[misc]
        """A fitted model whose one input is its score."""

        def __init__(self) -> None:
            self.fitted_ = True

        def fit(self, *_: object) -> Scores:
            return self

        def decision_function(self, inputs: Any) -> Any:
            return np.asarray(inputs)[:, 0]

    found = ThresholdOptimizer(
        estimator=Scores(), constraints=CONSTRAINTS[constraint], prefit=True, predict_method="decision_function"
    )  # fmt: skip
    labels = (y > 0.5).astype(np.int64)
    found.fit(scores.astype(np.float64)[:, None], labels, sensitive_features=group)

    def rule(new: npt.NDArray[Any], groups: Ints) -> Floats:
        chances = found._pmf_predict(new.astype(np.float64)[:, None], sensitive_features=groups)
        return np.asarray(chances, dtype=np.float64)[:, 1]

    return rule


def at_rate(
    constraint: str,
    fitted: tuple[npt.NDArray[Any], npt.NDArray[Any], Ints],
    judged: tuple[npt.NDArray[Any], Ints],
    rate: float,
) -> Floats:
    """Chances of a yes under a constraint, such that a share `rate` of the judged rows is expected to get one.

    Parameters
    ----------
    fitted
        Scores, labels and groups of training rows: the rule satisfies the constraint on them.
    judged
        Scores and groups of the rows to be decided.

    Notes
    -----
    Each constraint leaves one free number: the common positive rate (``dp``), the common true positive rate
    (``tpr``), or the common false positive rate on the lowest of the groups' ROC hulls (``eo``). All
    chances grow with it, so halving finds it.
    """
    make = _equalised_odds(*fitted) if constraint == "eo" else _parity(constraint, *fitted)
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if float(make(middle)(*judged).mean()) < rate:
            low = middle
        else:
            high = middle
    return make(high)(*judged)


def offsets(scores: npt.NDArray[Any], y: npt.NDArray[Any], group: Ints) -> Floats:
    """What to take from the scores of each group so that one threshold gives equal true positive rates.

    Fitted where the rows get as many yes as there are positives: the threshold of a group under true positive
    parity minus the threshold that all share.
    """
    everyone = Ranking.of(scores, y > 0.5)
    shared, _ = everyone.matched()
    positives = {
        int(code): Ranking.of(scores[(group == code) & (y > 0.5)], y[(group == code) & (y > 0.5)] > 0.5)
        for code in np.unique(group)
    }
    low, high = 0.0, 1.0
    cuts = np.zeros(int(group.max(initial=0)) + 1)
    for _ in range(_HALVINGS):
        level = (low + high) / 2
        for code, ranking in positives.items():
            cuts[code] = ranking.matched(level)[0]
        if float((scores > cuts[group]).mean()) < everyone.rate:
            low = level
        else:
            high = level
    return np.where(np.isfinite(cuts), cuts - shared, 0.0)


def _parity(
    constraint: str, scores: npt.NDArray[Any], y: npt.NDArray[Any], group: Ints
) -> Callable[[float], Rule]:
    """Group thresholds at which the same share of all rows (``dp``) or of the positives (``tpr``) is above."""
    rankings = {}
    for code in np.unique(group):
        own = group == code
        kept = own & (y > 0.5) if constraint == "tpr" else own
        rankings[int(code)] = Ranking.of(scores[kept], y[kept] > 0.5)

    def make(level: float) -> Rule:
        cuts = {code: ranking.matched(level) for code, ranking in rankings.items()}

        def rule(new: npt.NDArray[Any], groups: Ints) -> Floats:
            out = np.zeros(len(new))
            for code, (threshold, share) in cuts.items():
                own = groups == code
                out[own] = decide(new[own], threshold, share)
            return out

        return rule

    return make


def _equalised_odds(scores: npt.NDArray[Any], y: npt.NDArray[Any], group: Ints) -> Callable[[float], Rule]:
    """Hardt, Price and Srebro (2016): every group at one point on the lowest of the ROC hulls.

    A group whose own hull is higher decides a part of its rows by a coin that says yes with chance x, the
    common false positive rate.
    """
    hulls = {int(c): _hull(Ranking.of(scores[group == c], y[group == c] > 0.5)) for c in np.unique(group)}

    def make(x: float) -> Rule:
        lowest = min(float(np.interp(x, hull[0], hull[1])) for hull in hulls.values())

        def rule(new: npt.NDArray[Any], groups: Ints) -> Floats:
            out = np.zeros(len(new))
            for code, (across, up, cuts) in hulls.items():
                own = groups == code
                at = min(max(int(np.searchsorted(across, x, side="right")) - 1, 0), len(across) - 2)
                width = across[at + 1] - across[at]
                share = min((x - across[at]) / width, 1.0) if width else 1.0
                height = float(np.interp(x, across, up))
                coin = (height - lowest) / (height - x) if height > x else 0.0
                values = new[own].astype(np.float64)
                drawn = (1 - share) * (values >= cuts[at]) + share * (values >= cuts[at + 1])
                out[own] = coin * x + (1 - coin) * drawn
            return out

        return rule

    return make


def _hull(ranking: Ranking) -> tuple[Floats, Floats, Floats]:
    """Upper hull of the ROC curve: false and true positive rates, and the score at which each begins."""
    across = np.r_[0.0, np.cumsum(ranking.down[::-1])] / max(ranking.down.sum(), 1.0)
    up = np.r_[0.0, np.cumsum(ranking.up[::-1])] / max(ranking.up.sum(), 1.0)
    cuts = np.r_[np.inf, ranking.scores[::-1]]
    kept: list[int] = []
    for i in range(len(across)):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (up[b] - up[a]) * (across[i] - across[a]) > (up[i] - up[a]) * (across[b] - across[a]):
                break
            kept.pop()
        kept.append(i)
    return across[kept], up[kept], cuts[kept]
