"""Class metrics: what is forecast of several classes and of a number, from rates and errors by group and class.

The definitions are those of training: F1 and recall are means over classes, ``spd`` and ``eod`` compare the groups by
how often they are decided for a class and how often those who are of it are told so (means over the classes, or of one
class: ``eod[3]``), ``mad`` compares accuracies. Of a number, gaps are those of the mean error and of the mean absolute
error.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError, nearest
from ..objective.metric import Metric
from ..schema.schema import Schema
from .labels import Labels
from .metrics import ALL, CLASS_NAMES, NUMBER_NAMES, ONE_CLASS, check_name, gap

Floats = npt.NDArray[np.float64]


class NamedMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Forecast metrics of several classes or of a number, by name; gaps are absolute."""

    values: dict[str, float]

    def value(self, name: str) -> float:
        """The metric called `name`, without an attribute: it is that of the forecast."""
        return self.values[name]


def names_for(labels: Labels) -> tuple[str, ...]:
    """Every metric that is forecast of a target, as the column ``metric`` of a table has it."""
    if labels.kind == "binary":
        return ALL
    if labels.kind == "number":
        return NUMBER_NAMES
    return (*CLASS_NAMES, *(f"{name}[{label}]" for name in ONE_CLASS for label in labels.names))


def check_metrics(names: Sequence[str], schema: Schema, known: Sequence[str]) -> list[Metric]:
    """The metrics of some names; refuses those that are not among the known ones of this target."""
    found = [check_name(name, attributes=[schema.names[v] for v in schema.sensitive]) for name in names]
    for metric in found:
        if metric.column not in known:
            raise FedwiseError(
                f"metric must be one that is forecast of target '{schema.names[schema.target]}', got '{metric}'"
                f"{nearest(metric.column, known)}"
            )
    return found


def of_confusions(rates: Floats, costs: Floats, shares: Floats, labels: Sequence[str]) -> dict[str, Floats]:
    """Every metric of several classes (`names_for`), each of shape (batch,).

    Parameters
    ----------
    rates
        Shape (batch, groups, classes, classes): share decided for each class, by group and true class.
    costs
        Shape (batch, groups, classes, 2): mean log loss and squared error.
    shares
        Shape (groups, classes): share of the population in each.
    """
    joint = rates * shares[:, :, None]
    whole = joint.sum(axis=1)
    right, true, told = np.diagonal(whole, axis1=1, axis2=2), whole.sum(axis=2), whole.sum(axis=1)
    recalls, f1 = _ratio(right, true), _ratio(2 * right, true + told)
    means = (costs * shares[:, :, None]).sum(axis=(1, 2))
    sizes = shares.sum(axis=1)
    decided = _gaps(_ratio(joint.sum(axis=2), sizes[:, None] * np.ones_like(shares)), sizes[:, None] > 0)
    kept = _gaps(np.diagonal(rates, axis1=2, axis2=3), shares > 0)
    accurate = _gaps(_ratio(np.trace(joint, axis1=2, axis2=3), sizes)[:, :, None], sizes[:, None] > 0)
    out = {
        "loss": means[:, 0],
        "accuracy": right.sum(axis=1),
        "balanced_accuracy": np.nanmean(recalls, axis=1),
        "macro_f1": np.nanmean(f1, axis=1),
        "brier": means[:, 1],
        "spd": np.nanmean(decided, axis=1),
        "eod": np.nanmean(kept, axis=1),
        "mad": accurate[:, 0],
    }
    for name, values in zip(ONE_CLASS, (recalls, f1, decided, kept), strict=True):
        out |= {f"{name}[{label}]": np.nan_to_num(values[:, c]) for c, label in enumerate(labels)}
    return out


def of_errors(found: Floats, shares: Floats, edges: Floats, unit: float) -> dict[str, Floats]:
    """Every metric of `NUMBER_NAMES`, each of shape (batch,).

    Parameters
    ----------
    found
        Shape (batch, groups, bins, 3): mean error, absolute error and squared error, scaled.
    shares
        Shape (groups, bins): share of the population in each.
    edges, unit
        See `Labels`.
    """
    joint = found * shares[:, :, None]
    absolute, square = joint[..., 1].sum(axis=(1, 2)), joint[..., 2].sum(axis=(1, 2))
    by_group = _ratio(joint.sum(axis=2), shares.sum(axis=1)[:, None] * np.ones(3))
    gaps = _gaps(by_group[:, :, :2], (shares.sum(axis=1) > 0)[:, None])
    share, middle = shares.sum(axis=0), edges.mean(axis=1)
    spread = share @ (middle**2 + (edges[:, 1] - edges[:, 0]) ** 2 / 12) - (share @ middle) ** 2
    return {
        "loss": square / 2,
        "mae": absolute * unit,
        "rmse": np.sqrt(square) * unit,
        "r2": 1.0 - square / spread if spread > 0 else np.zeros(len(found)),
        "error_gap": gaps[:, 0] * unit,
        "mae_gap": gaps[:, 1] * unit,
    }


def _ratio(part: Floats, whole: Floats) -> Floats:
    """`part` / `whole`, NaN where there is nothing."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(whole > 0, part / whole, np.nan), dtype=np.float64)


def _gaps(rates: Floats, seen: npt.NDArray[np.bool_]) -> Floats:
    """Absolute gap between the groups that are seen: shape (batch, groups, classes) to (batch, classes)."""
    seen = np.broadcast_to(seen, rates.shape[1:])
    out = np.zeros((len(rates), rates.shape[2]))
    for c in range(rates.shape[2]):
        if seen[:, c].sum() > 1:
            out[:, c] = np.abs(gap(rates[:, seen[:, c], c]))
    return out
