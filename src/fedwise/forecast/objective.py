"""Forecast: an objective for `select` in units people know: accuracy and fairness of the trained model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError
from ..estimate.estimates import Estimates
from ..frame import FrameLike
from .forecaster import Forecaster, Settings
from .metrics import GAPS, NAMES, check_name, check_weights

Floats = npt.NDArray[np.float64]

#: Loss for each unit by which a limit is missed: a hundredth too much SPD costs a tenth of accuracy.
PENALTY = 10.0
#: Rounding allowed before a limit counts as missed.
SLACK = 1e-9


class Forecast:
    """Maximise forecast metrics, under limits.

        loss(W) = −Σ_m weight_m · metric_m(W) + Σ_limits [miss > 0] · (Σ_m |weight_m| + penalty · miss)

    All metrics lie between 0 and 1, so no federation that misses a limit beats one that keeps all; among
    those that miss, the smaller miss leads back. Whether limits can be kept at all is for the search to
    find: ask `feasible` of the answer's metrics.

    Parameters
    ----------
    maximise
        A metric (``balanced_accuracy``, ``accuracy``, ``f1``, ``positive_rate``; ``spd`` and ``eod`` are made
        small), or weights by metric: ``{"balanced_accuracy": 1, "spd": -0.5}``.
    subject_to
        Limits by metric: most for the gaps ``spd`` and ``eod`` (absolute), least for the others.
    target
        Whose predictions count: see `Forecaster`.
    settings
        How the forecast's model is made.
    penalty
        Loss for each unit by which a limit is missed.

    Examples
    --------
    >>> objective = Forecast("balanced_accuracy", subject_to={"spd": 0.05})
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
    ) -> None:
        self.weights = check_weights(maximise)
        self.limits = dict(subject_to or {})
        for metric, limit in self.limits.items():
            check_name(metric, what="subject_to")
            if not 0 <= limit <= 1:
                raise FedwiseError(f"limit of {metric} must lie between 0 and 1, got {limit}")
        if not (np.isfinite(penalty) and penalty > 0):
            raise FedwiseError(f"penalty must be a finite number above 0, got {penalty}")
        self.target = target
        self.settings = settings or Settings()
        self.penalty = penalty
        self.forecaster: Forecaster | None = None

    @classmethod
    def of(
        cls,
        forecaster: Forecaster,
        maximise: str | Mapping[str, float] = "balanced_accuracy",
        *,
        subject_to: Mapping[str, float] | None = None,
    ) -> Forecast:
        """An objective over a forecaster that is already fitted."""
        made = cls(maximise, subject_to=subject_to, settings=forecaster.settings)
        made.forecaster = forecaster
        return made

    def rows(self, estimates: Estimates) -> Floats:
        """Rows of the fitted forecaster: curvature, gradient, records and members of every client."""
        if self.forecaster is None or self.forecaster.estimates is not estimates:
            self.forecaster = Forecaster(estimates, self.target, settings=self.settings)
        return self.forecaster.rows

    def evaluate(self, sums: Floats) -> Floats:
        """Loss of each summed row."""
        if self.forecaster is None:
            raise FedwiseError("objective must see the estimates first; call rows(estimates)")
        return self.losses(self.forecaster.values(sums))

    def losses(self, values: Floats) -> Floats:
        """Loss of metrics in the order of `NAMES`, shape (batch, metrics) to (batch,)."""
        at = {name: i for i, name in enumerate(NAMES)}
        loss = np.zeros(len(values))
        cliff = sum(abs(weight) for weight in self.weights.values())
        for name, weight in self.weights.items():
            loss -= weight * values[:, at[name]]
        for name, limit in self.limits.items():
            miss = (values[:, at[name]] - limit) * (1.0 if name in GAPS else -1.0)
            loss += np.where(miss > SLACK, cliff + self.penalty * miss, 0.0)
        return loss

    def feasible(self, values: Floats) -> npt.NDArray[np.bool_]:
        """Whether metrics in the order of `NAMES` satisfy every limit."""
        at = {name: i for i, name in enumerate(NAMES)}
        good = np.ones(len(values), bool)
        for name, limit in self.limits.items():
            miss = values[:, at[name]] - limit
            good &= (miss if name in GAPS else -miss) <= SLACK
        return good
