"""Forecast: an objective for `select` in units people know: accuracy and fairness of the trained model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError
from ..estimation.estimates import Estimates
from ..objective.limit import SLACK, Miss
from ..schema.frame import FrameLike
from .forecaster import Forecaster
from .metrics import NAMES, check_name, check_weights
from .ranking import MOST_LOSS
from .settings import Settings

Floats = npt.NDArray[np.float64]

#: Loss for each unit by which a limit is missed: a hundredth too much SPD costs a tenth of accuracy.
PENALTY = 10.0
#: Standard errors by which limits are tightened unless told otherwise.
MARGIN = 1.0


class Forecast:
    """Maximise forecast metrics, under limits.

        loss(W) = −Σ_m weight_m · metric_m(W) + Σ_limits [miss > 0] · (Σ_m |weight_m| · range_m + penalty · miss)

    Metrics lie between 0 and their range (1; for the log loss 8; for errors of a number its own range), so no
    federation that misses a limit beats one that keeps all; among those that miss one, the smaller miss is better.
    Whether limits can be kept at all is for the search to find: `missed` says which are not.

    The search picks what looks best, noise included, so a federation that just keeps a limit in the forecast
    tends to miss it when trained. Limits are therefore tightened by `margin` standard errors of the
    forecast of a typical federation of that size.

    Parameters
    ----------
    maximise
        A metric (``auc``, ``balanced_accuracy``, ``accuracy``, ``f1``, ``positive_rate``; ``loss``, ``brier``, ``spd``
        and ``eod`` are made small), or weights by metric: ``{"balanced_accuracy": 1, "spd": -0.5}``. Decisions are
        those at ½, or with ``@rate`` (``f1@rate``) at the rate-matched threshold: predicted positives = the
        target's label rate. ``eod:SEX@rate`` compares the groups of one of several attributes. Of several classes also
        ``macro_f1``, ``recall[c]`` or ``eod[c]``, of a number ``rmse`` or ``mae`` (`Forecaster.names`).
    subject_to
        Limits by metric: most for gaps (absolute) and losses, least for the others.
    target
        Whose predictions count: see `Forecaster`.
    settings
        How the forecast's model is made.
    penalty
        Loss for each unit by which a limit is missed.
    margin
        Standard errors of the privacy noise by which limits are tightened in the search; 0 for none.

    Examples
    --------
    >>> objective = Forecast("auc", subject_to={"eod@rate": 0.05})
    """

    name = "forecast"

    def __init__(
        self,
        maximise: str | Mapping[str, float] = "balanced_accuracy",
        *,
        subject_to: Mapping[str, float] | None = None,
        target: Sequence[str] | Estimates | FrameLike | None = None,
        settings: Settings | None = None,
        penalty: float = PENALTY,
        margin: float = MARGIN,
    ) -> None:
        self.weights = check_weights(maximise)
        self.limits = dict(subject_to or {})
        for metric, limit in self.limits.items():
            low, high = check_name(metric, what="subject_to").bounds
            if not low <= limit <= high:
                raise FedwiseError(f"limit of {metric} must lie between {low:g} and {high:g}, got {limit}")
        if not (np.isfinite(penalty) and penalty > 0):
            raise FedwiseError(f"penalty must be a finite number above 0, got {penalty}")
        if not (np.isfinite(margin) and margin >= 0):
            raise FedwiseError(f"margin must be a finite number of at least 0, got {margin}")
        used = dict.fromkeys([*self.weights, *self.limits])
        self.names = _arranged(used, NAMES)
        self._falls = {name: -1.0 if check_name(name).larger_is_better else 1.0 for name in used}
        self.target = target
        self.settings = settings or Settings()
        self.penalty = penalty
        self.margin = margin
        self.forecaster: Forecaster | None = None

    @classmethod
    def of(
        cls,
        forecaster: Forecaster,
        maximise: str | Mapping[str, float] = "balanced_accuracy",
        *,
        subject_to: Mapping[str, float] | None = None,
        margin: float = MARGIN,
    ) -> Forecast:
        """An objective over a forecaster that is already fitted."""
        made = cls(maximise, subject_to=subject_to, settings=forecaster.settings, margin=margin)
        made.forecaster = forecaster
        made._follow(forecaster)
        return made

    def rows(self, estimates: Estimates) -> Floats:
        """Rows of the fitted forecaster: curvature, gradient, records and members of every client."""
        if self.forecaster is None or self.forecaster.estimates is not estimates:
            self.forecaster = Forecaster(estimates, self.target, settings=self.settings)
        self._follow(self.forecaster)
        return self.forecaster.rows

    def _follow(self, forecaster: Forecaster) -> None:
        """Take the metrics from this forecaster, which must give them."""
        forecaster.check_names(list(self._falls))
        self.names = _arranged(self._falls, forecaster.quick)

    def _reach(self, name: str) -> float:
        if self.forecaster is None:
            return MOST_LOSS if name == "loss" else 1.0
        return self.forecaster.reach(name)

    def evaluate(self, sums: Floats) -> Floats:
        """Loss of each summed row."""
        if self.forecaster is None:
            raise FedwiseError("objective must see the estimates first; call rows(estimates)")
        return self.losses(self.forecaster.values(sums, self.names), self.margins(sums))

    def margins(self, sums: Floats) -> Mapping[str, Floats | float]:
        """How much tighter each limit is for each summed row."""
        if self.forecaster is None or not self.limits or not self.margin:
            return {}
        # The last entry of a row counts its clients; a batch of the search has one size.
        sizes, which = np.unique(np.rint(sums[:, -1]).astype(np.int64), return_inverse=True)
        errors = np.array([self.forecaster.typical_errors(int(size), self.names) for size in sizes])[which]
        return {name: self.margin * errors[:, self.names.index(name)] for name in self.limits}

    def losses(self, values: Floats, margins: Mapping[str, Floats | float] | None = None) -> Floats:
        """Loss of metrics in the order of `names`, shape (batch, metrics) to (batch,)."""
        at = {name: i for i, name in enumerate(self.names)}
        loss = np.zeros(len(values))
        cliff = sum(abs(w) * self._reach(name) for name, w in self.weights.items())
        for name, weight in self.weights.items():
            loss -= weight * values[:, at[name]]
        for name, limit in self.limits.items():
            miss = (values[:, at[name]] - limit) * self._falls[name]
            miss = miss + (margins or {}).get(name, 0.0)
            loss += np.where(miss > SLACK, cliff + self.penalty * miss, 0.0)
        return loss

    def feasible(self, values: Floats) -> npt.NDArray[np.bool_]:
        """Whether metrics in the order of `names` satisfy every limit, margins left aside."""
        return np.asarray((self._misses(values) <= SLACK).all(axis=1), dtype=bool)

    def missed(self, sums: Floats) -> list[Miss]:
        """The limits that one summed row does not keep in the forecast, margins left aside."""
        if self.forecaster is None:
            raise FedwiseError("objective must see the estimates first; call rows(estimates)")
        values = self.forecaster.values(sums[None], self.names)
        return [
            Miss(name, float(values[0, self.names.index(name)]), limit, "forecast")
            for (name, limit), miss in zip(self.limits.items(), self._misses(values)[0], strict=True)
            if miss > SLACK
        ]

    def _misses(self, values: Floats) -> Floats:
        """By how much each limit is missed, 0 where it is kept: shape (batch, limits)."""
        found = np.zeros((len(values), len(self.limits)))
        for i, (name, limit) in enumerate(self.limits.items()):
            found[:, i] = (values[:, self.names.index(name)] - limit) * self._falls[name]
        return np.maximum(found, 0.0)


def _arranged(used: Iterable[str], quick: tuple[str, ...]) -> tuple[str, ...]:
    """The metrics to look at: those that come at once all together, then any other."""
    used = tuple(used)
    return (*(quick if set(used) & set(quick) else ()), *(name for name in used if name not in quick))
