"""Private: DP-SGD at one client (Abadi et al. 2016), by Opacus.

The promise is per client and per record, for adding or removing one record: batches are drawn by Poisson
sampling, each row's gradient is clipped, Gaussian noise is added to every step, an empty batch included.
What the server learns beside the parameters (the number of rows, which sets the client's weight) is not
covered and counts as public.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import msgspec
import numpy as np

from ..errors import DataError, FedwiseError, MissingExtra
from .encoding import Rows
from .engines import one_thread
from .local import ClientState, Diverged, Instruction, Update
from .model import Model, Vector, import_torch


class Privacy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The promise of the training phase: (epsilon, delta) for the whole of it, and the clipping norm."""

    epsilon: float
    delta: float = 1e-5
    clip: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise FedwiseError(f"training epsilon must be a positive number, got {self.epsilon}")
        if not 0 < self.delta < 1:
            raise FedwiseError(f"training delta must be between 0 and 1, got {self.delta}")
        if not (math.isfinite(self.clip) and self.clip > 0):
            raise FedwiseError(f"clip must be a positive number, got {self.clip}")


def sampling(rows: int, batch: int, epochs: int) -> tuple[float, int]:
    """Poisson rate and steps of one local update: an epoch is ⌈rows / batch⌉ steps at rate batch / rows."""
    return min(1.0, batch / rows), epochs * math.ceil(rows / batch)


def private_update(
    model: Model,
    parameters: Vector,
    rows: Rows,
    *,
    instruction: Instruction,
    client: str,
    round: int,
    noise_multiplier: float,
    clip: float = 1.0,
    state: ClientState | None = None,
    seed: int | None = None,
) -> Update:
    """Train on one client's rows with DP-SGD.

    Parameters
    ----------
    noise_multiplier
        Standard deviation of the noise over the clipping norm (see `accounting.calibrate`).
    clip
        Largest norm of one row's gradient.
    seed
        For simulations only. In deployment leave it out: the operating system seeds sampling and noise.

    Returns
    -------
    Update
        Its ``privacy`` is (noise multiplier, sampling rate, steps), to be composed. Its loss is NaN: the
        loss on the rows is not covered by the promise and stays at the client.
    """
    if instruction.report:
        raise FedwiseError(
            "this strategy asks for exact sums by group, which DP-SGD does not cover; "
            "use fedavg, fedprox, scaffold or fedadam"
        )
    if len(rows) == 0:
        raise DataError(f"client '{client}' has no training rows; leave it out of the federation")
    torch = import_torch()
    try:
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer
    except ImportError:
        raise MissingExtra("private training", "train") from None
    settings, kept = instruction.settings, dict(state or {})
    rate, steps = sampling(len(rows), settings.batch, settings.epochs)
    entropy = None if seed is None else (seed, round, *client.encode())
    rng = np.random.default_rng(entropy)
    generator = torch.Generator()
    generator.manual_seed(int(rng.integers(2**63)))
    x: Any
    y: Any
    x, y = rows.tensors
    with one_thread(), warnings.catch_warnings():
        # Opacus warns that a seeded generator is not for production, and torch about backward hooks.
        warnings.simplefilter("ignore")
        module = GradSampleModule(model.module(parameters).train(), loss_reduction="mean")
        kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.SGD
        inner = kind(module.parameters(), lr=settings.lr)
        optimizer = DPOptimizer(
            inner,
            noise_multiplier=noise_multiplier,
            max_grad_norm=clip,
            expected_batch_size=max(1, round_half_up(rate * len(rows))),
            generator=generator,
        )
        learned = dict(module._module.named_parameters())
        anchor = {name: p.detach().clone() for name, p in learned.items()}
        shift, old = {}, None
        if instruction.control is not None:
            old = np.asarray(kept.get("control", np.zeros_like(instruction.control)))
            shift = {k: torch.from_numpy(v.copy()) for k, v in model.split(instruction.control - old).items()}
        summed = {name: torch.zeros_like(p) for name, p in learned.items()}
        for _ in range(steps):
            optimizer.zero_grad()
            chosen = torch.from_numpy(np.flatnonzero(rng.random(len(rows)) < rate))
            if len(chosen):
                losses = torch.nn.functional.binary_cross_entropy_with_logits(
                    module(x[chosen]).reshape(-1), y[chosen]
                )
                losses.backward()
            else:
                for p in module.parameters():
                    p.grad_sample = torch.zeros((0, *p.shape))
            if not optimizer.pre_step():
                continue
            with torch.no_grad():
                for name, p in learned.items():
                    # Everything below works on noisy gradients only: post-processing.
                    summed[name] += p.grad
                    if shift:
                        p.grad += shift[name]
                    if settings.mu:
                        p.grad += settings.mu * (p - anchor[name])
            inner.step()
    trained = model.flatten(module._module.state_dict())
    if not np.isfinite(trained).all():
        raise Diverged(client, round)
    change = None
    if old is not None:
        fresh = model.flatten(summed) / np.float32(steps)
        change = fresh - old
        kept["control"] = fresh
    return Update(
        client, trained, len(rows), math.nan, steps, kept, change, privacy=(noise_multiplier, rate, steps)
    )


def round_half_up(value: float) -> int:
    """Nearest whole number, halves up."""
    return math.floor(value + 0.5)
