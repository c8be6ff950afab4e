"""Rehearse: train federations on doubles as they would train on rows, and say what to expect."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec
import numpy as np

from ..errors import FedwiseError, PoolError, nearest
from ..estimation import Releases
from ..objective.metric import Metric
from ..search.selection import Selection
from ..training.encoding import Encoder
from ..training.model import check_extra
from ..training.records import Record
from ..training.settings import Training
from ..training.simulate import simulate
from .performance import Performance, Rehearsed, with_figures
from .stage import JUDGED, Stage

#: Metrics of learning curves.
_CURVES = ("auc", "loss", "accuracy", "balanced_accuracy")
#: Points of a learning curve.
_POINTS = 10
#: Threads that train; the kernels hold no lock.
_THREADS = 2

Federation = Selection | Sequence[str]


class Asked(NamedTuple):
    """A federation to rehearse, and in which role."""

    role: str
    clients: tuple[str, ...]


def rehearse(
    pool: Releases,
    federations: Federation | Sequence[Federation],
    settings: Training | None = None,
    *,
    random: int = 10,
    everyone: bool = True,
    alone: bool = False,
    stages: int = 3,
    records: int | None = None,
    judged: int = JUDGED,
    target: Sequence[str] | None = None,
    seed: int = 0,
    progress: Callable[[int, int, float], None] | None = None,
) -> Rehearsed:
    """Train federations on doubles, before anyone trains.

    Released tables are all it uses: no privacy is spent, and no client is asked.

    Parameters
    ----------
    pool
        The releases.
    federations
        A selection or names of clients, or several of these. The first one is compared with the random ones.
    settings
        How the federation would be trained; any strategy, sampler and model, DP-SGD included.
    random
        Random federations of the first one's size to compare with.
    everyone, alone
        Whether all clients together, and each member alone, are rehearsed too.
    stages
        How often everything is drawn anew, at least twice; the spread over stages tells the error of the answer.
    records
        Most records of a double; default as many as the client would train on. Fewer make a quick look at the order of
        federations: levels then are not those of the real training.
    judged
        Records of the population that judges.
    target
        Clients whose population judges; default all.
    seed
        Equal seeds give equal rehearsals.
    progress
        Called with trainings done, trainings in all, and the best AUC so far of a federation asked for.

    Raises
    ------
    FedwiseError
        A number that makes no sense, or an extra that is not installed.
    PoolError
        A client that is not in the pool.
    """
    settings = settings or Training()
    check_extra(private=settings.epsilon is not None)
    for name, value, least in (("stages", stages, 2), ("judged", judged, 1), ("records", records, 1)):
        if value is not None and value < least:
            raise FedwiseError(f"{name} must be at least {least}, got {value}")
    if random < 0:
        raise FedwiseError(f"random must be at least 0, got {random}")
    asked = _asked(pool, federations, random=random, everyone=everyone, alone=alone, seed=seed)
    encoder = Encoder(pool.plan.schema, use_sensitive=settings.use_sensitive)
    done = _Tally(len(asked) * stages, progress)
    found: list[list[list[Record]]] = [[] for _ in asked]
    for number in range(stages):
        stage = Stage(
            pool, encoder, number=number, seed=seed, target=target, records=records, share=1 - settings.test,
            judged=judged,
        )  # fmt: skip
        for at, records_of in enumerate(_train(stage, asked, settings, number, done)):
            found[at].append(records_of)
    performances = [_performance(one, records_of) for one, records_of in zip(asked, found, strict=True)]
    return Rehearsed(
        performances=with_figures(performances),
        settings=msgspec.to_builtins(settings),
        label=getattr(pool, "label", ""),
        epsilon=pool.plan.epsilon if np.isfinite(pool.plan.epsilon) else None,
        seed=seed,
        shortened=records is not None,
    )


def _random(clients: Sequence[str], first: Sequence[str], count: int, seed: int) -> list[tuple[str, ...]]:
    """Distinct random federations of the size of `first`, other than it; fewer where there are not so many."""
    rng = np.random.default_rng([seed & 0xFFFFFFFFFFFFFFFF, 0x5EED])
    size, there = len(first), math.comb(len(clients), len(first)) - 1
    found: dict[tuple[str, ...], None] = {}
    while len(found) < min(count, there):
        places = np.sort(rng.choice(len(clients), size, replace=False))
        members = tuple(clients[i] for i in places)
        if set(members) != set(first):
            found[members] = None
    return list(found)


class _Tally:
    """Counts trainings, and remembers the best AUC among the federations asked for."""

    def __init__(self, total: int, progress: Callable[[int, int, float], None] | None) -> None:
        self.total, self.progress = total, progress
        self.done, self.best = 0, math.nan

    def add(self, one: Asked, records: Sequence[Record]) -> None:
        self.done += 1
        if one.role == "federation":
            self.best = float(np.fmax(self.best, _last(records)["auc"]))
        if self.progress is not None:
            self.progress(self.done, self.total, self.best)


def _asked(
    pool: Releases, federations: Federation | Sequence[Federation], *, random: int, everyone: bool, alone: bool,
    seed: int,
) -> list[Asked]:  # fmt: skip
    """Everything that is rehearsed, each federation once in each role."""
    if isinstance(federations, str):
        raise FedwiseError(
            f"federations must be lists of clients, got the text '{federations}'; write ['{federations}']"
        )
    several = not isinstance(federations, Selection) and not all(isinstance(one, str) for one in federations)
    listed: Sequence[Federation] = federations if several else [federations]  # type: ignore[list-item,assignment]
    named = [tuple(one.clients if isinstance(one, Selection) else one) for one in listed]
    for members in named:
        if not members:
            raise FedwiseError("federations must name at least one client each")
        for client in members:
            if client not in pool.clients:
                raise PoolError(f"pool holds no client '{client}'{nearest(client, pool.clients)}")
        if len(set(members)) != len(members):
            raise FedwiseError("federations must name each client once")
    asked = [Asked("federation", members) for members in named]
    size = len(named[0])
    asked += [Asked("random", members) for members in _random(pool.clients, named[0], random, seed)]
    if everyone:
        asked.append(Asked("all", tuple(pool.clients)))
    if alone and size > 1:
        asked += [Asked("alone", (client,)) for client in named[0]]
    return asked


def _train(
    stage: Stage, asked: Sequence[Asked], settings: Training, number: int, done: _Tally
) -> list[list[Record]]:
    """Train every federation on one stage's doubles."""
    needed = list(dict.fromkeys(client for one in asked for client in one.clients))
    every = max(1, settings.rounds // _POINTS)
    # Rehearsed noise protects nobody and needs no entropy: it is drawn from the seed, as all else.
    config = msgspec.structs.replace(
        settings.config(), seed=(settings.seed or 0) + number, evaluate_every=every, replicates=0,
        simulated=settings.epsilon is not None,
    )  # fmt: skip
    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(stage.rows, needed))
        prepared = stage.prepared(needed)

        def one(asked_for: Asked) -> list[Record]:
            return simulate(prepared, asked_for.clients, config).records

        out = []
        for asked_for, records in zip(asked, threads.map(one, asked), strict=True):
            done.add(asked_for, records)
            out.append(records)
    return out


def _last(records: Sequence[Record]) -> dict[str, float]:
    """Metrics of the last round on the judging population, by full name."""
    final = max(record.round for record in records)
    out = {}
    for record in records:
        if record.round == final and record.rows == "all":
            base, _, threshold = record.metric.partition("@")
            out[str(Metric(base, record.attribute, threshold))] = record.value
    return out


def _performance(one: Asked, stages: Sequence[Sequence[Record]]) -> Performance:
    finals = [_last(records) for records in stages]
    names = [name for name in finals[0] if all(name in final for final in finals)]
    rounds = sorted({record.round for record in stages[0] if record.rows == "all"})
    curve: dict[str, tuple[float, ...]] = {"round": tuple(map(float, rounds))}
    for metric in _CURVES:
        values = [
            [r.value for r in records if r.rows == "all" and r.metric == metric and not r.attribute]
            for records in stages
        ]
        curve[metric] = tuple(np.mean(values, axis=0).tolist())
    return Performance(
        role=one.role,
        clients=one.clients,
        stages=tuple(range(len(stages))),
        values={name: tuple(final[name] for final in finals) for name in names},
        curve=curve,
    )
