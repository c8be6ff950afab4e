"""Engines: the loop over batches, once by kernels and once by autograd. Same arguments, same answer."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import kernels
from .encoding import Rows
from .model import Model, Vector, import_torch
from .task import Task

if TYPE_CHECKING:
    from .local import LocalSettings

_EMPTY = np.zeros(0, dtype=np.float32)
#: Parameters, mean loss met on the way, steps, and the sum of the plain gradients (where asked).
Trained = tuple[Vector, float, int, Vector]


@contextmanager
def one_thread() -> Iterator[None]:
    """Small matrices: torch's threads cost more than they bring, and independent runs share the cores."""
    torch = import_torch()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fast(
    model: Model,
    parameters: Vector,
    rows: Rows,
    settings: LocalSettings,
    weight: Vector,
    shift: Vector | None,
    state: dict[str, npt.NDArray[Any]],
    passes: list[npt.NDArray[np.int64]],
) -> Trained:
    """Train by the kernels; built-in networks only. Updates `state` where moments are carried."""
    theta = parameters[model.to_kernel]
    anchor = theta.copy()
    turned = _EMPTY if shift is None else shift[model.to_kernel]
    summed = _EMPTY if shift is None else np.zeros_like(theta)
    kept = settings.carry and "first" in state
    first = state["first"][model.to_kernel] if kept else np.zeros_like(theta)
    second = state["second"][model.to_kernel] if kept else np.zeros_like(theta)
    before = int(state["taken"][0]) if kept else 0
    taken, total = before, 0.0
    for order in passes:
        loss, taken = kernels.train(
            theta, first, second, taken, model.sizes, model.offsets, rows.hot, rows.dense, rows.dense_at, rows.y,
            weight, order, settings.batch, settings.optimizer == "adam", settings.lr, settings.mu, anchor, turned,
            summed, model.task.code,
        )  # fmt: skip
        total += loss
    if settings.carry and settings.optimizer == "adam":
        state.update(
            first=first[model.from_kernel],
            second=second[model.from_kernel],
            taken=np.array([taken], dtype=np.int64),
        )
    gradient = summed[model.from_kernel] if summed.size else _EMPTY
    return theta[model.from_kernel], total / (len(rows) * len(passes)), taken - before, gradient


def torch_losses(task: Task, scores: Any, y: Any) -> Any:
    """As `Task.losses`, for tensors with a gradient."""
    functional = import_torch().nn.functional
    if task.kind == "binary":
        return functional.binary_cross_entropy_with_logits(scores.reshape(-1), y, reduction="none")
    if task.kind == "number":
        return 0.5 * (scores.reshape(-1) - y) ** 2
    return functional.cross_entropy(scores, y.long(), reduction="none")


def by_torch(
    model: Model,
    parameters: Vector,
    rows: Rows,
    settings: LocalSettings,
    weight: Vector,
    shift: Vector | None,
    state: dict[str, npt.NDArray[Any]],
    passes: list[npt.NDArray[np.int64]],
) -> Trained:
    """Train by autograd; any module. The reference the kernels are tested against."""
    torch = import_torch()
    module = model.module(parameters).train()
    learned = dict(module.named_parameters())
    x: Any
    y: Any
    x, y = rows.tensors
    rate = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.SGD
    optimizer = rate(module.parameters(), lr=settings.lr)
    steps = 0
    if settings.carry and "first" in state:
        _load_moments(model, optimizer, learned, state)
    anchor = {name: p.detach().clone() for name, p in learned.items()} if settings.mu else {}
    moved = {} if shift is None else {k: torch.from_numpy(v.copy()) for k, v in model.split(shift).items()}
    summed = {name: torch.zeros_like(p) for name, p in learned.items()} if moved else {}
    weights = torch.from_numpy(weight) if weight.size else None
    total = 0.0
    with one_thread(), torch.random.fork_rng(devices=[]):
        # Dropout and the like draw from a stream fixed by the order of rows, hence by seed and round.
        torch.manual_seed(int.from_bytes(hashlib.sha256(passes[0].tobytes()).digest()[:7], "big"))
        for order in passes:
            for chosen in torch.from_numpy(order).split(settings.batch):
                optimizer.zero_grad(set_to_none=True)
                losses = torch_losses(model.task, module(x[chosen]), y[chosen])
                if weights is not None:
                    losses = losses * weights[chosen]
                losses.mean().backward()
                total += float(losses.detach().sum())
                if not math.isfinite(total):
                    return parameters, math.nan, steps, _EMPTY
                with torch.no_grad():
                    for name, p in learned.items():
                        if p.grad is None:
                            continue
                        if moved:
                            summed[name] += p.grad
                            p.grad += moved[name]
                        if settings.mu:
                            p.grad += settings.mu * (p - anchor[name])
                optimizer.step()
                steps += 1
    if settings.carry and settings.optimizer == "adam":
        _save_moments(model, optimizer, learned, state)
    zeros = {name: np.zeros(shape, np.float32) for name, shape in zip(model.names, model.shapes, strict=True)}
    gradient = model.flatten({**zeros, **summed}) if moved else _EMPTY
    return model.flatten(module.state_dict()), total / (len(rows) * len(passes)), steps, gradient


def _load_moments(
    model: Model, optimizer: Any, learned: dict[str, Any], state: Mapping[str, npt.NDArray[Any]]
) -> None:
    torch = import_torch()
    first, second = model.split(state["first"]), model.split(state["second"])
    for name, p in learned.items():
        optimizer.state[p] = {
            "step": torch.tensor(float(state["taken"][0])),
            "exp_avg": torch.from_numpy(first[name].copy()),
            "exp_avg_sq": torch.from_numpy(second[name].copy()),
        }


def _save_moments(
    model: Model, optimizer: Any, learned: dict[str, Any], state: dict[str, npt.NDArray[Any]]
) -> None:
    zeros = {name: np.zeros(shape, np.float32) for name, shape in zip(model.names, model.shapes, strict=True)}
    moments = {name: optimizer.state[p] for name, p in learned.items()}
    state["first"] = model.flatten({**zeros, **{name: m["exp_avg"] for name, m in moments.items()}})
    state["second"] = model.flatten({**zeros, **{name: m["exp_avg_sq"] for name, m in moments.items()}})
    state["taken"] = np.array([max((int(m["step"]) for m in moments.values()), default=0)], dtype=np.int64)
