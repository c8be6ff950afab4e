"""The paper's bounds, their inverses, the simulation behind them, and when they say nothing."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from fedwise.bounds import (
    LEVEL,
    expected_supremum,
    global_bound,
    local_bound,
    noise_covariance,
    slopes,
    tolerance,
    with_bounds,
)
from fedwise.certificate import Certificate
from fedwise.objective.pfl import Weights, loss
from search.pools import random_estimates

WEIGHTS = Weights()


@pytest.fixture(scope="module")
def clear():
    """High signal-to-noise: thousands of records, noise of two."""
    estimates = random_estimates(8, seed=3, rows=60_000, plain=True)
    return dataclasses.replace(estimates, sigmas=np.full(estimates.layout.tables, 2.0))


def test_bounds_and_their_inverse():
    assert local_bound(5, 0.2, 0.1) == pytest.approx(math.exp(-5))
    assert local_bound(5, 0.0, 0.1) == 1.0
    assert local_bound(5, 0.1, 0.0) == 0.0
    for supremum, sigma in [(0.01, 0.02), (0.3, 0.001), (0.0, 1.0)]:
        assert global_bound(tolerance(supremum, sigma), supremum, sigma) == pytest.approx(LEVEL)
        assert global_bound(2 * supremum, supremum, sigma) == 1.0
    # The paper: six standard deviations of room fail with probability below 1e-7.
    assert global_bound(2 * (0.5 + 6 * 0.1), 0.5, 0.1) < 1e-7


def test_slopes_are_derivatives(clear):
    members = np.array([0, 2, 5])
    slope = slopes(clear, members[None, :], WEIGHTS)[0]
    rng = np.random.default_rng(0)
    for cell in rng.choice(clear.layout.cells, 12, replace=False):
        step = 0.05
        up, down = clear.cells.copy(), clear.cells.copy()
        up[0, cell] += step
        down[0, cell] -= step
        rise = loss(dataclasses.replace(clear, cells=up), members, WEIGHTS) - loss(
            dataclasses.replace(clear, cells=down), members, WEIGHTS
        )
        assert slope[cell] == pytest.approx(rise / (2 * step), rel=1e-3, abs=1e-10)


def test_covariance_is_that_of_redrawn_noise(clear):
    # 2,000 draws: a relative standard error of a variance of √(2/2000) = 3.2%; 16% is five of them.
    federations = np.array([[0, 1, 2], [0, 1, 3], [4, 5, 6]])
    rng = np.random.default_rng(1)
    true = [loss(clear, f, WEIGHTS) for f in federations]
    noise = np.empty((2000, 3))
    for d in range(len(noise)):
        drawn = dataclasses.replace(clear, cells=clear.cells + rng.normal(0, 2.0, clear.cells.shape))
        noise[d] = [loss(drawn, f, WEIGHTS) for f in federations]
    found = np.cov((noise - true).T)
    expected = noise_covariance(clear, federations, WEIGHTS)
    np.testing.assert_allclose(np.diag(found), np.diag(expected), rtol=0.16)
    assert found[0, 1] == pytest.approx(expected[0, 1], rel=0.2)
    assert expected[0, 2] == 0.0
    assert abs(found[0, 2]) < 5 * math.sqrt(expected[0, 0] * expected[2, 2] / 2000)


def test_expected_supremum_of_known_processes():
    rng = np.random.default_rng(0)
    # One federation: E|N(0, 1)| = √(2/π). The common slope over one client of one gives the same.
    assert expected_supremum(np.eye(1), 1, 1, 1.0, rng) == pytest.approx(math.sqrt(2 / math.pi), rel=0.15)
    # Independent federations reach higher than one; identical ones do not.
    many = expected_supremum(np.eye(100), 1, 1, 0.0, rng)
    same = expected_supremum(np.ones((100, 100)), 1, 1, 0.0, rng)
    assert many == pytest.approx(2.75, rel=0.1)
    assert same == pytest.approx(math.sqrt(2 / math.pi), rel=0.15)


def bounded(estimates, members, *, gap=0.05, **more):
    return with_bounds(
        Certificate(statement="found", noise_statement="", gap=gap), estimates, members, WEIGHTS, **more
    )


def test_bounds_of_a_clear_case(clear):
    certificate = bounded(clear, (0, 1, 2))
    assert certificate.sigma == pytest.approx(
        math.sqrt(noise_covariance(clear, np.array([[0, 1, 2]]), WEIGHTS)[0, 0])
    )
    assert certificate.local_bound == pytest.approx(local_bound(3, 0.05, certificate.sigma))
    assert certificate.mu > 2 * certificate.expected_sup > 0
    assert certificate.global_bound == pytest.approx(LEVEL)
    assert certificate.loss_spread > certificate.mu
    holds = {a.text.split(":")[0]: a.holds for a in certificate.assumptions}
    assert holds["high signal-to-noise"]
    local, overall = certificate.paper[-2:]
    assert local.startswith("local bound: the best single swap is truly better with probability at most")
    assert "except with probability 0.05" in overall


def test_the_bound_covers_what_happens(clear):
    # The true gap of two neighbours, and how often noise turns it: the bound must not be beaten.
    federations = [np.array([0, 1, 2]), np.array([0, 1, 3])]
    true = [loss(clear, f, WEIGHTS) for f in federations]
    gap = abs(true[1] - true[0])
    sigma_wanted = gap  # noise so large that misordering is common
    scale = sigma_wanted / math.sqrt(noise_covariance(clear, np.stack(federations), WEIGHTS)[0, 0])
    loud = dataclasses.replace(clear, sigmas=clear.sigmas * scale)
    rng = np.random.default_rng(2)
    turned = 0
    for _ in range(400):
        drawn = dataclasses.replace(loud, cells=loud.cells + rng.normal(0, 2.0 * scale, loud.cells.shape))
        losses = [loss(drawn, f, WEIGHTS) for f in federations]
        turned += (losses[1] - losses[0]) * (true[1] - true[0]) < 0
    certificate = bounded(loud, federations[int(np.argmin(true))], gap=gap)
    # 400 draws: five standard errors of a share are at most 0.125.
    assert turned / 400 <= certificate.local_bound + 0.125


def test_low_signal_stands_in_front_and_empty_bounds_are_no_numbers(clear):
    loud = dataclasses.replace(clear, sigmas=np.full(clear.layout.tables, 5000.0))
    certificate = bounded(loud, (0, 1, 2), gap=0.001, simulated=True)
    broken = {a.text.split(":")[0] for a in certificate.assumptions if not a.holds}
    assert "high signal-to-noise" in broken
    assert "the noise is the private one, drawn by each client" in broken
    assert not certificate.sound
    first, local, overall = certificate.paper
    assert first.startswith("assumptions not met: high signal-to-noise")
    assert local.startswith("local bound: says nothing here")
    assert overall.startswith("global bound: says nothing here")
    assert not any(letter.isdigit() for letter in local + overall)


def test_no_noise_no_doubt():
    certificate = bounded(random_estimates(5), (0, 1), gap=0.1)
    assert (certificate.sigma, certificate.mu, certificate.local_bound) == (0.0, 0.0, 0.0)
    assert certificate.assumptions == ()


def test_a_known_standard_error_scales_the_process(clear):
    raw = bounded(clear, (0, 1, 2))
    half = bounded(clear, (0, 1, 2), std_error=raw.sigma / 2)
    assert half.sigma == pytest.approx(raw.sigma / 2)
    assert half.expected_sup == pytest.approx(raw.expected_sup / 2)
