"""Spending: what each client of a pool has given away, release by release."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from ..privacy.scales import gaussian_epsilon


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One release of a client.

    `epsilon` and `delta` are the promise after it, earlier stages of the same plan included; `mu` is the parameter
    of Gaussian DP that covers the same. `asked` is the ε of the plan it answers, where the owner allowed less, and
    `family` the digest of that plan.
    """

    plan: str
    stage: int
    epsilon: float
    delta: float
    mu: float
    asked: float | None = None
    family: str = ""


class Spending(msgspec.Struct, frozen=True):
    """All releases of one client that a pool holds, stage by stage."""

    client: str
    parts: tuple[Part, ...]

    @property
    def epsilon(self) -> float:
        """ε of all its releases together, at the largest of their δ.

        Stages of one plan are one promise, stated by the last. Releases of several plans compose as Gaussian DP.
        """
        last = self._last()
        if len(last) == 1:
            return last[0].epsilon
        return gaussian_epsilon(math.sqrt(math.fsum(part.mu**2 for part in last)), self.delta)

    @property
    def delta(self) -> float:
        """The largest δ among its releases."""
        return max(part.delta for part in self.parts)

    @property
    def stage(self) -> int:
        """The last stage that it answered."""
        return max(part.stage for part in self.parts)

    def _last(self) -> list[Part]:
        """The last stage of each plan; two answers to one stage are two releases."""
        families: dict[str, list[Part]] = {}
        for part in sorted(self.parts, key=lambda part: part.stage):
            families.setdefault(part.family or part.plan, []).append(part)
        found: list[Part] = []
        for parts in families.values():
            once = len({part.stage for part in parts}) == len(parts)
            found += parts[-1:] if once else parts
        return found


def mean_epsilon(spendings: Iterable[Spending]) -> float:
    """Mean ε over clients."""
    found = [spending.epsilon for spending in spendings]
    return math.fsum(found) / len(found) if found else 0.0
