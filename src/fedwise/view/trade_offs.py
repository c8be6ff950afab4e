"""Trade-offs: AUC against the rate-matched EOD, of trainings or of forecast federations. No threshold enters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from ..search.point import undominated
from .outcomes import Measure

if TYPE_CHECKING:
    from ..forecasting import Forecaster

#: Random federations drawn around a forecast.
RANDOM = 200
Kind = Literal["chosen", "all clients", "random", "baseline"]


class TradeOff(msgspec.Struct, frozen=True, kw_only=True):
    """One training or federation. `best`: no other one shown is as good in both and better in one."""

    label: str
    kind: Kind
    auc: float
    eod: float
    best: bool = False


def of_outcome(final: Sequence[Measure]) -> list[TradeOff]:
    """Trainings compared, the chosen federation first; those without both metrics are left out."""
    # The first attribute's gap, where there are several.
    values: dict[tuple[str, str], float] = {}
    for m in final:
        values.setdefault((m.label, m.metric), m.value)
    labels = list(dict.fromkeys(m.label for m in final))
    return _marked(
        [
            TradeOff(
                label=label,
                kind="baseline" if i else "chosen",
                auc=values[label, "auc"],
                eod=values[label, "eod@rate"],
            )
            for i, label in enumerate(labels)
            if (label, "auc") in values and (label, "eod@rate") in values
        ]
    )


def of_forecast(found: Forecaster | None, clients: Sequence[str], *, seed: int = 0) -> list[TradeOff]:
    """The federation, all clients, and `RANDOM` federations of the same size, as they are forecast."""
    if found is None or len(found.population.shares) < 2 or not {"auc", "eod@rate"} <= set(found.names):
        return []
    members, count = found.positions(list(clients)), len(found.estimates.clients)
    rng = np.random.default_rng((seed, 0x7AD))
    drawn = [rng.choice(count, len(members), replace=False) for _ in range(RANDOM)]
    sums = np.stack([found.rows[part].sum(axis=0) for part in [members, np.arange(count), *drawn]])
    kinds: list[Kind] = ["chosen", "all clients", *(["random"] * RANDOM)]  # type: ignore[list-item]
    labels = ["chosen", "all clients", *(f"random {i + 1}" for i in range(RANDOM))]
    values = found.values(sums, ("auc", "eod@rate")).tolist()
    return _marked(
        [
            TradeOff(label=label, kind=kind, auc=auc, eod=eod)
            for label, kind, (auc, eod) in zip(labels, kinds, values, strict=True)
        ]
    )


def _marked(points: list[TradeOff]) -> list[TradeOff]:
    front = {id(p) for p in undominated(points, cost=lambda p: p.eod, gain=lambda p: p.auc)}
    return [msgspec.structs.replace(p, best=id(p) in front) for p in points]
