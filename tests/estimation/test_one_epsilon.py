"""One ε for all: the estimator of mixed pools gives what the estimator of one scale per table gave."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from estimation.one_epsilon import numbers, simulated_pool

STORED = json.loads((Path(__file__).parent / "one_epsilon.json").read_text())
CASES = {
    "1, shrinkage": ((1.0, {}), "shrinkage"),
    "0.1, shrinkage": ((0.1, {}), "shrinkage"),
    "1, paper": ((1.0, {"calibration": "rdp", "allocation": "uniform"}), "plain"),
}


@pytest.mark.parametrize("case", CASES)
def test_one_epsilon_gives_what_it_gave_before(case: str) -> None:
    (epsilon, options), estimator = CASES[case]
    found = numbers(simulated_pool(epsilon, **options), estimator)
    assert found.keys() == STORED[case].keys()
    for name, values in STORED[case].items():
        np.testing.assert_allclose(found[name], values, rtol=1e-9, atol=1e-12, err_msg=name)
