"""Record: what a federation leaves on disk, in the form of a run directory.

    selection.json     who was chosen before training, with the evidence
    plan.json          the plan its clients answered
    schema.toml        the public schema
    releases/          the releases it was chosen from
    metrics.parquet    every metric of every round, as the engine's strategy reported it
    federation.json    the engine, who left and who came, who was absent and why

`fedwise report DIRECTORY` reads it. There is no config.json: `fedwise train --resume` cannot go on with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from .. import __version__
from ..files import refuse_existing, write_new
from ..owner.release import SUFFIX
from ..training.records import Record, to_parquet
from .gathering import keep_releases

if TYPE_CHECKING:
    from .federation import Federation

#: Name of the file that a report reads the history from.
FILE = "federation.json"


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a federation while an engine trained it."""

    format: Literal["fedwise/federation/1"] = "fedwise/federation/1"
    engine: str = ""
    version: str = __version__
    clients: tuple[str, ...]
    rounds: int = 0
    #: Lines for people, in order.
    changes: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    stale: dict[str, tuple[int | None, int]] = {}
    drift: tuple[dict[str, Any], ...] = ()
    #: Client, kind of the message, reason.
    missing_in_training: tuple[tuple[str, str, str], ...] = ()
    loss: float | None = None


def save_federation(
    federation: Federation, directory: Path, *, metrics: Sequence[Record], engine: str, force: bool
) -> Path:
    """Write a run directory; `federation.json` last, so that one without it is not whole."""
    refuse_existing(directory / FILE, force=force)
    if (directory / FILE).exists():
        _clear(directory)
    keep_releases(federation.releases, directory / "releases")
    pool = federation.pool
    parts = {
        "schema.toml": pool.plan.schema.to_toml().encode(),
        "plan.json": pool.asked.encode(),
        "selection.json": federation.selection.encode(),
    }
    if metrics:
        parts["metrics.parquet"] = to_parquet(metrics)
    history = History(
        engine=engine,
        clients=federation.clients,
        rounds=federation.rounds,
        changes=tuple(map(str, federation.changes)),
        absent=tuple(map(str, federation.absent)),
        stale=dict(federation.stale),
        drift=tuple(one.to_dict() for one in federation.drifts),
        missing_in_training=tuple(federation.missed),
        loss=getattr(federation.selection, "loss", None),
    )
    parts[FILE] = msgspec.json.format(msgspec.json.encode(history), indent=2) + b"\n"
    for name, data in parts.items():
        write_new(directory / name, data, force=True)
    federation.waiting.log.info("fedwise: saved; read it with: fedwise report %s", directory.resolve())
    return directory


def _clear(directory: Path) -> None:
    """Take away what an earlier run left and this one may not replace: it would be read as part of this one."""
    for old in (
        directory / FILE,
        directory / "metrics.parquet",
        *(directory / "releases").glob(f"*{SUFFIX}"),
    ):
        old.unlink(missing_ok=True)
