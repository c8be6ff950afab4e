"""DP-SGD and the joint account of release and training."""

import dataclasses
import math

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting import pld
from opacus.accountants import PRVAccountant

from fedwise.errors import DataError, FedwiseError
from fedwise.privacy.subsampled import epsilon, scale_noise
from fedwise.training.accounting import compose
from fedwise.training.encoding import Rows
from fedwise.training.federation import Prepared
from fedwise.training.local import Instruction, LocalSettings
from fedwise.training.model import Model
from fedwise.training.private import Privacy, private_update, sampling
from fedwise.training.simulate import Config, simulate


def _by_pld(history, delta: float) -> float:
    accountant = pld.PLDAccountant()
    for sigma, rate, steps in history:
        event = dp_accounting.GaussianDpEvent(sigma)
        if rate < 1:
            event = dp_accounting.PoissonSampledDpEvent(rate, event)
        accountant.compose(event, steps)
    return float(accountant.get_epsilon(delta))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "history",
    [
        [(3.7, 1.0, 1)],
        [(3.7, 1.0, 1), (1.1, 0.05, 100)],
        [(20.0, 1.0, 1), (2.0, 0.02, 500)],
    ],
    ids=["release", "both", "small"],
)
def test_joint_epsilon_is_dp_accountings(history) -> None:
    found, expected = epsilon(history, 1e-5), _by_pld(history, 1e-5)
    assert found == pytest.approx(expected, rel=0.01)
    # Rounded to the safe side.
    assert found >= expected * (1 - 1e-3)


@pytest.mark.filterwarnings("ignore")
def test_training_epsilon_is_opacus() -> None:
    accountant = PRVAccountant()
    for _ in range(100):
        accountant.step(noise_multiplier=1.1, sample_rate=0.05)
    assert epsilon([(1.1, 0.05, 100)], 1e-5) == pytest.approx(accountant.get_epsilon(1e-5), abs=0.01)
    assert epsilon([(1.1, 0.05, 100)], 1e-5) == pytest.approx(2.897, abs=0.01)


@pytest.mark.parametrize(("target", "rate", "steps"), [(2.0, 0.05, 60), (0.1, 0.01, 100), (5.0, 1.0, 3)])
def test_calibration_keeps_the_promise_and_wastes_little(target: float, rate: float, steps: int) -> None:
    spent = epsilon([(scale_noise(target, 1e-5, rate, steps), rate, steps)], 1e-5)
    assert 0.985 * target < spent <= target


def test_an_impossible_promise_is_refused() -> None:
    with pytest.raises(FedwiseError, match="needs more noise than can train"):
        scale_noise(1e-7, 1e-12, 1.0, 10_000)


def test_costs_of_selected_and_unselected_clients() -> None:
    history = ((1.1, 0.05, 100),)
    costs = {
        c.client: c
        for c in compose(
            ["A", "B", "C"], mu=1 / 3.7, release_epsilon=1.01, release_delta=1e-5,
            training={"A": history, "B": ()}, training_delta=1e-5,
        )
    }  # fmt: skip
    a, b, c = costs["A"], costs["B"], costs["C"]
    assert a.training == epsilon(history, 1e-5)
    assert a.joint == pytest.approx(epsilon([(3.7, 1.0, 1), *history], 2e-5), rel=1e-9)
    assert a.joint < a.summed == pytest.approx(1.01 + a.training)
    assert (a.delta, a.steps, a.selected) == (2e-5, 100, True)
    # Selected but never drawn, and not selected: the release alone.
    assert (b.selected, b.joint, b.training, b.delta) == (True, 1.01, 0.0, 1e-5)
    assert (c.selected, c.joint, c.training, c.delta) == (False, 1.01, 0.0, 1e-5)


def test_training_in_the_open_has_no_promise() -> None:
    costs = compose(
        ["A", "B"], mu=0.3, release_epsilon=1.0, release_delta=1e-5, training={}, training_delta=0.0,
        trained_openly=("A",),
    )  # fmt: skip
    assert math.isinf(costs[0].joint)
    assert costs[1].joint == 1.0


def test_a_release_without_privacy_stays_without() -> None:
    (cost,) = compose(
        ["A"], mu=math.inf, release_epsilon=math.inf, release_delta=1e-5, training={"A": ((1.1, 0.05, 10),)},
        training_delta=1e-5,
    )  # fmt: skip
    assert math.isinf(cost.joint)


@pytest.mark.parametrize(
    ("rows", "batch", "epochs", "expected"), [(100, 32, 1, (0.32, 4)), (20, 32, 2, (1.0, 2))]
)
def test_sampling(rows: int, batch: int, epochs: int, expected: tuple[float, int]) -> None:
    assert sampling(rows, batch, epochs) == expected


def _private(prepared: Prepared, **more):
    rows = prepared.train["A"]
    model = Model(rows.width, (4,))
    fields = {
        "instruction": Instruction(LocalSettings(optimizer="sgd", lr=0.1, batch=16)), "client": "A", "round": 1,
        "noise_multiplier": 1.0, "seed": 0, **more,
    }  # fmt: skip
    return model, rows, private_update(model, model.initial(0), rows, **fields)


def test_private_update_is_seeded_by_client_and_round(prepared: Prepared) -> None:
    _, rows, first = _private(prepared)
    np.testing.assert_array_equal(first.parameters, _private(prepared)[2].parameters)
    for change in ({"client": "B"}, {"round": 2}, {"seed": 1}, {"seed": None}):
        assert (first.parameters != _private(prepared, **change)[2].parameters).any()
    assert first.privacy == (1.0, 16 / len(rows), math.ceil(len(rows) / 16))
    assert math.isnan(first.loss)


def test_a_step_is_clipped(prepared: Prepared) -> None:
    """Without noise, a step of SGD moves by at most lr · rows drawn · clip / expected batch."""
    model, _, update = _private(
        prepared,
        noise_multiplier=0.0,
        clip=1e-3,
        instruction=Instruction(LocalSettings(optimizer="sgd", lr=1.0, batch=10**6)),
    )
    moved = np.linalg.norm(update.parameters - model.initial(0))
    # Rate 1: every row is drawn, its gradient clipped to 0.001, and the mean is taken.
    assert 1e-4 < moved <= 1e-3 * (1 + 1e-3)


def test_noise_has_the_promised_size(prepared: Prepared) -> None:
    """With a tiny clip the signal vanishes against the noise: sd = lr · multiplier · clip / expected batch."""
    model, rows, update = _private(
        prepared,
        noise_multiplier=50.0,
        clip=1e-2,
        instruction=Instruction(LocalSettings(optimizer="sgd", lr=1.0, batch=10**6)),
    )
    moved = update.parameters - model.initial(0)
    expected = 50.0 * 1e-2 / len(rows)
    # 77 draws: the sample deviation is within 35% beyond 4 sigma.
    assert np.sqrt(np.mean(moved**2)) == pytest.approx(expected, rel=0.35)


def test_an_empty_batch_still_adds_noise(prepared: Prepared) -> None:
    rows = prepared.train["A"].take(np.arange(3))
    model = Model(rows.width, ())
    settings = LocalSettings(optimizer="sgd", lr=1.0, batch=1)
    for seed in range(40):
        update = private_update(
            model, model.initial(0), rows, instruction=Instruction(settings), client="A", round=1,
            noise_multiplier=1.0, seed=seed,
        )  # fmt: skip
        assert np.isfinite(update.parameters).all()
        assert update.steps == 3


def _by_hand(
    model: Model, vector: np.ndarray, rows: Rows, settings: LocalSettings, clip: float
) -> np.ndarray:
    """Full-batch clipped gradient descent without noise, by autograd and torch's optimisers."""
    module = model.module(vector)
    kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.SGD
    optimizer = kind(module.parameters(), lr=settings.lr)
    x, y = torch.from_numpy(rows.matrix), torch.from_numpy(rows.y)
    anchor = [p.detach().clone() for p in module.parameters()]
    for _ in range(settings.epochs):
        sums = [torch.zeros_like(p) for p in module.parameters()]
        for n in range(len(rows)):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                module(x[n : n + 1])[:, 0], y[n : n + 1]
            )
            gradients = torch.autograd.grad(loss, list(module.parameters()))
            norm = math.sqrt(sum(float((g * g).sum()) for g in gradients))
            for total, g in zip(sums, gradients, strict=True):
                total += g / max(1.0, norm / clip)
        for p, total, start in zip(module.parameters(), sums, anchor, strict=True):
            p.grad = total / len(rows) + settings.mu * (p.detach() - start)
        optimizer.step()
    return model.flatten(module.state_dict())


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("mu", [0.0, 0.5])
@pytest.mark.parametrize("kind", ["network", "module"])
def test_without_noise_it_is_clipped_descent(
    prepared: Prepared, optimizer: str, mu: float, kind: str
) -> None:
    rows = prepared.train["A"].take(np.arange(40))
    network = Model(rows.width, (6, 4))
    model = network if kind == "network" else Model(rows.width, factory=lambda _: network.module())
    settings = LocalSettings(optimizer=optimizer, lr=0.05, batch=10**6, epochs=4, mu=mu)
    update = private_update(
        model, network.initial(1), rows, instruction=Instruction(settings), client="A", round=1,
        noise_multiplier=0.0, clip=0.4,
    )  # fmt: skip
    # Adam divides by the size of a gradient, so a step of the grid in a tiny gradient shows: 1% of a step.
    np.testing.assert_allclose(
        update.parameters,
        _by_hand(network, network.initial(1), rows, settings, 0.4),
        atol=5e-4 if optimizer == "adam" else 1e-6,
    )


def test_control_is_followed_and_returned(prepared: Prepared) -> None:
    """SCAFFOLD without noise: a step follows gradient + c − c_i, and c_i becomes the mean gradient."""
    rows = prepared.train["A"]
    model = Model(rows.width, ())
    control = np.linspace(-1, 1, model.size).astype(np.float32)
    old = np.full(model.size, 0.25, dtype=np.float32)
    fields = {"client": "A", "round": 1, "noise_multiplier": 0.0}
    settings = LocalSettings(optimizer="sgd", lr=0.5, batch=10**6)
    plain = private_update(model, model.initial(0), rows, instruction=Instruction(settings), **fields)
    steered = private_update(
        model, model.initial(0), rows, instruction=Instruction(settings, control=control),
        state={"control": old}, **fields,
    )  # fmt: skip
    np.testing.assert_allclose(steered.parameters, plain.parameters - 0.5 * (control - old), atol=1e-6)
    mean = (model.initial(0) - plain.parameters) / 0.5
    np.testing.assert_allclose(steered.state["control"], mean, atol=1e-6)
    np.testing.assert_allclose(steered.control_change, mean - old, atol=1e-6)


def test_a_seed_marks_the_update_simulated(prepared: Prepared) -> None:
    assert _private(prepared)[2].simulated is True
    assert _private(prepared, seed=None)[2].simulated is False


def test_a_known_population_replaces_the_number_of_rows(prepared: Prepared) -> None:
    """Rate, steps, denominator and the reported rows come from it: nothing exact does."""
    rows = prepared.train["A"]
    model = Model(rows.width, ())
    fields = {
        "instruction": Instruction(LocalSettings(optimizer="sgd", lr=1.0, batch=16, epochs=2)), "client": "A",
        "round": 1, "noise_multiplier": 1.0, "population": 99.6,
    }  # fmt: skip
    for part in (rows, rows.take(np.arange(7)), rows.take(np.arange(0))):
        update = private_update(model, model.initial(0), part, **fields)
        assert update.privacy == (1.0, 16 / 99.6, 14)
        assert (update.steps, update.rows) == (14, 100)
    # A noisy count may be anything: below one it is taken for one.
    for population in (0.3, -50.0):
        update = private_update(model, model.initial(0), rows, **{**fields, "population": population})
        assert (update.privacy, update.rows) == ((1.0, 1.0, 2), 1)
    with pytest.raises(FedwiseError, match="population must be a finite number, got nan"):
        private_update(model, model.initial(0), rows, **{**fields, "population": math.nan})
    with pytest.raises(DataError, match="client 'A' has no training rows"):
        private_update(model, model.initial(0), rows.take(np.arange(0)), **{**fields, "population": None})


def test_the_denominator_is_the_populations(prepared: Prepared) -> None:
    rows = prepared.train["A"]
    model = Model(rows.width, ())
    fields = {
        "instruction": Instruction(LocalSettings(optimizer="sgd", lr=1.0, batch=10**6)), "client": "A", "round": 1,
        "noise_multiplier": 0.0,
    }  # fmt: skip
    once, half = (
        private_update(model, model.initial(0), rows, **fields, population=p).parameters - model.initial(0)
        for p in (None, 2.0 * len(rows))
    )
    np.testing.assert_allclose(once, 2 * half, atol=1e-6)


def test_simulated_private_training_spends_at_most_its_promise(prepared: Prepared) -> None:
    privacy = Privacy(epsilon=3.0)
    settings = LocalSettings(optimizer="sgd", lr=0.1, batch=64)
    config = Config(
        rounds=2, replicates=0, privacy=privacy, settings=settings, sampler="uniform", strategy="scaffold"
    )
    twins = dict.fromkeys("AB", prepared.train["A"])  # equal sizes: one calibration serves both
    run = simulate(
        dataclasses.replace(prepared, train=twins, test=dict.fromkeys("AB", prepared.test["A"])), "AB", config
    )
    assert run.spent
    for history in run.spent.values():
        assert epsilon(history, 1e-5) <= 3.0


def test_what_dp_sgd_does_not_cover_is_refused(prepared: Prepared) -> None:
    for fields, word in (({"sampler": "ucb_cs"}, "exact losses"), ({"strategy": "fedfb"}, "exact sums")):
        with pytest.raises(FedwiseError, match=word):
            Config(privacy=Privacy(epsilon=1.0), **fields)
    with pytest.raises(FedwiseError, match="exact sums by group"):
        _private(prepared, instruction=Instruction(LocalSettings(), report=True))
    with pytest.raises(FedwiseError, match="training epsilon must be a positive number, got 0"):
        Privacy(epsilon=0.0)
