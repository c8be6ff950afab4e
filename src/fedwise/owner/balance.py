"""Balance: what a ledger's entries cost together, and what is left of the budget."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import msgspec

from ..privacy.scales import gaussian_epsilon, gaussian_mu
from ..privacy.subsampled import Steps
from ..privacy.subsampled import epsilon as compose_epsilon
from .entries import Entries


class Balance(msgspec.Struct, frozen=True):
    """What the owner allows, what is spent, what is left: all as ε at the owner's δ.

    `spent` is the joint ε of releases and private training, `releases` and `training` what each costs alone;
    `remaining` is what one more release may cost. `open_rounds` and `evaluations` left without noise: no ε
    covers them.
    """

    epsilon: float
    delta: float
    spent: float
    remaining: float
    charges: int
    releases: float = 0.0
    training: float = 0.0
    rounds: int = 0
    open_rounds: int = 0
    evaluations: int = 0


def squares(entries: Entries) -> float:
    """Σ μ² of all releases."""
    return math.fsum(mu * mu for mu, _, _ in entries.spent)


def private_steps(entries: Entries) -> list[Steps]:
    """What DP-SGD did; answers without noise are counted, not composed."""
    return [Steps(t.noise, t.rate, t.steps) for t in entries.training if t.kind == "private round"]


def cost(entries: Entries, delta: float) -> float:
    """ε at `delta` of all charges together.

    One release alone, or the stages of one plan, also cost no more than they promise: their μ must cover them
    at every δ, and may therefore say a little more than their ε does at its own.
    """
    spent, steps = entries.spent, private_steps(entries)
    if steps:
        return compose_epsilon(steps, delta, mu=math.sqrt(squares(entries)))
    if not spent:
        return 0.0
    together = gaussian_epsilon(math.sqrt(squares(entries)), delta)
    if _one_promise(entries) and spent[-1][2] <= delta:
        return min(together, spent[-1][1])
    return together


def _one_promise(entries: Entries) -> bool:
    """Whether all charges are one release, or stages of one plan: their ε are totals, and grow."""
    charges = entries.charges
    return len({(c.client, c.plan) for c in charges}) == 1 and all(
        a.epsilon < b.epsilon for a, b in pairwise(charges)
    )


def _remaining(entries: Entries, epsilon: float, delta: float) -> float:
    """ε of the largest release that still fits."""
    steps, used = private_steps(entries), squares(entries)
    if not steps and not entries.charges:
        return epsilon
    whole = gaussian_mu(epsilon, delta) ** 2
    if not steps:
        # Below the rounding of the conversions nothing is left: a fresh ledger of ε spent in one release.
        left = whole - used
        return gaussian_epsilon(math.sqrt(left), delta) if left > 1e-9 * whole else 0.0
    low, high = 0.0, max(whole - used, 0.0)
    if compose_epsilon(steps, delta, mu=math.sqrt(used)) > epsilon:
        return 0.0
    for _ in range(12):
        middle = (low + high) / 2
        fits = compose_epsilon(steps, delta, mu=math.sqrt(used + middle)) <= epsilon
        low, high = (middle, high) if fits else (low, middle)
    return gaussian_epsilon(math.sqrt(low), delta) if low > 1e-9 * whole else 0.0


def balance(epsilon: float, delta: float, entries: Entries) -> Balance:
    """The balance of a budget (ε, δ) after `entries`."""
    kinds = Counter(line.kind for line in entries.training)
    steps = private_steps(entries)
    return Balance(
        epsilon=epsilon,
        delta=delta,
        spent=cost(entries, delta),
        remaining=_remaining(entries, epsilon, delta),
        charges=len(entries.charges),
        releases=cost(entries._replace(training=[]), delta),
        training=compose_epsilon(steps, delta) if steps else 0.0,
        rounds=kinds["private round"],
        open_rounds=kinds["open round"],
        evaluations=kinds["evaluation"],
    )
