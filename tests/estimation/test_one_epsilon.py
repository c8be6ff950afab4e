"""One ε for all: the estimator of mixed pools gives what the estimator of one scale per table gave."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from estimation.one_epsilon import numbers, simulated_pool
from fedwise.estimation import implied
from fedwise.estimation.shrinkage import shrink

STORED = json.loads((Path(__file__).parent / "one_epsilon.json").read_text())
CASES = {
    "1, shrinkage": ((1.0, {}), "shrinkage"),
    "0.1, shrinkage": ((0.1, {}), "shrinkage"),
    "1, paper": ((1.0, {"calibration": "rdp", "allocation": "uniform"}), "plain"),
}


@pytest.mark.parametrize("case", CASES)
def test_one_epsilon_gives_what_it_gave_before(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The numbers are older than interactions that tell of marginals.
    monkeypatch.setattr(implied, "_BEGIN", 2.0)
    monkeypatch.setattr(implied, "_FULL", 3.0)
    (epsilon, options), estimator = CASES[case]
    found = numbers(simulated_pool(epsilon, **options), estimator)
    assert found.keys() == STORED[case].keys()
    for name, values in STORED[case].items():
        np.testing.assert_allclose(found[name], values, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("epsilon", [1.0, 0.1])
def test_a_scale_for_each_client_is_the_same_as_one_for_all(epsilon: float) -> None:
    pool = simulated_pool(epsilon)
    layout, scales = pool.plan.layout, pool.plan.sigmas
    one = shrink(pool.matrix, layout, scales)
    each = shrink(pool.matrix, layout, np.tile(scales, (len(pool.clients), 1)))
    np.testing.assert_array_equal(one.cells, each.cells)
    np.testing.assert_array_equal(one.marginals, each.marginals)


@pytest.mark.parametrize("epsilon", [1.0, 0.1])
def test_a_client_with_hardly_more_noise_changes_hardly_anything(epsilon: float) -> None:
    """Pools with one scale and mixed pools take different ways through the estimator; they meet."""
    pool = simulated_pool(epsilon)
    layout, scales = pool.plan.layout, np.tile(pool.plan.sigmas, (len(pool.clients), 1))
    one = shrink(pool.matrix, layout, scales)
    scales[3] *= 1 + 1e-9
    near = shrink(pool.matrix, layout, scales)
    np.testing.assert_allclose(near.marginals, one.marginals, rtol=1e-6, atol=1e-4)
    np.testing.assert_allclose(near.cells, one.cells, rtol=1e-4, atol=1e-2)
