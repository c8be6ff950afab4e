"""The local update: kernels against autograd, and what a pure function promises."""

import math

import numpy as np
import pytest
import torch

from fedwise.errors import DataError, FedwiseError
from fedwise.training import kernels
from fedwise.training.federation import Prepared
from fedwise.training.local import (
    Diverged,
    Instruction,
    LocalSettings,
    local_update,
    orders,
    predict,
    sum_groups,
)
from fedwise.training.model import Model


def _call(model, vector, rows, settings, engine, **more):
    instruction = Instruction(
        settings, **{k: more.pop(k) for k in list(more) if k in Instruction.__annotations__}
    )
    return local_update(
        model, vector, rows, instruction=instruction, client="A", seed=1, round=2, engine=engine, **more
    )


@pytest.mark.parametrize("hidden", [(), (6,), (32, 32, 32), (5, 7)])
@pytest.mark.parametrize("count", [1, 3, 32, 45])
def test_gradient_is_autograds(prepared: Prepared, hidden: tuple[int, ...], count: int) -> None:
    rows = prepared.train["C"]
    model = Model(rows.width, hidden)
    vector = model.initial(7) + np.float32(0.01)
    chosen = np.random.default_rng(0).permutation(len(rows))[:count].astype(np.int64)
    weight = np.linspace(0.5, 2.0, len(rows)).astype(np.float32)
    width = max([*hidden, 1])
    buffers = [np.zeros((len(hidden) + 1, count, width), dtype=np.float32) for _ in range(2)]
    grad = np.empty(model.size, dtype=np.float32)
    total = kernels.gradient(
        vector[model.to_kernel], model.sizes, model.offsets, rows.hot, rows.dense, rows.dense_at, rows.y, weight,
        chosen, *buffers, np.empty(width * width, dtype=np.float32), grad,
    )  # fmt: skip
    module = model.module(vector).double()
    x, y = torch.from_numpy(rows.matrix[chosen]).double(), torch.from_numpy(rows.y[chosen]).double()
    losses = torch.nn.functional.binary_cross_entropy_with_logits(module(x).reshape(-1), y, reduction="none")
    losses = losses * torch.from_numpy(weight[chosen]).double()
    losses.mean().backward()
    assert total == pytest.approx(float(losses.detach().sum()), rel=1e-5)
    expected = model.flatten({name: p.grad.numpy() for name, p in module.named_parameters()})
    np.testing.assert_allclose(grad[model.from_kernel], expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        LocalSettings(lr=1e-3),
        LocalSettings(optimizer="sgd", lr=0.05, epochs=2),
        LocalSettings(lr=1e-3, mu=0.5, batch=7),
        LocalSettings(optimizer="sgd", lr=0.05, mu=0.5, batch=1000),
    ],
    ids=["adam", "sgd", "adam-prox", "sgd-prox-full-batch"],
)
@pytest.mark.parametrize("hidden", [(), (32, 32, 32)])
def test_engines_agree(prepared: Prepared, settings: LocalSettings, hidden: tuple[int, ...]) -> None:
    rows = prepared.train["D"]
    model = Model(rows.width, hidden)
    vector = model.initial(0)
    cells = np.array([[1.0, 1.5], [0.5, 2.0]])
    control = np.random.default_rng(0).normal(scale=1e-3, size=model.size).astype(np.float32)
    fast, slow = (
        _call(model, vector, rows, settings, engine, cell_weights=cells, control=control, report=True)
        for engine in ("fast", "torch")
    )
    # Two orders of summation: equal up to rounding, which Adam's division keeps below a hundredth of a step.
    atol = 2e-5 if settings.optimizer == "adam" else 2e-6
    np.testing.assert_allclose(fast.parameters, slow.parameters, atol=atol)
    np.testing.assert_allclose(fast.control_change, slow.control_change, atol=1e-5)
    assert fast.loss == pytest.approx(slow.loss, abs=1e-6)
    assert fast.steps == slow.steps == settings.epochs * math.ceil(len(rows) / settings.batch)
    np.testing.assert_array_equal(fast.report.counts, slow.report.counts)
    np.testing.assert_allclose(fast.report.losses, slow.report.losses, rtol=1e-5)
    np.testing.assert_allclose(
        predict(model, fast.parameters, rows),
        predict(model, fast.parameters, rows, engine="torch"),
        atol=1e-5,
    )


@pytest.mark.parametrize("engine", ["fast", "torch"])
def test_the_update_is_pure(prepared: Prepared, engine: str) -> None:
    rows = prepared.train["A"]
    model = Model(rows.width)
    vector = model.initial(0)
    before = vector.copy()
    first = _call(model, vector, rows, LocalSettings(), engine)
    again = _call(model, vector, rows, LocalSettings(), engine)
    np.testing.assert_array_equal(vector, before)
    np.testing.assert_array_equal(first.parameters, again.parameters)
    assert first.loss == again.loss
    assert (first.parameters != vector).any()


@pytest.mark.parametrize("engine", ["fast", "torch"])
def test_carried_moments_equal_one_long_optimiser(prepared: Prepared, engine: str) -> None:
    """Two updates with carried moments are one run of Adam over both passes."""
    rows = prepared.train["A"]
    model = Model(rows.width, (8,))
    vector = model.initial(0)
    settings = LocalSettings(lr=1e-3, carry=True)
    one = _call(model, vector, rows, settings, engine)
    two = local_update(
        model, one.parameters, rows, instruction=Instruction(settings), client="A", seed=1, round=3,
        state=one.state, engine=engine,
    )  # fmt: skip
    module = model.module(vector)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)
    x, y = torch.from_numpy(rows.matrix), torch.from_numpy(rows.y)
    for number in (2, 3):
        for chosen in torch.from_numpy(orders(len(rows), 1, seed=1, round=number)[0]).split(32):
            optimizer.zero_grad()
            torch.nn.functional.binary_cross_entropy_with_logits(
                module(x[chosen])[:, 0], y[chosen]
            ).backward()
            optimizer.step()
    np.testing.assert_allclose(two.parameters, model.flatten(module.state_dict()), atol=2e-5)
    fresh = _call(model, one.parameters, rows, LocalSettings(lr=1e-3), engine)
    assert np.abs(fresh.parameters - two.parameters).max() > 1e-4


def test_orders_are_permutations_of_round_and_seed() -> None:
    first = orders(50, 2, seed=0, round=1)
    assert all(sorted(order.tolist()) == list(range(50)) for order in first)
    assert (first[0] != first[1]).any()
    assert (orders(50, 1, seed=0, round=2)[0] != first[0]).any()
    assert (orders(50, 1, seed=1, round=1)[0] != first[0]).any()


@pytest.mark.parametrize("engine", ["fast", "torch"])
def test_a_diverging_client_is_named(prepared: Prepared, engine: str) -> None:
    rows = prepared.train["A"]
    model = Model(rows.width)
    with pytest.raises(
        Diverged, match=r"diverged in round 2 at client 'A'.*lower the learning rate"
    ) as caught:
        _call(model, model.initial(0), rows, LocalSettings(optimizer="sgd", lr=1e30, epochs=3), engine)
    assert (caught.value.client, caught.value.round) == ("A", 2)


def test_no_rows_is_refused(prepared: Prepared) -> None:
    rows = prepared.train["A"].take(np.zeros(0, dtype=np.int64))
    model = Model(rows.width)
    with pytest.raises(DataError, match="client 'A' has no training rows"):
        _call(model, model.initial(0), rows, LocalSettings(), "fast")


def test_report_counts_by_hand(prepared: Prepared) -> None:
    rows = prepared.train["A"]
    logits = np.random.default_rng(0).normal(size=len(rows)).astype(np.float32)
    report = sum_groups(rows, logits, 1)
    for y in (0, 1):
        for group in range(3):
            here = (rows.y == y) & (rows.groups[1] == group)
            assert report.counts[y, group].tolist() == [
                (here & (logits <= 0)).sum(),
                (here & (logits > 0)).sum(),
            ]
            p = 1 / (1 + np.exp(-logits[here].astype(np.float64)))
            assert report.losses[y, group] == pytest.approx(-np.log(p if y else 1 - p).sum())


def test_a_group_the_server_has_not_met_weighs_one(prepared: Prepared) -> None:
    rows = prepared.train["A"]
    model = Model(rows.width, ())
    plain = _call(model, model.initial(0), rows, LocalSettings(), "fast")
    padded = _call(
        model, model.initial(0), rows, LocalSettings(), "fast", cell_weights=np.ones((2, 1)), attribute=1
    )
    np.testing.assert_array_equal(plain.parameters, padded.parameters)


def test_a_module_of_the_user_trains_by_torch_only(prepared: Prepared) -> None:
    rows = prepared.train["A"]

    def factory(inputs: int) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(inputs, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))

    model = Model(rows.width, factory=factory)
    first = _call(model, model.initial(0), rows, LocalSettings(), "auto")
    np.testing.assert_array_equal(
        first.parameters, _call(model, model.initial(0), rows, LocalSettings(), "auto").parameters
    )
    with pytest.raises(FedwiseError, match="engine must be torch for a module of your own"):
        _call(model, model.initial(0), rows, LocalSettings(), "fast")


@pytest.mark.parametrize("fields", [{"lr": 0.0}, {"lr": math.nan}, {"batch": 0}, {"epochs": 0}, {"mu": -1.0}])
def test_nonsense_settings_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(FedwiseError, match="must be"):
        LocalSettings(**fields)
