"""Accounting: what the release and the training cost together, from one accountant.

The release is a Gaussian mechanism of parameter mu (`Plan.mu`), which is a Gaussian of noise multiplier
1/mu on all rows; DP-SGD is a Poisson-subsampled Gaussian at each step. `privacy.subsampled` composes both, for
the owner's ledger and here alike; tests hold it against Opacus' PRV accountant and dp-accounting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from ..errors import FedwiseError
from ..files import decode, shorten
from ..privacy.subsampled import epsilon

#: (noise multiplier, sampling rate, steps) of each mechanism.
History = tuple[tuple[float, float, int], ...]


class Cost(msgspec.Struct, frozen=True):
    """What one client has spent.

    `joint` is ε at `delta` = δ₁ + δ₂ from one accountant; `summed` is ε₁ + ε₂ at the same δ, the weaker
    statement. A client that was not selected has no training cost and keeps ε₁ at δ₁. `simulated` says that
    the noise of its training was drawn from a known seed: the numbers hold for noise nobody can repeat.
    """

    client: str
    selected: bool
    release: float
    training: float
    joint: float
    summed: float
    delta: float
    steps: int = 0
    simulated: bool = False


def compose(
    clients: Sequence[str],
    *,
    mu: float,
    release_epsilon: float,
    release_delta: float,
    training: dict[str, History],
    training_delta: float,
    trained_openly: Sequence[str] = (),
    simulated: bool = False,
) -> list[Cost]:
    """Cost of every client of a pool, selected or not.

    Parameters
    ----------
    mu, release_epsilon, release_delta
        The plan's Gaussian parameter and promise (mu 0 where there was no release).
    training
        Steps taken by each client that trained.
    training_delta
        δ₂ of the training promise.
    trained_openly
        Clients that trained without DP-SGD: the parameters they sent carry no promise.
    simulated
        Whether the noise of the training came from a seed.
    """
    released = math.inf if math.isinf(mu) else 0.0 if mu == 0 else release_epsilon
    out = []
    for client in clients:
        if client in trained_openly:
            out.append(Cost(client, True, released, math.inf, math.inf, math.inf, release_delta))
            continue
        steps = training.get(client, ())
        taken = sum(entry[2] for entry in steps)
        if not taken:
            out.append(Cost(client, client in training, released, 0.0, released, released, release_delta))
            continue
        trained = epsilon(steps, training_delta)
        delta = training_delta + (release_delta if mu > 0 else 0.0)
        if mu == 0:
            joint = trained
        elif math.isinf(released):
            joint = math.inf
        else:
            joint = min(epsilon(((1.0 / mu, 1.0, 1), *steps), delta), released + trained)
        summed = released + trained
        out.append(Cost(client, True, released, trained, joint, summed, delta, taken, simulated))
    return out


def encode_costs(costs: Sequence[Cost]) -> bytes:
    """JSON has no infinity: "inf"."""
    plain = [
        {name: "inf" if value == math.inf else value for name, value in msgspec.to_builtins(cost).items()}
        for cost in costs
    ]
    return msgspec.json.format(msgspec.json.encode(plain), indent=2) + b"\n"


def decode_costs(data: bytes, *, what: str) -> list[Cost]:
    """What `encode_costs` wrote, or version 0.1.0, which wrote null for infinity."""
    plain = decode(data, list[dict[str, Any]], what=what, error=FedwiseError)
    for cost in plain:
        cost.update({name: math.inf for name, value in cost.items() if value is None or value == "inf"})
    try:
        return msgspec.convert(plain, list[Cost])
    except msgspec.ValidationError as error:
        raise FedwiseError(f"{what} is not valid: {shorten(str(error))}") from None
