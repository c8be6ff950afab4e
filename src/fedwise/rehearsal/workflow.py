"""Rehearse: train federations on doubles as they would train on rows, and say what to expect."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict, Unpack

import msgspec
import numpy as np

from ..doubling.target import TargetLike, target_of
from ..errors import FedwiseError, PoolError, nearest
from ..estimation import Releases
from ..search.selection import Selection
from ..training.model import check_extra
from ..training.settings import Training
from .folder import Folder
from .performance import Performance, Rehearsed, with_figures
from .stage import JUDGED
from .trained import Trained
from .trainings import Scenery, Task, Trainings, performance

Federation = Selection | Sequence[str]


class Asked(NamedTuple):
    """A federation to rehearse, and in which role."""

    role: str
    clients: tuple[str, ...]


class More(TypedDict, total=False):
    """Keywords of `rehearse` about where its results go."""

    output: str | Path | None
    force: bool


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
    target: TargetLike | None = None,
    seed: int = 0,
    progress: Callable[[int, int, float], None] | None = None,
    **more: Unpack[More],
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
        Clients whose population judges; default all. Or **public** rows that judge as they are: a frame, or the path of
        a Parquet, CSV or TSV file. Never give private rows here: no noise protects them.
    seed, progress
        Equal seeds give equal rehearsals. Called with trainings done, in all, and the best AUC of those asked for.
    **more
        ``output``: a run directory. Every training is written there as it ends, the same call goes on after a stop, and
        ``fedwise report`` reads it. ``force``: replace another rehearsal that it holds.

    Raises
    ------
    FedwiseError
        A number that makes no sense, an extra that is not installed, or a directory that holds another rehearsal.
    PoolError
        A client that is not in the pool.
    """
    settings = settings or Training()
    _check(settings, stages=stages, judged=judged, records=records, random=random, more=more)
    asked = _asked(pool, federations, random=random, everyone=everyone, alone=alone, seed=seed)
    scenery = Scenery(pool, target_of(target, pool.plan.schema), judged, seed)
    question = {"kind": "rehearse", "scenery": scenery.digest, "asked": asked, "settings": settings,
                "stages": stages, "records": records}  # fmt: skip
    output = more.get("output")
    with Folder.opened(None if output is None else Path(output)) as folder:
        folder.begin(question, pool, force=more.get("force", False))
        folder.keep_federation(federations if isinstance(federations, Selection) else asked[0].clients, pool)
        trainings = Trainings(scenery, folder=folder.path)
        named = [one.clients for one in asked if one.role == "federation"]
        done = _Tally(len(asked) * stages, named, progress)
        found = [
            trainings.train([_task(one.clients, settings, number, records) for one in asked], done.add)
            for number in range(stages)
        ]
        performances = [
            performance(one.role, one.clients, dict(enumerate(stage[at] for stage in found)))
            for at, one in enumerate(asked)
        ]
        result = rehearsed(performances, scenery, settings, shortened=records is not None)
        folder.finish(result)
    return result


def _task(clients: tuple[str, ...], settings: Training, stage: int, records: int | None) -> Task:
    """A training. Gaps are trained once more on the whole release; a quick look does without."""
    return Task(clients, settings, stage, records, whole=records is None)


def rehearsed(
    performances: Sequence[Performance], scenery: Scenery, settings: Training, *, shortened: bool
) -> Rehearsed:
    """Performances with their intervals, and what they were rehearsed from."""
    pool = scenery.pool
    return Rehearsed(
        performances=with_figures(performances),
        settings=msgspec.to_builtins(settings),
        label=getattr(pool, "label", ""),
        epsilon=pool.plan.epsilon if np.isfinite(pool.plan.epsilon) else None,
        seed=scenery.seed,
        shortened=shortened,
    )


def _check(
    settings: Training,
    *,
    stages: int,
    judged: int,
    records: int | None,
    random: int,
    more: Mapping[str, object],
) -> None:
    check_extra(private=settings.epsilon is not None)
    for name, value, least in (("stages", stages, 2), ("judged", judged, 1), ("records", records, 1)):
        if value is not None and value < least:
            raise FedwiseError(f"{name} must be at least {least}, got {value}")
    if random < 0:
        raise FedwiseError(f"random must be at least 0, got {random}")
    unknown = set(more) - set(More.__annotations__)
    if unknown:
        raise TypeError(
            f"rehearse() has no keyword '{min(unknown)}'{nearest(min(unknown), More.__annotations__)}"
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

    def __init__(
        self,
        total: int,
        wanted: Sequence[tuple[str, ...]],
        progress: Callable[[int, int, float], None] | None,
    ) -> None:
        self.total, self.progress, self.wanted = total, progress, set(wanted)
        self.done, self.best = 0, math.nan

    def add(self, task: Task, found: Trained) -> None:
        self.done += 1
        if task.clients in self.wanted:
            self.best = float(np.fmax(self.best, found.final.get("auc", math.nan)))
        if self.progress is not None:
            self.progress(self.done, self.total, self.best)


def federations_of(pool: Releases, federations: Federation | Sequence[Federation]) -> list[tuple[str, ...]]:
    """One or several federations as lists of clients, every name checked."""
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
    return named


def _asked(
    pool: Releases, federations: Federation | Sequence[Federation], *, random: int, everyone: bool, alone: bool,
    seed: int,
) -> list[Asked]:  # fmt: skip
    """Everything that is rehearsed, each federation once in each role."""
    named = federations_of(pool, federations)
    asked = [Asked("federation", members) for members in named]
    size = len(named[0])
    asked += [Asked("random", members) for members in _random(pool.clients, named[0], random, seed)]
    if everyone:
        asked.append(Asked("all", tuple(pool.clients)))
    if alone and size > 1:
        asked += [Asked("alone", (client,)) for client in named[0]]
    return asked
