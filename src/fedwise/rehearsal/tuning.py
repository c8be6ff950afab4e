"""Tune: the settings whose rehearsal is best, found by Optuna and kept in a study its dashboard opens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from ..errors import FedwiseError, Infeasible, MissingExtra
from ..estimation import Releases
from ..pool.pool import Pool
from ..search.entry import select
from ..training.local import Diverged
from ..training.model import check_extra
from ..training.settings import Training
from .folder import Folder
from .gap import gap_of
from .goal import RANDOM, Bound, Goal
from .preference import preferred
from .space import Space, settings_at
from .stage import JUDGED
from .trainings import Scenery, Task, Trainings, performance
from .workflow import Federation, federations_of

#: Files of a run directory, and the study's name in its storage.
STUDY, BEST, NAME = "study.db", "best.toml", "fedwise"


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """One point of the space, and what its rehearsal came to on average over federations and stages."""

    point: dict[str, Any]
    value: float
    metrics: dict[str, float]


class Tuned(msgspec.Struct, frozen=True, kw_only=True):
    """What `fedwise.tune` found.

    Parameters
    ----------
    settings, clients
        The best settings, and the first federation they were rehearsed on.
    value
        What is maximised.
    baseline
        The value of the settings that tuning began with, where they lie in the space.
    tried
        Every point that was rehearsed, in order.
    storage
        The study, as Optuna and its dashboard name it; empty for memory alone.
    interrupted
        Whether it was stopped before all trials were done.
    gap
        How much of what is maximised doubles may lack; see `fedwise.rehearsal.preference`.
    """

    settings: Training
    clients: tuple[str, ...]
    goal: str
    value: float
    baseline: float | None
    tried: tuple[Tried, ...]
    storage: str = ""
    interrupted: bool = False
    gap: float = 0.0

    @property
    def best(self) -> Tried:
        """The point that won: the best, a network before a logistic regression that is better by the gap at most."""
        return _won(self.tried, self.settings.model, self.gap)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the best settings as TOML, for ``fedwise train --settings``."""
        told = {"goal": self.goal, "value": round(self.value, 6), "trials": len(self.tried)}
        self.settings.save(
            path, force=force, beside={"federation": {"clients": list(self.clients)}, "tuned": told}
        )

    def to_frame(self) -> pl.DataFrame:
        """A row for each point: its settings, the value and the metrics."""
        return pl.DataFrame(
            [{**one.point, "value": one.value, **one.metrics} for one in self.tried], infer_schema_length=None
        )

    def __str__(self) -> str:
        point = ", ".join(
            f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in self.best.point.items()
        )
        lines = [f"best settings   {point}", f"{self.goal}   {self.value:.4f}"]
        if self.baseline is not None:
            lines.append(f"before   {self.baseline:.4f}")
        lines.append(f"trials   {len(self.tried)}" + (" (stopped)" if self.interrupted else ""))
        return "\n".join(lines)


def _won(tried: Sequence[Tried], model: str, gap: float) -> Tried:
    """The point to take; `model` is that of points which leave it open."""
    models = [str(one.point.get("model", model)) for one in tried]
    return tried[preferred(models, [one.value for one in tried], gap)]


def tune(
    pool: Releases,
    federations: Federation | Sequence[Federation] | None = None,
    *,
    maximise: str | Mapping[str, float] = "auc",
    subject_to: Mapping[str, Bound] | None = None,
    space: Space | None = None,
    settings: Training | None = None,
    trials: int = 40,
    stages: int = 2,
    records: int | None = None,
    seed: int = 0,
    output: str | Path | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> Tuned:
    """Find how to train: rehearse settings on doubles, many points of a space, and keep the best.

    Released tables are all it uses: no privacy is spent, and no client is asked.

    Parameters
    ----------
    federations
        A selection or names of clients, or several of these, over which settings are averaged. May be left out where
        the space has sizes `k`: the loss then chooses a federation of each size.
    maximise, subject_to
        As for `fedwise.Rehearsal`; limits are numbers.
    space
        What is tried.
    settings
        What is not tuned, and where tuning begins.
    trials
        Points of the space. The same call with more of them goes on.
    stages
        Stages in which each point is rehearsed, at least 1.
    records
        Most records of a double.
    output
        Run directory with the study (``study.db``, for Optuna's dashboard), every training and ``best.toml``. The same
        call goes on after a stop. Ctrl-C returns the best found so far.
    progress
        Called with trials done, trials in all, and the best value so far.

    Raises
    ------
    Infeasible
        No point that was tried keeps the limits; the message names the nearest miss.
    """
    settings = settings or Training()
    check_extra(private=settings.epsilon is not None)
    for name, value in (("trials", trials), ("stages", stages), ("records", records)):
        if value is not None and value < 1:
            raise FedwiseError(f"{name} must be at least 1, got {value}")
    goal = Goal.of(maximise, subject_to)
    for name, limit in goal.limits.items():
        if limit == RANDOM:
            raise FedwiseError(f"limit of {name} must be a number when tuning, got 'random'")
    space = (space or Space()).suited(settings)
    if federations is None and not space.k:
        raise FedwiseError("federations must be named, or the space must have sizes: Space(k=(3, 10))")
    if federations is not None and space.k:
        raise FedwiseError("federations must be left out where sizes are tuned; drop one of the two")
    named = () if federations is None else tuple(federations_of(pool, federations))
    scenery = Scenery(pool, None, JUDGED, seed)
    with Folder.opened(None if output is None else Path(output)) as folder:
        folder.begin(
            {"kind": "tune", "scenery": scenery.digest, "federations": named, "settings": settings, "space": space,
             "goal": str(goal), "stages": stages, "records": records},
            pool,
        )  # fmt: skip
        work = _Work(pool, scenery, named, goal, space, settings, stages, records, folder, progress)
        found = work.run(trials)
        if folder.path is not None:
            found.save(folder.path / BEST, force=True)
    return found


class _Work:
    """A study under way."""

    def __init__(
        self, pool: Releases, scenery: Scenery, named: tuple[tuple[str, ...], ...], goal: Goal, space: Space,
        settings: Training, stages: int, records: int | None, folder: Folder,
        progress: Callable[[int, int, float], None] | None,
    ) -> None:  # fmt: skip
        try:
            import optuna
        except ImportError:
            raise MissingExtra("tuning", "tune") from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.optuna = optuna
        self.pool, self.named, self.goal, self.space = pool, named, goal, space
        self.settings, self.stages, self.records, self.progress = settings, stages, records, progress
        self.seed = scenery.seed
        self.trainings = Trainings(scenery, folder=folder.path)
        self.storage = "" if folder.path is None else f"sqlite:///{folder.path / STUDY}"
        self.study = optuna.create_study(
            study_name=NAME, storage=self.storage or None, direction="maximize", load_if_exists=True
        )
        self._chosen: dict[int, tuple[str, ...]] = {}
        self._bury()
        self.tried: list[Tried] = [
            Tried(**trial.user_attrs["tried"]) for trial in self.study.trials if "tried" in trial.user_attrs
        ]

    def run(self, trials: int) -> Tuned:
        interrupted, state = False, self.optuna.trial.TrialState
        if not self._count(state.COMPLETE, state.PRUNED, state.WAITING):
            size = len(self.named[0]) if self.named else self.space.k[0]
            start = self.space.point_of(self.settings, size)
            if start is not None:
                self.study.enqueue_trial(start)
        try:
            while self._count(state.COMPLETE, state.PRUNED) < trials:
                self._step()
                if self.progress is not None:
                    best = max((one.value for one in self.tried), default=math.nan)
                    self.progress(len(self.tried), trials, best)
        except KeyboardInterrupt:
            interrupted = True
        if not self.tried:
            raise FedwiseError("tuning was stopped before its first trial had ended; run it again to go on")
        return self._told(interrupted=interrupted)

    def _bury(self) -> None:
        """End the trials that a process left when it was killed; the directory is locked, so none is alive."""
        state = self.optuna.trial.TrialState
        for trial in self.study.get_trials(deepcopy=False, states=(state.RUNNING,)):
            if "tried" in trial.user_attrs:
                self.study.tell(trial.number, trial.user_attrs["tried"]["value"])
            else:
                self.study.tell(trial.number, state=state.FAIL)

    def _count(self, *states: Any) -> int:
        return len(self.study.get_trials(deepcopy=False, states=states))

    def _step(self) -> None:
        # Seeded by what is done, so that a study that was stopped goes on as it would have.
        self.study.sampler = self.optuna.samplers.TPESampler(seed=self.seed * 1_000_003 + len(self.tried))
        trial = self.study.ask()
        try:
            tried = self._rehearse(self.space.suggest(trial))
        except Diverged:
            self.study.tell(trial, state=self.optuna.trial.TrialState.PRUNED)
            return
        except BaseException:
            self.study.tell(trial, state=self.optuna.trial.TrialState.FAIL)
            raise
        trial.set_user_attr("tried", msgspec.to_builtins(tried))
        self.study.tell(trial, tried.value)
        self.tried.append(tried)

    def _rehearse(self, point: dict[str, Any]) -> Tried:
        settings = settings_at(self.settings, point)
        federations = self.named or (self._federation(point["k"]),)
        tasks = [
            Task(members, settings, stage, self.records)
            for members in federations
            for stage in range(self.stages)
        ]
        trained = self.trainings.train(tasks)
        goal = self.goal.named(performance("federation", tasks[0].clients, {0: trained[0]}))
        means = {name: float(np.mean([one.final[name] for one in trained])) for name in trained[0].final}
        bounds = {name: float(limit) for name, limit in goal.limits.items()}
        value = -goal.loss(means, bounds, {})
        return Tried(
            point=point, value=value if math.isfinite(value) else -1e9,
            metrics={name: means[name] for name in ("auc", "loss", *goal.metrics) if math.isfinite(means[name])},
        )  # fmt: skip

    def _federation(self, size: int) -> tuple[str, ...]:
        if size not in self._chosen:
            if not isinstance(self.pool, Pool):
                raise FedwiseError("sizes must be tuned on a pool of releases; pass a Pool")
            self._chosen[size] = select(self.pool, size, seed=self.seed, evidence="none").clients
        return self._chosen[size]

    def _told(self, *, interrupted: bool) -> Tuned:
        gap = sum(abs(weight) * gap_of(name) for name, weight in self.goal.weights.items())
        best = _won(self.tried, self.settings.model, gap)
        size = len(self.named[0]) if self.named else self.space.k[0]
        first = self.space.point_of(self.settings, size)
        before = next((one.value for one in self.tried if first is not None and one.point == first), None)
        self._check_limits(best)
        return Tuned(
            settings=settings_at(self.settings, best.point),
            clients=self.named[0] if self.named else self._federation(best.point["k"]),
            goal=str(self.goal),
            value=best.value,
            baseline=before,
            tried=tuple(self.tried),
            storage=self.storage,
            interrupted=interrupted,
            gap=gap,
        )

    def _check_limits(self, best: Tried) -> None:
        """Refuse where no point keeps the limits. Missing one costs more than any metric can gain."""
        names = [name for name in best.metrics if name not in ("auc", "loss")] + ["auc", "loss"]
        for asked, limit in self.goal.limits.items():
            name = next((n for n in names if n == asked or n.split("@")[0].split(":")[0] == asked), asked)
            goal = Goal.of("auc", {name: limit})
            if name in best.metrics and goal.misses(best.metrics, {name: float(limit)}, {})[name] > 0:
                raise Infeasible(
                    f"no settings tried keep {name} at {limit}; the nearest miss has {best.metrics[name]:.4f} with "
                    f"{best.point}; relax the limit or allow more trials"
                )
