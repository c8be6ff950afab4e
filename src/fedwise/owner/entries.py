"""Entries: the lines of a ledger file, and the proof that none is missing or changed.

A damaged ledger must not pass for a shorter one. Its tables must be the ones made here, word for word (a view
or a trigger could swallow charges), and a seal, a digest over every line, must fit. The seal is no secret:
it finds damage and careless edits, not an owner who cheats with care.
"""

from __future__ import annotations

import hashlib
import math
import sqlite3
from typing import Literal, NamedTuple

import msgspec

from ..errors import FedwiseError
from ..privacy.scales import check_promise

APPLICATION = 0x66656477  # "fedw"
#: Format 3 adds the table of training; a ledger of format 2 (0.1.0) is read, and grows it at its first round.
VERSION = 3
WITHOUT_TRAINING = 2
_TABLES = {
    "budget": (
        "CREATE TABLE budget (id INTEGER PRIMARY KEY, at TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL)"
    ),
    "charge": (
        "CREATE TABLE charge (id INTEGER PRIMARY KEY, at TEXT NOT NULL, client TEXT NOT NULL, plan TEXT NOT NULL, "
        "mu REAL NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL)"
    ),
    "seal": "CREATE TABLE seal (id INTEGER PRIMARY KEY, digest TEXT NOT NULL)",
    "training": (
        "CREATE TABLE training (id INTEGER PRIMARY KEY, at TEXT NOT NULL, client TEXT NOT NULL, kind TEXT NOT NULL, "
        "promise TEXT NOT NULL, noise REAL NOT NULL, rate REAL NOT NULL, steps INTEGER NOT NULL)"
    ),
}
#: No release within bounds comes near this; the squares of larger numbers overflow.
_MOST_MU = 1e6

#: μ, ε and δ of one charge.
Spent = tuple[float, float, float]
_Line = tuple[int, str, str, str, float, float, float]
_Limit = tuple[int, str, float, float]
#: A round of DP-SGD; a round whose update left without noise; exact metrics of a model.
Kind = Literal["private round", "open round", "evaluation"]
_Trained = tuple[int, str, str, Kind, str, float, float, int]


class Damaged(Exception):
    """The file is no ledger, or not a whole one."""


class Charge(msgspec.Struct, frozen=True):
    """One release, as it was charged."""

    id: int
    at: str
    client: str
    plan: str
    mu: float
    epsilon: float
    delta: float


class Trained(msgspec.Struct, frozen=True):
    """One answer of the training phase.

    `noise`, `rate` and `steps` are those of DP-SGD; without noise they are 0, and no ε covers the answer. The
    rate comes from a number of records that is public (see `Allowance`), never from an exact count.
    """

    id: int
    at: str
    client: str
    kind: Kind
    promise: str
    noise: float
    rate: float
    steps: int


class Entries(NamedTuple):
    """Everything that is written in a ledger, oldest first."""

    budgets: list[_Limit]
    charges: list[Charge]
    training: list[Trained]

    @property
    def budget(self) -> tuple[float, float]:
        """ε and δ in force."""
        return self.budgets[-1][2:]

    @property
    def spent(self) -> list[Spent]:
        """μ, ε and δ of every charge."""
        return [(charge.mu, charge.epsilon, charge.delta) for charge in self.charges]

    @property
    def digest(self) -> str:
        """SHA-256 over every line, numbers in all their digits."""
        lines = [*self.budgets, *(msgspec.structs.astuple(line) for line in (*self.charges, *self.training))]
        exact = [[v.hex() if isinstance(v, float) else v for v in line] for line in lines]
        return hashlib.sha256(msgspec.json.encode(exact)).hexdigest()


def create(db: sqlite3.Connection, *, at: str, epsilon: float, delta: float) -> None:
    """Write an empty ledger with its budget into an empty database, inside the caller's transaction."""
    # The seal last, so that its page ends the file: one that was cut short has lost it.
    for name in ("budget", "charge", "training", "seal"):
        db.execute(_TABLES[name])
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute(f"PRAGMA user_version = {VERSION}")
    add_budget(db, at=at, epsilon=epsilon, delta=delta)


def read(db: sqlite3.Connection) -> Entries:
    """The whole ledger, or `Damaged`. Nothing is read from tables that are not the ones made here."""
    found = db.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name LIMIT 10").fetchall()
    if found != [("table", name, text) for name, text in _tables(db).items()]:
        raise Damaged
    entries = _lines(db)
    if db.execute("SELECT id, digest FROM seal").fetchall() != [(1, entries.digest)]:
        raise Damaged
    return entries


def add_budget(db: sqlite3.Connection, *, at: str, epsilon: float, delta: float) -> None:
    """Write a budget that replaces the one before."""
    db.execute("INSERT INTO budget (at, epsilon, delta) VALUES (?, ?, ?)", (at, epsilon, delta))
    _seal(db)
    if read(db).budget != (epsilon, delta):
        raise Damaged


def add_charge(db: sqlite3.Connection, *, at: str, client: str, plan: str, spent: Spent) -> None:
    """Write the charge of a release, and see that it is there beside all the others."""
    before = _lines(db)
    db.execute(
        "INSERT INTO charge (at, client, plan, mu, epsilon, delta) VALUES (?, ?, ?, ?, ?, ?)",
        (at, client, plan, *spent),
    )
    _seal(db)
    after = read(db)
    if after.spent != [*before.spent, spent] or after.training != before.training:
        raise Damaged


def add_training(db: sqlite3.Connection, line: Trained) -> None:
    """Write one answer of the training phase (its `id` is given here), and see that it is there."""
    before = _lines(db)
    if _version(db) == WITHOUT_TRAINING:
        db.execute(_TABLES["training"])
        db.execute(f"PRAGMA user_version = {VERSION}")
    db.execute(
        "INSERT INTO training (at, client, kind, promise, noise, rate, steps) VALUES (?, ?, ?, ?, ?, ?, ?)",
        msgspec.structs.astuple(line)[1:],
    )
    _seal(db)
    after = read(db)
    if len(after.training) != len(before.training) + 1 or after.charges != before.charges:
        raise Damaged


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _tables(db: sqlite3.Connection) -> dict[str, str]:
    if _version(db) == WITHOUT_TRAINING:
        return {name: text for name, text in _TABLES.items() if name != "training"}
    return _TABLES


def _lines(db: sqlite3.Connection) -> Entries:
    """Every line. SQLite does not enforce types, so they are checked here, and that the numbers make sense."""
    budgets = db.execute("SELECT id, at, epsilon, delta FROM budget ORDER BY id").fetchall()
    lines = db.execute("SELECT id, at, client, plan, mu, epsilon, delta FROM charge ORDER BY id").fetchall()
    trained = []
    if "training" in _tables(db):
        trained = db.execute(
            "SELECT id, at, client, kind, promise, noise, rate, steps FROM training ORDER BY id"
        ).fetchall()
    try:
        entries = Entries(
            msgspec.convert(budgets, list[_Limit]),
            [Charge(*line) for line in msgspec.convert(lines, list[_Line])],
            [Trained(*line) for line in msgspec.convert(trained, list[_Trained])],
        )
        for _, _, epsilon, delta in entries.budgets:
            check_promise(epsilon, delta)
    except (msgspec.ValidationError, FedwiseError):
        raise Damaged from None
    if not entries.budgets or math.isinf(entries.budget[0]):
        raise Damaged
    if not all(
        0 < c.mu <= _MOST_MU and 0 < c.epsilon < math.inf and 0 < c.delta < 1 for c in entries.charges
    ):
        raise Damaged
    if not all(_possible(line) for line in entries.training):
        raise Damaged
    return entries


def _possible(line: Trained) -> bool:
    if line.kind == "private round":
        return 0 < line.noise < math.inf and 0 < line.rate <= 1 and line.steps > 0
    return line.noise == line.rate == line.steps == 0


def _seal(db: sqlite3.Connection) -> None:
    """Write the digest over all lines, in the transaction that changed them."""
    db.execute("INSERT OR REPLACE INTO seal (id, digest) VALUES (1, ?)", (_lines(db).digest,))
