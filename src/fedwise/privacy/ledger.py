"""Ledger: the owner's book of everything ever released from one data set.

SQLite in WAL mode, one transaction per charge. The charge is committed *before* noise is drawn, so a
process killed at any moment can only have recorded too much. Charges compose as Gaussian DP: their
μ² add up, and the sum is converted to ε at the owner's δ.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ..errors import BudgetExceeded, LedgerError
from .calibration import check_promise, gaussian_epsilon, gaussian_mu

_APPLICATION = 0x66656477  # "fedw"
_VERSION = 1
_BUSY_SECONDS = 60.0
_TABLES = """
CREATE TABLE budget (id INTEGER PRIMARY KEY, at TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL);
CREATE TABLE charge (
  id INTEGER PRIMARY KEY, at TEXT NOT NULL, client TEXT NOT NULL, plan TEXT NOT NULL,
  mu REAL NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL
);
"""

#: μ, ε and δ of one charge.
Spent = tuple[float, float, float]


class Charge(msgspec.Struct, frozen=True):
    """One line of the book."""

    id: int
    at: str
    client: str
    plan: str
    mu: float
    epsilon: float
    delta: float


class Balance(msgspec.Struct, frozen=True):
    """What the owner allows, what is spent, what is left: all as ε at the owner's δ."""

    epsilon: float
    delta: float
    spent: float
    remaining: float
    charges: int


class Ledger:
    """The privacy budget of one data set.

    Parameters
    ----------
    path
        SQLite file; created when absent, which needs `epsilon` and `delta`.
    epsilon, delta
        Total budget. For an existing ledger they may be left out; values that differ from the
        recorded ones are refused (`set_budget` changes them on purpose).

    Raises
    ------
    LedgerError
        The file cannot be opened, is no ledger, or its budget differs.
    """

    def __init__(self, path: str | Path, epsilon: float | None = None, delta: float | None = None) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise LedgerError(f"ledger '{self.path}' is a directory; name a file")
        if not self.path.exists() or self.path.stat().st_size == 0:
            if epsilon is None:
                state = "is empty" if self.path.exists() else "does not exist"
                raise LedgerError(f"ledger '{self.path}' {state}; give a total epsilon to create it")
            if not self.path.parent.is_dir():
                raise LedgerError(f"ledger '{self.path}' cannot be created: its directory does not exist")
        if epsilon is not None:
            check_promise(epsilon, 1e-5 if delta is None else delta)
            if math.isinf(epsilon):
                raise LedgerError("ledger epsilon must be finite; an infinite budget protects nobody")
        with self._transaction() as db:
            self._prepare(db, epsilon, 1e-5 if delta is None else delta)
            recorded = self._budget(db)
        wanted = (epsilon, delta)
        if any(w is not None and w != r for w, r in zip(wanted, recorded, strict=True)):
            raise LedgerError(
                f"ledger '{self.path}' records a budget of epsilon {recorded[0]:g}, delta {recorded[1]:g}, "
                "which differs from the one given; leave it out, or change it with: fedwise budget --set-epsilon"
            )

    def balance(self) -> Balance:
        """What is allowed, spent and left."""
        with self._transaction() as db:
            epsilon, delta = self._budget(db)
            spent = self._spent(db)
        return _balance(epsilon, delta, spent)

    def history(self) -> list[Charge]:
        """All charges, oldest first."""
        with self._transaction() as db:
            rows = db.execute(
                "SELECT id, at, client, plan, mu, epsilon, delta FROM charge ORDER BY id"
            ).fetchall()
        return [Charge(*row) for row in rows]

    def charge(self, mu: float, *, client: str, plan: str, epsilon: float, delta: float) -> Balance:
        """Record a release before its noise is drawn, or refuse.

        Parameters
        ----------
        mu
            Gaussian-DP parameter of the release.
        client, plan, epsilon, delta
            Who, for which plan digest, under which promise: for the history.

        Raises
        ------
        BudgetExceeded
            The total would pass the budget. Nothing is recorded.
        """
        if not (math.isfinite(mu) and mu > 0):
            raise LedgerError(
                "charge must have a finite mu above 0; a plan without privacy cannot be charged"
            )
        with self._transaction() as db:
            total, at_delta = self._budget(db)
            spent = self._spent(db)
            after = [*spent, (mu, epsilon, delta)]
            needed = _cost(after, at_delta)
            # Also compared as μ², where the sum is exact; 1e-9 forgives the rounding of the conversion.
            if needed > total and _squares(after) > gaussian_mu(total, at_delta) ** 2 * (1 + 1e-9):
                before = _balance(total, at_delta, spent)
                raise BudgetExceeded(
                    f"ledger '{self.path}' refuses this release.\n"
                    f"  Requested:  epsilon {epsilon:.4g} at delta {delta:g} (total would be {needed:.4g})\n"
                    f"  Remaining:  epsilon {before.remaining:.4g} of {total:.4g} at delta {at_delta:g}\n"
                    f"  Difference: epsilon {needed - total:.4g}\n"
                    "Ask for a plan with a smaller epsilon, or raise the budget on purpose (fedwise budget)."
                )
            db.execute(
                "INSERT INTO charge (at, client, plan, mu, epsilon, delta) VALUES (?, ?, ?, ?, ?, ?)",
                (_now(), client, plan, mu, epsilon, delta),
            )
            return _balance(total, at_delta, after)

    def set_budget(self, epsilon: float, delta: float | None = None) -> Balance:
        """Change the total budget on purpose; the change is kept in the book."""
        with self._transaction() as db:
            old = self._budget(db)
            new_delta = old[1] if delta is None else delta
            check_promise(epsilon, new_delta)
            if math.isinf(epsilon):
                raise LedgerError("ledger epsilon must be finite; an infinite budget protects nobody")
            self._record_budget(db, epsilon, new_delta)
            spent = self._spent(db)
        return _balance(epsilon, new_delta, spent)

    def _budget(self, db: sqlite3.Connection) -> tuple[float, float]:
        row = db.execute("SELECT epsilon, delta FROM budget ORDER BY id DESC LIMIT 1").fetchone()
        if row is None or not all(isinstance(value, float) for value in row):
            raise self._damaged()
        return row[0], row[1]

    def _spent(self, db: sqlite3.Connection) -> list[Spent]:
        """μ, ε and δ of every charge. SQLite does not enforce types, so they are checked here."""
        rows = db.execute("SELECT mu, epsilon, delta FROM charge ORDER BY id").fetchall()
        if not all(isinstance(value, float) and value > 0 for row in rows for value in row):
            raise self._damaged()
        return [(mu, epsilon, delta) for mu, epsilon, delta in rows]

    def _damaged(self) -> LedgerError:
        return LedgerError(
            f"ledger '{self.path}' is not a readable ledger; restore it from a backup: "
            "starting a new one would forget what was spent"
        )

    @staticmethod
    def _record_budget(db: sqlite3.Connection, epsilon: float, delta: float) -> None:
        db.execute("INSERT INTO budget (at, epsilon, delta) VALUES (?, ?, ?)", (_now(), epsilon, delta))

    def _prepare(self, db: sqlite3.Connection, epsilon: float | None, delta: float) -> None:
        application = db.execute("PRAGMA application_id").fetchone()[0]
        version = db.execute("PRAGMA user_version").fetchone()[0]
        empty = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if empty and application == 0:
            if epsilon is None:
                raise LedgerError(f"ledger '{self.path}' is empty; give a total epsilon to set it up")
            for statement in _TABLES.strip().split(";\n"):
                db.execute(statement.rstrip(";"))
            db.execute(f"PRAGMA application_id = {_APPLICATION}")
            db.execute(f"PRAGMA user_version = {_VERSION}")
            self._record_budget(db, epsilon, delta)
        elif application != _APPLICATION:
            raise LedgerError(f"'{self.path}' is a database but not a fedwise ledger; name another file")
        elif version != _VERSION:
            raise LedgerError(
                f"ledger '{self.path}' has format {version}, this fedwise reads {_VERSION}; upgrade"
            )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One write transaction: taken at once, so that reading the balance and charging cannot race."""
        try:
            with closing(self._connect()) as db:
                db.execute("BEGIN IMMEDIATE")
                try:
                    yield db
                except BaseException:
                    db.execute("ROLLBACK")
                    raise
                db.execute("COMMIT")
        except sqlite3.OperationalError as cause:
            raise LedgerError(
                f"ledger '{self.path}' cannot be used ({cause}); check path and permissions"
            ) from None
        except sqlite3.DatabaseError:
            raise self._damaged() from None

    def _connect(self) -> sqlite3.Connection:
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            db = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
            try:
                # The journal mode is written into the file: never into a database that is not ours.
                objects = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
                if objects == 0 or db.execute("PRAGMA application_id").fetchone()[0] == _APPLICATION:
                    db.execute("PRAGMA journal_mode = WAL")
                db.execute("PRAGMA synchronous = FULL")
                return db
            except sqlite3.OperationalError as cause:
                # Switching to WAL does not wait for other starters as ordinary statements do.
                db.close()
                if "locked" not in str(cause) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            except BaseException:
                db.close()
                raise


def _squares(spent: list[Spent]) -> float:
    return math.fsum(mu * mu for mu, _, _ in spent)


def _cost(spent: list[Spent], delta: float) -> float:
    """ε at `delta` of all charges together.

    One release alone also costs no more than it promises: its μ must cover it at every δ, and may
    therefore say a little more than its ε does at its own.
    """
    if not spent:
        return 0.0
    together = gaussian_epsilon(math.sqrt(_squares(spent)), delta)
    if len(spent) == 1 and spent[0][2] <= delta:
        return min(together, spent[0][1])
    return together


def _balance(epsilon: float, delta: float, spent: list[Spent]) -> Balance:
    whole = gaussian_mu(epsilon, delta) ** 2
    left = whole - _squares(spent)
    # Below the rounding of the conversions nothing is left: a fresh ledger of ε spent in one release.
    remaining = gaussian_epsilon(math.sqrt(left), delta) if left > 1e-9 * whole else 0.0
    return Balance(
        epsilon=epsilon,
        delta=delta,
        spent=_cost(spent, delta),
        remaining=remaining if spent else epsilon,
        charges=len(spent),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
