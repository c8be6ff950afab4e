"""Local: one client's update. Pure: parameters and state in, parameters, state and metrics out.

Nothing here knows how messages travel: the in-process simulation and Flower call the same function.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import CheckFailed, DataError, FedwiseError
from . import engines, kernels
from .encoding import Rows
from .engines import one_thread
from .model import Model, Vector, import_torch
from .task import log_losses as log_losses

Engine = Literal["auto", "fast", "torch"]
#: What a client remembers from round to round: optimiser moments (when carried), its control variate.
ClientState = Mapping[str, npt.NDArray[Any]]

_EMPTY = np.zeros(0, dtype=np.float32)


class Diverged(CheckFailed):
    """A client's loss or parameters stopped being finite."""

    def __init__(self, client: str, round: int) -> None:
        super().__init__(
            f"training diverged in round {round} at client '{client}': its loss is not a finite number; "
            "lower the learning rate or inspect that client's data"
        )
        self.client = client
        self.round = round


class LocalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a client trains. The defaults are the paper's.

    `carry` keeps Adam's moments at the client between rounds; by default every round starts a fresh
    optimiser, as the averaged parameters are a new starting point.
    """

    optimizer: Literal["adam", "sgd"] = "adam"
    lr: float = 1e-4
    batch: int = 32
    epochs: int = 1
    mu: float = 0.0
    carry: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise FedwiseError(f"lr must be a positive number, got {self.lr}")
        if self.batch < 1 or self.epochs < 1:
            raise FedwiseError(f"batch and epochs must be at least 1, got {self.batch} and {self.epochs}")
        if not (math.isfinite(self.mu) and self.mu >= 0):
            raise FedwiseError(f"mu must be a number of at least 0, got {self.mu}")


@dataclass(frozen=True, eq=False)
class Instruction:
    """What the server asks of every participant of a round, beside the parameters.

    Parameters
    ----------
    settings
        How to train.
    control
        SCAFFOLD's server control variate c; a step then follows gradient + c − c_i.
    cell_weights
        Shape (2, groups): weight of a row's loss by target and group of `attribute` (FedFB).
    attribute
        Which sensitive attribute `cell_weights` and the report speak of.
    report
        Whether to evaluate the *received* parameters on the training rows first.
    trained
        Whether the report is about the parameters after training instead (FADE).
    """

    settings: LocalSettings
    control: Vector | None = None
    cell_weights: npt.NDArray[np.float64] | None = None
    attribute: int = 0
    report: bool = False
    trained: bool = False


@dataclass(frozen=True, eq=False)
class GroupSums:
    """The received (or the trained) parameters on a client's training rows: sums by target and group.

    `counts` has shape (2, groups, 2): rows by target, group and prediction. `losses` has shape
    (2, groups): summed log loss. These are exact: in deployment they need secure aggregation.
    """

    counts: npt.NDArray[np.int64]
    losses: npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Update:
    """A client's answer: its parameters, the rows they were trained on, and what it remembers.

    `loss` is the mean log loss met while training; `control_change` is c_i's change under SCAFFOLD. A
    `simulated` update has a `privacy` that holds for the distribution only: a seed decided its noise.
    """

    client: str
    parameters: Vector
    rows: int
    loss: float
    steps: int
    state: ClientState = field(default_factory=dict)
    control_change: Vector | None = None
    report: GroupSums | None = None
    privacy: tuple[float, float, int] | None = None
    simulated: bool = False


def orders(rows: int, epochs: int, *, seed: int, round: int) -> list[npt.NDArray[np.int64]]:
    """The order of rows in each epoch: a function of the seed, the round and the number of rows only.

    It does not depend on the client's name or on who else takes part, so copies of a client train alike
    and neither the order of execution nor the process matters.
    """
    rng = np.random.default_rng((seed, round, 0x5AFE))
    return [rng.permutation(rows).astype(np.int64) for _ in range(epochs)]


def resolve(model: Model, engine: Engine) -> Literal["fast", "torch"]:
    """``auto`` is the fast engine for built-in models, torch for modules."""
    if engine == "auto":
        return "fast" if model.built_in else "torch"
    if engine == "fast" and not model.built_in:
        raise FedwiseError("engine must be torch for a module of your own, got fast; use engine='auto'")
    return engine


def local_update(
    model: Model,
    parameters: Vector,
    rows: Rows,
    *,
    instruction: Instruction,
    client: str,
    seed: int,
    round: int,
    state: ClientState | None = None,
    engine: Engine = "auto",
) -> Update:
    """Train on one client's rows, starting from the server's parameters.

    Raises
    ------
    Diverged
        The loss or the parameters are no longer finite.
    DataError
        The client has no rows.
    """
    if len(rows) == 0:
        raise DataError(f"client '{client}' has no training rows; leave it out of the federation")
    settings, state = instruction.settings, dict(state or {})
    weight = _EMPTY
    if instruction.cell_weights is not None:
        weight = _row_weights(rows, instruction.cell_weights, instruction.attribute)
    report = None
    if instruction.report and not instruction.trained:
        report = sum_groups(rows, predict(model, parameters, rows, engine=engine), instruction.attribute)
    shift, old = None, None
    if instruction.control is not None:
        old = np.asarray(state.get("control", np.zeros_like(instruction.control)))
        shift = instruction.control - old
    run = engines.fast if resolve(model, engine) == "fast" else engines.by_torch
    passes = orders(len(rows), settings.epochs, seed=seed, round=round)
    trained, loss, steps, summed = run(model, parameters, rows, settings, weight, shift, state, passes)
    if not (math.isfinite(loss) and np.isfinite(trained).all()):
        raise Diverged(client, round)
    if instruction.report and instruction.trained:
        report = sum_groups(rows, predict(model, trained, rows, engine=engine), instruction.attribute)
    change = None
    if old is not None:
        # Option II of SCAFFOLD, c_i⁺ = c_i − c + (x − y)/(K·lr), is the mean of the plain gradients met on
        # the way. Written so, it holds for any optimiser.
        fresh = (summed / np.float32(steps)).astype(np.float32)
        change = fresh - old
        state["control"] = fresh
    return Update(client, trained, len(rows), loss, steps, state, change, report)


def _row_weights(rows: Rows, cells: npt.NDArray[np.float64], attribute: int) -> Vector:
    """Weight of each row by target and group; a group the server has not met yet weighs 1."""
    group = rows.groups[attribute].astype(np.int64)
    wide = np.ones((2, max(cells.shape[1], int(group.max(initial=0)) + 1)))
    wide[:, : cells.shape[1]] = cells
    picked: Vector = wide[rows.y.astype(np.int64), group].astype(np.float32)
    return picked


def predict(model: Model, parameters: Vector, rows: Rows, *, engine: Engine = "auto") -> Vector:
    """Scores of all rows: shape (rows,), or (rows, classes) where there are more than two."""
    shape = (len(rows), model.task.outputs) if model.task.kind == "classes" else (len(rows),)
    if resolve(model, engine) == "fast":
        out = np.empty((len(rows), model.task.outputs), dtype=np.float32)
        theta = parameters[model.to_kernel]
        kernels.logits(theta, model.sizes, model.offsets, rows.hot, rows.dense, rows.dense_at, out)
        return out.reshape(shape)
    torch = import_torch()
    module = model.module(parameters).eval()
    x: Any = rows.tensors[0]
    with one_thread(), torch.no_grad():
        parts = [module(x[at : at + 8192]).reshape(-1).numpy() for at in range(0, len(rows), 8192)]
    flat = np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32)
    if flat.size != len(rows) * model.task.outputs:
        raise FedwiseError(
            f"module must give each row {model.task.outputs} scores, got {flat.size} for {len(rows)} rows; "
            "change its last layer"
        )
    return flat.reshape(shape)


def sum_groups(rows: Rows, logits: Vector, attribute: int) -> GroupSums:
    """Sums of the predictions by target and group."""
    if rows.groups.shape[0] <= attribute:
        raise FedwiseError("fairness-aware strategies need a sensitive column; declare one in the schema")
    y, group = rows.y.astype(np.int64), rows.groups[attribute].astype(np.int64)
    groups = int(group.max(initial=0)) + 1
    cell = y * groups + group
    counts = np.bincount(cell * 2 + (logits > 0), minlength=4 * groups).reshape(2, groups, 2)
    losses = np.bincount(cell, weights=log_losses(logits, rows.y), minlength=2 * groups).reshape(2, groups)
    return GroupSums(counts.astype(np.int64), losses.astype(np.float64))
