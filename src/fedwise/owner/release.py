"""Release: the noisy tables of one client, and the only place where exact counts become one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from .. import __version__
from ..errors import DataError, ReleaseError
from ..files import decode, read_bytes, shorten, write_new
from ..planning import Infinite, Plan, Request
from ..schema.frame import FrameLike
from .ledger import Ledger
from .noise import NoisyCounts, add_noise, add_simulated_noise, no_noise
from .question import Question, check_order
from .score import SCORE_PAIR, Score
from .tables import Tables

FORMAT: Literal["fedwise/release/1"] = "fedwise/release/1"
SUFFIX = ".release.json"
Label = Literal["private", "simulated", "not private", "not charged"]
#: No noisy count of a real data set comes near this; larger numbers are an attempt to overflow sums.
MAX_COUNT = 2**50
#: Largest number of a data set's version: room for a date such as 20260131.
MAX_VERSION = 10**9
#: A release of nobody would cost as much as any other and tell nothing.
NO_ROWS = (
    "data must have at least one row that satisfies the schema's filter, got none; check the file and the rules under "
    "'where'"
)
_SEPARATORS = re.compile(r"[/\\]")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class NoisyTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One released table: noisy integers, row by row. They may be negative."""

    pair: tuple[str, str]
    shape: tuple[int, int]
    sigma: float
    counts: list[int]


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The plan that an owner was asked, where it allowed less and answered with more noise."""

    plan: str
    epsilon: float


class Release(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one client sends: noisy tables, the plan they answer, and nothing exact.

    `charged` is False where noise for a private plan was drawn without a ledger: nobody counts how often that
    data set was released. Only then is it written to the file. `stage` is there in answers to a plan with stages,
    whose `epsilon` is the total after it; `asked` where the owner allowed less than it was asked. An answer to a stage
    that asks for a score holds the digest of what was scored by, and one table of one cell, the sum.
    """

    format: Literal["fedwise/release/1"] = FORMAT
    client: str
    epsilon: float | Infinite
    delta: float
    private: bool
    simulated: bool
    charged: bool = True
    data_version: int | msgspec.UnsetType = msgspec.UNSET
    plan_digest: str
    schema_digest: str
    library: str
    stage: int | msgspec.UnsetType = msgspec.UNSET
    score: str | msgspec.UnsetType = msgspec.UNSET
    asked: Asked | msgspec.UnsetType = msgspec.UNSET
    tables: tuple[NoisyTable, ...]
    plan: Plan

    @property
    def counts(self) -> NoisyCounts:
        """All noisy counts as one flat vector in the plan's layout."""
        return NoisyCounts(np.array([c for table in self.tables for c in table.counts], dtype=np.int64))

    @property
    def number(self) -> int:
        """The stage it answers, from 1."""
        return 1 if self.stage is msgspec.UNSET else self.stage

    @property
    def sigmas(self) -> npt.NDArray[np.float64]:
        """Noise scale of each table, shape (tables,)."""
        return np.array([table.sigma for table in self.tables])

    @property
    def scored(self) -> bool:
        """Whether it answers a score, and holds no tables of counts."""
        return self.score is not msgspec.UNSET

    @property
    def version(self) -> int | None:
        """The owner's number of the data this was made from; None where the owner keeps none."""
        return None if isinstance(self.data_version, msgspec.UnsetType) else self.data_version

    @property
    def label(self) -> Label:
        """What protects this release: private, simulated, not private, or not charged."""
        return label_of(private=self.private, simulated=self.simulated, charged=self.charged)

    def verify(self, where: str = "release") -> None:
        """Refuse a release whose parts contradict one another."""
        check_client(self.client, where=where)
        self.plan.verify(f"{where}: its plan")
        if self.plan_digest != self.plan.digest or self.schema_digest != self.plan.schema_digest:
            raise ReleaseError(f"{where} names another plan or schema than it holds; ask for a new copy")
        stages = len(self.plan.staged)
        if (self.stage is msgspec.UNSET) == (stages > 0) or not 1 <= self.number <= max(stages, 1):
            raise ReleaseError(f"{where} states a stage that its plan does not have; ask for a new copy")
        stage = self.plan.stage(self.number)
        if (float(self.epsilon), self.delta) != (stage.epsilon, self.plan.delta):
            raise ReleaseError(f"{where} states another promise than its plan; ask for a new copy")
        if self.asked is not msgspec.UNSET and not self.asked.epsilon > stage.epsilon:
            raise ReleaseError(f"{where} says that its owner allowed less than asked, and states more")
        if self.private != self.plan.private:
            raise ReleaseError(f"{where} states the wrong privacy for its plan; ask for a new copy")
        check_version(self.version, where=where)
        if not self.charged and (self.simulated or not self.private):
            raise ReleaseError(f"{where} contradicts itself on what protects it; ask for a new copy")
        if stage.scored == (self.score is msgspec.UNSET):
            raise ReleaseError(
                f"{where} must name what it scored by where a score is asked, and nowhere else"
            )
        if self.score is not msgspec.UNSET and not _DIGEST.fullmatch(self.score):
            raise ReleaseError(f"{where} names a score by something else than its digest; ask for a new copy")
        wanted = _requests(self.plan, self.number)
        if len(self.tables) != len(wanted):
            raise ReleaseError(f"{where} holds {len(self.tables)} tables, its plan asks for {len(wanted)}")
        for table, asked, sigma in zip(self.tables, wanted, stage.drawn, strict=True):
            if (table.pair, table.shape, table.sigma) != (asked.pair, asked.shape, sigma):
                pair = shorten(" × ".join(name[:64] for name in table.pair))
                raise ReleaseError(f"{where}: table {pair} is not the one its plan asks for")
            if len(table.counts) != asked.shape[0] * asked.shape[1]:
                raise ReleaseError(f"{where}: table {' × '.join(table.pair)} has the wrong number of counts")
            if max(table.counts) > MAX_COUNT or min(table.counts) < -MAX_COUNT:
                raise ReleaseError(f"{where}: table {' × '.join(table.pair)} holds an impossible count")

    @classmethod
    def load(cls, path: str | Path) -> Release:
        """Read and verify a release file."""
        path = Path(path)
        data = read_bytes(path, what="release file", error=ReleaseError)
        return cls.decode(data, where=f"release file '{path}'")

    @classmethod
    def decode(cls, data: bytes, *, where: str = "release") -> Release:
        """Read and verify a release from JSON bytes."""
        found = decode(data, cls, what=where, error=ReleaseError)
        found.verify(where)
        return found

    def encode(self) -> bytes:
        """The release as JSON that a person can read, with each table on a line of its own."""
        tables = b",\n    ".join(msgspec.json.encode(table) for table in self.tables)
        hollow = {name: getattr(self, name) for name in self.__struct_fields__} | {"tables": ()}
        hollow = {name: value for name, value in hollow.items() if value is not msgspec.UNSET}
        if self.charged:
            del hollow["charged"]  # version 0.1.0 does not know this key, and need not
        text = msgspec.json.format(msgspec.json.encode(hollow), indent=2)
        return text.replace(b'"tables": []', b'"tables": [\n    ' + tables + b"\n  ]", 1) + b"\n"

    def save(self, path: str | Path, *, force: bool = False, mode: int | None = None) -> None:
        """Write the release, whole or not at all, with the permissions `mode` where given."""
        write_new(Path(path), self.encode(), force=force, error=ReleaseError, mode=mode)

    def __repr__(self) -> str:
        stage = "" if self.stage is msgspec.UNSET else f", stage {self.stage}"
        return (
            f"Release(client={self.client!r}, {self.label}, epsilon={self.epsilon}{stage}, "
            f"{len(self.tables)} tables)"
        )


def _requests(plan: Plan, stage: int) -> tuple[Request, ...]:
    """What a stage asks for: the plan's tables, or the sum of a score as a table of one cell."""
    asked = plan.stage(stage)
    return (Request(SCORE_PAIR, (1, 1), asked.drawn[0]),) if asked.scored else plan.tables


def label_of(*, private: bool, simulated: bool, charged: bool) -> Label:
    """The one label of a release, the most serious first."""
    if not private:
        return "not private"
    if simulated:
        return "simulated"
    return "private" if charged else "not charged"


def check_client(client: str, *, where: str = "client name") -> None:
    """Refuse names that could leave a directory, hide, or break a terminal."""
    if not 0 < len(client) <= 100 or client != client.strip():
        raise ReleaseError(f"{where}: a client name must have 1 to 100 characters and no outer spaces")
    if _SEPARATORS.search(client) or not client.isprintable() or client.startswith("."):
        raise ReleaseError(
            f"{where}: a client name must not hold path separators or control characters, nor start with a dot"
        )


def check_version(version: int | None, *, where: str = "data version") -> None:
    """A version is a small number of the owner's own, and no place for anything else."""
    if version is not None and (isinstance(version, bool) or not 0 <= version <= MAX_VERSION):
        raise ReleaseError(f"{where}: data_version must be between 0 and {MAX_VERSION}, got {version}")


def check_seed(seed: int | None, *, simulated: bool) -> None:
    """Simulated noise is seeded, real noise never is."""
    if simulated and seed is None:
        raise ReleaseError(
            "simulated noise must be seeded; pass seed=0, or leave out simulated for a real release"
        )
    if seed is not None and not simulated:
        raise ReleaseError(
            "seed must not be given for a real release: noise with a known seed protects nobody"
        )
    if seed is not None and seed < 0:
        raise ReleaseError(f"seed must be at least 0, got {seed}")


def check_consent(plan: Plan, *, no_privacy: bool) -> None:
    """A plan without privacy is answered only with a consent of its own."""
    if not plan.private and not no_privacy:
        raise ReleaseError(
            "plan has no privacy: epsilon is infinite and its tables are exact counts; ask for a plan with a finite "
            "epsilon, or consent with no_privacy=True (--no-privacy)"
        )


def release(
    plan: Plan,
    frame: FrameLike,
    *,
    client: str,
    ledger: Ledger | None = None,
    simulated: bool = False,
    seed: int | None = None,
    uncharged: bool = False,
    no_privacy: bool = False,
    data_version: int | None = None,
    stage: int = 1,
    score: Score | None = None,
    epsilon: float | None = None,
) -> Release:
    """Count, charge, add noise: one client's answer to a plan.

    Every call draws and charges anew; `fedwise.owner.answer` never answers the same plan twice.

    Parameters
    ----------
    plan
        The public request; verified first.
    frame
        The client's rows: polars or pandas DataFrame, pyarrow Table, or a CSV/Parquet path.
    client
        Public name of the client.
    ledger
        The owner's budget. Charged and committed before noise is drawn.
    simulated
        Seeded noise for experiments on public data: no privacy, and the release says so.
    seed
        Seed of simulated noise.
    uncharged
        Consent to a release without a ledger: nobody counts how often this data set was released, and the
        release says ``not charged``.
    no_privacy
        Consent to a plan of infinite epsilon: the release is exact and says ``not private``.
    data_version
        A number of the owner's own that grows when the data changes; it travels with the release.
    stage
        Which stage of a plan with stages is answered, from 1. A ledger must have been charged for the one before.
    score
        What the stage that asks for a score scores by: `Shortlist.score`.
    epsilon
        The owner's own total ε, where it allows less than the plan asks: more noise, and the release says so.

    Raises
    ------
    PlanError, DataError, ReleaseError
        Something does not fit. Nothing is charged.
    BudgetExceeded
        The ledger refuses. Nothing is charged.
    """
    plan.verify()
    check_client(client)
    check_version(data_version)
    check_seed(seed, simulated=simulated)
    _check_ledger(plan, ledger, simulated=simulated, uncharged=uncharged)
    if not simulated:
        check_consent(plan, no_privacy=no_privacy)
    question = Question.of(plan, stage=stage, epsilon=epsilon, score=score)
    if ledger is not None:
        check_order(question, ledger, client=client)
        # Where a budget is at stake the owner is told in place of paying; nodes answer by `answer`, whatever the rows.
        check_people(plan, frame)
    return draw(
        question, question.tables(frame), client=client, ledger=ledger, seed=seed, version=data_version
    )


def check_people(plan: Plan, frame: FrameLike) -> None:
    """A `DataError` where rows do not fit a plan, or there are none. For the owner alone, who decides what to send."""
    if not plan.schema.encode(frame).shape[1]:
        raise DataError(NO_ROWS)


def draw(
    question: Question,
    tables: Tables,
    *,
    client: str,
    ledger: Ledger | None,
    seed: int | None,
    version: int | None = None,
) -> Release:
    """Charge, then add noise. The caller has checked that plan, stage, ledger and seed go together."""
    asked, plan, number = question.asked, question.answered, question.stage
    stage = plan.stage(number)
    sigmas = np.array(stage.drawn)
    if not plan.private:
        noisy = no_noise(tables)
    elif seed is not None:
        noisy = add_simulated_noise(tables, sigmas, _generator(seed, client, number))
    else:
        if ledger is not None:
            adds = question.adds(ledger, client=client)
            ledger.charge(adds, client=client, plan=plan.digest, epsilon=stage.epsilon, delta=plan.delta)
        noisy = add_noise(tables, sigmas)
    own = plan.digest != asked.digest
    return Release(
        client=client,
        epsilon=stage.epsilon if plan.staged else plan.promise_epsilon,
        delta=plan.delta,
        private=plan.private,
        simulated=seed is not None,
        charged=ledger is not None or seed is not None or not plan.private,
        data_version=msgspec.UNSET if version is None else version,
        plan_digest=plan.digest,
        schema_digest=plan.schema_digest,
        library=__version__,
        stage=number if plan.staged else msgspec.UNSET,
        score=msgspec.UNSET if question.score is None else question.score.digest,
        asked=Asked(asked.digest, asked.stage(number).epsilon) if own else msgspec.UNSET,
        tables=tuple(
            NoisyTable(
                pair=t.pair,
                shape=t.shape,
                sigma=stage.drawn[j],
                counts=noisy[tables.layout.slice(j)].tolist(),
            )
            for j, t in enumerate(_requests(plan, number))
        ),
        plan=plan,
    )


def _check_ledger(plan: Plan, ledger: Ledger | None, *, simulated: bool, uncharged: bool) -> None:
    """A real release is charged, or says openly that it is not; nothing else may touch a ledger."""
    if simulated or not plan.private:
        if ledger is not None or uncharged:
            # Nothing honest could be written into the ledger, and leaving it unwritten would hide a release.
            kind = "simulated noise" if plan.private else "a plan without privacy"
            what = "ledger" if ledger is not None else "uncharged"
            raise ReleaseError(
                f"{what} must not be given for {kind}: data with a budget is not for it; leave {what} out"
            )
    elif ledger is not None and uncharged:
        raise ReleaseError(
            "uncharged must not be given with a ledger, which is charged; leave out one of them"
        )
    elif ledger is None and not uncharged:
        raise ReleaseError(
            "release must be charged to a ledger; pass ledger=fedwise.Ledger('budget.db', epsilon=1.0, delta=1e-5), "
            "or uncharged=True to make one that says 'not charged'"
        )


def _generator(seed: int, client: str, stage: int) -> np.random.Generator:
    """A stream of its own for each client and stage, so that adding a client changes nobody else's noise."""
    later = [] if stage == 1 else [0, stage]  # no name holds a 0
    return np.random.default_rng([seed, *client.encode(), *later])
