"""Ledger: the owner's book of everything ever released from one data set.

SQLite in WAL mode, one transaction per charge. The charge is committed *before* noise is drawn, so a
process killed at any moment can only have recorded too much. Charges compose as Gaussian DP: their
μ² add up, and the sum is converted to ε at the owner's δ.
"""

from __future__ import annotations

import math
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ..errors import BudgetExceeded, LedgerError
from ..files import MAX_BYTES, discard, file_mode, linked, shorten
from ..privacy.scales import check_promise, gaussian_epsilon, gaussian_mu
from . import book as lines
from .book import APPLICATION, VERSION, Book, Charge, Damaged, Spent

_BUSY_SECONDS = 60.0


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
        exists = self._exists()
        if epsilon is not None:
            check_promise(epsilon, 1e-5 if delta is None else delta)
            if math.isinf(epsilon):
                raise LedgerError("ledger epsilon must be finite; an infinite budget protects nobody")
        if not exists:
            if epsilon is None:
                raise LedgerError(f"ledger '{self.path}' does not exist; give a total epsilon to create it")
            if not self.path.parent.is_dir():
                raise LedgerError(f"ledger '{self.path}' cannot be created: its directory does not exist")
            self._create(epsilon, 1e-5 if delta is None else delta)
        with self._transaction() as db:
            recorded = self._read(db).budget
        wanted = (epsilon, delta)
        if any(w is not None and w != r for w, r in zip(wanted, recorded, strict=True)):
            raise LedgerError(
                f"ledger '{self.path}' records a budget of epsilon {recorded[0]:g}, delta {recorded[1]:g}, "
                "which differs from the one given; leave it out, or change it with: fedwise budget --set-epsilon"
            )

    def balance(self) -> Balance:
        """What is allowed, spent and left."""
        with self._transaction() as db:
            book = self._read(db)
        return _balance(*book.budget, book.spent)

    def history(self) -> list[Charge]:
        """All charges, oldest first."""
        with self._transaction() as db:
            return self._read(db).charges

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
            book = self._read(db)
            (total, at_delta), spent = book.budget, book.spent
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
            lines.add_charge(db, at=_now(), client=client, plan=plan, spent=(mu, epsilon, delta))
            return _balance(total, at_delta, after)

    def set_budget(self, epsilon: float, delta: float | None = None) -> Balance:
        """Change the total budget on purpose; the change is kept in the book."""
        with self._transaction() as db:
            book = self._read(db)
            new_delta = book.budget[1] if delta is None else delta
            check_promise(epsilon, new_delta)
            if math.isinf(epsilon):
                raise LedgerError("ledger epsilon must be finite; an infinite budget protects nobody")
            lines.add_budget(db, at=_now(), epsilon=epsilon, delta=new_delta)
        return _balance(epsilon, new_delta, book.spent)

    def _read(self, db: sqlite3.Connection) -> Book:
        """The whole book, or `LedgerError` where it is another's or of another time."""
        application = db.execute("PRAGMA application_id").fetchone()[0]
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if application != APPLICATION:
            raise LedgerError(f"'{self.path}' is a database but not a fedwise ledger; name another file")
        if version != VERSION:
            raise LedgerError(
                f"ledger '{self.path}' has format {version}, this fedwise reads {VERSION}; "
                "use the fedwise that made it"
            )
        return lines.read(db)

    def _damaged(self) -> LedgerError:
        return LedgerError(
            f"ledger '{self.path}' is not a readable ledger; restore it from a backup: "
            "starting a new one would forget what was spent"
        )

    def _exists(self) -> bool:
        """Whether there is a file to open; one that cannot be a ledger is refused."""
        try:
            if self.path.is_dir():
                raise LedgerError(f"ledger '{self.path}' is a directory; name a file")
            state = os.stat(self.path)
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as cause:
            reason = getattr(cause, "strerror", None) or "no possible file name"
            raise LedgerError(
                f"ledger {str(self.path)!r} cannot be used ({reason}); check the path"
            ) from None
        if not self.path.is_file() or state.st_size > MAX_BYTES:
            raise LedgerError(f"ledger '{self.path}' is no ordinary file of sane size; name another file")
        if state.st_size == 0:
            # A new ledger appears whole (`_create`): an empty file is one that lost its contents.
            raise LedgerError(
                f"ledger '{self.path}' is empty; restore it from a backup, or remove it on purpose if nothing "
                "was ever released"
            )
        return True

    def _create(self, epsilon: float, delta: float) -> None:
        """A new ledger, whole or not at all; where another process is first, its ledger stands."""
        temporary = None
        try:
            handle, temporary = tempfile.mkstemp(
                prefix=f".{self.path.name[:40]}.", suffix=".part", dir=self.path.parent
            )
            os.close(handle)
            with closing(sqlite3.connect(temporary, isolation_level=None)) as db:
                db.execute("PRAGMA synchronous = FULL")
                db.execute("BEGIN IMMEDIATE")
                lines.create(db, at=_now(), epsilon=epsilon, delta=delta)
                db.execute("COMMIT")
            os.chmod(temporary, file_mode())
            with suppress(FileExistsError):
                _place(temporary, self.path)
        except (OSError, sqlite3.Error) as cause:
            reason = cause.strerror if isinstance(cause, OSError) else cause
            raise LedgerError(
                f"ledger '{self.path}' cannot be created ({reason}); check path and permissions"
            ) from None
        finally:
            if temporary is not None:
                discard(temporary)

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
                f"ledger '{self.path}' cannot be used ({shorten(str(cause))}); check path and permissions"
            ) from None
        # SQLite quotes a damaged file in its messages, which then are no text either.
        except (sqlite3.DatabaseError, Damaged, UnicodeDecodeError):
            raise self._damaged() from None

    def _connect(self) -> sqlite3.Connection:
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            db = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
            try:
                # Whatever a doctored file says: no text of gigabytes, no functions run by its own statements.
                db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000_000)
                db.execute("PRAGMA trusted_schema = OFF")
                # The journal mode is written into the file: never into a database that is not ours.
                if db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION:
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


def _place(temporary: str, path: Path) -> None:
    """Give a finished file its name, unless another has it (`FileExistsError`), and make that last."""
    if not linked(temporary, path):
        # A file system without hard links: claim the name first, then fill it.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        os.replace(temporary, path)
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


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
