"""Engine history: what a run directory says about who left a federation and who came while an engine trained it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..coordinator.record import FILE, History
from ..errors import FedwiseError
from ..files import decode, read_bytes
from ..view.alerts import Notice
from .document import Report


def with_history(report: Report, folder: Path | None) -> Report:
    """The report with notices of an engine's run, where its directory has a history."""
    if folder is None or not (folder / FILE).exists():
        return report
    data = read_bytes(folder / FILE, what="history file", error=FedwiseError)
    history = decode(data, History, what=f"history file '{folder / FILE}'", error=FedwiseError)
    values = report.values
    digests = {**values.digests, "Engine": history.engine} if history.engine else values.digests
    alerts = [*values.alerts, *notices(history)]
    return Report(msgspec.structs.replace(values, alerts=alerts, digests=digests))


def notices(history: History) -> list[Notice]:
    """What a reader of the report must know about a federation that changed."""
    found = []
    if history.changes:
        found.append(Notice(level="note", title="the federation changed", text=_sentences(history.changes)))
    if history.stale:
        names = ", ".join(sorted(history.stale))
        found.append(
            Notice(
                level="warning",
                title="releases of older data",
                text=f"The owners of {names} have newer data than their releases tell of. Ask the next edition of "
                "the plan to refresh them.",
            )
        )
    if history.missing_in_training:
        lines = tuple(f"{client} ({kind}): {why}" for client, kind, why in history.missing_in_training)
        found.append(Notice(level="note", title="missing in training", text=_sentences(lines)))
    if history.absent:
        found.append(Notice(level="note", title="not in the pool", text=_sentences(history.absent)))
    return found


def _sentences(lines: tuple[str, ...]) -> str:
    return " ".join(line[:1].upper() + line[1:] + "." for line in lines)
