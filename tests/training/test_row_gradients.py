"""Clipped sums on the grid: right, bounded for any parameters, and independent of the other rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedwise.training.encoding import Rows
from fedwise.training.model import Model
from fedwise.training.row_gradients import UNIT, ModuleGradients, NetworkGradients, row_gradients

WIDTH = 9


def make_rows(count: int, seed: int = 0) -> Rows:
    """Two one-hot columns of 4 and 3 levels and two numbers."""
    rng = np.random.default_rng(seed)
    return Rows(
        width=WIDTH,
        hot=np.stack([rng.integers(0, 4, count), 4 + rng.integers(0, 3, count)], axis=1).astype(np.int32),
        dense=rng.normal(size=(count, 2)).astype(np.float32),
        dense_at=np.array([7, 8]),
        y=rng.integers(0, 2, count).astype(np.float32),
        groups=np.zeros((1, count), dtype=np.int16),
    )


def as_module(hidden: tuple[int, ...]) -> Model:
    return Model(WIDTH, factory=lambda inputs: Model(inputs, hidden).module())


def reference(model: Model, vector: np.ndarray, rows: Rows, chosen: np.ndarray, clip: float) -> np.ndarray:
    """Clipped sum in units of clip, row by row, by autograd in double precision."""
    module = model.module(vector).double()
    total = np.zeros(model.size)
    for n in chosen:
        module.zero_grad()
        logit = module(torch.from_numpy(rows.matrix[n : n + 1]).double()).reshape(-1)
        torch.nn.functional.binary_cross_entropy_with_logits(
            logit, torch.tensor([rows.y[n]]).double()
        ).backward()
        gradient = np.concatenate([p.grad.numpy().ravel() for p in module.parameters()])
        total += gradient / max(clip, np.linalg.norm(gradient))
    return total


@pytest.mark.parametrize("hidden", [(), (5,), (8, 6, 4)], ids=str)
@pytest.mark.parametrize("clip", [0.3, 1.0, 100.0])
@pytest.mark.parametrize("kind", ["network", "module"])
def test_sum_is_autograds(hidden: tuple[int, ...], clip: float, kind: str) -> None:
    model = Model(WIDTH, hidden) if kind == "network" else as_module(hidden)
    rows, vector = make_rows(40), model.initial(3)
    chosen = np.array([0, 3, 4, 17, 39])
    engine = row_gradients(model, vector, rows)
    assert isinstance(engine, NetworkGradients if kind == "network" else ModuleGradients)
    found = engine.clipped_sum(engine.own(vector), chosen, clip)
    assert found.dtype == np.int64
    back = engine.travel(found.astype(np.float32), np.zeros_like(vector)) / UNIT
    # Cut toward zero: less than one step of the grid a row; and single precision.
    np.testing.assert_allclose(back, reference(model, vector, rows, chosen, clip), atol=5 / UNIT + 3e-6)


def _weights() -> st.SearchStrategy[float]:
    """Anything a server may send, and beyond: the bound, the end of single precision, infinity, NaN."""
    special = [0.0, 1.0, 1e4, -1e4, 1.5e38, -1.5e38, 3.4e38, math.inf, -math.inf, math.nan, 1e-40]
    return st.one_of(st.sampled_from(special), st.floats(-1e4, 1e4, width=32), st.floats(width=32))


@pytest.mark.parametrize("hidden", [(), (3, 2)], ids=str)
@pytest.mark.parametrize("kind", ["network", "module"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_one_record_moves_the_sum_by_at_most_the_clipping_norm(
    hidden: tuple[int, ...], kind: str, data: st.DataObject
) -> None:
    """For any parameters: the integers of D ∪ {x} less those of D have a norm of at most `UNIT`."""
    model = Model(WIDTH, hidden) if kind == "network" else as_module(hidden)
    few = data.draw(st.lists(_weights(), min_size=1, max_size=6))
    where = data.draw(st.integers(0, 2**31))
    vector = np.array(few, dtype=np.float32)[np.random.default_rng(where).integers(0, len(few), model.size)]
    rows = make_rows(12, data.draw(st.integers(0, 99)))
    clip = data.draw(st.sampled_from([1e-3, 1.0, 50.0]))
    engine = row_gradients(model, vector, rows)
    theta, everyone = engine.own(vector), np.arange(12)
    with np.errstate(all="ignore"):
        target = int(np.random.default_rng(where).integers(12))
        full = engine.clipped_sum(theta, everyone, clip)
        without = engine.clipped_sum(theta, np.delete(everyone, target), clip)
    moved = [int(d) for d in full - without]
    if kind == "network":
        assert sum(d * d for d in moved) <= UNIT**2
    else:
        # torch's batches of 11 and 12 rows may differ in the last place: a few steps of the grid.
        assert math.sqrt(sum(d * d for d in moved)) <= UNIT + 200


def test_a_row_is_the_same_in_any_company() -> None:
    """Built-in networks: the sum over a batch is exactly the sum over its rows, in any order."""
    model, rows = Model(WIDTH, (16, 8)), make_rows(64)
    theta = model.initial(0)[model.to_kernel] * 3
    engine = NetworkGradients(model, rows)
    alone = sum(engine.clipped_sum(theta, np.array([n]), 0.5) for n in range(64))
    np.testing.assert_array_equal(alone, engine.clipped_sum(theta, np.arange(64), 0.5))
    np.testing.assert_array_equal(alone, engine.clipped_sum(theta, np.arange(64)[::-1].copy(), 0.5))


@pytest.mark.parametrize("kind", ["network", "module"])
def test_a_row_that_is_not_finite_counts_as_zero(kind: str) -> None:
    model = Model(WIDTH, (4,)) if kind == "network" else as_module((4,))
    rows = make_rows(20)
    rows.dense[7, 0] = np.nan
    rows.dense[9, 1] = np.inf
    vector = model.initial(0)
    engine = row_gradients(model, vector, rows)
    rest = np.delete(np.arange(20), [7, 9])
    with_them = engine.clipped_sum(engine.own(vector), np.arange(20), 1.0)
    without = engine.clipped_sum(engine.own(vector), rest, 1.0)
    assert np.abs(without).max() > UNIT // 100
    assert np.abs(with_them - without).max() <= (0 if kind == "network" else 20)


def test_frozen_and_shared_parameters_of_a_module() -> None:
    """A frozen layer keeps its values; a parameter under two names keeps both alike."""

    class Twice(torch.nn.Module):
        def __init__(self, inputs: int) -> None:
            super().__init__()
            self.first = torch.nn.Linear(inputs, 4)
            self.second = torch.nn.Linear(4, 4)
            self.again = self.second
            self.last = torch.nn.Linear(4, 1)
            self.first.requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(torch.tanh(self.again(torch.tanh(self.second(self.first(x))))))

    model = Model(WIDTH, factory=Twice)
    vector = model.initial(0)
    engine = row_gradients(model, vector, make_rows(10))
    theta = engine.own(vector)
    assert len(theta) == 4 * 4 + 4 + 4 + 1
    after = model.split(engine.travel(theta + 1, vector))
    before = model.split(vector)
    np.testing.assert_array_equal(after["first.weight"], before["first.weight"])
    np.testing.assert_array_equal(after["second.weight"], before["second.weight"] + 1)
    np.testing.assert_array_equal(after["again.bias"], after["second.bias"])
    assert engine.clipped_sum(theta, np.zeros(0, dtype=np.int64), 1.0).tolist() == [0] * len(theta)
