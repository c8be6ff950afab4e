"""Description: a selection made of what a search found, with its evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..certificate import Certificate, noise_sentence
from ..estimation.estimates import Estimates
from ..objective.balance import label_only
from ..objective.pfl import terms
from ..objective.weights import Weights
from ..pool.pool import Pool
from ..schema.schema import Schema
from .constraints import Limits
from .control import Control
from .doubt import Doubt, doubt
from .evidence import (
    Evidence,
    Redraws,
    contributions,
    frequency,
    interval,
    nearest_swap,
    redraw_count,
    standard_error,
    swaps_around,
)
from .neighbourhood import Swaps
from .outcome import Method, Outcome
from .point import Point
from .problem import PFL, Problem
from .selection import Alternative, Selection, Status

_NOT_ASKED = "What the noise leaves open was not asked for."


class Searched(NamedTuple):
    """What one search of one size was given and found."""

    size: int
    limits: Limits
    method: Method
    outcome: Outcome


@dataclass(frozen=True)
class Inquiry:
    """What a selection is described from, beside the search itself.

    Parameters
    ----------
    pool
        Where the estimates come from; ``None`` where only estimates were given.
    alternatives
        Most other federations to report.
    """

    problem: Problem
    estimates: Estimates
    pool: Pool | None
    weights: Weights
    evidence: Evidence
    alternatives: int
    seed: int

    @property
    def is_pfl(self) -> bool:
        """Whether the loss is one whose noise is understood."""
        return isinstance(self.problem.objective, PFL)

    def describe(self, chosen: Searched, found: list[Searched], control: Control) -> Selection:
        """The selection of the size `chosen` among all sizes `found`; the caller adds `seconds` and `constraints`."""
        outcome, names = chosen.outcome, self.estimates.clients
        members = outcome.members
        error = standard_error(self.estimates, members, self.weights) if self.is_pfl else None
        status = status_of(outcome, interrupted=control.interrupted)
        asked = self.evidence != "none"
        redrawn = self._redraws(chosen, control)
        certificate = self._certificate(chosen, status, error, redrawn, control)
        others = [entry for entry in outcome.ranked if entry[1] != members][: self.alternatives]
        return Selection(
            clients=self._names(members),
            k=len(members),
            loss=outcome.loss,
            terms=terms(self.estimates, np.asarray(members)),
            std_error=error,
            interval=self._interval(outcome, redrawn),
            method=chosen.method.name,
            status=status,
            evaluations=sum(entry.outcome.evaluations for entry in found),
            seconds=0.0,
            seed=self.seed,
            certificate=certificate,
            chains=outcome.chains,
            agreed=outcome.agreed,
            alternatives=tuple(
                Alternative(self._names(other), loss, loss - outcome.loss) for loss, other in others
            ),
            contributions=contributions(self.problem, members, evidence=self.evidence, seed=self.seed)
            if asked
            else (),
            frequency=dict(redrawn.frequency),
            redraws=redrawn.made,
            trace=outcome.trace,
            sizes=tuple(
                Point(k=entry.size, loss=entry.outcome.loss, clients=self._names(entry.outcome.members))
                for entry in found
            )
            if len(found) > 1
            else (),
            objective=self.problem.objective.name,
            targets=tuple(self.estimates.schema.names[t] for t in self.estimates.schema.targets),
            weights=self.weights,
            estimator=self.estimates.estimator,
            pool=len(names),
            plan_digest=self.pool.plan.digest if self.pool is not None else None,
            flags=(*flags_of(self.estimates, self.pool), *_missed(self.problem, members)),
            alerts=tuple(f"release of '{a.client}': {a.reason}" for a in self.pool.alerts)
            if self.pool is not None
            else (),
            records=max(float(self.estimates.totals[list(members)].sum()), 0.0),
        )

    def _names(self, members: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(self.estimates.clients[i] for i in members)

    def _certificate(
        self, chosen: Searched, status: Status, error: float | None, redrawn: Redraws, control: Control
    ) -> Certificate:
        """What the search proves, and what the noise leaves open."""
        outcome = chosen.outcome
        statement = _statement(outcome, len(outcome.members), status)
        if self.evidence == "none":
            return Certificate(statement=statement, noise_statement=_NOT_ASKED)
        swaps = swaps_around(self.problem, chosen.limits, outcome, control)
        near = nearest_swap(self.problem, outcome, swaps)
        left = None
        if self.is_pfl and swaps is not None:
            left = doubt(self.estimates, outcome, swaps, self.weights, seed=self.seed)
        return Certificate(
            statement=statement,
            noise_statement=self._noise_statement(left, swaps),
            sigma=error,
            gap=near[0] if near else None,
            best_swap=self._swap(outcome.members, near[1]) if near else None,
            neighbour_error=left.nearest_error if left else None,
            neighbour_chance=left.nearest_chance if left else None,
            swap_chance=left.chance if left else None,
            regret=left.regret if left else None,
            regret_bound=left.regret_bound if left else None,
            swaps=len(swaps.losses) if left and swaps is not None else 0,
            redraw_changes=float(np.mean(redrawn.changed)) if redrawn.made else None,
            redraw_regret=float(np.mean(redrawn.regret)) if redrawn.made else None,
            redraw_regret_bound=float(np.quantile(redrawn.regret, 0.95, method="higher"))
            if redrawn.made
            else None,
        )

    def _noise_statement(self, left: Doubt | None, swaps: Swaps | None) -> str:
        if not self.is_pfl:
            return (
                f"What the noise leaves open is not known for the objective '{self.problem.objective.name}'."
            )
        if not np.any(self.estimates.sigmas):
            return "The tables carry no noise: losses are exact for these records, and nothing is private."
        if left is not None:
            return noise_sentence(left.chance, left.regret, left.regret_bound)
        if swaps is None:
            return "What the noise leaves open was not measured: there are too many swaps, or the search was stopped."
        if not len(swaps.losses):
            return "No other federation is one swap away, so the noise leaves nothing open there."
        return (
            f"What the noise leaves open is not known for '{self.estimates.estimator}' estimates, whose bias is "
            "larger than their noise; use estimator 'shrinkage'."
        )

    def _swap(self, members: tuple[int, ...], other: tuple[int, ...]) -> tuple[str, str]:
        """Who leaves and who joins between two federations one swap apart."""
        (leaves,), (joins,) = set(members) - set(other), set(other) - set(members)
        return self.estimates.clients[leaves], self.estimates.clients[joins]

    def _interval(self, outcome: Outcome, redrawn: Redraws) -> tuple[float, float] | None:
        if not self.is_pfl:
            return None
        return interval(
            self.estimates, outcome.members, self.weights, loss=outcome.loss, optimism=redrawn.optimism
        )

    def _redraws(self, chosen: Searched, control: Control) -> Redraws:
        """What comes out when the noise is redrawn."""
        redraws = redraw_count(self.estimates, self.problem, self.evidence) if self.is_pfl else 0
        if not redraws or control.stopped():
            return Redraws()
        return frequency(
            self.estimates,
            self.weights,
            chosen.limits,
            chosen.outcome,
            redraws=redraws,
            seed=self.seed,
            control=control,
        )


def status_of(outcome: Outcome, *, interrupted: bool) -> Status:
    """What a search proves."""
    if interrupted:
        return "interrupted"
    return "exact" if outcome.exhaustive else "local" if outcome.local else "found"


def _statement(outcome: Outcome, k: int, status: Status) -> str:
    if status == "interrupted":
        return "The search was interrupted: nothing is proven about this federation."
    if outcome.exhaustive:
        return f"No federation of this size ({k}) has a lower estimated loss: all were evaluated."
    chains = f"; {outcome.agreed} chains of {outcome.chains} agreed" if outcome.chains else ""
    if outcome.local:
        return f"No single swap improves it{chains}."
    return f"The best federation met{chains}; it may not be a local optimum."


def _missed(problem: Problem, members: tuple[int, ...]) -> tuple[str, ...]:
    """Limits of the objective that the answer does not keep: no federation that was met keeps them."""
    missed = getattr(problem.objective, "missed", None)
    if missed is None:
        return ()
    return tuple(f"limit not kept: {miss}" for miss in missed(problem.sums(np.asarray(members))))


def flags_of(estimates: Estimates, pool: Pool | None) -> tuple[str, ...]:
    """What the releases say against any federation of them."""
    flags = []
    if pool is not None:
        if not pool.private:
            flags.append("not private: the releases carry no noise")
        elif pool.simulated:
            flags.append("simulated: the noise came from a seeded generator and protects nobody")
        elif not pool.charged:
            flags.append("not charged: a release was made without a ledger, so its cost is counted nowhere")
        flags += [f"flagged release of '{flag.client}': {flag.reason}" for flag in pool.flags]
    elif not np.any(estimates.sigmas):
        flags.append("not private: the estimates carry no noise")
    return (*flags, *schema_notes(estimates.schema))


def schema_notes(schema: Schema) -> tuple[str, ...]:
    """What the schema leaves out of a selection, in sentences."""
    notes = []
    if label_only(schema):
        notes.append("the label alone was released: chosen for classes in equal parts, nothing else is known")
    if not schema.sensitive:
        notes.append("no sensitive attribute: chosen for utility only, nothing is said about fairness")
    if len(schema.targets) > 1:
        names = ", ".join(schema.names[t] for t in schema.targets)
        notes.append(f"chosen for the targets {names} together; name one with task=NAME or --task NAME")
    return tuple(notes)
