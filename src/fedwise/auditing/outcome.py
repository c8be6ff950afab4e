"""Outcome of an audit: plain values, as ``audit.json`` keeps them."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from .rates import tpr_at, tpr_theory

Floats = npt.NDArray[np.float64]
Verdict = Literal["holds", "BROKEN", "not checked"]


class Roc(msgspec.Struct, frozen=True):
    """True positive rates at chosen false positive rates, measured and in theory."""

    fpr: list[float]
    tpr: list[float]
    theory: list[float]

    @classmethod
    def of(cls, inside: Floats, outside: Floats, mu: Floats) -> Roc:
        """From the scores of an attack, and the μ that theory gives it (`rates.tpr_theory`)."""
        rates = np.logspace(-3, 0, 31)
        return cls(
            fpr=rates.tolist(),
            tpr=tpr_at(inside, outside, rates).tolist(),
            theory=[tpr_theory(mu, float(rate)) for rate in rates],
        )


class Mode(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of canary showed.

    `mu` is the measured Gaussian-DP parameter of one record; `mu_lower_bound` and `mu_lower_bound_auc` are what it
    exceeds, from the means of the scores and from the AUC. `smallest_detectable` is the factor by which noise
    must be too small for `mu_lower_bound` to exceed the promise in 90% of audits. The bound on ε assumes nothing
    and is given for single records only. Where a table has so little noise that scores are not normal, both bounds
    are the one from the AUC, and the factor is not known.
    """

    name: str
    copies: int
    auc: float
    auc_theory: float
    mu: float
    mu_lower_bound: float
    mu_lower_bound_auc: float
    epsilon_lower_bound: float | None
    smallest_detectable: float | None


class Check(msgspec.Struct, frozen=True):
    """One question to the releases, its answer in a sentence, and its p-value where it is a statistical one."""

    name: str
    verdict: Verdict
    says: str
    p_value: float | None = None


class Audit(msgspec.Struct, frozen=True):
    """Outcome of an audit.

    `least_noise` is the smallest variance of the noise seen on any table, relative to the plan's. `ok` means
    that nothing contradicts the promise: for the attack ``release`` all `checks`, otherwise the variance, the
    bound on ε and the AUC. AUC, ROC and TPR of ``release`` are those of its first canary, a single record.

    `mu_lower_bound` is a bound on Gaussian DP with power at small ε, `epsilon_of_mu` the ε it makes at δ;
    `epsilon_lower_bound` assumes nothing, and has next to no power at ε ≤ 2. `smallest_detectable` is the factor by
    which noise must be too small for `mu_lower_bound` to exceed `mu_promised` in 90% of audits like this. `findings`
    says what is broken, a sentence each.
    """

    attack: str
    epsilon: float | Literal["inf"]
    delta: float
    trials: int
    auc: float
    auc_std_error: float
    auc_theory: float
    tpr_at_1_percent: float
    tpr_theory: float
    epsilon_lower_bound: float
    confidence: float
    least_noise: float
    ok: bool
    roc: Roc
    mu_promised: float | None = None
    mu_lower_bound: float | None = None
    epsilon_of_mu: float | None = None
    smallest_detectable: float | None = None
    worst_mode: str | None = None
    modes: list[Mode] = []
    checks: list[Check] = []
    rows: int | None = None
    releases: int = 0
    releases_per_second: float | None = None
    findings: list[str] = []
