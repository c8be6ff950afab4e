"""Settings of a forecast, and what it says about one federation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import numpy as np

from ..errors import FedwiseError, nearest
from ..objective.interval import Interval, interval
from .class_metrics import NamedMetrics
from .design import Coding
from .gap import gap_of
from .metrics import Metrics

Link = Literal["logistic", "linear"]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the forecast's model is made.

    Parameters
    ----------
    link
        ``logistic``, or ``linear`` (ridge regression of the label, threshold ½).
    use_sensitive
        Whether the model sees the sensitive attributes.
    attribute
        The sensitive attribute whose groups are compared; default the first.
    coding
        ``one-hot`` levels, or as the ``schema`` says (scaled columns as numbers). It should bend as the trained
        model does: see `for_model`.
    ridge
        In records: penalty = ridge · n. Default: 0.001, or as much as the noise calls for.
    records
        Size of the sample that federations are scored on.
    seed
        Of the sample.
    """

    link: Link = "logistic"
    use_sensitive: bool = True
    attribute: str | None = None
    coding: Coding = "one-hot"
    ridge: float | None = None
    records: int = 8192
    seed: int = 0

    @classmethod
    def for_model(cls, model: str) -> Settings:
        """Settings that follow the model to be trained.

        ``logistic``, ``mlp`` or widths such as ``64-32``. A network bends along a scaled column, as one-hot
        levels do; a linear model does not.
        """
        if model not in ("logistic", "mlp") and not model.replace("-", "").isdigit():
            raise FedwiseError(
                f"model must be mlp, logistic or widths such as 64-32, got '{model}'"
                f"{nearest(model, ('mlp', 'logistic'))}"
            )
        return cls(coding="schema" if model == "logistic" else "one-hot")

    def __post_init__(self) -> None:
        if self.link not in ("logistic", "linear"):
            raise FedwiseError(f"link must be 'logistic' or 'linear', got '{self.link}'")
        if self.ridge is not None and not (np.isfinite(self.ridge) and self.ridge >= 0):
            raise FedwiseError(f"ridge must be a finite number of at least 0, got {self.ridge}")
        if self.records < 100:
            raise FedwiseError(f"records must be at least 100, got {self.records}")


@dataclass(frozen=True)
class Prediction:
    """Forecast metrics of a federation, with standard errors by metric name.

    The errors are those of the privacy noise in the federation's tables, with the target's records held
    fixed. They do not hold what the approximations miss: the forecast's model is not the trained one. `interval` does.
    """

    clients: tuple[str, ...]
    metrics: Metrics | NamedMetrics
    std_errors: Mapping[str, float] = field(default_factory=dict)

    def interval(self, metric: str) -> Interval | None:
        """A 90% interval for the metric of the trained model: privacy noise, and what the forecast lacks.

        ``None`` where no standard errors were asked for, and for several classes and numbers: what their forecast lacks
        was not measured.
        """
        error = self.std_errors.get(metric)
        if error is None or not isinstance(self.metrics, Metrics):
            return None
        return interval(metric, self.metrics.value(metric), noise=error**2, gap=gap_of(metric))
