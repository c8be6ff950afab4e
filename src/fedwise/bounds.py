"""Bounds: what the paper states about a selection under noise, its assumptions, and whether they hold.

    local    Pr(W' is truly better | gap Δ) ≤ exp(−kΔ² / (4σ²_PFL))
    global   Pr(W* is not within μ of the best) ≤ 2·exp(−(μ/2 − E‖ξ‖∞)² / (2σ²_PFL)),  μ > 2·E‖ξ‖∞

Both presume noise that acts linearly on the loss. The local bound also rests on Var(ξ_W − ξ_W') = 2σ²_PFL / k for
federations that share k − 1 clients: equal clients, with one slope of the loss at W and W'. With sparse tables
these assumptions fail, so nothing of this is computed unless it is asked for; what is measured instead is in
`search.doubt`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from .certificate import Assumption, Certificate
from .estimation.estimates import Estimates
from .objective.information import ONE_RECORD, gradient
from .objective.pfl import loss
from .objective.weights import Weights, pair_weights

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Chance of error the global tolerance μ is stated for.
LEVEL = 0.05
_SAMPLE = 128
_DRAWS = 400
#: A cell is well above its noise from this many standard deviations on.
_CLEAR = 3.0


def local_bound(k: int, gap: float, sigma: float) -> float:
    """exp(−kΔ² / (4σ²)): the chance that a neighbour `gap` worse is truly better (equal clients)."""
    return 0.0 if sigma == 0 and gap > 0 else math.exp(-k * gap**2 / (4 * sigma**2)) if sigma > 0 else 1.0


def global_bound(mu: float, expected_sup: float, sigma: float) -> float:
    """2·exp(−(μ/2 − E‖ξ‖∞)² / (2σ²)), and 1 where μ is too small for the bound to speak."""
    room = mu / 2 - expected_sup
    if sigma == 0:
        return 0.0 if room >= 0 else 1.0
    return min(1.0, 2 * math.exp(-(room**2) / (2 * sigma**2))) if room > 0 else 1.0


def tolerance(expected_sup: float, sigma: float, level: float = LEVEL) -> float:
    """The μ at which `global_bound` equals `level`."""
    return 2 * (expected_sup + sigma * math.sqrt(2 * math.log(2 / level)))


def slopes(estimates: Estimates, federations: Ints, weights: Weights) -> Floats:
    """∂PFL/∂cell of each federation, each summed table with marginals of its own. Shape (federations, cells)."""
    layout = estimates.layout
    per_table = pair_weights(estimates.schema, layout, weights)
    summed = np.stack([estimates.cells[members].sum(axis=0) for members in federations])
    found = np.zeros_like(summed)
    for j in np.flatnonzero(per_table):
        tables = summed[:, layout.slice(int(j))].reshape(-1, *layout.shapes[j])
        slope = per_table[j] * gradient(tables, floor=ONE_RECORD)
        found[:, layout.slice(int(j))] = slope.reshape(len(summed), -1)
    return found


def noise_covariance(estimates: Estimates, federations: Ints, weights: Weights) -> Floats:
    """Covariance of the linearised noise ξ_W over federations: Σ_j Σ_{i∈W∩V} σ_ij² Σ_{c∈j} g_W(c) g_V(c)."""
    layout = estimates.layout
    gradients = slopes(estimates, federations, weights)
    member = np.zeros((len(federations), len(estimates.clients)))
    for row, members in enumerate(federations):
        member[row, members] = 1.0
    covariance: Floats = np.zeros((len(federations), len(federations)))
    for j in range(layout.tables):
        slope = gradients[:, layout.slice(j)]
        noisy = member * estimates.sigmas[:, j]
        covariance += (noisy @ noisy.T) * (slope @ slope.T)
    return covariance


def expected_supremum(
    covariance: Floats, clients: int, k: int, per_client: float, rng: np.random.Generator
) -> float:
    """E‖ξ‖∞ by simulation: the larger of two ways to reach high.

    Over the sampled federations, each with its own slope, the supremum of correlated Gaussians; and over
    *all* federations of size k with one common slope, where the supremum is the sum of the k largest
    client contributions, each N(0, per_client²).
    """
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    sampled = np.abs(rng.normal(size=(_DRAWS, len(values))) @ root.T).max(axis=1).mean()
    scores = np.sort(rng.normal(size=(_DRAWS, clients)), axis=1) * per_client
    common = np.maximum(scores[:, clients - k :].sum(axis=1), -scores[:, :k].sum(axis=1)).mean()
    return float(max(sampled, common))


def with_bounds(
    certificate: Certificate,
    estimates: Estimates,
    members: Sequence[int],
    weights: Weights,
    *,
    std_error: float | None = None,
    simulated: bool = False,
    seed: int = 0,
) -> Certificate:
    """A certificate with the paper's bounds filled in; `certificate.paper` says them in words.

    Parameters
    ----------
    certificate
        Its `gap` is what the local bound is for.
    std_error
        σ_PFL from the estimator; default the delta method on the released cells.
    simulated
        The noise came from a seeded generator.
    """
    k, n = len(members), len(estimates.clients)
    gap = certificate.gap
    if not np.any(estimates.sigmas):
        exact = None if gap is None else local_bound(k, gap, 0.0)
        return msgspec.structs.replace(
            certificate, sigma=0.0, local_bound=exact, expected_sup=0.0, mu=0.0, global_bound=0.0
        )
    rng = np.random.default_rng([seed & 0xFFFFFFFFFFFFFFFF, 7])
    sample = [np.asarray(members, dtype=np.int64)]
    sample += [np.sort(rng.choice(n, size=k, replace=False)) for _ in range(_SAMPLE)]
    covariance = noise_covariance(estimates, np.stack(sample), weights)
    raw = math.sqrt(max(float(covariance[0, 0]), 0.0))
    known = std_error is not None and math.isfinite(std_error)
    sigma = float(std_error) if known and std_error is not None else raw
    # The estimator removes part of the released noise: the process is scaled to the error it reports.
    covariance = covariance * ((sigma / raw) ** 2 if raw > 0 else 1.0)
    largest = math.sqrt(max(float(covariance.diagonal().max()), 0.0))
    supremum = expected_supremum(covariance, n, k, sigma / math.sqrt(k), rng)
    mu = tolerance(supremum, largest)
    losses = [loss(estimates, federation, weights) for federation in sample]
    return msgspec.structs.replace(
        certificate,
        sigma=sigma,
        local_bound=None if gap is None else local_bound(k, gap, sigma),
        expected_sup=supremum,
        mu=mu,
        global_bound=global_bound(mu, supremum, largest),
        loss_spread=max(losses) - min(losses),
        assumptions=_assumptions(estimates, members, weights, covariance, known, simulated),
    )


def _assumptions(
    estimates: Estimates,
    members: Sequence[int],
    weights: Weights,
    covariance: Floats,
    known: bool,
    simulated: bool,
) -> tuple[Assumption, ...]:
    used = pair_weights(estimates.schema, estimates.layout, weights) != 0
    own = estimates.sigmas[np.asarray(members)]
    noise = estimates.layout.per_cell(np.sqrt(np.sum(own**2, axis=0)) * used)
    cells = estimates.cells[np.asarray(members)].sum(axis=0)[noise > 0]
    clear = float(np.mean(cells >= _CLEAR * noise[noise > 0])) if len(cells) else 1.0
    sizes = np.maximum(estimates.totals[np.asarray(members)], 1.0)
    ratio = float(sizes.max() / sizes.min())
    spread = covariance.diagonal()
    uneven = float(spread.max() / max(spread.min(), 1e-300))
    return (
        Assumption(
            "high signal-to-noise: nearly all summed cells are well above their noise, so the loss is linear in it",
            clear >= 0.9,
            f"{clear:.0%} of the summed cells exceed {_CLEAR:g} standard deviations",
        ),
        Assumption(
            "equal clients: neighbours differ by a 2/k share of the variance",
            ratio <= 3,
            f"the largest member has {ratio:.1f} times the records of the smallest",
        ),
        Assumption(
            "one variance: federations of this size have about the same noise",
            uneven <= 4,
            f"variances differ by a factor {uneven:.1f} over sampled federations",
        ),
        Assumption(
            "the standard error of the estimator is known",
            known,
            "given by the estimator" if known else "delta method on the released cells",
        ),
        Assumption(
            "the noise is the private one, drawn by each client",
            not simulated,
            "seeded simulation" if simulated else "discrete Gaussian",
        ),
    )
