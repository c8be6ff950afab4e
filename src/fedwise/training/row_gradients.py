"""Row gradients: the clipped sum of single rows' gradients on a grid, for built-in networks and for modules.

The grid has steps of clip / `UNIT`. A row's clipped gradient is cut toward zero onto it, so its norm stays
at most `UNIT` steps, and the sum over rows is exact integer arithmetic: adding or removing one record moves
it by a vector of norm at most `UNIT`, whatever floating point did before.
"""

from __future__ import annotations

import warnings
from math import prod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import MissingExtra
from . import row_kernels
from .encoding import Rows
from .engines import torch_losses
from .model import Model, Vector, import_torch

Ints = npt.NDArray[np.int64]

#: Steps of the grid in the clipping norm. The noise is then 2²⁰ times its multiplier of them.
UNIT = 2**20
#: Taken off each row's scale so that an error of the norm in double precision never reaches the grid.
_MARGIN = 1.0 - 2.0**-30
#: Rows whose gradients are held at once for a module.
_BLOCK = 256


class RowGradients(Protocol):
    """Clipped sums of row gradients, over the trained parameters in an order of the engine's own."""

    def own(self, vector: Vector) -> Vector:
        """A vector in travel order, as the engine's."""

    def travel(self, own: Vector, rest: Vector) -> Vector:
        """The engine's vector in travel order; what is not trained is taken from `rest`."""

    def clipped_sum(self, theta: Vector, chosen: Ints, clip: float) -> Ints:
        """Sum over the chosen rows, in steps of clip / `UNIT`."""


class NetworkGradients:
    """Built-in networks, by kernels: a row's part depends on the row and the parameters only."""

    def __init__(self, model: Model, rows: Rows) -> None:
        self.model, self.rows = model, rows

    def own(self, vector: Vector) -> Vector:
        """As the kernels lay it out."""
        return vector[self.model.to_kernel]

    def travel(self, own: Vector, rest: Vector) -> Vector:
        """All parameters of a built-in network are trained."""
        return own[self.model.from_kernel]

    def clipped_sum(self, theta: Vector, chosen: Ints, clip: float) -> Ints:
        """Sum over the chosen rows."""
        model, rows = self.model, self.rows
        total = np.zeros(model.size, dtype=np.int64)
        row_kernels.clipped_sum(
            theta, model.sizes, model.offsets, rows.hot, rows.dense, rows.dense_at, rows.y, chosen, clip, UNIT,
            _MARGIN, total, model.task.code,
        )  # fmt: skip
        return total


class ModuleGradients:
    """A module of the user's own, by Opacus' hooks.

    torch may round a row's gradient differently in batches of different sizes (some 2⁻²² of it). Such a
    change in the parts of *other* rows is not covered by the grid.
    """

    def __init__(self, model: Model, parameters: Vector, rows: Rows) -> None:
        try:
            from opacus import GradSampleModule
        except ImportError:
            raise MissingExtra("private training", "train") from None
        self.model, self.rows = model, rows
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about backward hooks
            self.module: Any = GradSampleModule(model.module(parameters).train(), loss_reduction="sum")
        inner, places = self.module._module, positions(model)
        self.learned = {name: p for name, p in inner.named_parameters() if p.requires_grad}
        at = [places[name] for name in self.learned]
        self.at = np.concatenate(at) if at else np.zeros(0, dtype=np.int64)
        # A parameter that two layers share travels under both names.
        names = {id(p): name for name, p in self.learned.items()}
        self.shared = [
            (places[name], places[names[id(p)]])
            for name, p in inner.named_parameters(remove_duplicate=False)
            if id(p) in names and names[id(p)] != name
        ]

    def own(self, vector: Vector) -> Vector:
        """The trained parameters."""
        return vector[self.at]

    def travel(self, own: Vector, rest: Vector) -> Vector:
        """The trained parameters among the others."""
        out = rest.copy()
        out[self.at] = own
        for copy, original in self.shared:
            out[copy] = out[original]
        return out

    def clipped_sum(self, theta: Vector, chosen: Ints, clip: float) -> Ints:
        """Sum over the chosen rows."""
        torch = import_torch()
        x: Any
        y: Any
        x, y = self.rows.tensors
        total = np.zeros(len(theta), dtype=np.int64)
        with torch.no_grad():
            at = 0
            for p in self.learned.values():
                p.copy_(torch.from_numpy(theta[at : at + p.numel()].reshape(p.shape)))
                at += p.numel()
        for block in torch.from_numpy(chosen).split(_BLOCK):
            if not len(block):
                continue
            for p in self.learned.values():
                p.grad = p.grad_sample = None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch_losses(self.model.task, self.module(x[block]), y[block]).sum().backward()
            row_kernels.clipped_rows(self._gradients(len(block)), clip, UNIT, _MARGIN, total)
        return total

    def _gradients(self, count: int) -> npt.NDArray[np.float32]:
        """Gradients of the rows last seen, shape (count, trained parameters); zero where one took no part."""
        torch = import_torch()
        parts = [
            torch.zeros((count, p.numel())) if p.grad_sample is None else p.grad_sample.reshape(count, -1)
            for p in self.learned.values()
        ]
        found: npt.NDArray[np.float32] = torch.cat(parts, dim=1).detach().float().numpy()
        return found


def positions(model: Model) -> dict[str, Ints]:
    """Where each array of the model lies in its vector."""
    out, at = {}, 0
    for name, shape in zip(model.names, model.shapes, strict=True):
        out[name] = np.arange(at, at + prod(shape))
        at += prod(shape)
    return out


def row_gradients(model: Model, parameters: Vector, rows: Rows) -> RowGradients:
    """The engine for a model."""
    if model.built_in:
        return NetworkGradients(model, rows)
    return ModuleGradients(model, parameters, rows)
