"""Accounting: what the release and the training cost together, from one accountant.

The release is a Gaussian mechanism of parameter mu (`Plan.mu`), which is a Gaussian of noise multiplier
1/mu on all rows; DP-SGD is a Poisson-subsampled Gaussian at each step. Opacus' PRV accountant (Gopi, Lee,
Wutschitz 2021) composes both, and its answer is an upper bound within `ERROR` of the true one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
from scipy.optimize import brentq

from ..errors import FedwiseError, MissingExtra
from ..files import decode, shorten
from ..privacy.scales import gaussian_delta

#: (noise multiplier, sampling rate, steps) of each mechanism.
History = tuple[tuple[float, float, int], ...]
#: Largest error of a printed ε, as a share of it; the accountant's own default is 0.01 in absolute terms.
ERROR = 0.004


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


def epsilon(history: Sequence[tuple[float, float, int]], delta: float) -> float:
    """ε of the composed mechanisms at `delta`, by Opacus' PRV accountant."""
    done = tuple(entry for entry in history if entry[2] > 0)
    if not done:
        return 0.0
    if any(entry[0] <= 0 for entry in done):
        return math.inf
    return _epsilon(tuple((float(s), float(q), int(n)) for s, q, n in done), float(delta))


@lru_cache(maxsize=4096)
def _epsilon(history: History, delta: float) -> float:
    found = _opacus(history, delta, 0.01)
    return found if ERROR * found >= 0.01 else _opacus(history, delta, max(ERROR * found, 1e-4))


def _opacus(history: History, delta: float, error: float) -> float:
    try:
        from opacus.accountants import PRVAccountant
    except ImportError:
        raise MissingExtra("privacy accounting of training", "train") from None
    accountant = PRVAccountant()
    accountant.history = list(history)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(accountant.get_epsilon(delta, eps_error=error))


@lru_cache(maxsize=1024)
def calibrate(target: float, delta: float, rate: float, steps: int) -> float:
    """Noise multiplier whose ε after `steps` steps at `rate` is at most `target`, and within 1% of it.

    ε falls smoothly with the multiplier, about as a power of it, so secant steps on logarithms find it in a
    few evaluations; what is returned has been checked against the target.
    """
    if not (math.isfinite(target) and target > 0 and 0 < rate <= 1 and steps > 0):
        raise FedwiseError(f"training epsilon must be a positive number, got {target}")
    error = min(0.01, max(ERROR * target, 1e-4))

    def excess(sigma: float) -> float:
        return math.log(_opacus(((sigma, rate, steps),), delta, error) / (target * (1 - ERROR)))

    sigma = _guess(target, delta, rate, steps)
    before, slope, best = (0.0, 0.0), -1.5, math.inf
    for _ in range(20):
        if sigma > 1e5:
            raise FedwiseError(f"training epsilon {target} needs more noise than can train; raise it")
        at = excess(sigma)
        if at <= 0:
            best = min(best, sigma)
        if -ERROR <= at <= 0 or best < sigma:
            break
        if before[0]:
            slope = min((at - before[1]) / math.log(sigma / before[0]), -0.2)
        before = sigma, at
        # Aim at the middle of the accepted band, and never jump by more than a factor of four.
        sigma *= math.exp(min(max(-(at + ERROR / 2) / slope, -1.4), 1.4))
    if math.isinf(best):
        raise FedwiseError(f"training epsilon {target} cannot be calibrated; choose another")
    return best


def _guess(target: float, delta: float, rate: float, steps: int) -> float:
    """Multiplier by the central limit of Gaussian differential privacy (Bu, Dong, Long, Su 2020).

    mu = rate · √(steps · (e^(1/σ²) − 1)), or √steps / σ at rate 1: a start, checked later.
    """
    if gaussian_delta(1e-6, target) >= delta:
        raise FedwiseError(f"training epsilon {target} needs more noise than can train; raise it")
    mu = float(brentq(lambda m: gaussian_delta(m, target) - delta, 1e-6, 1e3))
    if rate == 1.0:
        return math.sqrt(steps) / mu
    return max(0.2, 1.0 / math.sqrt(math.log1p(mu**2 / (rate**2 * steps))))


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
