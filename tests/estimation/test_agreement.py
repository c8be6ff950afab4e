"""Agreement and outlying clients: what is known well stays where it is."""

from __future__ import annotations

import numpy as np
import pytest

from fedwise.estimation.agreement import agree
from fedwise.estimation.association import mix_to, nats
from fedwise.estimation.fitting import fit
from fedwise.estimation.keeping import widened
from fedwise.objective.information import ratio

SHARE = np.array([0.7, 0.2, 0.1])
LEVELS = np.array([[0.6, 0.4], [0.9, 0.1], [0.2, 0.8]])


def test_equal_doubt_is_the_least_squares_answer() -> None:
    pool = np.array([0.65, 0.35])
    found = agree(LEVELS, np.ones((3, 2)), np.zeros((3, 2)), share=SHARE, pool=pool)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(SHARE @ found, pool, atol=1e-9)
    missing = pool[0] - SHARE @ LEVELS[:, 0]
    np.testing.assert_allclose(found[:, 0] - LEVELS[:, 0], SHARE * missing / np.sum(SHARE**2), atol=1e-9)


def test_a_known_client_is_not_moved_however_large_it_is() -> None:
    pool = np.array([0.63, 0.37])
    doubt = np.array([[1e-12, 1e-12], [1e-2, 1e-2], [1e-2, 1e-2]])
    found = agree(LEVELS, doubt, np.zeros((3, 2)), share=SHARE, pool=pool)
    np.testing.assert_allclose(found[0], LEVELS[0], atol=1e-8)
    np.testing.assert_allclose(SHARE @ found, pool, atol=1e-9)
    # Proportional scaling, which this replaces, moves it.
    scaled = fit((LEVELS * SHARE[:, None])[None], SHARE[None], pool[None])[0] / SHARE[:, None]
    assert abs(scaled[0, 0] - LEVELS[0, 0]) > 1e-3


def test_a_deviation_within_three_deviations_is_shrunk_as_before_and_one_far_off_is_kept() -> None:
    tau, v = np.full(3, 1.0), np.full(3, 1.0)
    wide = widened(tau, np.array([0.5, 3.0 * np.sqrt(2.0), 100.0]), v)
    assert wide[:2] == pytest.approx([1.0, 1.0])
    bias = 100.0 * v[2] / (wide[2] + v[2])
    assert bias < 0.02  # with the common variance: 50


def test_a_client_that_gives_nothing_keeps_its_strength() -> None:
    table = np.array([[0.3, 0.1], [0.1, 0.5]])
    sides = np.array([[0.4, 0.6], [0.5, 0.5]])
    tables = fit(table, sides, sides)
    share = np.array([0.3, 0.7])
    goal = 1.1 * nats(np.tensordot(share, tables, axes=1))
    made = mix_to(tables, ratio(table), sides, sides, share=share, goal=goal, give=np.array([0.0, 1.0]))
    np.testing.assert_allclose(made[0], tables[0], atol=1e-8)
    assert nats(made[1]) > nats(tables[1])
