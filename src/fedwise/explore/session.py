"""Session: one pool, and the answers to every question about it. Knows nothing of the web."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError, Infeasible
from ..estimation import estimate
from ..estimation.uncertainty import standard_error
from ..objective.pfl import Terms, client_terms, federation_terms
from ..pool.card import quality
from ..pool.pool import Pool
from ..reporting import Imprint, Report
from ..search import select
from ..search.constraints import Constraints
from ..search.control import Control
from ..search.feasible import check
from ..search.greedy import Greedy
from ..search.neighbourhood import descend
from ..search.problem import Problem
from ..search.seats import seat
from ..search.selection import Selection
from ..search.sizes import parse_sizes
from ..view import charts
from ..view.forecasts import forecaster, measures
from ..view.labels import RELEASES, Label, label_of
from ..view.outcomes import Measure
from ..view.palette import COLOURS, TERM_LABELS
from ..view.pool_rows import pool_rows
from ..view.promise import promise_of
from ..view.rehearsals import RehearsalSummary, rehearsal_of
from ..view.tables import GroupRow, SizeRow
from .choices import forecast_choices
from .question import Question
from .rows import SharedRows

if TYPE_CHECKING:
    from ..forecasting import Forecast, Forecaster

Floats = npt.NDArray[np.float64]

#: Method of the full search: the one the command line reproduces.
METHOD = "annealing"
SEED = 0
#: Sizes of the frontier, and the sizes tried in a large pool.
LARGEST = 20
_LARGE = 400
_FEW = (1, 2, 3, 5, 8, 12, 16, 20)
_OBJECTIVES_KEPT = 4
_SEATS_KEPT = 64
#: Pages and full answers remembered.
_PAGES = 32
_REMEMBERED = 16


class Found(NamedTuple):
    """Members (sorted positions), their loss, and whether every single swap was tried and none lowers the loss."""

    members: tuple[int, ...]
    loss: float
    proven: bool
    evaluations: int


class Stale(FedwiseError):
    """A newer question arrived, and this one needs no answer any more."""


class Session:
    """Answers questions about one pool.

    Parameters
    ----------
    pool
        The releases.
    releases
        How the releases are named on the command line.
    """

    def __init__(self, pool: Pool, *, releases: str = "releases", estimator: str = "shrinkage") -> None:
        self.pool = pool
        self.releases = releases
        self.estimates = estimate(pool, estimator)
        self.alone: Floats = client_terms(self.estimates)
        self.everyone: Floats = federation_terms(self.estimates, np.arange(len(pool))[None, :])[0]
        self.rows = SharedRows(self.estimates)
        self.label: Label = label_of(pool)
        #: Set when the server stops: work in progress ends.
        self.closing = False
        self._newest: dict[str, int] = {}
        self._full: dict[bytes, Selection] = {}
        self._objectives: dict[bytes, Problem] = {}
        self._seats: dict[bytes, Constraints] = {}
        self._lock = threading.Lock()
        self._forecasters: list[Forecaster | None] = []
        self._rehearsals: dict[tuple[str, ...], RehearsalSummary] = {}
        self._building = threading.Lock()

    # The pool -----------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """The pool: clients with their own terms and noise, the plan's promise, defaults and colours."""
        plan = self.pool.plan
        return {
            "schema": plan.schema.name,
            "privacy": msgspec.to_builtins(promise_of(self.pool)),
            "label": RELEASES[self.label],
            "weights": msgspec.to_builtins(plan.weights),
            "k": min(5, len(self.estimates.clients)),
            "terms": TERM_LABELS,
            "palette": dict(COLOURS.values()),
            "releases": self.releases,
            "clients": msgspec.to_builtins(pool_rows(self.pool, self.estimates, self.alone)),
            "attributes": [plan.schema.names[i] for i in plan.schema.sensitive],
            **forecast_choices(plan.schema),
            "quality": self._quality(),
        }

    def _quality(self) -> dict[str, Any]:
        """What the tables say about each client's records, in pools where that takes less than a second."""
        if len(self.pool) > _LARGE:
            return {}
        return {
            name: {
                "score": card.score if card.entries else None,
                "suspect": card.suspect,
                "verdict": card.verdict,
            }
            for name, card in quality(self.pool).items()
        }

    # The quick answer, for every move of a slider ---------------------------------------------------------------

    def answer(self, question: Question) -> dict[str, Any]:
        """A federation that no single swap improves, found within milliseconds, with its terms and their chart."""
        began = time.perf_counter()
        problem = self._problem(question)
        found = self._quick(problem, question, question.k, lambda: False)
        row = federation_terms(self.estimates, np.array([found.members]))[0]
        terms = Terms.of(row)
        error = float(standard_error(self.estimates, np.array(found.members), question.weights))
        plain = question.maximise is None
        return {
            "privacy": self.label,
            "clients": [self.estimates.clients[i] for i in found.members],
            "k": question.k,
            "loss": found.loss,
            "std_error": error if np.isfinite(error) and plain else None,
            "objective": "Loss" if plain else f"Loss of the objective: minus forecast {question.maximise}",
            "terms": msgspec.to_builtins(terms),
            "records": round(float(self.estimates.totals[list(found.members)].sum())),
            "proven": found.proven,
            "evaluations": found.evaluations,
            "seconds": time.perf_counter() - began,
            "command": self.command(question),
            "spec": self._picture(question, terms, terms.loss(question.weights)),
        }

    def _problem(self, question: Question) -> Problem:
        """What the search minimises: the loss, or a forecast metric under limits."""
        if question.maximise is None:
            return self.rows.problem(question.weights)
        key = msgspec.json.encode([question.maximise, question.subject_to])
        with self._building:
            if key not in self._objectives:
                while len(self._objectives) >= _OBJECTIVES_KEPT:
                    del self._objectives[next(iter(self._objectives))]
                self._objectives[key] = Problem.of(self.estimates, self._forecast_objective(question))
            return self._objectives[key]

    def _forecast_objective(self, question: Question) -> Forecast:
        from ..forecasting import Forecast

        assert question.maximise is not None
        return Forecast(question.maximise, subject_to=question.subject_to)

    def _quick(self, problem: Problem, question: Question, k: int, stale: Callable[[], bool]) -> Found:
        """Grow greedily, then swap while any single swap helps: the same question gets the same answer."""
        rules = self._seated(question, k)
        if not 1 <= k <= len(problem.clients):
            raise FedwiseError(
                f"k must be between 1 and the {len(problem.clients)} clients of the pool, got {k}"
            )
        limits = check(rules, problem.clients, self.estimates.totals, k)
        if stale():
            raise Stale("a newer question arrived")
        with Control() as control:
            grown = Greedy().search(problem, limits, k, seed=SEED, control=control)
            end = descend(problem, limits, grown.members, control=control)
        return Found(end.members, end.loss, end.proven, grown.evaluations + end.evaluations)

    def _seated(self, question: Question, k: int) -> Constraints:
        """The rules, with everybody excluded who takes no seat; remembered, as moving a weight changes nothing here."""
        key = msgspec.json.encode([question.constraints, k])
        found = self._seats.get(key)
        if found is None:
            found, _ = seat(Constraints(**question.constraints), self.pool, k)
            while len(self._seats) >= _SEATS_KEPT:
                del self._seats[next(iter(self._seats))]
            self._seats[key] = found
        return found

    def _picture(self, question: Question, terms: Terms, loss: float) -> charts.Spec:
        everyone = Terms.of(self.everyone)
        shown = [
            GroupRow(name="This federation", terms=terms, loss=loss),
            GroupRow(name="All clients", terms=everyone, loss=everyone.loss(question.weights)),
        ]
        return charts.groups(shown, question.weights)

    # Longer work, which ends when a newer question arrives ------------------------------------------------------

    def note(self, page: str, version: int) -> None:
        """A page is at `version`, one more with every change on it: longer work for earlier versions ends."""
        with self._lock:
            self._newest[page] = max(version, self._newest.pop(page, -1))
            while len(self._newest) > _PAGES:
                del self._newest[next(iter(self._newest))]

    def overtaken(self, page: str, version: int) -> Callable[[], bool]:
        """Whether the page has gone on to a later version by now."""
        return lambda: self.closing or self._newest.get(page, -1) > version

    def frontier(self, question: Question, stale: Callable[[], bool]) -> dict[str, Any]:
        """Best loss by size, and its chart."""
        points = self.sizes(question, stale)
        return {"points": msgspec.to_builtins(points), "spec": charts.frontier(points) if points else None}

    def sizes(self, question: Question, stale: Callable[[], bool]) -> list[SizeRow]:
        """Best loss by size under the same weights and constraints. Raises `Stale` when overtaken."""
        problem = self._problem(question)
        count = len(problem.clients)
        parse_sizes(question.k, count)
        largest = min(count, max(LARGEST, question.k + 3))
        sizes = list(range(1, largest + 1)) if count <= _LARGE else sorted({*_FEW, question.k})
        points: list[SizeRow] = []
        for k in sizes:
            if stale():
                raise Stale("a newer question arrived")
            try:
                found = self._quick(problem, question, k, stale)
            except Infeasible:
                continue
            names = [self.estimates.clients[i] for i in found.members]
            points.append(SizeRow(k=k, loss=found.loss, terms=None, clients=names, chosen=k == question.k))
        return points

    def search(self, question: Question, stale: Callable[[], bool]) -> Selection:
        """The full selection with its evidence, as the command line gives it. Raises `Stale` when overtaken."""

        def watch(done: int, total: int, best: float) -> None:
            if stale():
                raise KeyboardInterrupt

        known = self._full.get(question.key)
        if known is not None:
            return known
        if stale():
            raise Stale("a newer question arrived")
        selection = select(
            self.pool,
            question.k,
            weights=question.weights,
            estimator=self.estimates.estimator,
            method=METHOD,
            evidence="quick",
            seed=SEED,
            progress=watch,
            objective=self._forecast_objective(question) if question.maximise else None,
            constraints=Constraints(**question.constraints),
        )
        if stale():
            raise Stale("a newer question arrived")
        with self._lock:
            while len(self._full) >= _REMEMBERED:
                del self._full[next(iter(self._full))]
            self._full[question.key] = selection
        return selection

    def forecast(self, question: Question, stale: Callable[[], bool]) -> list[Measure]:
        """Predicted metrics of the federation on the screen. Raises `Stale` when overtaken."""
        known = self._full.get(question.key)
        clients = known.clients if known is not None else self.answer(question)["clients"]
        with self._building:
            if stale():
                raise Stale("a newer question arrived")
            if not self._forecasters:
                self._forecasters.append(forecaster(self.estimates))
            return measures(self._forecasters[0], clients, seed=SEED)

    def rehearse(self, question: Question, stale: Callable[[], bool]) -> dict[str, Any]:
        """A quick rehearsal of the federation on the screen: its metrics and verdict. Raises `Stale` when overtaken."""
        from ..rehearsal.quick import quick_rehearsal

        known = self._full.get(question.key)
        clients = known.clients if known is not None else tuple(self.answer(question)["clients"])
        with self._building:
            if clients not in self._rehearsals:
                found = quick_rehearsal(clients, self.pool, seed=SEED, progress=_until(stale))
                if found is None:
                    raise FedwiseError("the pool is too large for a quick rehearsal; use fedwise rehearse")
                while len(self._rehearsals) >= _REMEMBERED:
                    del self._rehearsals[next(iter(self._rehearsals))]
                self._rehearsals[clients] = rehearsal_of(found, list(clients))
            return dict(msgspec.to_builtins(self._rehearsals[clients]))

    def command(self, question: Question) -> str:
        """The command line that reproduces the full answer."""
        return question.command(
            self.releases,
            method=METHOD,
            plan_weights=self.pool.plan.weights,
            seed=SEED,
            flagged=bool(self.pool.flags),
        )

    def report(self, question: Question) -> str:
        """The report on the full answer, as a page."""
        selection = self.search(question, lambda: False)
        self.forecast(question, lambda: False)  # makes the forecaster, once for all questions
        return Report.of(
            self.pool,
            selection,
            frontier=self.sizes(question, lambda: False),
            forecast=self._forecasters[0] or False,
            imprint=Imprint(commands=tuple(self.command(question).splitlines())),
        ).html()

    def warm(self) -> None:
        """Ask one question of each kind, so that the first change on the page finds compiled code."""
        k = min(5, len(self.pool))
        question = Question(k=k, weights=self.pool.plan.weights)
        self.answer(question)
        if len(self.pool) > 2:
            first = self.estimates.clients[0]
            self.answer(
                Question(k=k - 1 or 1, weights=self.pool.plan.weights, exclude=(first,), min_records=0.0)
            )


def _until(stale: Callable[[], bool]) -> Callable[[int, int, float], None]:
    """Progress that ends the work once nobody waits for it."""

    def look(_done: int, _total: int, _best: float) -> None:
        if stale():
            raise Stale("a newer question arrived")

    return look
