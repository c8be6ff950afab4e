"""Pool: the releases of all clients, validated, screened and stacked into one matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..cache import Cache
from ..deferred import Deferred
from ..errors import PoolError, nearest
from ..estimation.estimates import Estimates
from ..estimation.joint import JointTables
from ..notebook import html_table, plot
from ..owner.release import SUFFIX, Label, Release, label_of
from ..owner.shortlisted import Shortlist
from ..planning import Plan
from .intake import Intake, Scores
from .outliers import Counts
from .screen import FALSE_ALARM, Alert, Flag, flagged, screen
from .spending import Spending

if TYPE_CHECKING:
    import polars as pl
else:
    pl = Deferred("polars")

Floats = npt.NDArray[np.float64]

__all__ = ["FALSE_ALARM", "Alert", "Flag", "Pool", "flagged", "release_files"]


class Pool:
    """All releases of one plan, or of plans that ask for the same tables at other ε.

    Build it with `Pool.load` or `Pool.of`.

    Attributes
    ----------
    clients
        Names, sorted.
    plan
        The plan that most releases answer.
    matrix
        Shape (clients, cells): noisy counts; several releases of one client are combined by precision.
    sigmas
        Shape (clients, tables): noise scale of each client's tables.
    spendings
        What each client has given away, release by release; empty where that is not known.
    simulated
        Whether any release carries simulated noise.
    charged
        Whether every release was charged to a ledger, or needs none (simulated, not private).
    flags
        Releases that failed the screen (only with ``accept_flagged``).
    alerts
        What is unusual about releases that passed it: worth a look, not refused.
    joint
        The tables before they were summed to pairs, where the plan asks for joint ones: `plan`, `matrix` and `sigmas`
        are those of the pairs.
    asked
        The plan as clients got it; `plan` is how it is read.
    scores
        What clients answered to a score, where the plan asks for one and some have.
    cache
        Estimates made from this pool so far, by estimator.
    """

    def __init__(
        self,
        clients: Sequence[str],
        plan: Plan,
        matrix: Counts,
        *,
        sigmas: npt.NDArray[np.float64] | None = None,
        spendings: Sequence[Spending] = (),
        simulated: bool = False,
        charged: bool = True,
        flags: Sequence[Flag] = (),
        alerts: Sequence[Alert] = (),
        sources: Sequence[str] = (),
        joint: JointTables | None = None,
        asked: Plan | None = None,
        scores: Scores | None = None,
    ) -> None:
        self.clients = tuple(clients)
        self.plan = plan
        # Read-only, so that estimates made from it once stay true.
        self.matrix = matrix.view()
        self.matrix.flags.writeable = False
        scales = plan.sigmas if sigmas is None else sigmas
        self.sigmas = np.broadcast_to(scales, (len(self.clients), plan.layout.tables))
        self.joint = joint
        self.asked = asked or plan
        self.scores = scores
        self.spendings = tuple(spendings)
        #: The shortlist kept beside the releases, by which a stage was asked; None where there is none.
        self.shortlist: Shortlist | None = None
        self.cache: Cache[str, Estimates] = Cache()
        self.simulated = simulated
        self.charged = charged
        self.flags = tuple(flags)
        self.alerts = tuple(alerts)
        self.sources = tuple(sources)

    @classmethod
    def folded(
        cls, clients: Sequence[str], plan: Plan, matrix: Counts, *, sigmas: Floats | None = None, **more: Any
    ) -> Pool:
        """A pool of counts as they were asked for: joint tables are kept, and summed to pairs."""
        if plan.folding is None:
            return cls(clients, plan, matrix, sigmas=sigmas, **more)
        scales = np.broadcast_to(plan.sigmas if sigmas is None else sigmas, (len(clients), len(plan.tables)))
        joint = JointTables(plan.folding, np.asarray(matrix, np.float64), scales)
        pairs: Counts = plan.folding.cells(matrix)
        scales = plan.folding.scales(scales)
        return cls(clients, plan.as_pairs, pairs, sigmas=scales, joint=joint, asked=plan, **more)

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
        task: str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Pool:
        """Read a directory of release files, or the files given.

        Parameters
        ----------
        path
            A directory (every ``*.json`` in it that is a release) or a list of files.
        accept_flagged
            Keep releases that fail the screen; they are listed in `flags`.
        task
            Of several targets of the plan, the one that counts: see `for_target`. Default: all of them.
        progress
            Called with (files read, files).

        Raises
        ------
        PoolError
            No releases, releases of other tables, one release twice, or a flagged one.
        ReleaseError
            A file is damaged.
        """
        files = release_files(path)
        intake = Intake()
        for done, file in enumerate(files):
            intake.add(Release.load(file), f"'{file}'")
            if progress is not None:
                progress(done + 1, len(files))
        found = _pool(intake, accept_flagged=accept_flagged)
        found.shortlist = _kept_shortlist(path, found)
        return found if task is None else found.for_target(task)

    @classmethod
    def _build(cls, releases: list[Release], sources: list[str], *, accept_flagged: bool) -> Pool:
        intake = Intake()
        for found, source in zip(releases, sources, strict=True):
            found.verify(source)
            intake.add(found, source)
        return _pool(intake, accept_flagged=accept_flagged)

    @property
    def private(self) -> bool:
        """Whether the releases carry noise at all."""
        return self.plan.private

    @property
    def mixed(self) -> bool:
        """Whether clients carry different noise."""
        return bool((self.sigmas != self.sigmas[:1]).any())

    @property
    def epsilons(self) -> npt.NDArray[np.float64]:
        """Shape (clients,): ε of all of each client's releases together; the plan's where that is not known."""
        if not self.spendings:
            return np.full(len(self.clients), self.plan.epsilon)
        return np.array([spending.epsilon for spending in self.spendings])

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
        found = Pool(
            [self.clients[i] for i in kept],
            self.plan,
            self.matrix[kept],
            sigmas=self.sigmas[kept],
            spendings=[self.spendings[i] for i in kept] if self.spendings else (),
            simulated=self.simulated,
            charged=self.charged,
            flags=[flag for flag in self.flags if flag.client in stay],
            alerts=[alert for alert in self.alerts if alert.client in stay],
            sources=[self.sources[i] for i in kept] if self.sources else (),
            joint=None if self.joint is None else self.joint.of(kept),
            asked=self.asked,
            scores=None if self.scores is None else self.scores.of(kept),
        )
        found.shortlist = self.shortlist
        return found

    def for_target(self, name: str | None) -> Pool:
        """The pool as one task sees it: the tables of other targets are left out, those all tasks share stay.

        ``None`` is the only target there is; with several, the error names them. Nothing is asked or charged
        anew: every task reads the same releases.
        """
        plan = self.plan.for_target(name)
        if plan is self.plan:
            return self
        asked = {table.pair for table in plan.tables}
        kept = [j for j, table in enumerate(self.plan.tables) if table.pair in asked]
        layout = self.plan.layout
        cells = np.concatenate([np.arange(layout.offsets[j], layout.offsets[j + 1]) for j in kept])
        return Pool(
            self.clients,
            plan,
            self.matrix[:, cells],
            sigmas=self.sigmas[:, kept],
            spendings=self.spendings,
            simulated=self.simulated,
            charged=self.charged,
            flags=self.flags,
            alerts=self.alerts,
            sources=self.sources,
            asked=self.asked,  # a score is one along the loss of all targets together
        )

    def __len__(self) -> int:
        return len(self.clients)

    def to_frame(self) -> pl.DataFrame:
        """A row for each client: estimated records, and what the screen says of its release."""
        from ..estimation import estimate

        flags = {flag.client: flag.reason for flag in self.flags}
        alerts = {alert.client: alert.reason for alert in self.alerts}
        return pl.DataFrame(
            {
                "client": self.clients,
                "records": estimate(self).totals.round(),
                "flag": [flags.get(name) for name in self.clients],
                "alert": [alerts.get(name) for name in self.clients],
            },
            schema={"client": pl.String, "records": pl.Float64, "flag": pl.String, "alert": pl.String},
        )

    def plot(self) -> Any:
        """The terms of each client alone as an `altair.Chart`."""
        return plot(self)

    def _repr_html_(self) -> str:
        shown = self.clients[:12]
        more = f" and {len(self) - len(shown)} more" if len(self) > len(shown) else ""
        rows = [
            ("clients", f"{len(self)}: {', '.join(shown)}{more}"),
            ("plan", repr(self.plan)),
            ("privacy", self.label),
            ("flagged", ", ".join(flag.client for flag in self.flags) or "none of those kept"),
            ("unusual", ", ".join(sorted({alert.client for alert in self.alerts})) or "none"),
        ]
        return html_table(rows, title="Pool")

    def __repr__(self) -> str:
        least, most = self.epsilons.min(initial=np.inf), self.epsilons.max(initial=0.0)
        spent = f"{least:g} to {most:g}" if least < most else f"{self.plan.promise_epsilon}"
        return f"Pool({len(self)} clients, epsilon={spent}, {self.label})"


def _pool(intake: Intake, *, accept_flagged: bool) -> Pool:
    """A pool of all releases taken in, screened."""
    made = intake.gather()
    found = screen(made.clients, made.matrix, made.plan, made.sigmas)
    flags = [
        *made.flags,
        *(flag for flag in found.flags if flag.client not in {f.client for f in made.flags}),
    ]
    if flags and not accept_flagged:
        first = flags[0]
        more = f" ({len(flags) - 1} more are flagged)" if len(flags) > 1 else ""
        source = made.sources[made.clients.index(first.client)]
        raise PoolError(
            f"{source} of client '{first.client}' fails the {first.kind} screen: "
            f"{first.reason}{more}; remove it, ask for a new one, or pass --accept-flagged"
        )
    return Pool.folded(
        made.clients,
        made.plan,
        made.matrix,
        sigmas=made.sigmas,
        spendings=made.spendings,
        simulated=intake.simulated,
        charged=intake.charged,
        flags=flags,
        alerts=found.alerts,
        sources=made.sources,
        scores=made.scores,
    )


def _kept_shortlist(path: str | Path | Iterable[str | Path], pool: Pool) -> Shortlist | None:
    """The shortlist in a directory of releases, if it is one of their plan."""
    if not isinstance(path, str | Path):
        return None
    file = Path(path) / "shortlist.json"
    if not file.is_file():
        return None
    found = Shortlist.load(file)
    return found if found.plan_digest == pool.plan.digest else None


def release_files(path: str | Path | Iterable[str | Path]) -> list[Path]:
    """The release files named by a directory or a list of paths, sorted."""
    if isinstance(path, str | Path):
        root = Path(path)
        if not root.exists():
            raise PoolError(f"releases '{root}' do not exist; check the path")
        if root.is_file():
            return [root]
        files = sorted(
            file
            for file in root.glob("*.json")
            if file.name not in ("plan.json", "selection.json", "shortlist.json")
        )
        if not files:
            raise PoolError(f"releases '{root}' hold no *{SUFFIX} file; run fedwise release first")
        return files
    files = [Path(item) for item in path]
    if not files:
        raise PoolError("pool must be given at least one release file, got none")
    return files
