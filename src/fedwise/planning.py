"""Plan: the public request. Which tables, with what noise, under which promise."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import msgspec
import numpy as np
import numpy.typing as npt

from .allocation import MAX_CELLS, Allocation, asked_tables
from .cache import Cache
from .deferred import Deferred
from .errors import PlanError, SchemaError
from .files import decode, read_bytes, shorten, write_new
from .notebook import html_table
from .objective.pfl import Weights, term_of
from .privacy.judgement import fault, work
from .privacy.scales import calibrate, check_promise, round_up
from .privacy.staging import Stage, check_parts, stage_scales
from .promise import promise_in_words, schema_notes
from .schema.frame import Format
from .schema.joint import Folding, with_joint, without_joint
from .schema.layout import Layout
from .schema.schema import Role, Schema

if TYPE_CHECKING:
    import polars as pl
else:
    pl = Deferred("polars")

FORMAT: Literal["fedwise/plan/1"] = "fedwise/plan/1"
#: Bounds on σ that any promise within bounds respects; beyond them squares overflow.
LEAST_SIGMA, MOST_SIGMA = 1e-3, 1e13
#: Work of the exact accountant on a plan of others (numbers in its grid times distinct scales): about a second.
MAX_WORK = 1.5e7

#: More editions than any data set has.
MAX_EDITION = 1_000_000

#: Digests of plans that were found sound.
_SOUND: Cache[str, None] = Cache(most=256)

Infinite = Literal["inf"]
Calibration = Literal["tight", "rdp"]


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table asked for: the pair of variables, its shape, and the scale of its noise."""

    pair: tuple[str, str]
    shape: tuple[int, int]
    sigma: float


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True, kw_only=True):
    """Everything a client needs to decide and to answer: public, and bound by a digest.

    Make one with `fedwise.plan`. ``print(plan)`` shows the promise and every table. In a plan with stages the ε, μ and
    scales are those of all stages together, and `stages` holds what each of them asks for.
    """

    format: Literal["fedwise/plan/1"] = FORMAT
    schema: Schema
    schema_digest: str
    promise_epsilon: float | Infinite = msgspec.field(name="epsilon")
    delta: float
    charge_mu: float | Infinite = msgspec.field(name="mu")
    calibration: Calibration
    allocation: Allocation
    weights: Weights
    tables: tuple[Request, ...]
    edition: int | msgspec.UnsetType = msgspec.UNSET
    stages: tuple[Stage, ...] | msgspec.UnsetType = msgspec.UNSET  # not written where there is one stage only
    digest: str = ""

    @property
    def epsilon(self) -> float:
        """ε of the promise; infinite for a plan without privacy."""
        return float(self.promise_epsilon)

    @property
    def mu(self) -> float:
        """Gaussian-DP parameter the ledger is charged with."""
        return float(self.charge_mu)

    @property
    def private(self) -> bool:
        """Whether the releases of this plan carry noise."""
        return not math.isinf(self.epsilon)

    @property
    def number(self) -> int:
        """Edition of the question: 1, or more where the same tables are asked again for data that changed."""
        return 1 if isinstance(self.edition, msgspec.UnsetType) else self.edition

    @cached_property
    def question(self) -> str:
        """Digest of what is asked, the same for all editions."""
        return self.digest if self.number == 1 else self.at_edition(1).digest

    def at_edition(self, number: int) -> Plan:
        """The same question in another edition, to refresh releases of data that changed."""
        if isinstance(number, bool) or not 1 <= number <= MAX_EDITION:
            raise PlanError(f"edition must be between 1 and {MAX_EDITION}, got {number}")
        edition = msgspec.UNSET if number == 1 else number
        body = msgspec.structs.replace(self, edition=edition, digest="")
        return msgspec.structs.replace(body, digest=body.compute_digest())

    @property
    def staged(self) -> tuple[Stage, ...]:
        """The stages; empty for a plan that is answered once."""
        return () if self.stages is msgspec.UNSET else self.stages

    def stage(self, number: int) -> Stage:
        """What stage `number`, from 1, asks for; a plan without stages has one.

        Raises
        ------
        PlanError
            There is no such stage.
        """
        stages = self.staged or (Stage(self.epsilon, self.mu, tuple(self.sigmas.tolist())),)
        if not 1 <= number <= len(stages):
            how = f"has stages 1 to {len(stages)}" if self.staged else "has no stages"
            raise PlanError(f"stage must be one of the plan's, got {number}; plan {self.digest[:12]} {how}")
        return stages[number - 1]

    @property
    def scored(self) -> int | None:
        """The stage that asks for a score in place of the tables; None where none does."""
        return next((number for number, stage in enumerate(self.staged, 1) if stage.scored), None)

    def before(self, number: int) -> tuple[int, ...]:
        """The stages one of which a client must have answered before stage `number`; none before the first.

        Whoever is asked for tables first, to learn what to score by, never answers the score.
        """
        if number <= 1:
            return ()
        return (number - 1, number - 2) if number - 1 == self.scored else (number - 1,)

    def charge(self, number: int, *, after: int | None = None) -> float:
        """μ that stage `number` adds to a ledger: the squares of all stages sum to the square of the total.

        `after` is the stage that the client answered last, where it is another than the one before.
        """
        stage = self.stage(number)
        if number == 1:
            return stage.mu
        last = number - 1 if after is None else after
        more = math.sqrt(max(stage.mu**2 - self.stage(last).mu ** 2, 0.0))
        # Never less than the stage's own noise costs, whatever was charged for the others.
        return max(more, stage.own_mu)

    @cached_property
    def layout(self) -> Layout:
        """Where the cells of the tables live in one flat vector."""
        return Layout.of(self.schema, tuple(table.pair for table in self.tables))

    @cached_property
    def folding(self) -> Folding | None:
        """How the tables sum to pairs, where features are asked for with groups and classes jointly."""
        joint = self.schema.columns[-1].role == Role.JOINT
        return Folding(self.schema, self.layout) if joint else None

    @cached_property
    def as_pairs(self) -> Plan:
        """The plan as one that asks for pairs alone: for reading folded releases, never for asking.

        It keeps the digest of the whole.
        """
        folding = self.folding
        if folding is None:
            return self
        layout, names = folding.layout, folding.plain.names
        tables = tuple(
            Request(pair=(names[x], names[y]), shape=shape, sigma=float(sigma))
            for (x, y), shape, sigma in zip(
                layout.pairs, layout.shapes, folding.scales(self.sigmas), strict=True
            )
        )
        stages = tuple(
            stage
            if stage.scored
            else msgspec.structs.replace(stage, sigmas=tuple(folding.scales(stage.sigmas).tolist()))
            for stage in self.staged
        )
        return msgspec.structs.replace(
            self, schema=folding.plain, schema_digest=folding.plain.digest, tables=tables,
            stages=stages or msgspec.UNSET,
        )  # fmt: skip

    @cached_property
    def sigmas(self) -> npt.NDArray[np.float64]:
        """Noise scale of each table, shape (tables,)."""
        return np.array([table.sigma for table in self.tables])

    def compute_digest(self) -> str:
        """SHA-256 over everything but the digest itself."""
        body = msgspec.structs.replace(self, digest="")
        return hashlib.sha256(msgspec.json.encode(body)).hexdigest()

    def verify(self, where: str = "plan") -> None:
        """Refuse a plan that was edited, or whose parts contradict one another."""
        if self.compute_digest() != self.digest:
            raise PlanError(
                f"{where} does not match its digest: it was edited or damaged; ask for a new copy"
            )
        # The rest follows from what the digest covers: a plan found sound needs no second look.
        _SOUND.get(self.digest, lambda: self._check(where))

    def _check(self, where: str) -> None:
        if self.schema.digest != self.schema_digest:
            raise PlanError(f"{where} does not match the digest of its schema; ask for a new copy")
        if self.edition is not msgspec.UNSET and not 2 <= self.number <= MAX_EDITION:
            raise PlanError(
                f"{where} must have an edition between 2 and {MAX_EDITION}, or none; ask for a new copy"
            )
        check_promise(self.epsilon, self.delta)
        known = dict(zip(self.schema.names, self.schema.sizes, strict=True))
        seen: set[frozenset[str]] = set()
        for table in self.tables:
            x, y = table.pair
            if x not in known or y not in known or x == y or frozenset((x, y)) in seen:
                pair = shorten(f"{x[:64]} × {y[:64]}")
                raise PlanError(f"{where} asks for the pair {pair}, which is unknown or repeated")
            if table.shape != (known[x], known[y]):
                raise PlanError(f"{where} gives {x} × {y} a shape other than the schema's")
            if not (LEAST_SIGMA < table.sigma <= MOST_SIGMA if self.private else table.sigma == 0):
                raise PlanError(f"{where} gives {x} × {y} a noise scale that does not fit its promise")
            seen.add(frozenset((x, y)))
        self._check_joint(where)
        if not self.tables or self.layout.cells > MAX_CELLS:
            raise PlanError(f"{where} must ask for between 1 and {MAX_CELLS} cells, got {self.layout.cells}")
        # A digest proves that nothing changed on the way, not that the maker was honest: check the promise.
        if self.staged:
            check_parts(
                self.staged, self.sigmas, total=(self.epsilon, self.mu), delta=self.delta,
                bounds=(LEAST_SIGMA, MOST_SIGMA), where=where,
            )  # fmt: skip
        drawn: tuple[float, ...] = ()
        score: float | None = None
        for stage in self.staged or (self.stage(1),):
            if stage.scored:
                score = stage.sigmas[0]
            else:
                drawn += stage.sigmas
            if self.private and work(np.array(drawn), score=score) > MAX_WORK:
                raise PlanError(
                    f"{where} has too many or too different noise scales to check; do not answer it"
                )
            verdict = fault(drawn, stage.epsilon, self.delta, stage.mu, score=score) if self.private else None
            if verdict is not None:
                raise PlanError(f"{where} {verdict}; do not answer it")

    def _check_joint(self, where: str) -> None:
        """Refuse a joint column that does not join this schema's groups and classes, or is asked with anything else."""
        columns = self.schema.columns
        if columns[-1].role != Role.JOINT:
            return
        try:
            own = with_joint(without_joint(self.schema)).columns[-1]
        except SchemaError:
            own = None
        last = len(columns) - 1
        asked = [pair for pair in self.layout.pairs if last in pair]
        if own != columns[-1] or not all(y == last and columns[x].role == Role.FEATURE for x, y in asked):
            raise PlanError(f"{where} has joint tables that are not its schema's; ask for a new copy")

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read and verify a ``plan.json``."""
        path = Path(path)
        data = read_bytes(path, what="plan file", error=PlanError)
        if Format.of(path) is not None and not data.lstrip().startswith(b"{"):
            raise PlanError(f"plan file '{path}' is a data file and no plan; put the plan first: PLAN DATA")
        return cls.decode(data, where=f"plan file '{path}'")

    @classmethod
    def decode(cls, data: bytes, *, where: str = "plan") -> Plan:
        """Read and verify a plan from JSON bytes."""
        found = decode(data, cls, what=where, error=PlanError)
        found.verify(where)
        return found

    def encode(self) -> bytes:
        """The plan as indented JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the plan as JSON."""
        write_new(Path(path), self.encode(), force=force, error=PlanError)

    @property
    def promise(self) -> str:
        """The promise in words."""
        totals = [stage.epsilon for stage in self.staged]
        return promise_in_words(
            self.epsilon, self.delta, tables=len(self.tables), stages=totals, score=self.scored is not None
        )

    def for_target(self, name: str | None) -> Plan:
        """The plan as one task sees it: without the tables of other targets. It keeps the digest of the whole.

        It is for reading releases of the whole plan, never for asking.
        """
        schema = self.schema.for_target(name)
        if schema is self.schema:
            return self
        kept = tuple(table for table in self.tables if set(table.pair) <= set(schema.names))
        return msgspec.structs.replace(self, schema=schema, schema_digest=schema.digest, tables=kept)

    def budget_shares(self) -> dict[str, float]:
        """Part of the precision Σ 1/σ² that each target's tables have; ``""`` has those all tasks share."""
        targets = [self.schema.names[t] for t in self.schema.targets]
        found = dict.fromkeys((*targets, ""), 0.0)
        for table in self.tables:
            owner = next((name for name in table.pair if name in targets), "")
            found[owner] += table.sigma**-2 if self.private else 1.0
        whole = sum(found.values())
        return {name: part / whole for name, part in found.items()}

    def to_frame(self) -> pl.DataFrame:
        """A row for each table that is asked: its pair of columns, cells, noise and the term it serves."""
        return pl.DataFrame(
            [
                {
                    "first": table.pair[0],
                    "second": table.pair[1],
                    "cells": table.shape[0] * table.shape[1],
                    "sigma": table.sigma,
                    "term": term_of(self.schema, x, y) or "",
                }
                for table, (x, y) in zip(self.tables, self.layout.pairs, strict=True)
            ]
        )

    def __repr__(self) -> str:
        return (
            f"Plan({self.schema.name}, epsilon={self.promise_epsilon}, delta={self.delta:g}, "
            f"{len(self.tables)} tables, {self.digest[:12]})"
        )

    def _repr_html_(self) -> str:
        rows = [
            ("promise", self.promise),
            ("columns", ", ".join(self.schema.names)),
            ("asked", f"{len(self.tables)} tables, {self.layout.cells} cells"),
            (
                "noise",
                f"σ {self.sigmas.min():.3g} to {self.sigmas.max():.3g}, {self.calibration}, {self.allocation}",
            ),
            ("digest", self.digest[:12]),
        ]
        return html_table(rows, title=f"Plan for {self.schema.name}")

    def __str__(self) -> str:
        lines = [
            f"Plan {self.digest[:12]} for schema '{self.schema.name}'",
            f"  {self.promise}",
            f"  {len(self.tables)} tables, {self.layout.cells} cells, calibration {self.calibration}, "
            f"allocation {self.allocation}",
            *(f"  {note}" for note in schema_notes(self.schema, self.budget_shares())),
            "",
            f"  {'table':<32}{'cells':>8}{'noise σ':>12}  term",
        ]
        for table, (x, y) in zip(self.tables, self.layout.pairs, strict=True):
            name = " × ".join(table.pair)
            term = term_of(self.schema, x, y) or "-"
            lines.append(f"  {name:<32}{table.shape[0] * table.shape[1]:>8}{table.sigma:>12.4g}  {term}")
        return "\n".join(lines)


def plan(
    schema: Schema,
    epsilon: float = 1.0,
    *,
    delta: float = 1e-5,
    weights: Weights | None = None,
    calibration: Calibration | str = "tight",
    allocation: Allocation | str = "weighted",
    edition: int = 1,
    stages: Sequence[float] | None = None,
    score: bool = False,
    joint: bool = False,
) -> Plan:
    """Ask for exactly the tables the objective uses, under one promise for all of them together.

    Parameters
    ----------
    schema
        The public columns and domains.
    epsilon, delta
        The promise for adding or removing one record. ``math.inf`` means no privacy, and says so.
    weights
        Weights of the loss: a table of weight 0 is not asked for, heavier ones get more precision.
    calibration
        ``tight`` (analytic Gaussian) or ``rdp`` (the paper's closed form).
    allocation
        ``weighted`` precision by weight and size of a table, or ``uniform``.
    edition
        1, or more to ask the same tables again of clients whose data changed.
    stages
        Total ε after each stage, growing, the last equal to `epsilon`: ``[0.1, 1.0]``. Everybody answers the first;
        later ones are for the clients on a shortlist (`fedwise.shortlist`).
    score
        The second stage asks everybody for one number in place of the tables, the sum of a score between −1 and 1
        for each record: ``stages=[0.05, 0.1, 1.0]``. What scores is said in the shortlist, from releases so far.
    joint
        Ask for each feature with all sensitive attributes and the target at once, in place of a table with each of
        them, at the same ε: doubles and rehearsals then know how groups differ at each level of a feature.

    Raises
    ------
    PlanError
        The promise or the request is out of bounds.
    """
    if score and not (schema.features or schema.sensitive):
        raise PlanError("score needs features or sensitive columns, got a label alone; leave it out")
    weights = weights or Weights()
    schema, layout, cut = asked_tables(
        schema, weights, allocation, joint=joint or schema.columns[-1].role == Role.JOINT
    )
    made: tuple[Stage, ...] = ()
    if score and stages is None:
        raise PlanError("score must be given with stages, got none; give [0.05, 0.1, 1.0]")
    if stages is None:
        sigmas, mu = calibrate(epsilon, delta, cut, calibration=calibration)
    else:
        made = stage_scales(stages, epsilon, delta, cut, calibration=calibration, score=score)
        noise = np.concatenate([stage.sigmas for stage in made if not stage.scored])
        asked = next((stage.sigmas[0] for stage in made if stage.scored), None)
        if work(noise, score=asked) > MAX_WORK:
            raise PlanError(f"stages must lie closer together, got {made[0].epsilon:g} first; raise it")
        precision = np.sum([np.array(stage.sigmas) ** -2.0 for stage in made if not stage.scored], axis=0)
        sigmas, mu = round_up(precision**-0.5), made[-1].mu
    unsigned = Plan(
        schema=schema,
        schema_digest=schema.digest,
        promise_epsilon="inf" if math.isinf(epsilon) else float(epsilon),
        delta=float(delta),
        charge_mu="inf" if math.isinf(mu) else mu,
        calibration=cast("Calibration", calibration),  # `calibrate` and `shares` refused other names
        allocation=cast("Allocation", allocation),
        weights=weights,
        tables=tuple(
            Request(pair=(schema.names[x], schema.names[y]), shape=shape, sigma=float(sigma))
            for (x, y), shape, sigma in zip(layout.pairs, layout.shapes, sigmas, strict=True)
        ),
        stages=made or msgspec.UNSET,
    )
    return unsigned.at_edition(edition)
