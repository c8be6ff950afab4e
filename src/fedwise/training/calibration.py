"""Calibration runs: train federations of varying size, and pair what came out with what their tables said."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from ..calibration import Calibration, Goal, fit_and_judge
from ..data.split import split_all
from ..errors import FedwiseError, SchemaError, nearest
from ..estimation import estimate
from ..estimation.estimates import Estimates
from ..objective.pfl import TERM_NAMES, Weights, terms
from ..pool.pool import Pool
from ..schema.frame import FrameLike
from ..schema.schema import Schema
from .cached import Cache, Job, train_all
from .federation import Prepared, prepare, read_frames
from .model import check_extra
from .records import final
from .settings import Training
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
    cached
        How many trainings came from the cache.
    notes
        Sentences about clients whose data is unusual but usable.
    """

    federations: tuple[tuple[str, ...], ...]
    terms: Floats
    metrics: Mapping[str, Floats]
    calibration: Calibration
    cached: int = 0
    notes: tuple[str, ...] = ()

    def to_frame(self) -> pl.DataFrame:
        """One line for each federation."""
        columns: dict[str, object] = {
            "members": [",".join(members) for members in self.federations],
            "k": [len(members) for members in self.federations],
        }
        columns |= {name: self.terms[:, i] for i, name in enumerate(TERM_NAMES)}
        return pl.DataFrame({**columns, **self.metrics})


def calibrate(
    frames: Mapping[str, FrameLike] | str | Path,
    schema: Schema,
    settings: Training | None = None,
    *,
    pool: Pool | None = None,
    count: int = 50,
    sizes: tuple[int, int] = (2, 15),
    attribute: str | None = None,
    resamples: int = 1000,
    cache: str | Path | None = None,
    workers: int = 1,
    progress: Callable[[int, int, float], None] | None = None,
) -> Study:
    """Fit the weights of the loss to trained federations, and judge them on federations held back.

    Parameters
    ----------
    frames
        Rows of every client by name (frames or files), or a directory with one file for each.
    settings
        How every federation is trained. Its seed also draws the federations. Only the last round is tested.
    pool
        Take the terms from these releases. Default: exact tables of the training rows, for research on data
        that one holds.
    count, sizes
        How many federations, and their smallest and largest size.
    attribute
        Sensitive attribute of the fairness gaps. Default: the schema's first.
    resamples
        Bootstrap samples of the intervals.
    cache, workers
        Directory of finished trainings (a second call goes on where the first stopped), and processes.
    progress
        Called with trainings done, trainings asked for, and the best accuracy so far.
    """
    check_extra()
    settings = settings or Training()
    config = msgspec.structs.replace(settings.config(), evaluate_every=settings.rounds, replicates=0)
    _, found = read_frames(frames)
    prepared = prepare(
        found, schema, test=settings.test, seed=settings.split_seed, use_sensitive=settings.use_sensitive
    )
    _check_attribute(attribute, prepared.encoder.attributes)
    if pool is None:
        train, _ = split_all(found, settings.test, seed=settings.split_seed, schema=schema)
        estimates = exact_estimates(train, schema)
    else:
        estimates = estimate(pool)
    done, best = 0, -math.inf

    def after(_: int, records: pl.DataFrame, __: bool) -> None:
        nonlocal done, best
        done, best = done + 1, max(best, final(records, "accuracy"))
        if progress:
            progress(done, count, best)

    return study(
        prepared, estimates, count=count, sizes=(sizes[0], min(sizes[1], len(prepared.clients))), config=config,
        seed=config.seed, cache=cache, workers=workers, attribute=attribute, resamples=resamples, on_done=after,
    )  # fmt: skip


def _check_attribute(attribute: str | None, known: tuple[str, ...]) -> None:
    if attribute is not None and attribute not in known:
        raise SchemaError(
            f"attribute must be a sensitive column, got '{attribute}'{nearest(attribute, known)}"
        )
    if not known:
        raise SchemaError(
            "calibration needs a sensitive column in the schema; declare one with role sensitive"
        )


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
    from ..owner.release import release
    from ..planning import plan

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
    cache: str | Path | None,
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
        Directory of finished trainings; a second call goes on where the first stopped. ``None`` keeps none.
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
    work = [Job(members, config) for members in federations]
    cached = 0

    def after(place: int, records: pl.DataFrame, known: bool) -> None:
        nonlocal cached
        cached += known
        if on_done:
            on_done(place, records, known)

    ran = train_all(
        prepared,
        work,
        cache=None if cache is None else Cache(cache, prepared),
        workers=workers,
        on_done=after,
    )
    attribute = attribute or prepared.encoder.attributes[0]
    metrics = {name: np.array([final(run, name, attribute) for run in ran]) for name in goals}
    fitted = fit_and_judge(table, metrics, goals, seed=seed, resamples=resamples)
    return Study(tuple(federations), table, metrics, fitted, cached, prepared.notes)
