"""Run privacy: whether a training was private, and what it cost, from its run directory or its comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import polars as pl

from ..errors import FedwiseError
from ..files import decode, read_bytes
from ..view.labels import Label
from ..view.promise import TrainingPrivacy

#: What a training can be; one of a comparison is never private, as its noise comes from a seed.
_LEAST_FIRST: tuple[Label, ...] = ("not private", "simulated")


def training_privacy(folder: Path, config: Mapping[str, Any]) -> TrainingPrivacy | None:
    """What a run directory says about the privacy of its training; ``None`` where it says nothing.

    ``config.json`` says whether DP-SGD was used and whether its noise came from a seed, ``privacy.json`` what it
    cost. Version 0.1.0 always drew the noise from the run's seed and did not write so: without a statement the
    training counts as simulated.
    """
    settings = config.get("config")
    if not (isinstance(settings, dict) and "privacy" in settings and (folder / "metrics.parquet").exists()):
        return None
    if not isinstance(settings["privacy"], dict):
        return TrainingPrivacy(label="not private", notes=_costs(folder / "privacy.json"))
    label: Label = "private" if settings.get("simulated") is False else "simulated"
    return TrainingPrivacy(label=label, notes=_costs(folder / "privacy.json"))


def comparison_privacy(tables: Sequence[pl.DataFrame]) -> TrainingPrivacy | None:
    """What tables of a comparison say about their trainings; ``None`` where one of them says nothing.

    Version 0.1.0 did not write it. Of several labels the least private one holds for all.
    """
    said: set[object] = set()
    for table in tables:
        said |= set(table["privacy"].unique()) if "privacy" in table.columns else {None}
    if not said or not said <= set(_LEAST_FIRST):
        return None
    return TrainingPrivacy(label=next(label for label in _LEAST_FIRST if label in said))


class _CostRow(msgspec.Struct):
    """What a report reads of a client's line in ``privacy.json``; version 0.1.0 wrote an infinite ε as null."""

    selected: bool
    joint: float | Literal["inf"] | None
    delta: float

    @property
    def epsilon(self) -> float:
        """ε of release and training together."""
        return math.inf if self.joint is None else float(self.joint)


def _costs(path: Path) -> list[str]:
    """The largest cost of clients chosen and not chosen, in a sentence each."""
    if not path.exists():
        return []
    data = read_bytes(path, what="privacy file", error=FedwiseError)
    costs = decode(data, list[_CostRow], what=f"privacy file '{path}'", error=FedwiseError)
    notes = []
    for selected, who in ((True, "chosen"), (False, "not chosen")):
        spent = [cost for cost in costs if cost.selected is selected]
        if not spent:
            continue
        worst = max(spent, key=lambda cost: cost.epsilon)
        if math.isinf(worst.epsilon):
            notes.append(f"Clients {who}: no bound on ε, release and training together.")
        else:
            notes.append(
                f"Clients {who}: ε at most {worst.epsilon:.3f} at δ = {worst.delta:g}, release and training together, "
                "from one accountant."
            )
    return notes
