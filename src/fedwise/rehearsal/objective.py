"""Rehearsal: an objective for `select`: metrics of the real training, on doubles, before anyone trains."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..certificate import Certificate
from ..doubling.target import TargetLike, target_of
from ..errors import FedwiseError, Infeasible
from ..estimation.estimates import Estimates
from ..forecasting import Forecaster, Labels, Settings, names_for
from ..objective.limit import SLACK, Miss
from ..objective.metric import parse
from ..search.chooser import Question
from ..search.control import Control
from ..search.describe import Searched
from ..search.greedy import Greedy
from ..search.outcome import Outcome
from ..search.problem import PFL, Objective, Problem
from ..search.selection import Selection
from ..training.encoding import Encoder
from ..training.model import check_extra
from ..training.settings import Training
from .drawing import Members, random_federations
from .folder import Folder
from .foreseen import Foreseen
from .goal import Bound, Goal
from .halving import Asked, Halving
from .makeup import Clients
from .order import order_of
from .performance import Rehearsed
from .stage import JUDGED
from .summary import summary_of
from .threads import one_thread_each
from .trainings import Scenery, Trainings
from .workflow import rehearsed

#: Trainings of a selection unless told otherwise.
TRIALS = 160
#: Standard errors by which limits are tightened.
MARGIN = 1.0
#: Starts of the search for first candidates.
_STARTS = 3
#: Random federations whose mean forecast a limit named ``random`` stands for until some were rehearsed.
_TYPICAL = 400


@dataclass(frozen=True)
class _Method:
    """How it was searched, for the selection."""

    name: str = "rehearsal"

    def search(self, *_: object, **__: object) -> Outcome:
        """A rehearsal chooses for itself."""
        raise FedwiseError("method must be left out with a rehearsal as objective; it brings its own")


class Rehearsal:
    """Maximise rehearsed metrics, under limits.

    Federations are rehearsed short, the better ones in full, the best in several stages (`fedwise.rehearsal.halving`).
    Equal seeds, settings and trials give equal answers; a limit in seconds depends on the machine, and is said.

    Parameters
    ----------
    maximise
        A metric (``auc``, ``balanced_accuracy@rate``; gaps and losses are made small), or weights by metric:
        ``{"auc": 1, "eod:SEX": -0.5}``.
    subject_to
        Limits by metric, of any number of attributes: most for gaps and losses, least for the others. ``"random"``: no
        worse than random federations of the sizes asked are on average.
    settings
        How the federation will be trained.
    trials, seconds
        Budget: trainings in all, about (candidates of every stage stand beside the references), and the time after
        which no further one begins.
    records
        Most records of a double in full rehearsals; default as many as the client trains on.
    stages
        Stages of the best federations, at least two.
    margin
        Standard errors by which limits are tightened. The search picks what looks best, noise included, so a federation
        that just keeps a limit in rehearsal tends to miss it when trained.
    target
        Clients whose population judges; default all. Or public rows that judge, as for `fedwise.rehearse`.
    output
        Run directory: finished trainings are kept there, and the same call goes on after a stop.

    Examples
    --------
    >>> objective = Rehearsal("auc", subject_to={"eod:SEX": 0.1, "spd:SEX": "random"})
    >>> fw.select(pool, 5, objective=objective)     # doctest: +SKIP
    """

    name = "rehearsal"

    def __init__(
        self,
        maximise: str | Mapping[str, float] = "auc",
        *,
        subject_to: Mapping[str, Bound] | None = None,
        settings: Training | None = None,
        trials: int = TRIALS,
        seconds: float | None = None,
        records: int | None = None,
        stages: int = 3,
        margin: float = MARGIN,
        target: TargetLike | None = None,
        output: str | Path | None = None,
    ) -> None:
        self.goal = Goal.of(maximise, subject_to)
        for label, value, least in (("trials", trials, 40), ("stages", stages, 2), ("records", records, 1)):
            if value is not None and value < least:
                raise FedwiseError(f"{label} must be at least {least}, got {value}")
        if seconds is not None and not (math.isfinite(seconds) and seconds > 0):
            raise FedwiseError(f"seconds must be a finite number above 0, got {seconds}")
        if not (math.isfinite(margin) and margin >= 0):
            raise FedwiseError(f"margin must be a finite number of at least 0, got {margin}")
        self.settings = settings or Training()
        self.trials, self.seconds, self.records = trials, seconds, records
        self.stages, self.margin = stages, margin
        self.target = target
        self.output = None if output is None else Path(output)

    def choose(self, question: Question) -> Selection:
        """The federation whose rehearsal is best. Raises `Infeasible` where none rehearsed keeps the limits."""
        check_extra(private=self.settings.epsilon is not None)
        with one_thread_each():
            return self._choose(question)

    def _choose(self, question: Question) -> Selection:
        for name in self.goal.metrics:
            parse(name, attributes=Encoder(question.pool.plan.schema).attributes)
        scenery = Scenery(
            question.pool, target_of(self.target, question.pool.plan.schema), JUDGED, question.seed
        )
        ends = math.inf if self.seconds is None else time.monotonic() + self.seconds

        def stopped() -> bool:
            return question.control.stopped() or time.monotonic() > ends

        with Folder.opened(self.output) as folder:
            folder.begin(
                {"kind": "choose", "scenery": scenery.digest, "settings": self.settings}, question.pool
            )
            asked = self._asked(question)
            search = Halving(asked, Trainings(scenery, folder=folder.path, stopped=stopped), question.control)
            complete = search.run(self._candidates(question, asked.foreseen))
            selection, found = self._describe(question, search, scenery, complete=complete)
            folder.finish(found)
            folder.keep_selection(selection)
        return selection

    def _asked(self, question: Question) -> Asked:
        return Asked(
            clients=question.estimates.clients, known=Clients.of(question.estimates), feasible=question.feasible,
            goal=self.goal, settings=self.settings, most_records=self.records, trials=self.trials, stages=self.stages,
            margin=self.margin, seed=question.seed, foreseen=self._foreseen(question.estimates),
        )  # fmt: skip

    def _foreseen(self, estimates: Estimates) -> Foreseen | None:
        """The goal's metrics as far as they are forecast, for any federations; ``None`` where none is."""
        schema = estimates.schema
        known = names_for(Labels.of(schema))
        # People of a forecast have the first attribute and those the model sees.
        unseen = {schema.names[v] for v in schema.sensitive[1:] if schema.columns[v].model == "drop"}
        names = [
            name
            for name in self.goal.metrics
            if parse(name).column in known and parse(name).attribute not in unseen
        ]
        kind = "logistic" if self.settings.model == "logistic" else "mlp"
        return Foreseen(Forecaster(estimates, settings=Settings.for_model(kind)), names) if names else None

    def _candidates(self, question: Question, foreseen: Foreseen | None) -> Iterator[Members]:
        """What the forecast finds best, within the limits and without them, and what the loss does."""
        objectives: list[Objective] = [PFL(question.weights)]
        if foreseen is not None:
            random = random_federations(question.feasible, _TYPICAL, seed=question.seed, salt=3)
            aims = (self.goal, Goal(self.goal.weights, {})) if self.goal.limits else (self.goal,)
            objectives[:0] = [aim for goal in aims if (aim := foreseen.aim(goal, random)) is not None]
        with Control(threads=1) as quiet:
            for objective in objectives:
                problem = Problem.of(question.estimates, objective)
                for size, limits in question.feasible.items():
                    for start in range(_STARTS):
                        if question.control.stopped():
                            return
                        found = Greedy("exchange").search(
                            problem, limits, size, seed=question.seed + start, control=quiet
                        )
                        yield from (members for _, members in found.ranked[:4])

    def _describe(
        self, question: Question, search: Halving, scenery: Scenery, *, complete: bool
    ) -> tuple[Selection, Rehearsed]:
        if not search.full:
            raise FedwiseError(
                "the rehearsals were stopped before the first had ended, so nothing can be said; let them run longer"
            )
        goal = search.named().asked.goal
        ranked = search.ranked()
        if goal.limits:
            self._check_limits(search, ranked)
        members = ranked[0][1]
        stages = set(search.full[members])
        # Others count as near where they are as well known and keep the limits as well.
        kept = search.missing(members)
        near = [m for _, m in ranked if set(search.full[m]) >= stages and search.missing(m) <= kept + SLACK]
        finalists = [search.performance(m) for m in near]
        value = {m: -goal.value(search.values(m)) for m in near}
        order = order_of(finalists, goal, means=[-value[m] for m in near], seed=question.seed)
        others = [
            search.performance(m, "random") for m in search.references if m in search.full and m != members
        ]
        found = rehearsed(
            [finalists[0], *others, *finalists[1:]],
            scenery,
            self.settings,
            shortened=self.records is not None,
        )
        outcome = Outcome(members, value[members], tuple((value[m], m) for m in near), search.done)
        searched = Searched(len(members), question.feasible[len(members)], _Method(), outcome)
        selection = question.describe(self, searched, [searched])
        certificate = Certificate(
            statement=f"The best of {len(search.full)} federations rehearsed in full and {len(search.short)} in short.",
            noise_statement=order.sentence(goal, len(near) - 1),
            swap_chance=None if math.isnan(order.chance) else order.chance,
            regret=None if math.isnan(order.regret) else order.regret,
        )
        unknown = [f"{n} is not known at this epsilon: the choice says little" for n in goal.weights
                   if not found.federation.figure(n).known]  # fmt: skip
        flags = (
            *selection.flags,
            *unknown,
            *self._flags(search, members, complete=complete, control=question.control),
        )
        return (
            msgspec.structs.replace(
                selection, certificate=certificate, flags=flags,
                rehearsal=summary_of(found, goal=str(self.goal), first=goal.metrics),
                std_error=None if math.isnan(order.error) else order.error / math.sqrt(2.0),
            ),
            found,
        )  # fmt: skip

    def _flags(self, search: Halving, members: Members, *, complete: bool, control: object) -> Iterator[str]:
        tight = search.asked.goal.misses(search.values(members), search.bounds(), search.margins(members))
        for name, miss in tight.items():
            if miss > 0:
                yield f"limit kept by less than its margin: {name}, short of it by {miss:.3g}"
        if not complete and self.seconds is not None and not getattr(control, "interrupted", False):
            yield (
                f"stopped after {self.seconds:g} s, {search.done} of {self.trials} trainings: another machine may "
                "choose otherwise"
            )

    def _check_limits(self, search: Halving, ranked: Sequence[tuple[float, Members]]) -> None:
        """Refuse where no federation keeps all limits, margins left aside, and name the nearest miss."""
        goal, bounds = search.asked.goal, search.bounds()
        by_miss = sorted(
            (sum(goal.misses(search.values(m), bounds, {}).values()), at, m)
            for at, (_, m) in enumerate(ranked)
        )
        total, _, nearest = by_miss[0]
        if total <= SLACK:
            return
        values = search.values(nearest)
        missed = [
            str(Miss(name, values[name], bounds[name], "rehearsed"))
            for name, miss in goal.misses(values, bounds, {}).items()
            if miss > 0
        ]
        names = ", ".join(search.asked.clients[i] for i in nearest)
        raise Infeasible(
            f"no federation rehearsed keeps the limits; the nearest miss is {names}: {' and '.join(missed)}; "
            "relax the limit, allow other sizes, or raise the trials"
        )
