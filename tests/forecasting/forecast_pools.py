"""Small pools for the forecast's tests: clients that differ, exact or noisy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

import fedwise as fw
from fedwise.estimation.estimates import Estimates
from fedwise.owner.tables import count
from fedwise.schema.layout import Layout

SCHEMA = fw.Schema.parse(
    """
    name = "jobs"
    [columns.AGE]
    role = "feature"
    bins = [0, 20, 40, 60, 100]
    model = "scaled"
    scale = [40, 20]
    [columns.JOB]
    role = "feature"
    levels = [0, 1, 2, 3, 4]
    [columns.HOURS]
    role = "feature"
    levels = [0, 1, 2]
    [columns.SEX]
    role = "sensitive"
    levels = [0, 1]
    [columns.RICH]
    role = "target"
    levels = [0, 1]
    """
)


def codes_of(client: int, rows: int = 1500) -> npt.NDArray[np.int16]:
    """Codes of one client; what makes people rich changes from client to client."""
    rng = np.random.default_rng([7, client])
    age = rng.integers(0, 4, rows)
    sex = rng.integers(0, 2, rows)
    job = np.minimum(rng.integers(0, 5, rows), age + 1 + sex)
    hours = (rng.random(rows) < 0.3 + 0.1 * job).astype(int) + (rng.random(rows) < 0.4)
    tilt = np.random.default_rng([8, client]).normal(size=4) * 0.4
    logit = -2.6 + 0.9 * age + (0.9 + tilt[0]) * (job > 2) + (0.8 + tilt[1]) * hours
    logit += (tilt[2] - 0.5) * sex + tilt[3]
    rich = rng.random(rows) < 1 / (1 + np.exp(-logit))
    return np.stack([age, job, hours, sex, rich]).astype(np.int16)


def frame_of(codes: npt.NDArray[np.int16]) -> pl.DataFrame:
    """Rows with these codes."""
    frame = {name: codes[i].astype(np.int64) for i, name in enumerate(SCHEMA.names)}
    frame["AGE"] = np.array([10, 30, 50, 70])[codes[0]]
    return pl.DataFrame(frame)


def layout_of(drop: tuple[str, str] | None = None) -> Layout:
    """All pairs of the schema but one."""
    names = SCHEMA.names
    pairs = [
        (x, y) for i, x in enumerate(names) for y in names[i + 1 :] if drop is None or {x, y} != set(drop)
    ]
    return Layout.of(SCHEMA, tuple(pairs))


def exact_estimates(codes: Sequence[npt.NDArray[np.int16]], drop: tuple[str, str] | None = None) -> Estimates:
    """Plain estimates without noise."""
    return noisy_estimates(codes, 0.0, seed=0, drop=drop)


def noisy_estimates(
    codes: Sequence[npt.NDArray[np.int16]], sigma: float, *, seed: int, drop: tuple[str, str] | None = None
) -> Estimates:
    """Plain estimates with the same noise on every table."""
    layout = layout_of(drop)
    cells = np.stack([count(c, layout).exact for c in codes]).astype(float)
    if sigma:
        cells += np.random.default_rng(seed).normal(0, sigma, cells.shape).round()
    clients = tuple(f"c{i}" for i in range(len(codes)))
    return Estimates.plain(clients, SCHEMA, layout, cells, np.full(layout.tables, sigma))
