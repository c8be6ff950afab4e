"""Checks of the noise: calibrated on honest noise, and each finds its own fault."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedwise as fw
from fedwise.auditing.residuals import Residuals, chi_square
from fedwise.privacy.accounting import discrete_gaussian

RELEASES = 200


def honest(plan: fw.Plan, rng: np.random.Generator) -> np.ndarray:
    parts = []
    for sigma, cells in zip(plan.sigmas, np.diff(plan.layout.offsets), strict=True):
        support, p = discrete_gaussian(float(sigma))
        parts.append(rng.choice(support, (RELEASES, int(cells)), p=p))
    return np.concatenate(parts, axis=1)


def residuals(plan: fw.Plan, noise: np.ndarray, rng: np.random.Generator) -> Residuals:
    half = np.arange(RELEASES) < RELEASES // 2
    return Residuals(plan, noise, np.stack([rng.permutation(half) for _ in range(3)]))


def p_values(found: Residuals, rng: np.random.Generator) -> dict[str, float]:
    return {
        "noise": found.too_little().p_value,
        "shift": found.shifts().p_value,
        "distribution": found.shape().p_value,
        "independence": found.dependence(rng).p_value,
    }


def test_honest_noise_is_rarely_accused(small_schema: fw.Schema) -> None:
    """150 examinations: p-values below 0.05 at most 20 times (5e-5 each at a rate of 5%, seeded)."""
    rng = np.random.default_rng(4)
    plan = fw.plan(small_schema, 1.0)
    low = dict.fromkeys(("noise", "shift", "distribution", "independence"), 0)
    for _ in range(150):
        for name, p in p_values(residuals(plan, honest(plan, rng), rng), rng).items():
            low[name] += p < 0.05
    assert max(low.values()) <= 20
    assert sum(low.values()) > 0  # and they are p-values, not ones


def weak(plan: fw.Plan, noise: np.ndarray) -> None:
    noise[:] = np.rint(noise / 1.2)


def quiet_cell(plan: fw.Plan, noise: np.ndarray) -> None:
    noise[:, -1] = 0


def exact_total(plan: fw.Plan, noise: np.ndarray) -> None:
    here = plan.layout.slice(0)
    noise[:, here.stop - 1] -= noise[:, here].sum(axis=1)


def off(plan: fw.Plan, noise: np.ndarray) -> None:
    noise[:, 3] += int(plan.layout.per_cell(plan.sigmas)[3])


def even(plan: fw.Plan, noise: np.ndarray) -> None:
    noise[:] = 2 * np.rint(noise / 2)


def repeated(plan: fw.Plan, noise: np.ndarray) -> None:
    noise[7] = noise[130]


def shared(plan: fw.Plan, noise: np.ndarray) -> None:
    first, second = plan.layout.slice(1), plan.layout.slice(3)
    noise[:, second.start : second.start + 2] = noise[:, first.start : first.start + 2]


FAULTS: dict[Any, str] = {
    weak: "noise", quiet_cell: "noise", exact_total: "noise", off: "shift", even: "distribution",
    repeated: "independence", shared: "independence",
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_every_fault_is_found_by_its_check(small_schema: fw.Schema, fault: Any) -> None:
    rng = np.random.default_rng(5)
    plan = fw.plan(small_schema, 1.0)
    noise = honest(plan, rng)
    assert p_values(residuals(plan, noise, rng), rng)[FAULTS[fault]] > 1e-3
    fault(plan, noise)
    assert p_values(residuals(plan, noise, rng), rng)[FAULTS[fault]] < 1e-8


def test_a_shift_that_comes_with_a_canary_is_found(small_schema: fw.Schema) -> None:
    rng = np.random.default_rng(6)
    plan = fw.plan(small_schema, 1.0)
    noise = honest(plan, rng)
    found = residuals(plan, noise, rng)
    noise[found.present[1], 5] += int(1.5 * plan.layout.per_cell(plan.sigmas)[5])
    noise[~found.present[1], 5] -= int(1.5 * plan.layout.per_cell(plan.sigmas)[5])
    assert found.shifts().p_value < 1e-8
    assert "AGE × JOB" in found.shifts().says


def test_tables_with_hardly_any_noise_are_left_out() -> None:
    schema = fw.Schema.parse(
        '[columns.A]\nrole = "feature"\nlevels = [0, 1]\n[columns.T]\nrole = "target"\nlevels = [0, 1]\n'
    )
    plan = fw.plan(schema, 60.0)
    rng = np.random.default_rng(0)
    found = residuals(plan, np.zeros((RELEASES, 4), dtype=np.int64), rng)
    assert found.tables == []
    assert found.least_variance() == 1.0


def test_chi_square_of_few_draws_says_nothing() -> None:
    assert chi_square(np.zeros(10, dtype=np.int64), 5.0) == 1.0
