"""Strategy: how the server asks and how it combines the answers. Stateless; what it remembers is passed along."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from ...errors import FedwiseError
from ..local import Instruction, LocalSettings, Update
from ..model import Vector

#: What the server remembers from round to round: named arrays, so that a checkpoint can hold them.
ServerState = dict[str, npt.NDArray[np.float64]]


class Strategy(Protocol):
    """The whole of a strategy: three pure functions. Works on vectors, so any engine can carry it."""

    name: ClassVar[str]

    def start(self, parameters: Vector, sizes: Mapping[str, float]) -> ServerState:
        """What to remember before the first round; `sizes` are the training rows of every client."""
        ...

    def configure(self, settings: LocalSettings, state: ServerState) -> Instruction:
        """What to ask of the participants of a round."""
        ...

    def aggregate(
        self, parameters: Vector, updates: Sequence[Update], state: ServerState
    ) -> tuple[Vector, ServerState]:
        """Next parameters from the current ones and the answers, and what to remember."""
        ...


def shares(updates: Sequence[Update]) -> npt.NDArray[np.float64]:
    """Each participant's share of the rows."""
    if not updates:
        raise FedwiseError("aggregation needs at least one update; no participant answered")
    rows = np.array([update.rows for update in updates], dtype=np.float64)
    out: npt.NDArray[np.float64] = rows / rows.sum()
    return out


def mean(updates: Sequence[Update], weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Weighted mean of the participants' parameters.

    Summed in float64, in the order of the clients' names: the answer does not depend on who answered
    first, and copies of one float32 vector average to that vector exactly.
    """
    order = sorted(range(len(updates)), key=lambda i: updates[i].client)
    total = np.zeros(updates[0].parameters.shape, dtype=np.float64)
    for i in order:
        total += weights[i] * updates[i].parameters.astype(np.float64)
    return total


def stacked(updates: Sequence[Update]) -> npt.NDArray[np.float64]:
    """Parameters of the participants in the order of their names, shape (participants, parameters)."""
    if not updates:
        raise FedwiseError("aggregation needs at least one update; no participant answered")
    ordered = sorted(updates, key=lambda update: update.client)
    return np.stack([update.parameters.astype(np.float64) for update in ordered])


def check_share(share: float) -> None:
    """Refuse a share of bad participants that no rule can stand."""
    if not 0 <= share < 0.5:
        raise FedwiseError(f"share must be at least 0 and below 0.5, got {share}")
