"""Server side: ask every node, pool what comes back, choose, and hand on a Grid of the chosen."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from ..coordinator.answers import Absence
from ..coordinator.choice import Choice
from ..coordinator.federation import Federation as _Federation
from ..coordinator.federation import Turnover
from ..coordinator.gathering import Gathered, gather
from ..coordinator.inquiry import Waiting
from ..errors import FedwiseError
from ..planning import Plan
from ..planning import plan as make_plan
from ..schema.schema import Schema
from ..search.selection import Selection
from .channel import FlowerChannel
from .grid import FederationGrid, Missing
from .places import beside
from .results import records_of

__all__ = ["Absence", "Federation", "select_federation"]

_LOG = logging.getLogger("flwr")
#: Keywords of `select_federation` that only the release phase reads.
_ASKING: dict[str, Any] = {
    "poll": 1.0, "accept_flagged": False, "epsilon": 1.0, "delta": 1e-5, "stages": None, "score": False,
    "shortlist": {},
}  # fmt: skip


class Federation(_Federation):
    """The chosen federation on Flower. Unpacks as ``selection, grid = select_federation(…)``.

    Attributes
    ----------
    grid
        Flower's Grid, limited to the chosen nodes. When members change, it changes with them.
    """

    def __init__(
        self,
        grid: Grid,
        gathered: Gathered,
        choice: Choice,
        waiting: Waiting,
        *,
        turnover: Turnover | None = None,
        accept_flagged: bool = False,
    ) -> None:
        super().__init__(
            FlowerChannel(grid), gathered, choice, waiting, turnover=turnover, accept_flagged=accept_flagged
        )
        self.grid = FederationGrid(grid, self._ids(), grace=waiting.grace)
        self.grid.on_round = self.after_round

    def __iter__(self) -> Iterator[Any]:
        yield self.selection
        yield self.grid

    @property
    def missed(self) -> list[Missing]:
        """Who was asked in training and did not deliver."""
        return self.grid.missing

    def changed_members(self) -> None:
        """The Grid lists the new members from the next round on."""
        self.grid.change(self._ids())

    def save(  # type: ignore[override]  # Flower's own result in place of records
        self, directory: str | Path, result: Result | None = None, *, force: bool = False
    ) -> Path:
        """Write a run directory that `fedwise report` reads.

        Parameters
        ----------
        directory
            Where to: releases, plan, selection, metrics, who left and who came.
        result
            What ``strategy.start`` returned: its history of metrics becomes the table of the report.
        force
            Whether it may replace what an earlier run left there.
        """
        return super().save(
            directory,
            metrics=() if result is None else records_of(result),
            engine=f"Flower {version('flwr')}",
            force=force,
        )

    def _ids(self) -> dict[str, int]:
        return {name: int(node) for name, node in self.members.items()}


def select_federation(
    grid: Grid,
    plan: Plan | Schema | str | Path,
    *,
    k: Any = None,
    timeout: float = 600.0,
    grace: float | None = None,
    min_releases: int | None = None,
    expected: int | None = None,
    save: str | Path | None = None,
    seed: int = 0,
    substitutes: int = 0,
    reselect: int = 0,
    select: Callable[..., Selection] | None = None,
    **options: Any,
) -> Federation:
    """Ask every node for its release and choose the best federation among those that answer.

    Parameters
    ----------
    grid
        Flower's Grid, as ``@app.main()`` receives it.
    plan
        The public request; or the schema, or the path of its file beside the app's module, of which a plan with
        ``epsilon`` (1) and ``delta`` (1e-5) among the `options` is made.
    k
        Size of the federation, as for `fedwise.select`.
    timeout
        Seconds for the whole release phase. An answer that comes later is not used now; the node keeps
        it and sends the same one next time.
    grace
        Seconds to wait for stragglers after the last answer, in both phases, once enough have answered
        (`min_releases` here, half of the participants in a round). Default: the whole `timeout`.
    min_releases
        Fewest trusted releases to go on with. Default: `k`.
    expected
        Wait for this many nodes to connect (within `timeout`). Default: `min_releases`.
    save
        Directory to keep the releases in; `fedwise select DIRECTORY` repeats the choice from there.
    substitutes
        Replace a member that did not deliver in this many rounds in a row by the best other client of the pool,
        from the next round on. Nobody is asked again for it. Default 0: never.
    reselect
        Choose again after every so many rounds; nodes that connected since are asked first. Default 0: never.
    seed, options
        For `fedwise.select`: weights, constraints, estimator, method and the like; ``accept_flagged=True`` uses
        releases that fail the consistency screen; ``poll``: seconds between looks at the Grid;
        ``stages=[0.1, 1.0]``: everybody answers at a total ε of 0.1, and only nodes on a shortlist get a second
        question; ``score=True``: the second of three stages asks for a score; ``shortlist``: keywords of
        `fedwise.shortlist` such as ``{"most": 10}``.
    select
        Another function of (pool, k, seed=…, **options) that returns a `Selection`.

    Raises
    ------
    PoolError
        Too few releases. The text lists every node that is missing, and why.
    """
    own = {name: options.pop(name, default) for name, default in _ASKING.items()}
    request = _request(plan, own, sys._getframe(1).f_globals)
    choice = Choice(k, seed, select, options)
    least = choice.least(min_releases)
    waiting = Waiting(timeout, grace, least, max(expected or 0, least), own["poll"], _LOG)
    flagged, turnover = own["accept_flagged"], Turnover(substitutes, reselect)
    gathered = gather(
        FlowerChannel(grid), request, waiting, least=least, accept_flagged=flagged, save=save,
        again=lambda pool: choice.shortlist(pool, own["shortlist"]),
    )  # fmt: skip
    return Federation(grid, gathered, choice, waiting, turnover=turnover, accept_flagged=flagged)


def _request(plan: Plan | Schema | str | Path, own: Mapping[str, Any], caller: Mapping[str, Any]) -> Plan:
    if isinstance(plan, Plan):
        if (own["epsilon"], own["delta"]) != (_ASKING["epsilon"], _ASKING["delta"]):
            raise FedwiseError("epsilon and delta must not be given beside a plan, which has its own")
        if own["stages"] is not None or own["score"]:
            name = "stages" if own["stages"] is not None else "score"
            raise FedwiseError(
                f"{name} must not be given beside a plan; make it with fw.plan(..., stages=[0.1, 1.0])"
            )
        return plan
    schema = plan if isinstance(plan, Schema) else Schema.load(beside(plan, caller))
    stages = own["stages"]
    epsilon = stages[-1] if stages and own["epsilon"] == _ASKING["epsilon"] else own["epsilon"]
    return make_plan(schema, epsilon=epsilon, delta=own["delta"], stages=stages, score=own["score"])
