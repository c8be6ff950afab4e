"""Quantisation: sums are exact, errors at most half a step, and numbers beyond the bounds are counted."""

from __future__ import annotations

import numpy as np
import pytest

from fedwise.errors import FedwiseError
from fedwise.flower.quantisation import MOST_CLIENTS, of_metrics, of_updates


@pytest.mark.parametrize(
    ("quantiser", "bound"),
    [(of_updates(8.0, 100.0), 8.0), (of_metrics(100.0), 1e6)],
    ids=["update", "metrics"],
)
def test_the_largest_cohort_at_the_bounds_does_not_overflow(quantiser, bound):
    """All clients at the largest weight and value, of either sign: the worst sum there is."""
    for value in (bound, -bound):
        words = quantiser.encode(np.array([value, 0.0]), 100.0)
        total = np.add.reduce([words] * MOST_CLIENTS, dtype=words.dtype)
        found = quantiser.decode(total)
        np.testing.assert_allclose(found.mean, [value, 0.0], rtol=1e-12)
        assert (found.heavy, found.clipped) == (0, 0)


def test_each_client_is_off_by_half_a_step_at_most():
    rng = np.random.default_rng(0)
    quantiser = of_updates(2.0, 10.0)
    values = rng.uniform(-2, 2, 1000)
    for weight in (10.0, 3.3, 0.01):
        found = quantiser.decode(quantiser.encode(values, weight)).mean
        share = round(weight / 10 * 2**22) / 2**22
        assert np.abs(found - values).max() <= 2.0 / 2**22 / share * (1 + 1e-9)


def test_a_weight_below_one_step_still_counts():
    quantiser = of_updates(1.0, 1e12)
    assert quantiser.encode(np.zeros(1), 1.0)[0] == 1


@pytest.mark.parametrize(
    ("values", "weight", "heavy", "clipped"),
    [
        ([1.0, -1.0], 10.0, 0, 0),
        ([1.1, 0.0], 10.0, 0, 1),
        ([1.1, 0.0], 5.0, 0, 0),  # half the weight: 0.55 of the bound
        ([np.nan, 0.0], 10.0, 0, 1),
        ([np.inf, 0.0], 1e-3, 0, 1),
        ([0.5, 0.5], 10.1, 1, 0),
        ([2.0, 0.5], 1e300, 1, 1),
    ],
)
def test_what_is_beyond_the_bounds_is_cut_and_counted(values, weight, heavy, clipped):
    quantiser = of_updates(1.0, 10.0)
    words = quantiser.encode(np.array(values), weight)
    assert words[1:3].tolist() == [heavy, clipped]
    assert words[0] <= 2**22
    assert (np.abs(words[3:].view(np.int32)) <= 2**21).all()


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf])
def test_a_weight_that_is_none_is_refused(weight):
    with pytest.raises(FedwiseError, match="num-examples must be a number above 0"):
        of_updates(1.0, 10.0).encode(np.zeros(1), weight)
