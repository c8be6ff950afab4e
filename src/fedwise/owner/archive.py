"""Archive: the releases already made under a ledger, kept beside it so that none is ever drawn twice.

A plan that comes again (a restart, a lost reply, a second run) gets the very same file: drawing fresh
noise would cost the owner twice and give the coordinator an average with half the noise.

An answer is found by plan and client, not by the rows: a digest of private rows on disk would tell whoever
reads it whether a guess at them is right. Rows that changed since are therefore answered as before; a new plan,
or the next edition of this one, is needed to release them.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ..errors import LedgerError, ReleaseError
from ..planning import Plan
from .ledger import kept_folder
from .release import SUFFIX, Release

_WAIT_SECONDS = 600.0
#: Only the owner reads what lies here: the releases, and from them when and for whom they were made.
_FILE, _FOLDER = 0o600, 0o700


class Archive:
    """The saved releases of one ledger, in ``<ledger>.releases/``."""

    def __init__(self, ledger: Path) -> None:
        self.ledger = ledger
        self.directory = kept_folder(ledger)

    def path(self, plan: Plan, client: str, stage: int = 1) -> Path:
        """Where the answer of `client` to a stage of `plan` is kept."""
        later = "" if stage == 1 else f"-{stage}"
        return self.directory / f"{client}-{plan.digest[:32]}{later}{SUFFIX}"

    def find(self, plan: Plan, client: str, stage: int = 1) -> Release | None:
        """The saved answer, or None. Nothing is created.

        Raises
        ------
        ReleaseError
            The file is damaged or answers something else. It is not replaced: somebody may hold a copy.
        """
        path = self.path(plan, client, stage)
        _absent(self.directory.with_name(path.name))  # refuses an impossible name before the folder is there
        if _absent(path):
            return None
        found = Release.load(path)
        if (found.plan_digest, found.client, found.number) != (plan.digest, client, stage) or (
            found.label != "private"
        ):
            raise ReleaseError(
                f"saved release '{path}' answers another plan or client; move it away on purpose"
            )
        return found

    def unchanged(self, plan: Plan, client: str, version: int) -> Release | None:
        """The saved answer to the latest earlier edition of `plan`, if it was made from data of this version."""
        found = [
            made
            for made in self._of(client)
            if made.plan.question == plan.question
            and made.plan.number < plan.number
            and made.label == "private"
        ]
        last = max(found, key=lambda made: made.plan.number, default=None)
        return last if last is not None and last.version == version else None

    def _of(self, client: str) -> Iterator[Release]:
        """All saved releases of a client, the one saved last first."""
        files = [file for file in self.directory.glob(f"*{SUFFIX}") if file.name.startswith(f"{client}-")]
        for file in sorted(files, key=lambda file: file.stat().st_mtime_ns, reverse=True):
            found = Release.load(file)
            if found.client == client:
                yield found

    def newest(self, client: str) -> Release | None:
        """The release of tables of `client` saved last, or None. A score says nothing of its number of records."""
        return next((found for found in self._of(client) if not found.scored), None)

    def keep(self, release: Release) -> None:
        """Save a release before it leaves."""
        release.save(self.path(release.plan, release.client, release.number), mode=_FILE)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One answer at a time, over processes: SQLite's file lock, which a crash releases."""
        lock = self.directory / "lock.db"
        try:
            self.directory.mkdir(mode=_FOLDER, parents=True, exist_ok=True)
            os.chmod(self.directory, _FOLDER)  # one made by version 0.1.0 may be open to others
            os.close(os.open(lock, os.O_RDWR | os.O_CREAT, _FILE))
        except OSError as cause:
            raise self._unlockable(cause.strerror) from None
        try:
            with closing(sqlite3.connect(lock, timeout=_WAIT_SECONDS, isolation_level=None)) as db:
                db.execute("BEGIN EXCLUSIVE")
                try:
                    yield
                finally:
                    db.execute("ROLLBACK")
        except sqlite3.Error as cause:
            raise self._unlockable(cause) from None

    def _unlockable(self, reason: object) -> LedgerError:
        return LedgerError(
            f"'{self.directory}' cannot be locked ({reason}); check its permissions and free space"
        )


def _absent(path: Path) -> bool:
    """Whether nothing has this name; `ReleaseError` where no file could have it."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError as cause:
        raise ReleaseError(
            f"'{path}' cannot be used ({cause.strerror}); use a shorter client name, or check the permissions"
        ) from None
    return False
