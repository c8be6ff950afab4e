"""Problem: what the searches see. A row for each client, and a function of summed rows to minimise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError
from ..estimation.estimates import Estimates
from .kernels import ClippedSpec, Spec, path_losses
from .pfl import NOBODY, losses_after
from .pfl import PFL as PFL
from .scoring import PythonScorer

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
T = TypeVar("T")


@runtime_checkable
class Objective(Protocol):
    """Anything `select` can minimise: a function of a federation's summed rows.

    `rows` is called once a search, before `evaluate`. An objective that is a weighted sum of x·log2 x
    may also offer an attribute ``spec`` (a `kernels.Spec` or `ClippedSpec`, set by `rows`) and is then searched by the
    compiled kernels instead of through `evaluate`. One with limits of its own may offer ``missed(sums)``:
    sentences about the limits that a federation does not keep, shown as flags of the selection.
    """

    name: str

    def rows(self, estimates: Estimates) -> Floats:
        """What is summed: shape (clients, width), float64."""

    def evaluate(self, sums: Floats) -> Floats:
        """Loss of each summed row, lower is better: shape (batch, width) to (batch,)."""


@dataclass(frozen=True)
class Problem:
    """Rows of all clients and the objective over their sums.

    Use `Problem.of`. `spec` is ``None`` for an objective without compiled kernels.
    """

    clients: tuple[str, ...]
    rows: Floats
    objective: Objective
    spec: Spec | ClippedSpec | None

    @classmethod
    def of(cls, estimates: Estimates, objective: Objective) -> Problem:
        """Bind an objective to the estimates, and check what it returns."""
        rows = np.ascontiguousarray(objective.rows(estimates), dtype=np.float64)
        if rows.ndim != 2 or rows.shape[0] != len(estimates.clients):
            raise FedwiseError(
                f"objective '{objective.name}' must return one row for each of the "
                f"{len(estimates.clients)} clients, got an array of shape {rows.shape}"
            )
        if not np.isfinite(rows).all():
            raise FedwiseError("estimates must be finite numbers, got NaN or infinity; check the releases")
        return cls(estimates.clients, rows, objective, getattr(objective, "spec", None))

    @property
    def width(self) -> int:
        """Entries of a row."""
        return int(self.rows.shape[1])

    def sums(self, federation: Sequence[int] | Ints) -> Floats:
        """The summed row of client positions."""
        summed: Floats = self.rows[np.asarray(federation, dtype=np.int64)].sum(axis=0)
        return summed

    def loss(self, federation: Sequence[int] | Ints) -> float:
        """Loss of client positions, summed in sorted order so that equal sets have equal losses."""
        return float(self.evaluate(self.sums(np.sort(np.asarray(federation, np.int64)))[None, :])[0])

    def evaluate(self, sums: Floats) -> Floats:
        """Loss of each summed row; a slower objective's answer is checked."""
        losses = np.asarray(self.objective.evaluate(sums), dtype=np.float64)
        if losses.shape != (len(sums),):
            raise FedwiseError(
                f"objective '{self.objective.name}' must return one loss for each summed row, got shape "
                f"{losses.shape} for {len(sums)} rows"
            )
        if np.isnan(losses).any():
            raise FedwiseError(f"objective '{self.objective.name}' returned NaN; give such a federation +inf")
        return losses

    def run(self, loop: Callable[..., T], *arguments: object) -> T:
        """Run a search loop over these rows: compiled where the objective is, else the same loop as Python.

        The loop is called with what it scores with, work space for that, the rows, and the other arguments.
        """
        if self.spec is not None:
            return loop(self.spec, np.empty((2, self.spec.scratch)), self.rows, *arguments)
        interpreted: Callable[..., T] = getattr(loop, "py_func", loop)
        return interpreted(PythonScorer(self.evaluate), np.empty((2, 0)), self.rows, *arguments)

    def swapped(self, sums: Floats, swaps: Ints) -> Floats:
        """Losses of `sums` after each swap: client ``swaps[i, 0]`` leaves, ``swaps[i, 1]`` joins."""
        if self.spec is not None:
            return losses_after(self.spec, sums, self.rows, swaps)
        return (
            self.evaluate(sums - self.rows[swaps[:, 0]] + self.rows[swaps[:, 1]])
            if len(swaps)
            else np.zeros(0)
        )

    def joined(self, base: Floats, candidates: Ints) -> Floats:
        """Losses of `base` plus each candidate."""
        if self.spec is not None:
            swaps = np.column_stack([np.full(len(candidates), NOBODY), candidates])
            return losses_after(self.spec, base, self.rows, swaps)
        return self.evaluate(base + self.rows[candidates])

    def dropped(self, sums: Floats, members: Ints) -> Floats:
        """Losses of `sums` without each member."""
        if self.spec is not None:
            swaps = np.column_stack([members, np.full(len(members), NOBODY)])
            return losses_after(self.spec, sums, self.rows, swaps)
        return self.evaluate(sums - self.rows[members])

    def along(self, paths: Ints) -> Floats:
        """Losses while the clients of each path join one by one. Shape (paths, k)."""
        if self.spec is None:
            return np.stack([self.evaluate(np.cumsum(self.rows[path], axis=0)) for path in paths])
        losses = np.empty(paths.shape)
        sums, nobody = np.zeros(self.width), np.zeros(self.width)
        path_losses(self.spec, np.empty((2, self.spec.scratch)), self.rows, paths, sums, nobody, losses)
        return losses
