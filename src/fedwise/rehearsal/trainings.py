"""Trainings: federations trained on doubles, stage by stage, each once, on disk as it ends where a folder is given.

Rehearsing, choosing and tuning all train through here, so that all use both cores, all stop within one training, and
all go on where they were stopped.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from ..doubling.target import PublicRows, Target
from ..errors import FedwiseError
from ..estimation import Releases
from ..objective.metric import parse
from ..training.encoding import Encoder, Rows
from ..training.federation import Prepared
from ..training.model import Model, Vector
from ..training.settings import Training
from ..training.simulate import Config, Progress, simulate
from .drawn_judges import DrawnJudges
from .hidden import NOTHING, Learnt, learnt
from .judging import Judges, corrected, mean_rates, of_the_whole, reliability
from .performance import Performance
from .public import PublicStage
from .settling import settled
from .stage import JUDGED, Stage
from .threads import one_thread_each
from .trained import Gaps, Trained, read_trained

#: Metrics of learning curves.
_CURVES = ("auc", "macro_auc", "macro_f1", "rmse", "loss", "accuracy", "balanced_accuracy")
#: Points of a learning curve.
_POINTS = 10
#: Threads that train; the kernels hold no lock.
_THREADS = 2
#: Settings of a training that a rehearsal does not look at.
_NOT_REHEARSED = ("evaluate_every", "replicates", "split_seed")
#: Raised when the same training would come to something else than before: results of older code are then not taken up.
_EDITION = 5
#: File of a run directory with one finished training a line.
NAME = "trainings.jsonl"


class Task(NamedTuple):
    """One training: who, how, and on which stage's doubles of at most how many records.

    With `whole` a second one, on doubles of the whole release, looks at gaps.
    """

    clients: tuple[str, ...]
    settings: Training
    stage: int
    records: int | None = None
    whole: bool = False


@dataclass(frozen=True)
class Scenery:
    """What all trainings of a rehearsal share.

    Parameters
    ----------
    target
        Clients whose population judges, or public rows that do; ``None`` for all clients.
    judged
        Records of that population.
    seed
        Of the stages.
    """

    pool: Releases
    target: Target = None
    judged: int = JUDGED
    seed: int = 0

    @property
    def digest(self) -> str:
        """Hash of releases and settings: results of another scenery are not mixed with these."""
        head = f"{_EDITION}\0{self.pool.plan.digest}\0{self.pool.clients}\0{self.target}\0{self.judged}\0{self.seed}"
        parts = (np.ascontiguousarray(part).tobytes() for part in (self.pool.matrix, self.pool.sigmas))
        return hashlib.sha256(head.encode() + b"".join(parts)).hexdigest()


class Stopped(Exception):
    """The trainings were asked to stop before all were done."""


class Trainings:
    """Trains federations on the stages of one scenery and remembers every result.

    Parameters
    ----------
    folder
        Where finished trainings are kept, and found again by the next process; ``None`` for memory alone.
    stopped
        Asked before each training; where it says yes, `train` raises `Stopped`.
    """

    def __init__(
        self,
        scenery: Scenery,
        *,
        folder: Path | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.scenery = scenery
        self.stopped = stopped
        self._stages: dict[_Place, Stage] = {}
        self._digest = scenery.digest
        self._known: dict[str, Trained] = {}
        self._lock = threading.Lock()
        self._path = None if folder is None else folder / NAME
        if self._path is not None and self._path.exists():
            self._known = read_trained(self._path)
        #: Trainings done by this process.
        self.made = 0

    def known(self, task: Task) -> Trained | None:
        """The result of a training that was done before."""
        return self._known.get(self._key(task))

    def train(
        self, tasks: Sequence[Task], done: Callable[[Task, Trained], None] | None = None
    ) -> list[Trained]:
        """Results of all tasks in their order; `done` hears of each as it ends.

        Raises
        ------
        Stopped
            `stopped` said so; what was trained until then is kept.
        """
        missing: dict[str, Task] = {}
        for task in tasks:
            found = self.known(task)
            if found is None:
                missing[self._key(task)] = task
            elif done is not None:
                done(task, found)
        by_stage: dict[_Place, list[Task]] = {}
        for task in missing.values():
            by_stage.setdefault(_Place.of(task), []).append(task)
        with one_thread_each():
            for place, those in by_stage.items():
                self._train_stage(self._stage(place), those, done)
        return [self._known[self._key(task)] for task in tasks]

    def _train_stage(
        self, stage: Stage, tasks: Sequence[Task], done: Callable[[Task, Trained], None] | None
    ) -> None:
        clients = list(dict.fromkeys(client for task in tasks for client in task.clients))
        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(lambda client: None if self.stopped() else stage.rows(client), clients))
            if self.stopped():
                raise Stopped
            # Drawn once, before two threads ask for them.
            _ = stage.judges, stage.own, stage.gap_judges
            if stage.gap_judges is not None:
                again = dict.fromkeys(client for task in tasks if task.whole for client in task.clients)
                list(threads.map(lambda client: None if self.stopped() else stage.whole_rows(client), again))
            futures = {threads.submit(self._one, stage, task): task for task in tasks}
            try:
                for future in as_completed(futures):
                    task, found = futures[future], future.result()
                    self._keep(task, found)
                    if done is not None:
                        done(task, found)
            except BaseException:
                for future in futures:
                    future.cancel()
                raise

    def _one(self, stage: Stage, task: Task) -> Trained:
        if self.stopped():
            raise Stopped
        settings = task.settings
        # The first parameters are those the training will start from: they move gaps as much as the members do.
        # Rehearsed noise protects nobody and needs no entropy: it is drawn from the seed, as all else.
        config = msgspec.structs.replace(
            settings.config(), seed=settings.seed or 0, replicates=0,
            evaluate_every=settings.rounds, simulated=settings.epsilon is not None,
        )  # fmt: skip
        return judged(stage, task.clients, config, whole=task.whole)

    def _stage(self, place: _Place) -> Stage:
        if place not in self._stages:
            scenery = self.scenery
            encoder = Encoder(scenery.pool.plan.schema, use_sensitive=place.use_sensitive)
            options = {
                "number": place.number, "seed": scenery.seed, "records": place.records, "share": place.share,
                "judged": scenery.judged,
            }  # fmt: skip
            if isinstance(scenery.target, PublicRows):
                made: Stage = PublicStage(scenery.pool, encoder, scenery.target, **options)
            else:
                made = Stage(scenery.pool, encoder, target=scenery.target, **options)  # type: ignore[arg-type]
            self._stages[place] = made
        return self._stages[place]

    def _key(self, task: Task) -> str:
        settings = {**msgspec.to_builtins(task.settings), "seed": task.settings.seed or 0}
        for name in _NOT_REHEARSED:
            settings.pop(name)
        asked = [sorted(task.clients), settings, task.stage, task.records, *([True] if task.whole else [])]
        told = msgspec.json.encode(asked, order="sorted")
        return hashlib.sha256(self._digest.encode() + told).hexdigest()[:32]

    def _keep(self, task: Task, found: Trained) -> None:
        key = self._key(task)
        with self._lock:
            self._known[key] = found
            self.made += 1
            if self._path is None:
                return
            line = msgspec.json.encode({"key": key, **msgspec.structs.asdict(found)}) + b"\n"
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("ab") as file:
                    file.write(line)
            except OSError as cause:
                raise FedwiseError(
                    f"'{self._path}' cannot be written ({cause.strerror}); choose another directory"
                ) from None


class _Place(NamedTuple):
    """What decides a stage beside the scenery."""

    number: int
    records: int | None
    share: float
    use_sensitive: bool

    @classmethod
    def of(cls, task: Task) -> _Place:
        return cls(task.stage, task.records, 1 - task.settings.test, task.settings.use_sensitive)


def performance(
    role: str, clients: Sequence[str], trained: Mapping[int, Trained], *, stages: Sequence[int] | None = None
) -> Performance:
    """A federation's results, by stage, as one value; metrics that some stage lacks are left out.

    Where trainings on doubles of the whole release looked at gaps, their mean is what to expect. Their noise is that of
    the release alone, so they say nothing of the spread: the stages are moved to that mean, all alike.
    """
    numbers = tuple(sorted(trained) if stages is None else stages)
    finals = [trained[number].final for number in numbers]
    names = [name for name in finals[0] if all(name in final for final in finals)]
    curves = [trained[number].curve for number in numbers]
    values = {name: np.array([final[name] for final in finals]) for name in names}
    groups = mean_rates([trained[number].groups for number in numbers])
    wholes = [whole for number in numbers if (whole := trained[number].whole) is not None]
    for name in wholes[0].final if wholes else ():
        seen = float(np.mean([whole.final[name] for whole in wholes]))
        values[name] = values[name] + seen - values[name].mean()
    if wholes:
        groups = mean_rates([whole.groups for whole in wholes])
    return Performance(
        role=role,
        clients=tuple(clients),
        stages=numbers,
        values={name: tuple(found.tolist()) for name, found in values.items()},
        curve={
            name: tuple(np.mean([curve[name] for curve in curves], axis=0).tolist()) for name in curves[0]
        },
        groups=groups,
    )


def judged(stage: Stage, clients: Sequence[str], config: Config, *, whole: bool = False) -> Trained:
    """Train one federation on a stage's doubles, and let the stage's judges look at it along the way.

    With `whole` it is trained again on doubles of the whole release, for gaps.
    """
    judges, own = stage.judges, stage.own
    # People of the other half of the noise than the doubles': the judges themselves, unless public rows judge.
    people = stage.people if isinstance(stage, PublicStage) and own is not None else judges
    model = Model.named(config.model, stage.encoder.width, stage.encoder.task)
    every = max(1, config.rounds // _POINTS)
    points: dict[int, dict[str, float]] = {}
    prepared = stage.prepared(clients)
    own_rows = _trained_on(prepared, clients)

    def seen(now: Progress) -> _Seen:
        """What the judges see of the parameters of a round."""
        scores = settled(model, now.parameters, own_rows, config)
        found = scores(judges.rows)
        if isinstance(judges, DrawnJudges) or isinstance(people, DrawnJudges):
            return _Seen(scores, judges, found, 1.0, NOTHING)
        if own is None:
            known = NOTHING if model.additive else learnt(found, judges.chance)
            return _Seen(scores, *judges.facing(found, known), 1.0, known)
        of_own = scores(own.rows)
        of_people = found if people is judges else scores(people.rows)
        factor = reliability(people, of_people, own, of_own)
        known = NOTHING if model.additive else learnt(of_people, people.chance, of_own, own.chance)
        return _Seen(scores, *judges.facing(corrected(found, factor), known), factor, known)

    def look(now: Progress) -> None:
        if now.round % every == 0 and now.round < config.rounds:
            found = seen(now)
            points[now.round] = found.judges.curve(found.scores)

    last = seen(simulate(prepared, clients, config, model=model, on_round=look))
    final, groups = last.judges.measure(last.scores)
    if stage.gap_judges is not None:
        of_gaps = _gaps(stage.gap_judges, corrected(last.of(stage.gap_judges.rows), last.factor), last.learnt)
        final, groups = final | of_gaps.final, list(of_gaps.groups)
    points[config.rounds] = final
    curve: dict[str, tuple[float, ...]] = {"round": tuple(map(float, sorted(points)))}
    for metric in (name for name in _CURVES if name in final):
        curve[metric] = tuple(points[number][metric] for number in sorted(points))
    again = None
    if whole and stage.gap_judges is not None:
        doubles = stage.prepared(clients, whole=True)
        done = simulate(doubles, clients, config, model=model)
        scores = settled(model, done.parameters, _trained_on(doubles, clients), config)(stage.gap_judges.rows)
        # How far this second model has learnt; how much the tables tell was seen without its noise.
        slope = learnt(scores, stage.gap_judges.chance).slope
        scores = corrected(scores, of_the_whole(last.factor))
        again = _gaps(stage.gap_judges, scores, Learnt(slope, last.learnt.known))
    return Trained(final, curve, tuple(groups), again)


def _trained_on(prepared: Prepared, clients: Sequence[str]) -> Rows:
    """All records that a federation trains on."""
    return Rows.concat([prepared.train[client] for client in clients])


class _Seen(NamedTuple):
    """A round: the model's scores of any rows, judges and their scores as they are counted, the factor that drew these
    together, and what was learnt.
    """

    of: Callable[[Rows], Vector]
    judges: Judges | DrawnJudges
    scores: Vector
    factor: float
    learnt: Learnt


def _gaps(judges: Judges, scores: Vector, known: Learnt) -> Gaps:
    """Gaps as people of the whole release see them."""
    people, scores = judges.facing(scores, known)
    found, groups = people.measure(scores)
    return Gaps({name: value for name, value in found.items() if parse(name).attribute}, tuple(groups))
