"""Pool rows: every client of a pool with its own terms, its noise, and what is unusual about its release."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from ..estimation.estimates import Estimates
from ..pool.card import quick_quality
from ..pool.pool import Pool
from .spending import spent_by_client
from .state_map import tiles


class PoolRow(msgspec.Struct, frozen=True, kw_only=True):
    """One client as its release shows it.

    `terms` are those of the client alone. `noise` is σ over the average cell of its typical table. `tile` is
    (row, column, code) on the map, where all clients are states. `spent` is its total ε and `stages` how it came to
    it, where clients spent differently or were asked in stages.
    """

    client: str
    records: int
    terms: list[float]
    noise: float
    flag: str | None
    alert: str | None
    suspect: str | None
    tile: tuple[int, int, str] | None
    spent: float | None = None
    stages: str | None = None


def pool_rows(pool: Pool, estimates: Estimates, alone: npt.NDArray[np.float64]) -> list[PoolRow]:
    """The clients in the order of the pool; `alone` holds the terms of each."""
    layout = pool.plan.layout
    typical = np.median(np.array([a * b for a, b in layout.shapes]) * pool.sigmas, axis=1)
    flags = {flag.client: flag.reason for flag in pool.flags}
    alerts: dict[str, list[str]] = {}
    for alert in pool.alerts:
        alerts.setdefault(alert.client, []).append(alert.reason)
    cards = quick_quality(pool) or {}
    places = {tile.client: (tile.row, tile.column, tile.code) for tile in tiles(estimates.clients, ())}
    spent = spent_by_client(pool)
    return [
        PoolRow(
            client=name,
            records=round(float(total)),
            terms=[float(value) for value in row],
            noise=float(noise) / max(float(total), 1.0),
            flag=flags.get(name),
            alert="; ".join(alerts.get(name, ())) or None,
            suspect=cards[name].verdict if name in cards and cards[name].suspect else None,
            tile=places.get(name),
            spent=spent[name][0] if spent else None,
            stages=spent[name][1] if spent else None,
        )
        for name, total, row, noise in zip(estimates.clients, estimates.totals, alone, typical, strict=True)
    ]
