"""Ledger: the owner's record of everything that ever left one data set, releases and training alike.

SQLite in WAL mode, one transaction per charge. The charge is committed *before* noise is drawn, so a
process killed at any moment can only have recorded too much. Releases compose as Gaussian DP: their
μ² add up, and the sum is converted to ε at the owner's δ. Rounds of DP-SGD are composed with that sum by
one accountant (`privacy.subsampled`).
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
from typing import TYPE_CHECKING, NoReturn

from ..errors import BudgetExceeded, LedgerError
from ..files import MAX_BYTES, discard, linked, shorten, sync
from ..notebook import html_table
from ..privacy.scales import check_promise, gaussian_mu
from ..privacy.subsampled import Steps
from ..schema.frame import Format
from . import entries as lines
from .balance import Balance, balance, cost, private_steps, squares
from .entries import APPLICATION, VERSION, WITHOUT_TRAINING, Charge, Damaged, Entries, Kind, Trained

_BUSY_SECONDS = 60.0


if TYPE_CHECKING:
    import polars as pl


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
        if Format.of(self.path) is not None:
            raise LedgerError(
                f"ledger '{self.path}' has the name of a data file; name the ledger of it, such as "
                f"'{self.path.name}.ledger.db'"
            )
        exists = self._exists()
        #: Whether this very call made the file: a reason to tell the owner.
        self.created = not exists
        if epsilon is not None:
            check_promise(epsilon, 1e-5 if delta is None else delta)
            if math.isinf(epsilon):
                raise LedgerError("ledger epsilon must be finite; an infinite budget protects nobody")
        if not exists:
            if epsilon is None:
                raise LedgerError(f"ledger '{self.path}' does not exist; give a total epsilon to create it")
            if not self.path.parent.is_dir():
                raise LedgerError(f"ledger '{self.path}' cannot be created: its directory does not exist")
            refuse_lost(self.path)
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
            entries = self._read(db)
        return balance(*entries.budget, entries)

    def to_frame(self) -> pl.DataFrame:
        """A row for each release that was charged, oldest first."""
        import polars as pl

        names = ("at", "client", "plan", "epsilon", "delta", "mu")
        charges = self.history()
        return pl.DataFrame({name: [getattr(charge, name) for charge in charges] for name in names})

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    def _repr_html_(self) -> str:
        found = self.balance()
        rows = [
            ("allowed", f"ε {found.epsilon:g} at δ {found.delta:g}"),
            ("spent", f"ε {found.spent:.4g} in {found.charges} releases and {found.rounds} private rounds"),
            ("left", f"ε {found.remaining:.4g}"),
            ("without noise", f"{found.open_rounds} rounds, {found.evaluations} evaluations"),
        ]
        return html_table(rows, title=f"Ledger {self.path.name}")

    def history(self) -> list[Charge]:
        """All charges, oldest first."""
        with self._transaction() as db:
            return self._read(db).charges

    def training(self) -> list[Trained]:
        """All answers of the training phase, oldest first."""
        with self._transaction() as db:
            return self._read(db).training

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
            entries = self._read(db)
            total, at_delta = entries.budget
            after = entries._replace(
                charges=[*entries.charges, Charge(0, "", client, plan, mu, epsilon, delta)]
            )
            needed = cost(after, at_delta)
            # Also compared as μ², where the sum is exact; 1e-9 forgives the rounding of the conversion.
            rounding = not private_steps(entries) and squares(after) <= gaussian_mu(total, at_delta) ** 2 * (
                1 + 1e-9
            )
            if needed > total and not rounding:
                self._refuse("release", f"epsilon {epsilon:.4g} at delta {delta:g}", needed, entries)
            lines.add_charge(db, at=_now(), client=client, plan=plan, spent=(mu, epsilon, delta))
            return balance(total, at_delta, after)

    def charge_round(
        self, steps: Steps, *, client: str, promise: str, limit: int, epsilon: float, delta: float
    ) -> Balance:
        """Record one round of DP-SGD before its noise is drawn, or refuse.

        Parameters
        ----------
        steps
            What the round does.
        promise
            The terms the noise was chosen for; all private rounds of a ledger are under one.
        limit
            Rounds those terms cover.
        epsilon, delta
            The promise of all `limit` rounds, for the message.

        Raises
        ------
        BudgetExceeded
            All rounds are used, other terms are in force, or the total would pass the budget.
        """
        with self._transaction() as db:
            entries = self._read(db)
            done = [line for line in entries.training if line.kind == "private round"]
            if any(line.promise != promise for line in done):
                raise BudgetExceeded(
                    "training began under another promise or with other settings; two promises add up, so this "
                    "one is refused"
                )
            if len(done) >= limit:
                raise BudgetExceeded(
                    f"training promise covers {limit} rounds and all are used; one more would break it"
                )
            line = Trained(0, _now(), client, "private round", promise, *steps)
            after = entries._replace(training=[*entries.training, line])
            total, at_delta = entries.budget
            needed = cost(after, at_delta)
            if needed > total:
                asked = f"one round of a training at epsilon {epsilon:.4g}, delta {delta:g}"
                self._refuse("round", asked, needed, entries)
            self._leave_trace()
            lines.add_training(db, line)
            return balance(total, at_delta, after)

    def count_open(self, kind: Kind, *, client: str, limit: int | None = None) -> None:
        """Record an answer that carries no noise before it is made; no ε covers it, but its number is limited.

        Raises
        ------
        BudgetExceeded
            The owner's limit is reached.
        """
        with self._transaction() as db:
            done = sum(line.kind == kind for line in self._read(db).training)
            if limit is not None and done >= limit:
                raise BudgetExceeded(f"policy allows {limit} times '{kind}' in all, and these are used")
            self._leave_trace()
            lines.add_training(db, Trained(0, _now(), client, kind, "", 0.0, 0.0, 0))

    def _leave_trace(self) -> None:
        """A file beside the ledger that says that there was training, by which a lost ledger is noticed."""
        folder = kept_folder(self.path)
        trace = folder / "trained.json"
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            with suppress(FileExistsError):
                os.close(os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except OSError as cause:
            raise LedgerError(
                f"'{trace}' cannot be written ({cause.strerror}); check the permissions"
            ) from None

    def _refuse(self, what: str, asked: str, needed: float, entries: Entries) -> NoReturn:
        total, at_delta = entries.budget
        before = balance(total, at_delta, entries)
        raise BudgetExceeded(
            f"ledger '{self.path}' refuses this {what}.\n"
            f"  Requested:  {asked} (total would be {needed:.4g})\n"
            f"  Remaining:  epsilon {before.remaining:.4g} of {total:.4g} at delta {at_delta:g}\n"
            f"  Difference: epsilon {needed - total:.4g}\n"
            "Ask for a plan with a smaller epsilon, or raise the budget on purpose (fedwise budget)."
        )

    def set_budget(self, epsilon: float, delta: float | None = None) -> Balance:
        """Change the total budget on purpose; the change is recorded too."""
        with self._transaction() as db:
            entries = self._read(db)
            new_delta = entries.budget[1] if delta is None else delta
            check_promise(epsilon, new_delta)
            if math.isinf(epsilon):
                raise LedgerError("ledger epsilon must be finite; an infinite budget protects nobody")
            lines.add_budget(db, at=_now(), epsilon=epsilon, delta=new_delta)
        return balance(epsilon, new_delta, entries)

    def _read(self, db: sqlite3.Connection) -> Entries:
        """Everything in the file, or `LedgerError` where it is not a ledger or has another format."""
        application = db.execute("PRAGMA application_id").fetchone()[0]
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if application != APPLICATION:
            raise LedgerError(f"'{self.path}' is a database but not a fedwise ledger; name another file")
        if version not in (VERSION, WITHOUT_TRAINING):
            raise LedgerError(
                f"ledger '{self.path}' has format {version}, this fedwise reads {WITHOUT_TRAINING} and {VERSION}; "
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
                # Nobody opens this file before it is whole and on the disk, so SQLite need not wait for the disk
                # between its steps; one wait follows, before the file gets its name.
                db.execute("PRAGMA journal_mode = MEMORY")
                db.execute("PRAGMA synchronous = OFF")
                db.execute("BEGIN IMMEDIATE")
                lines.create(db, at=_now(), epsilon=epsilon, delta=delta)
                db.execute("COMMIT")
                db.execute("PRAGMA journal_mode = WAL")
            os.chmod(temporary, 0o600)
            sync(temporary)
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


def kept_folder(ledger: Path) -> Path:
    """Where the releases charged to a ledger are kept, and the trace of its training."""
    return ledger.with_name(ledger.name + ".releases")


def refuse_lost(path: Path) -> None:
    """Stop where kept releases are still here but the ledger they were charged to is gone.

    Raises
    ------
    LedgerError
        A new ledger would forget that they were paid for.
    """
    kept = kept_folder(path)
    if not path.exists() and kept.is_dir() and any(file.suffix == ".json" for file in kept.iterdir()):
        raise LedgerError(
            f"ledger '{path}' is missing but '{kept}' holds what was charged to it; restore the ledger from a "
            "backup, or, if the budget may really start anew, move that folder away on purpose"
        )


def _place(temporary: str, path: Path) -> None:
    """Give a finished file its name, unless another has it (`FileExistsError`), and make that last."""
    if not linked(temporary, path):
        # A file system without hard links: claim the name first, then fill it.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        os.replace(temporary, path)
    if os.name == "posix":
        sync(path.parent)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
