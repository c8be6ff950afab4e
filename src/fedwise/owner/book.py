"""Book: the lines of a ledger file, and the proof that none is missing or changed.

A damaged book must not pass for a shorter one. Its tables must be the ones made here, word for word (a view
or a trigger could swallow charges), and a seal, a digest over every line, must fit. The seal is no secret:
it finds damage and careless edits, not an owner who cheats with care.
"""

from __future__ import annotations

import hashlib
import math
import sqlite3
from typing import NamedTuple

import msgspec

from ..errors import FedwiseError
from ..privacy.scales import check_promise

APPLICATION = 0x66656477  # "fedw"
VERSION = 2
_TABLES = {
    "budget": (
        "CREATE TABLE budget (id INTEGER PRIMARY KEY, at TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL)"
    ),
    "charge": (
        "CREATE TABLE charge (id INTEGER PRIMARY KEY, at TEXT NOT NULL, client TEXT NOT NULL, plan TEXT NOT NULL, "
        "mu REAL NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL)"
    ),
    "seal": "CREATE TABLE seal (id INTEGER PRIMARY KEY, digest TEXT NOT NULL)",
}
#: No release within bounds comes near this; the squares of larger numbers overflow.
_MOST_MU = 1e6

#: μ, ε and δ of one charge.
Spent = tuple[float, float, float]
_Line = tuple[int, str, str, str, float, float, float]
_Limit = tuple[int, str, float, float]


class Damaged(Exception):
    """The file is no book, or not a whole one."""


class Charge(msgspec.Struct, frozen=True):
    """One line of the book."""

    id: int
    at: str
    client: str
    plan: str
    mu: float
    epsilon: float
    delta: float


class Book(NamedTuple):
    """Everything that is written in a ledger, oldest first."""

    budgets: list[_Limit]
    charges: list[Charge]

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
        lines = [*self.budgets, *(msgspec.structs.astuple(charge) for charge in self.charges)]
        exact = [[v.hex() if isinstance(v, float) else v for v in line] for line in lines]
        return hashlib.sha256(msgspec.json.encode(exact)).hexdigest()


def create(db: sqlite3.Connection, *, at: str, epsilon: float, delta: float) -> None:
    """Write an empty book with its budget into an empty database, inside the caller's transaction."""
    for statement in _TABLES.values():
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute(f"PRAGMA user_version = {VERSION}")
    add_budget(db, at=at, epsilon=epsilon, delta=delta)


def read(db: sqlite3.Connection) -> Book:
    """The whole book, or `Damaged`. Nothing is read from tables that are not the ones made here."""
    found = db.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name LIMIT 10").fetchall()
    if found != [("table", name, text) for name, text in _TABLES.items()]:
        raise Damaged
    book = _lines(db)
    if db.execute("SELECT id, digest FROM seal").fetchall() != [(1, book.digest)]:
        raise Damaged
    return book


def add_budget(db: sqlite3.Connection, *, at: str, epsilon: float, delta: float) -> None:
    """Write a budget that replaces the one before."""
    db.execute("INSERT INTO budget (at, epsilon, delta) VALUES (?, ?, ?)", (at, epsilon, delta))
    _seal(db)
    if read(db).budget != (epsilon, delta):
        raise Damaged


def add_charge(db: sqlite3.Connection, *, at: str, client: str, plan: str, spent: Spent) -> None:
    """Write a charge, and see that it is there beside all the others."""
    before = _lines(db).spent
    db.execute(
        "INSERT INTO charge (at, client, plan, mu, epsilon, delta) VALUES (?, ?, ?, ?, ?, ?)",
        (at, client, plan, *spent),
    )
    _seal(db)
    if read(db).spent != [*before, spent]:
        raise Damaged


def _lines(db: sqlite3.Connection) -> Book:
    """Every line. SQLite does not enforce types, so they are checked here, and that the numbers make sense."""
    budgets = db.execute("SELECT id, at, epsilon, delta FROM budget ORDER BY id").fetchall()
    lines = db.execute("SELECT id, at, client, plan, mu, epsilon, delta FROM charge ORDER BY id").fetchall()
    try:
        book = Book(
            msgspec.convert(budgets, list[_Limit]),
            [Charge(*line) for line in msgspec.convert(lines, list[_Line])],
        )
        for _, _, epsilon, delta in book.budgets:
            check_promise(epsilon, delta)
    except (msgspec.ValidationError, FedwiseError):
        raise Damaged from None
    if not book.budgets or math.isinf(book.budget[0]):
        raise Damaged
    if not all(0 < c.mu <= _MOST_MU and 0 < c.epsilon < math.inf and 0 < c.delta < 1 for c in book.charges):
        raise Damaged
    return book


def _seal(db: sqlite3.Connection) -> None:
    """Write the digest over all lines, in the transaction that changed them."""
    db.execute("INSERT OR REPLACE INTO seal (id, digest) VALUES (1, ?)", (_lines(db).digest,))
