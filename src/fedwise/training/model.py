"""Model: what is trained. The paper's network, logistic regression, or a module the user brings.

Between clients, server and files a model is one flat float32 vector: its arrays in the order and layout
of torch's ``state_dict``, one after the other. Aggregation is then plain arithmetic on vectors.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError, MissingExtra, nearest
from .task import BINARY, Task

#: Parameters of a model: flat, float32.
Vector = npt.NDArray[np.float32]

_HIDDEN = {"mlp": (32, 32, 32), "logistic": ()}


def import_torch() -> Any:
    """torch, or an error that says how to install it."""
    try:
        import torch
    except ImportError:
        raise MissingExtra("training", "train") from None
    return torch


def check_extra(*, private: bool = False) -> None:
    """Refuse to start what would end in a missing package: all of the extra is looked for first."""
    needed = (
        "fairlearn",
        "safetensors",
        "sklearn",
        "torch",
        *(("cryptography", "opacus") if private else ()),
    )
    if any(importlib.util.find_spec(name) is None for name in needed):
        raise MissingExtra("training", "train")


@dataclass(frozen=True)
class Model:
    """A network with one score out, or one for each class.

    Parameters
    ----------
    inputs
        Number of inputs (`Encoder.width`).
    hidden
        Widths of the ReLU layers: (32, 32, 32) is the paper's, () is logistic regression.
    factory
        Makes a ``torch.nn.Module`` from the number of inputs; replaces `hidden`. The module maps
        (rows, inputs) to (rows,) or (rows, 1) logits, or to (rows, classes).
    task
        What is told: two classes, more, or a number.
    """

    inputs: int
    hidden: tuple[int, ...] = (32, 32, 32)
    factory: Callable[[int], Any] | None = None
    task: Task = BINARY

    def __post_init__(self) -> None:
        if self.inputs < 1 or any(width < 1 for width in self.hidden):
            raise FedwiseError(
                f"model must have at least one input and one unit a layer, got {self.inputs} and {self.hidden}"
            )

    @classmethod
    def named(cls, name: str, inputs: int, task: Task = BINARY) -> Model:
        """``mlp``, ``logistic``, or widths such as ``64-32``."""
        if name in _HIDDEN:
            return cls(inputs, _HIDDEN[name], task=task)
        try:
            return cls(inputs, tuple(int(width) for width in name.split("-")), task=task)
        except ValueError:
            raise FedwiseError(
                f"model must be mlp, logistic or widths such as 64-32, got '{name}'{nearest(name, _HIDDEN)}"
            ) from None

    @property
    def additive(self) -> bool:
        """Whether a score is a sum over the inputs, so that inputs cannot act together."""
        return self.factory is None and not self.hidden

    @property
    def built_in(self) -> bool:
        """Whether the fast engine can train it."""
        return self.factory is None

    @cached_property
    def _arrays(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of each array, in travel order."""
        if self.factory is not None:
            return {k: tuple(v.shape) for k, v in self.module().state_dict().items() if v.is_floating_point()}
        sizes = self.sizes.tolist()
        arrays: dict[str, tuple[int, ...]] = {}
        for layer, (n_in, n_out) in enumerate(pairwise(sizes)):
            arrays[f"{2 * layer}.weight"] = (n_out, n_in)
            arrays[f"{2 * layer}.bias"] = (n_out,)
        return arrays

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arrays, as in ``state_dict``."""
        return tuple(self._arrays)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the arrays."""
        return tuple(self._arrays.values())

    @property
    def size(self) -> int:
        """Length of the parameter vector."""
        return sum(prod(shape) for shape in self.shapes)

    def initial(self, seed: int) -> Vector:
        """He-uniform weights, W ~ U(±√(6 / inputs of the layer)), zero biases; a module's own start otherwise."""
        if self.factory is not None:
            torch = import_torch()
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                return self.flatten(self.module().state_dict())
        rng = np.random.default_rng((seed, 0x1217))
        parts = []
        for shape in self.shapes:
            if len(shape) == 2:
                bound = sqrt(6.0 / shape[1])
                parts.append(rng.uniform(-bound, bound, size=prod(shape)).astype(np.float32))
            else:
                parts.append(np.zeros(shape, dtype=np.float32))
        return np.concatenate(parts)

    def split(self, vector: Vector) -> dict[str, npt.NDArray[np.float32]]:
        """The vector as named arrays (views)."""
        if vector.shape != (self.size,):
            raise FedwiseError(
                f"parameters must be a vector of {self.size} numbers, got shape {vector.shape}"
            )
        out, at = {}, 0
        for name, shape in self._arrays.items():
            out[name] = vector[at : at + prod(shape)].reshape(shape)
            at += prod(shape)
        return out

    def flatten(self, arrays: Mapping[str, Any]) -> Vector:
        """Named arrays (numpy or torch) as one vector; the inverse of `split`."""
        parts = []
        for name, shape in self._arrays.items():
            if name not in arrays:
                raise FedwiseError(f"parameters must hold the array '{name}'{nearest(name, arrays)}")
            array = np.asarray(arrays[name], dtype=np.float32)
            if array.shape != shape:
                raise FedwiseError(f"array '{name}' must have shape {shape}, got {array.shape}")
            parts.append(array.ravel())
        return np.concatenate(parts)

    def module(self, vector: Vector | None = None) -> Any:
        """The torch module, with the parameters of `vector` where given."""
        torch = import_torch()
        if self.factory is not None:
            module = self.factory(self.inputs)
        else:
            layers: list[Any] = []
            sizes = self.sizes.tolist()
            for n_in, n_out in pairwise(sizes):
                layers += [torch.nn.Linear(n_in, n_out), torch.nn.ReLU()]
            module = torch.nn.Sequential(*layers[:-1])
        if vector is not None:
            arrays = {name: torch.from_numpy(array.copy()) for name, array in self.split(vector).items()}
            module.load_state_dict({**module.state_dict(), **arrays})
        return module

    @cached_property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Widths of all layers of a built-in network, inputs first and the scores last."""
        return np.array([self.inputs, *self.hidden, self.task.outputs], dtype=np.int64)

    @cached_property
    def offsets(self) -> npt.NDArray[np.int64]:
        """First number of each layer in the kernels' vector."""
        steps = (self.sizes[:-1] + 1) * self.sizes[1:]
        return np.concatenate([[0], np.cumsum(steps)]).astype(np.int64)

    @cached_property
    def to_kernel(self) -> npt.NDArray[np.int64]:
        """``vector[to_kernel]`` is the kernels' vector: each weight matrix turned to (inputs, outputs)."""
        parts, at = [], 0
        for shape in self.shapes:
            index = np.arange(at, at + prod(shape)).reshape(shape)
            parts.append(index.T.ravel())
            at += prod(shape)
        return np.concatenate(parts)

    @cached_property
    def from_kernel(self) -> npt.NDArray[np.int64]:
        """The inverse permutation of `to_kernel`."""
        return np.argsort(self.to_kernel)
