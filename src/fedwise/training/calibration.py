"""Calibration runs: train federations of varying size, and pair what came out with what their tables said."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from ..calibration import Calibration, Goal, calibrate
from ..errors import FedwiseError
from ..estimation.estimates import Estimates
from ..objective.pfl import TERM_NAMES, Weights, terms
from ..schema.frame import FrameLike
from ..schema.schema import Schema
from .cached import Cache, Training, train_all
from .federation import Prepared
from .simulate import Config

Floats = npt.NDArray[np.float64]

#: The paper's metrics: accuracy and F1 should rise as the loss falls, both gaps should fall with it.
GOALS: Mapping[str, Goal] = {"accuracy": "utility", "f1": "utility", "eod": "fairness", "mad": "fairness"}


@dataclass(frozen=True)
class Study:
    """Trained federations, their terms, and the weights fitted to them.

    Parameters
    ----------
    federations
        The federations drawn.
    terms
        Shape (federations, 4).
    metrics
        Final value of each metric on the common held-out rows, shape (federations,) each.
    """

    federations: tuple[tuple[str, ...], ...]
    terms: Floats
    metrics: Mapping[str, Floats]
    calibration: Calibration

    def to_frame(self) -> pl.DataFrame:
        """One line a federation."""
        columns: dict[str, object] = {
            "members": [",".join(members) for members in self.federations],
            "k": [len(members) for members in self.federations],
        }
        columns |= {name: self.terms[:, i] for i, name in enumerate(TERM_NAMES)}
        return pl.DataFrame({**columns, **self.metrics})


def draw_federations(
    clients: Sequence[str], count: int, *, sizes: tuple[int, int] = (2, 15), seed: int = 0
) -> list[tuple[str, ...]]:
    """`count` different federations: a size drawn evenly from `sizes`, then members drawn evenly.

    Raises
    ------
    FedwiseError
        The sizes do not fit the clients, or there are not that many federations.
    """
    low, high = sizes
    if not 1 <= low <= high <= len(clients):
        raise FedwiseError(
            f"sizes must satisfy 1 <= low <= high <= {len(clients)} (the clients), got {low} and {high}"
        )
    if count > sum(math.comb(len(clients), k) for k in range(low, high + 1)):
        raise FedwiseError(
            f"there are fewer than {count} different federations of these sizes; ask for fewer"
        )
    rng = np.random.default_rng((seed, 0xCA1))
    found: dict[tuple[str, ...], None] = {}
    for _ in range(50 * count):
        k = int(rng.integers(low, high + 1))
        found[tuple(sorted(rng.choice(np.array(clients), size=k, replace=False).tolist()))] = None
        if len(found) == count:
            return list(found)
    raise FedwiseError(f"{count} different federations were not found by drawing; ask for fewer")


def exact_estimates(frames: Mapping[str, FrameLike], schema: Schema) -> Estimates:
    """Estimates without noise, for research on data at hand: every table of every client as counted."""
    from ..estimation import estimate
    from ..owner.release import release
    from ..planning import plan
    from ..pool.pool import Pool

    # All weights above zero: every table is asked for.
    asked = plan(schema, float("inf"), weights=Weights(1, 1, 1, 1))
    pool = Pool.of(
        [release(asked, frame, client=client, no_privacy=True) for client, frame in frames.items()]
    )
    return estimate(pool, estimator="plain")


def study(
    prepared: Prepared,
    estimates: Estimates,
    *,
    count: int = 50,
    sizes: tuple[int, int] = (2, 15),
    config: Config,
    seed: int = 0,
    cache: str | Path,
    workers: int = 2,
    goals: Mapping[str, Goal] = GOALS,
    attribute: str | None = None,
    resamples: int = 1000,
    on_done: Callable[[int, pl.DataFrame, bool], None] | None = None,
) -> Study:
    """Draw federations, train each, test all on the same held-out rows, fit and judge the weights.

    Parameters
    ----------
    prepared, estimates
        Data to train on, and the tables the terms come from (of the training rows, or of releases).
    count, sizes, seed
        How many federations, of which sizes; seed of the draw, of the fit and (by `config`) of the training.
    cache
        Directory of finished trainings; a second call goes on where the first stopped.
    attribute
        Sensitive attribute of the fairness gaps; default the first.
    resamples
        Bootstrap samples of the intervals.
    """
    shared = [client for client in prepared.clients if client in set(estimates.clients)]
    if not shared:
        raise FedwiseError("releases and data have no client in common; check the names of the files")
    federations = draw_federations(shared, count, sizes=sizes, seed=seed)
    position = {client: i for i, client in enumerate(estimates.clients)}
    predicted = [terms(estimates, [position[client] for client in members]) for members in federations]
    table = np.array([[getattr(term, name) for name in TERM_NAMES] for term in predicted])
    work = [Training(members, config) for members in federations]
    ran = train_all(prepared, work, cache=Cache(cache, prepared), workers=workers, on_done=on_done)
    attribute = attribute or prepared.encoder.attributes[0]
    metrics = {name: np.array([final(run, name, attribute) for run in ran]) for name in goals}
    fitted = calibrate(table, metrics, goals, seed=seed, resamples=resamples)
    return Study(tuple(federations), table, metrics, fitted)


def final(table: pl.DataFrame, metric: str, attribute: str = "", *, rows: str = "all") -> float:
    """Last value of a metric in the records of a training; `attribute` only matters for fairness gaps."""
    known = table.filter(
        (pl.col("rows") == rows) & (pl.col("metric") == metric) & pl.col("attribute").is_in(["", attribute])
    )
    if known.is_empty():
        raise FedwiseError(f"metric '{metric}' was not recorded in training")
    return float(known.sort("round").get_column("value")[-1])
