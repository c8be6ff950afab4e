"""Release: the noisy tables of one client, and the only place where exact counts become one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from .. import __version__
from ..errors import ReleaseError
from ..files import decode, read_bytes, shorten, write_new
from ..planning import Infinite, Plan
from ..schema.frame import FrameLike
from .ledger import Ledger
from .noise import NoisyCounts, add_noise, add_simulated_noise, no_noise
from .tables import count

FORMAT: Literal["fedwise/release/1"] = "fedwise/release/1"
SUFFIX = ".release.json"
#: No noisy count of a real data set comes near this; larger numbers are an attempt to overflow sums.
MAX_COUNT = 2**50
_SEPARATORS = re.compile(r"[/\\]")


class NoisyTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One released table: noisy integers, row by row. They may be negative."""

    pair: tuple[str, str]
    shape: tuple[int, int]
    sigma: float
    counts: list[int]


class Release(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one client sends: noisy tables, the plan they answer, and nothing exact."""

    format: Literal["fedwise/release/1"] = FORMAT
    client: str
    epsilon: float | Infinite
    delta: float
    private: bool
    simulated: bool
    plan_digest: str
    schema_digest: str
    library: str
    tables: tuple[NoisyTable, ...]
    plan: Plan

    @property
    def counts(self) -> NoisyCounts:
        """All noisy counts as one flat vector in the plan's layout."""
        return NoisyCounts(np.array([c for table in self.tables for c in table.counts], dtype=np.int64))

    @property
    def label(self) -> str:
        """How trustworthy the noise is, in one word: private, simulated, or not private."""
        if not self.private:
            return "not private"
        return "simulated" if self.simulated else "private"

    def verify(self, where: str = "release") -> None:
        """Refuse a release whose parts contradict one another."""
        check_client(self.client, where=where)
        self.plan.verify(f"{where}: its plan")
        if self.plan_digest != self.plan.digest or self.schema_digest != self.plan.schema_digest:
            raise ReleaseError(f"{where} names another plan or schema than it holds; ask for a new copy")
        if (self.epsilon, self.delta) != (self.plan.promise_epsilon, self.plan.delta):
            raise ReleaseError(f"{where} states another promise than its plan; ask for a new copy")
        if self.private != self.plan.private:
            raise ReleaseError(f"{where} states the wrong privacy for its plan; ask for a new copy")
        if len(self.tables) != len(self.plan.tables):
            raise ReleaseError(
                f"{where} holds {len(self.tables)} tables, its plan asks for {len(self.plan.tables)}"
            )
        for table, asked in zip(self.tables, self.plan.tables, strict=True):
            if (table.pair, table.shape, table.sigma) != (asked.pair, asked.shape, asked.sigma):
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
        """The release as JSON that a person can read: one table a line."""
        tables = b",\n    ".join(msgspec.json.encode(table) for table in self.tables)
        hollow = msgspec.structs.replace(self, tables=())
        text = msgspec.json.format(msgspec.json.encode(hollow), indent=2)
        return text.replace(b'"tables": []', b'"tables": [\n    ' + tables + b"\n  ]", 1) + b"\n"

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the release, whole or not at all."""
        write_new(Path(path), self.encode(), force=force, error=ReleaseError)

    def __repr__(self) -> str:
        return f"Release(client={self.client!r}, {self.label}, epsilon={self.epsilon}, {len(self.tables)} tables)"


def check_client(client: str, *, where: str = "client name") -> None:
    """Refuse names that could leave a directory, hide, or break a terminal."""
    if not 0 < len(client) <= 100 or client != client.strip():
        raise ReleaseError(f"{where}: a client name must have 1 to 100 characters and no outer spaces")
    if _SEPARATORS.search(client) or not client.isprintable() or client.startswith("."):
        raise ReleaseError(
            f"{where}: a client name must not hold path separators or control characters, nor start with a dot"
        )


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


def release(
    plan: Plan,
    frame: FrameLike,
    *,
    client: str,
    ledger: Ledger | None = None,
    simulated: bool = False,
    seed: int | None = None,
) -> Release:
    """Count, charge, add noise: one client's answer to a plan.

    Parameters
    ----------
    plan
        The public request; verified first.
    frame
        The client's rows: polars or pandas DataFrame, pyarrow Table, or a CSV/Parquet path.
    client
        Public name of the client.
    ledger
        The owner's budget. Charged and committed before noise is drawn. Without one, nobody counts
        how often this data set was released.
    simulated
        Seeded noise for experiments on public data: no privacy, and the release says so.
    seed
        Seed of simulated noise.

    Raises
    ------
    PlanError, DataError, ReleaseError
        Something does not fit. Nothing is charged.
    BudgetExceeded
        The ledger refuses. Nothing is charged.
    """
    plan.verify()
    check_client(client)
    check_seed(seed, simulated=simulated)
    if ledger is not None and (simulated or not plan.private):
        # Nothing honest could be written into the book, and leaving it unwritten would hide a release.
        kind = "simulated noise" if plan.private else "a plan without privacy"
        raise ReleaseError(
            f"ledger must not be given for {kind}: data with a budget is not for it; leave one out"
        )
    tables = count(plan.schema.encode(frame), plan.layout)
    if not plan.private:
        noisy = no_noise(tables)
    elif simulated:
        noisy = add_simulated_noise(tables, plan.sigmas, _generator(seed, client))
    else:
        if ledger is not None:
            ledger.charge(plan.mu, client=client, plan=plan.digest, epsilon=plan.epsilon, delta=plan.delta)
        noisy = add_noise(tables, plan.sigmas)
    return Release(
        client=client,
        epsilon=plan.promise_epsilon,
        delta=plan.delta,
        private=plan.private,
        simulated=simulated,
        plan_digest=plan.digest,
        schema_digest=plan.schema_digest,
        library=__version__,
        tables=tuple(
            NoisyTable(pair=t.pair, shape=t.shape, sigma=t.sigma, counts=noisy[plan.layout.slice(j)].tolist())
            for j, t in enumerate(plan.tables)
        ),
        plan=plan,
    )


def _generator(seed: int | None, client: str) -> np.random.Generator:
    """A stream of its own for each client, so that adding a client changes nobody else's noise."""
    return np.random.default_rng([seed or 0, *client.encode()])
