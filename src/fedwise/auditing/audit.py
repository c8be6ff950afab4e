"""Audit: the strongest membership attack on a release.

The attacker knows every record but one, the target, and wants to know whether it is in the data. The
target touches one cell of each table; the noise of all other cells is independent of it and tells
nothing. By Neyman and Pearson the best score is the log likelihood ratio of those cells,

    Λ = Σ_j (noisy_j − count_without_target_j − ½) / σ_j²,

and theory gives its power exactly: with μ² = Σ_j 1/σ_j² over the m tables observed,

    AUC = Φ(μ/√2),    TPR at FPR f = Φ(Φ⁻¹(f) + μ).

An attacker who sees one table drawn at random faces a mixture over tables, for which the same follows
from Λ ~ N(±μ_j²/2, μ_j²) with μ_j = 1/σ_j.

The attack ``release`` runs whole releases (`releases.py`). For ``joint`` and ``single`` a trial draws fresh
noise for the target's cells through `add_noise`, the function every release uses: many targets, but counting
and the reuse of noise are not seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from ..errors import FedwiseError
from ..owner.noise import NoisyCounts, add_noise
from ..owner.tables import Tables, count
from ..planning import Plan
from ..privacy.accounting import discrete_gaussian
from ..privacy.scales import gaussian_epsilon
from ..schema.frame import FrameLike
from ..schema.layout import Layout
from .canaries import cells_of
from .gaussian import mu_bound, smallest_detectable
from .outcome import Audit, Roc
from .rates import auc, auc_theory, epsilon_lower_bound, tpr_at, tpr_theory
from .releases import audit_releases

Floats = npt.NDArray[np.float64]
Mechanism = Callable[[Tables, Floats], NoisyCounts]
CellAttack = Literal["joint", "single"]
Attack = Literal["release", "joint", "single"]

#: Standard errors by which the attack may beat its theory before the audit fails: one false alarm in 30,000.
TOLERANCE = 4.0
#: Trials with the target, and as many without: whole releases are slow, and see more.
TRIALS = {"release": 100, "joint": 1000, "single": 1000}


def audit(
    plan: Plan,
    frame: FrameLike,
    *,
    attack: Attack = "release",
    trials: int | None = None,
    seed: int = 0,
    confidence: float = 0.999,
    mechanism: Mechanism | None = None,
) -> Audit:
    """Attack `trials` targets inside and as many outside the data.

    Parameters
    ----------
    plan, frame
        The request and the rows it would be answered from; targets are drawn from the rows.
    attack
        ``release`` sends rows with and without canaries through `fedwise.release` and examines what comes out.
        ``joint`` and ``single`` attack noise drawn for single cells: those of all tables, or of one table drawn
        for each target.
    trials
        Default: 100 (so 200 releases) for ``release``, 1000 otherwise.
    seed
        Choice of targets (and of the table for ``single``). The noise itself has no seed.
    confidence
        Of the lower bounds: with an honest mechanism one exceeds the promise with probability at
        most 1 − confidence. For ``release``, of the whole verdict.
    mechanism
        What adds the noise of ``joint`` and ``single``; a test puts a broken one here and must see it caught.
    """
    if attack not in TRIALS:
        raise FedwiseError(f"attack must be release, joint or single, got '{attack}'")
    trials = TRIALS[attack] if trials is None else trials
    rows = plan.schema.select_rows(frame)
    check(plan, rows, trials=trials, confidence=confidence)
    if attack != "release":
        draw = add_noise if mechanism is None else mechanism
        return audit_cells(
            plan, rows, (attack,), trials=trials, seed=seed, confidence=confidence, mechanism=draw
        )[0]
    if mechanism is not None:
        raise FedwiseError("mechanism must be left out for attack 'release', which uses the release's own")
    return audit_releases(plan, rows, trials=trials, seed=seed, confidence=confidence)


#: Fewest trials of an audit.
LEAST = 100


def check(plan: Plan, rows: pl.DataFrame, *, trials: int, confidence: float) -> None:
    """Refuse an audit that could say nothing."""
    if trials < LEAST:
        raise FedwiseError(f"trials must be at least {LEAST}, got {trials}; fewer say nothing")
    if not 0 < confidence < 1:
        raise FedwiseError(f"confidence must lie between 0 and 1, got {confidence:g}; 0.999 is the default")
    if not plan.private:
        raise FedwiseError("audit needs a plan with a finite epsilon; an exact release needs no attack")
    if rows.height == 0:
        raise FedwiseError("audit needs at least one row to draw targets from")


def audit_cells(
    plan: Plan,
    rows: FrameLike,
    attacks: Sequence[CellAttack],
    *,
    trials: int,
    seed: int,
    confidence: float,
    mechanism: Mechanism = add_noise,
) -> list[Audit]:
    """Audit with each of the attacks on the same noise, drawn for the cells of the targets alone."""
    rng = np.random.default_rng(seed)
    codes = plan.schema.encode(rows)
    ratios_in, noise_in = _ratios(plan, codes, trials, rng, mechanism, member=True)
    ratios_out, noise_out = _ratios(plan, codes, trials, rng, mechanism, member=False)
    noise = np.hstack([noise_in, noise_out])
    found = []
    for attack in attacks:
        inside, outside = (_combine(ratios, attack, rng) for ratios in (ratios_in, ratios_out))
        found.append(_judge(plan, attack, inside, outside, noise, confidence))
    return found


def _judge(
    plan: Plan, attack: CellAttack, inside: Floats, outside: Floats, noise: Floats, confidence: float
) -> Audit:
    trials = len(inside)
    least, enough = _noise_check(noise, plan.sigmas)
    mu = _mu(plan, attack)
    theory = auc_theory(mu)
    area, error = auc(inside, outside)
    lower = epsilon_lower_bound(inside, outside, delta=plan.delta, confidence=confidence)
    found = Audit(
        attack=attack,
        epsilon=plan.promise_epsilon,
        delta=plan.delta,
        trials=trials,
        auc=area,
        auc_std_error=error,
        auc_theory=theory,
        tpr_at_1_percent=float(tpr_at(inside, outside, np.array([0.01]))[0]),
        tpr_theory=tpr_theory(mu, 0.01),
        epsilon_lower_bound=lower,
        confidence=confidence,
        least_noise=least,
        ok=lower <= plan.epsilon and area - theory <= TOLERANCE * error and enough,
        roc=Roc.of(inside, outside, mu),
        mu_promised=plan.mu,
    )
    if attack == "single":
        return found  # the score of one table drawn at random is a mixture: it has no μ
    risk = 1 - confidence
    bound = mu_bound(inside, outside, risk)
    return msgspec.structs.replace(
        found,
        mu_lower_bound=bound,
        epsilon_of_mu=gaussian_epsilon(bound, plan.delta),
        smallest_detectable=smallest_detectable(
            float(mu[0]), plan.mu, inside=trials, outside=trials, risk=risk
        ),
    )


def _mu(plan: Plan, attack: CellAttack) -> Floats:
    """μ of the attack: one number for joint, one a table (equally likely) for single."""
    if attack == "joint":
        return np.array([math.sqrt(float(np.sum(plan.sigmas**-2.0)))])
    return np.asarray(1.0 / plan.sigmas)


def _combine(ratios: Floats, attack: CellAttack, rng: np.random.Generator) -> Floats:
    """Scores of all tables together, or of one drawn for each target."""
    if attack == "joint":
        return np.asarray(ratios.sum(axis=0))
    return np.asarray(ratios[rng.integers(0, len(ratios), ratios.shape[1]), np.arange(ratios.shape[1])])


def _ratios(
    plan: Plan,
    codes: npt.NDArray[np.int16],
    trials: int,
    rng: np.random.Generator,
    mechanism: Mechanism,
    *,
    member: bool,
) -> tuple[Floats, Floats]:
    """Likelihood ratios of `trials` targets, each with noise of its own, and that noise: (tables, trials) both."""
    layout = plan.layout
    exact = count(codes, layout).exact
    targets = rng.integers(0, codes.shape[1], trials)
    cells = cells_of(codes[:, targets], layout)
    without = exact[cells] - 1  # every target comes from the data, so its cells hold at least itself
    # A table for each pair, whose cells are the trials: the real mechanism sees ordinary exact tables.
    columns = Layout(
        tuple(str(i) for i in range(layout.tables + 1)),
        (1,) + (trials,) * layout.tables,
        tuple((0, j + 1) for j in range(layout.tables)),
    )
    truth = Tables(columns, (without + (1 if member else 0)).ravel())
    noisy = np.asarray(mechanism(truth, plan.sigmas)).reshape(layout.tables, trials)
    ratios = (noisy - without - 0.5) / plan.sigmas[:, None] ** 2
    noise = (noisy - truth.exact.reshape(layout.tables, trials)).astype(np.float64)
    return ratios, noise


def _noise_check(noise: Floats, sigmas: Floats) -> tuple[float, bool]:
    """Least observed variance over tables relative to the discrete Gaussian's, and whether it may be chance.

    A table that leaves with too little noise is caught even where the attack cannot profit from it. The
    variance of n draws has a relative standard error of √(2/n); 6 of them, over at most 10⁴ tables, are a
    false alarm in 10⁵ audits.
    """
    expected = []
    for sigma in sigmas:
        support, p = discrete_gaussian(float(sigma))
        expected.append(float(np.sum(p * support**2)))
    least = float(np.min((noise**2).mean(axis=1) / np.array(expected)))
    return least, least >= 1 - 6 * math.sqrt(2 / noise.shape[1])
