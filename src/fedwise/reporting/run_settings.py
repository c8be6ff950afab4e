"""Run settings: in what the trainings that are compared differ beside their clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

#: Parts of ``config.json`` that decide what a training comes to, with the words people read. Clients, seeds and the
#: method that a label names are meant to differ.
_PARTS = {
    "rounds": "rounds",
    "model": "model",
    "fraction": "share of clients in a round",
    "settings.optimizer": "optimiser",
    "settings.lr": "learning rate",
    "settings.batch": "batch size",
    "settings.epochs": "local epochs",
    "privacy.epsilon": "ε of training",
    "test": "share of rows held out",
    "split_seed": "seed of the split",
    "use_sensitive": "sensitive attributes as inputs",
    "schema_digest": "schema",
}


def differences(
    mine: Mapping[str, Any],
    others: Mapping[str, Sequence[Mapping[str, Any]]],
    runs: Mapping[str, Sequence[pl.DataFrame]],
) -> dict[str, list[str]] | None:
    """What differs between the chosen federation's training and each baseline's; ``None`` where nothing is known.

    Parameters
    ----------
    mine
        ``config.json`` of the chosen federation's run; empty where it comes from a comparison.
    others
        ``config.json`` of each baseline that is a run directory, by label.
    runs
        Tables of metrics by label, the chosen federation first.
    """
    if len(runs) < 2:
        return {}
    found: dict[str, list[str]] = {}
    unknown = []
    (_, tables), *rest = runs.items()
    for label, theirs in rest:
        configs = others.get(label, ())
        parts = [part for config in configs for part in _unlike(mine, config)] if mine else []
        if not any(part.startswith("rounds") for part in parts):
            parts += _lengths(tables, theirs)
        found[label] = list(dict.fromkeys(parts))
        # A comparison trains all its federations alike; beside a run directory its settings are not known.
        if bool(mine) is not bool(configs):
            unknown.append(label)
    return None if unknown and not any(found.values()) else found


def _unlike(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    return [
        f"{words}: {_said(a)} for the chosen federation, {_said(b)} here"
        if words != "schema"
        else "the schema"
        for path, words in _PARTS.items()
        for a, b in [(_at(mine, path), _at(theirs, path))]
        if a != b
    ]


def _at(config: Mapping[str, Any], path: str) -> Any:
    """A part of the configuration; those that are not about clients lie under ``config``."""
    top, *rest = path.split(".")
    value = config.get(top, (config.get("config") or {}).get(top))
    for key in rest:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _said(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, int | float) else str(value)


def _lengths(mine: Sequence[pl.DataFrame], theirs: Sequence[pl.DataFrame]) -> list[str]:
    """Tables say how many rounds there were, whatever else is not written in them."""
    ends = [{int(table["round"].max() or 0) for table in tables if table.height} for tables in (mine, theirs)]  # type: ignore[arg-type]
    if ends[0] == ends[1]:
        return []
    shown = [", ".join(str(n) for n in sorted(found)) for found in ends]
    return [f"rounds: {shown[0]} for the chosen federation, {shown[1]} here"]
