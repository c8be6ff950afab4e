"""Shelf: releases already made, kept beside the ledger so that none is ever drawn twice.

A plan that comes again (a restart, a lost reply, a second run) gets the very same file: drawing fresh
noise would cost the owner twice and give the coordinator an average with half the noise.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ..errors import LedgerError, ReleaseError
from ..planning import Plan
from .release import SUFFIX, Release

_WAIT_SECONDS = 600.0


class Shelf:
    """The saved releases of one ledger, in ``<ledger>.releases/``."""

    def __init__(self, ledger: Path) -> None:
        self.directory = ledger.with_name(ledger.name + ".releases")

    def path(self, plan: Plan, client: str) -> Path:
        """Where the answer of `client` to `plan` is kept."""
        return self.directory / f"{client}-{plan.digest[:32]}{SUFFIX}"

    def find(self, plan: Plan, client: str) -> Release | None:
        """The saved answer, or None.

        Raises
        ------
        ReleaseError
            The file is damaged or answers something else. It is not replaced: somebody may hold a copy.
        """
        path = self.path(plan, client)
        if not path.exists():
            return None
        found = Release.load(path)
        if found.plan_digest != plan.digest or found.client != client or found.simulated:
            raise ReleaseError(
                f"saved release '{path}' answers another plan or client; move it away on purpose"
            )
        return found

    def newest(self, client: str) -> Release | None:
        """The release of `client` saved last, or None."""
        files = [file for file in self.directory.glob(f"*{SUFFIX}") if file.name.startswith(f"{client}-")]
        for file in sorted(files, key=lambda file: file.stat().st_mtime_ns, reverse=True):
            found = Release.load(file)
            if found.client == client:
                return found
        return None

    def keep(self, release: Release) -> None:
        """Save a release before it leaves."""
        release.save(self.path(release.plan, release.client))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One answer at a time, over processes: SQLite's file lock, which a crash releases."""
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            with closing(
                sqlite3.connect(self.directory / "lock.db", timeout=_WAIT_SECONDS, isolation_level=None)
            ) as db:
                db.execute("BEGIN EXCLUSIVE")
                try:
                    yield
                finally:
                    db.execute("ROLLBACK")
        except sqlite3.Error as cause:
            raise LedgerError(
                f"'{self.directory}' cannot be locked ({cause}); check its permissions"
            ) from None
