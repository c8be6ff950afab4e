"""Pool: the releases of all clients, validated, screened and stacked into one matrix."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..cache import Cache
from ..errors import PoolError, nearest
from ..estimation.estimates import Estimates
from ..owner.release import SUFFIX, Label, Release, label_of
from ..planning import Plan
from .screen import FALSE_ALARM, Alert, Flag, flagged, screen

__all__ = ["FALSE_ALARM", "Alert", "Flag", "Pool", "flagged", "release_files"]


class Pool:
    """All releases of one plan.

    Build it with `Pool.load` or `Pool.of`.

    Attributes
    ----------
    clients
        Names, sorted.
    plan
        The plan every release answers.
    matrix
        Shape (clients, cells): noisy counts.
    simulated
        Whether any release carries simulated noise.
    charged
        Whether every release was charged to a ledger, or needs none (simulated, not private).
    flags
        Releases that failed the screen (only with ``accept_flagged``).
    alerts
        What is unusual about releases that passed it: worth a look, not refused.
    cache
        Estimates made from this pool so far, by estimator.
    """

    def __init__(
        self,
        clients: Sequence[str],
        plan: Plan,
        matrix: npt.NDArray[np.int64],
        *,
        simulated: bool = False,
        charged: bool = True,
        flags: Sequence[Flag] = (),
        alerts: Sequence[Alert] = (),
        sources: Sequence[str] = (),
    ) -> None:
        self.clients = tuple(clients)
        self.plan = plan
        # Read-only, so that estimates made from it once stay true.
        self.matrix = matrix.view()
        self.matrix.flags.writeable = False
        self.cache: Cache[str, Estimates] = Cache()
        self.simulated = simulated
        self.charged = charged
        self.flags = tuple(flags)
        self.alerts = tuple(alerts)
        self.sources = tuple(sources)

    @classmethod
    def of(cls, releases: Iterable[Release], *, accept_flagged: bool = False) -> Pool:
        """A pool of releases in memory."""
        found = list(releases)
        return cls._build(found, [f"release of '{r.client}'" for r in found], accept_flagged=accept_flagged)

    @classmethod
    def load(
        cls,
        path: str | Path | Iterable[str | Path],
        *,
        accept_flagged: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Pool:
        """Read a directory of release files, or the files given.

        Parameters
        ----------
        path
            A directory (every ``*.json`` in it that is a release) or a list of files.
        accept_flagged
            Keep releases that fail the screen; they are listed in `flags`.
        progress
            Called with (files read, files).

        Raises
        ------
        PoolError
            No releases, releases of different plans, two of one client, or a flagged one.
        ReleaseError
            A file is damaged.
        """
        files = release_files(path)
        loader = _Loader()
        for done, file in enumerate(files):
            loader.add(Release.load(file), f"'{file}'")
            if progress is not None:
                progress(done + 1, len(files))
        return loader.pool(accept_flagged=accept_flagged)

    @classmethod
    def _build(cls, releases: list[Release], sources: list[str], *, accept_flagged: bool) -> Pool:
        loader = _Loader()
        for found, source in zip(releases, sources, strict=True):
            found.verify(source)
            loader.add(found, source)
        return loader.pool(accept_flagged=accept_flagged)

    @property
    def private(self) -> bool:
        """Whether the releases carry noise at all."""
        return self.plan.private

    @property
    def label(self) -> Label:
        """What protects these releases, the most serious of theirs: see `fedwise.Release.label`."""
        return label_of(private=self.private, simulated=self.simulated, charged=self.charged)

    def index(self, names: Iterable[str]) -> npt.NDArray[np.int64]:
        """Positions of the named clients, or a `PoolError` with the nearest name."""
        at = {name: i for i, name in enumerate(self.clients)}
        found = []
        for name in names:
            if name not in at:
                raise PoolError(f"client '{name}' is not in the pool{nearest(name, self.clients)}")
            found.append(at[name])
        return np.array(found, dtype=np.int64)

    def without(self, names: Iterable[str]) -> Pool:
        """The pool without the named clients."""
        gone = set(self.index(names).tolist())
        kept = [i for i in range(len(self.clients)) if i not in gone]
        if not kept:
            raise PoolError("pool must keep at least one client")
        stay = {self.clients[i] for i in kept}
        return Pool(
            [self.clients[i] for i in kept],
            self.plan,
            self.matrix[kept],
            simulated=self.simulated,
            charged=self.charged,
            flags=[flag for flag in self.flags if flag.client in stay],
            alerts=[alert for alert in self.alerts if alert.client in stay],
            sources=[self.sources[i] for i in kept] if self.sources else (),
        )

    def __len__(self) -> int:
        return len(self.clients)

    def __repr__(self) -> str:
        return f"Pool({len(self)} clients, epsilon={self.plan.promise_epsilon}, {self.label})"


class _Loader:
    """Collects releases one by one, keeping only their counts."""

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self.rows: dict[str, npt.NDArray[np.int64]] = {}
        self.sources: dict[str, str] = {}
        self.fingerprints: dict[bytes, str] = {}
        self.simulated = False
        self.charged = True

    def add(self, found: Release, source: str) -> None:
        if self.plan is None:
            self.plan = found.plan
        elif found.plan_digest != self.plan.digest:
            first = next(iter(self.sources.values()))
            raise PoolError(
                f"{source} answers plan {found.plan_digest[:12]}, but {first} answers {self.plan.digest[:12]}; "
                "a pool needs releases of one plan"
            )
        if found.client in self.rows:
            raise PoolError(
                f"client '{found.client}' appears twice: {self.sources[found.client]} and {source}; remove one"
            )
        counts = found.counts
        fingerprint = hashlib.sha256(counts.tobytes()).digest()
        if self.plan.private and fingerprint in self.fingerprints:
            raise PoolError(
                f"{source} holds exactly the noisy counts of client '{self.fingerprints[fingerprint]}'; "
                "independent noise never repeats, so one of the two is a copy: remove it"
            )
        self.fingerprints[fingerprint] = found.client
        self.rows[found.client] = counts
        self.sources[found.client] = source
        self.simulated |= found.simulated
        self.charged &= found.charged

    def pool(self, *, accept_flagged: bool) -> Pool:
        if self.plan is None:
            raise PoolError("pool must hold at least one release, got none")
        clients = sorted(self.rows)
        matrix = np.stack([self.rows[name] for name in clients])
        self.rows.clear()
        found = screen(clients, matrix, self.plan)
        if found.flags and not accept_flagged:
            first = found.flags[0]
            more = f" ({len(found.flags) - 1} more are flagged)" if len(found.flags) > 1 else ""
            raise PoolError(
                f"{self.sources[first.client]} of client '{first.client}' fails the {first.kind} screen: "
                f"{first.reason}{more}; remove it, ask for a new one, or pass --accept-flagged"
            )
        return Pool(
            clients,
            self.plan,
            matrix,
            simulated=self.simulated,
            charged=self.charged,
            flags=found.flags,
            alerts=found.alerts,
            sources=[self.sources[name] for name in clients],
        )


def release_files(path: str | Path | Iterable[str | Path]) -> list[Path]:
    """The release files named by a directory or a list of paths, sorted."""
    if isinstance(path, str | Path):
        root = Path(path)
        if not root.exists():
            raise PoolError(f"releases '{root}' do not exist; check the path")
        if root.is_file():
            return [root]
        files = sorted(
            file for file in root.glob("*.json") if file.name not in ("plan.json", "selection.json")
        )
        if not files:
            raise PoolError(f"releases '{root}' hold no *{SUFFIX} file; run fedwise release first")
        return files
    files = [Path(item) for item in path]
    if not files:
        raise PoolError("pool must be given at least one release file, got none")
    return files
