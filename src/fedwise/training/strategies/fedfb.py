"""FedFB (Zeng, Chen, Lee 2021): FairBatch across clients. The server re-weights groups, not clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ...errors import FedwiseError
from ..local import Instruction, LocalSettings, Update
from ..model import Vector
from .strategy import ServerState, mean, shares


@dataclass(frozen=True)
class FedFB:
    """Rows of target y and group a weigh λ_ya / p_ya, where p_ya is their share of all participants' rows.

    After each round, within each target y, λ_y moves by a step of length α towards the groups whose loss
    is above the mean, λ_ya ← λ_ya + α·d_ya / ‖d_y‖ with d_ya = L_ya − mean_a L_ya, is clipped at 0 and
    brought back to Σ_a λ_ya = p_y. From λ = p, so the first round is FedAvg. Equal losses within both
    targets are equalised odds. The participants report exact sums: see `GroupSums`.

    This is the multi-group form with one constraint set for each target; the original treats each
    fairness notion with an update of its own, all of which are this step for two groups up to α.
    """

    name: ClassVar[str] = "fedfb"
    alpha: float = 0.02
    attribute: int = 0

    def start(self, parameters: Vector, sizes: Mapping[str, float]) -> ServerState:
        """Weights are known after the first reports."""
        return {}

    def configure(self, settings: LocalSettings, state: ServerState) -> Instruction:
        """Ask for a report, and send the weights of the cells."""
        weights = state.get("weights")
        return Instruction(settings, cell_weights=weights, attribute=self.attribute, report=True)

    def aggregate(
        self, parameters: Vector, updates: Sequence[Update], state: ServerState
    ) -> tuple[Vector, ServerState]:
        """FedAvg's mean; then the next round's weights."""
        moved = mean(updates, shares(updates)).astype(np.float32)
        rows, losses = _sums(updates, len(state["weights"][0]) if "weights" in state else 1)
        share = rows / rows.sum()
        lam = share.copy()
        if "lam" in state:
            lam[:, : state["lam"].shape[1]] = state["lam"]
        for y in range(2):
            seen = rows[y] > 0
            if seen.sum() < 2:
                continue
            mean_loss = losses[y, seen] / rows[y, seen]
            away = mean_loss - mean_loss.mean()
            length = float(np.linalg.norm(away))
            if length > 0:
                lam[y, seen] += self.alpha * away / length
            lam[y] = np.maximum(lam[y], 0.0)
            lam[y] *= share[y].sum() / lam[y].sum()
        weights = np.divide(lam, share, out=np.ones_like(lam), where=share > 0)
        return moved, {"lam": lam, "weights": weights}


def _sums(updates: Sequence[Update], least: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Rows and summed losses of all participants by target and group."""
    reports = [update.report for update in updates if update.report is not None]
    if len(reports) != len(updates):
        raise FedwiseError("FedFB needs a report from every participant; ask with Instruction(report=True)")
    groups = max(least, *(report.losses.shape[1] for report in reports))
    rows, losses = np.zeros((2, groups)), np.zeros((2, groups))
    for report in reports:
        here = report.losses.shape[1]
        rows[:, :here] += report.counts.sum(axis=2)
        losses[:, :here] += report.losses
    return rows, losses
