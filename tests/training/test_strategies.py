"""Strategies: identities between them, and hand computations."""

import dataclasses

import numpy as np
import polars as pl
import pytest

from fedwise.errors import FedwiseError
from fedwise.schema.schema import Schema
from fedwise.training.federation import Prepared, prepare
from fedwise.training.local import GroupSums, Instruction, LocalSettings, Update, local_update
from fedwise.training.model import Model
from fedwise.training.simulate import Config, simulate
from fedwise.training.strategies import (
    STRATEGIES,
    CoordinateMedian,
    FairFed,
    FedAdam,
    FedAvg,
    FedFB,
    FedProx,
    FLTrust,
    Krum,
    MultiKrum,
    Scaffold,
    TrimmedMean,
    make_strategy,
)


def _update(client: str, parameters: list[float], rows: int, **more) -> Update:
    return Update(client, np.array(parameters, dtype=np.float32), rows, loss=0.5, steps=1, **more)


def _run(prepared: Prepared, clients, engine: str = "fast", **fields):
    config = Config(
        **{"rounds": 3, "replicates": 0, "engine": engine, "settings": LocalSettings(lr=1e-3), **fields}
    )
    return simulate(prepared, clients, config)


@pytest.mark.parametrize("engine", ["fast", "torch"])
def test_fedavg_with_one_client_is_centralised_training(prepared: Prepared, engine: str) -> None:
    found = _run(prepared, ["C"], engine).parameters
    model = Model(prepared.encoder.width)
    vector = model.initial(0)
    for number in (1, 2, 3):
        vector = local_update(
            model, vector, prepared.train["C"], instruction=Instruction(LocalSettings(lr=1e-3)), client="central",
            seed=0, round=number, engine=engine,
        ).parameters  # fmt: skip
    np.testing.assert_array_equal(found, vector)


@pytest.mark.parametrize("engine", ["fast", "torch"])
@pytest.mark.parametrize("copies", [3, 7])
def test_copies_of_one_client_are_that_client(prepared: Prepared, engine: str, copies: int) -> None:
    names = [f"copy {i}" for i in range(copies)]
    many = dataclasses.replace(
        prepared,
        train=dict.fromkeys(names, prepared.train["B"]),
        test=dict.fromkeys(names, prepared.test["B"]),
    )
    np.testing.assert_array_equal(
        _run(many, names, engine).parameters, _run(prepared, ["B"], engine).parameters
    )


@pytest.mark.parametrize("engine", ["fast", "torch"])
def test_fedprox_without_pull_is_fedavg(prepared: Prepared, engine: str) -> None:
    plain = _run(prepared, "ABC", engine).parameters
    same = _run(prepared, "ABC", engine, strategy="fedprox", strategy_options={"mu": 0.0}).parameters
    pulled = _run(prepared, "ABC", engine, strategy="fedprox", strategy_options={"mu": 10.0}).parameters
    start = Model(prepared.encoder.width).initial(0)
    np.testing.assert_array_equal(plain, same)
    assert np.linalg.norm(pulled - start) < np.linalg.norm(plain - start)


@pytest.mark.parametrize("engine", ["fast", "torch"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_scaffold_without_variates_and_one_step_is_fedavg(
    prepared: Prepared, engine: str, optimizer: str
) -> None:
    # One round of one full-batch step: all variates are still zero.
    settings = LocalSettings(optimizer=optimizer, lr=0.01, batch=10_000)
    plain = _run(prepared, "ABCD", engine, rounds=1, settings=settings).parameters
    options = {"optimizer": optimizer, "local_lr": 0.01}
    same = _run(
        prepared, "ABCD", engine, rounds=1, settings=settings, strategy="scaffold", strategy_options=options
    )
    np.testing.assert_array_equal(plain, same.parameters)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("sampler", ["full", "uniform"])
def test_scaffold_variates_sum_to_the_servers(prepared: Prepared, weighted: bool, sampler: str) -> None:
    found = _run(
        prepared, "ABCDE", strategy="scaffold", strategy_options={"weighted": weighted}, sampler=sampler
    )
    sizes = {client: len(prepared.train[client]) for client in "ABCDE"}
    share = {c: n / sum(sizes.values()) if weighted else 1 / 5 for c, n in sizes.items()}
    total = sum(
        share[c] * np.asarray(state["control"], dtype=np.float64) for c, state in found.clients.items()
    )
    assert np.abs(found.server["control"]).max() > 1e-3
    np.testing.assert_allclose(found.server["control"], total, atol=1e-7)


def test_scaffold_variate_is_option_two(prepared: Prepared) -> None:
    """c_i⁺ = c_i − c + (x − y)/(K·lr), equation 4 (option II) of the paper."""
    rows = prepared.train["D"]
    model = Model(rows.width, (8,))
    rng = np.random.default_rng(0)
    x = model.initial(0)
    control, own = (rng.normal(scale=0.01, size=model.size).astype(np.float32) for _ in range(2))
    got = local_update(
        model, x, rows, instruction=Instruction(LocalSettings(optimizer="sgd", lr=0.05), control=control), client="D",
        seed=0, round=1, state={"control": own},
    )  # fmt: skip
    expected = own - control + (x - got.parameters) / (got.steps * 0.05)
    np.testing.assert_allclose(got.state["control"], expected, atol=2e-5)
    np.testing.assert_allclose(got.control_change, expected - own, atol=2e-5)


def test_scaffold_server_step_by_hand() -> None:
    made = Scaffold(lr=0.5, weighted=False)
    state = made.start(np.zeros(2, dtype=np.float32), {"A": 10, "B": 30, "C": 1})
    change = [np.array(c, dtype=np.float32) for c in ([3.0, 0.0], [0.0, 6.0])]
    updates = [
        _update("A", [2, 4], 10, control_change=change[0]),
        _update("B", [4, 0], 30, control_change=change[1]),
    ]
    moved, after = made.aggregate(np.array([1.0, 1.0], dtype=np.float32), updates, state)
    np.testing.assert_allclose(moved, [1 + 0.5 * (3 - 1), 1 + 0.5 * (2 - 1)])
    np.testing.assert_allclose(after["control"], [1.0, 2.0])


def test_fedavg_by_hand() -> None:
    moved, _ = FedAvg().aggregate(
        np.zeros(2, np.float32), [_update("A", [1, 2], 1), _update("B", [5, 6], 3)], {}
    )
    np.testing.assert_array_equal(moved, [4.0, 5.0])


def test_aggregation_ignores_the_order_of_answers() -> None:
    rng = np.random.default_rng(0)
    updates = [_update(f"c{i}", rng.normal(size=50).tolist(), int(rng.integers(1, 99))) for i in range(9)]
    for made in (FedAvg(), FedAdam(), CoordinateMedian(), TrimmedMean(), Krum(), MultiKrum(), FLTrust()):
        state = made.start(np.zeros(50, np.float32), {})
        first, _ = made.aggregate(np.zeros(50, np.float32), updates, state)
        second, _ = made.aggregate(np.zeros(50, np.float32), updates[::-1], state)
        np.testing.assert_array_equal(first, second)


def test_fedadam_by_hand_for_two_rounds() -> None:
    made = FedAdam(lr=0.1, beta1=0.5, beta2=0.75, tau=0.5)
    x = np.array([1.0], dtype=np.float32)
    state = made.start(x, {"A": 1, "B": 3})
    # Round 1: mean 0.25·5 + 0.75·1 = 2, Δ = 1; m = 0.5, v = 0.75·0.25 + 0.25·1 = 0.4375.
    x, state = made.aggregate(x, [_update("A", [5], 1), _update("B", [1], 3)], state)
    first = 1 + 0.1 * 0.5 / (0.4375**0.5 + 0.5)
    assert x[0] == pytest.approx(first, rel=1e-6)
    # Round 2: mean 0, Δ = −x; m = 0.25 − 0.5x, v = 0.328125 + 0.25x².
    at = float(x[0])
    x, state = made.aggregate(x, [_update("A", [0], 1), _update("B", [0], 3)], state)
    m, v = 0.25 - 0.5 * at, 0.328125 + 0.25 * at**2
    assert state["first"][0] == pytest.approx(m)
    assert state["second"][0] == pytest.approx(v)
    assert x[0] == pytest.approx(at + 0.1 * m / (v**0.5 + 0.5), rel=1e-6)


def _report(counts) -> GroupSums:
    array = np.array(counts, dtype=np.int64)
    return GroupSums(array, np.zeros(array.shape[:2]))


def test_fairfed_by_hand() -> None:
    # Counts by target, group, prediction. Client A: TPR 8/10 and 6/10, gap −0.2. B: 5/10 and 9/10, gap 0.4.
    a = _report([[[5, 5], [5, 5]], [[2, 8], [4, 6]]])
    b = _report([[[5, 5], [5, 5]], [[5, 5], [1, 9]]])
    updates = [_update("A", [0.0], 40, report=a), _update("B", [1.0], 40, report=b)]
    made = FairFed(beta=0.5)
    state = made.start(np.zeros(1, np.float32), {"A": 40, "B": 40})
    moved, after = made.aggregate(np.zeros(1, np.float32), updates, state)
    # Together: 13/20 and 15/20, gap 0.1. Δ_A = 0.3, Δ_B = 0.3: no change.
    assert moved[0] == pytest.approx(0.5)
    c = _report([[[5, 5], [5, 5]], [[5, 5], [5, 5]]])
    updates = [_update("A", [0.0], 40, report=a), _update("B", [1.0], 40, report=c)]
    moved, after = made.aggregate(np.zeros(1, np.float32), updates, state)
    # Together 13/20 and 11/20, gap −0.1: Δ_A = 0.1, Δ_B = 0.1 again; so tilt the first client further.
    d = _report([[[5, 5], [5, 5]], [[0, 10], [10, 0]]])
    updates = [_update("A", [0.0], 40, report=d), _update("B", [1.0], 40, report=b)]
    moved, after = made.aggregate(np.zeros(1, np.float32), updates, state)
    # d: gap −1; b: 0.4; together 15/20 and 9/20: −0.3. Δ = 0.7, 0.7. Unequal sizes of classes break the tie:
    e = _report([[[5, 5], [5, 5]], [[0, 30], [10, 0]]])
    updates = [_update("A", [0.0], 60, report=e), _update("B", [1.0], 40, report=b)]
    state = made.start(np.zeros(1, np.float32), {"A": 60, "B": 40})
    moved, after = made.aggregate(np.zeros(1, np.float32), updates, state)
    gap = 9 / 20 - 35 / 40
    delta = np.array([abs(-1 - gap), abs(0.4 - gap)])
    raw = np.array([0.6, 0.4]) - 0.5 * (delta - delta.mean())
    assert after["weight/A"][0] == pytest.approx(raw[0])
    assert after["weight/B"][0] == pytest.approx(raw[1])
    assert moved[0] == pytest.approx(raw[1] / raw.sum(), rel=1e-6)
    assert raw[0] != pytest.approx(0.6)


def test_fairfed_uses_accuracy_where_a_group_is_absent_and_clips_at_zero() -> None:
    one_group = _report([[[10, 0]], [[0, 10]]])
    both = _report([[[5, 5], [5, 5]], [[5, 5], [5, 5]]])
    updates = [_update("A", [0.0], 20, report=one_group), _update("B", [1.0], 40, report=both)]
    made = FairFed(beta=100.0)
    moved, after = made.aggregate(
        np.zeros(1, np.float32), updates, made.start(np.zeros(1, np.float32), {"A": 20, "B": 40})
    )
    # Accuracies: A 1, B 0.5, together 40/60. Δ_A = 1/3 (by accuracy); B's gap is 0, together 15/20 − 5/10 → 0.25.
    delta = np.array([1 - 40 / 60, abs(0 - (5 / 10 - 15 / 20))])
    assert after["weight/A"][0] == pytest.approx(20 / 60 - 100 * (delta[0] - delta.mean()))
    assert moved[0] == 1.0


def test_fairfed_without_budget_is_fedavg(prepared: Prepared) -> None:
    plain = _run(prepared, "ABC").parameters
    np.testing.assert_array_equal(
        plain, _run(prepared, "ABC", strategy="fairfed", strategy_options={"beta": 0.0}).parameters
    )


def test_fedfb_by_hand() -> None:
    # Rows by target and group: [[10, 30], [40, 20]]; mean losses [[1, 2], [0.5, 0.2]].
    report = GroupSums(
        np.array([[[10, 0], [20, 10]], [[0, 40], [10, 10]]]), np.array([[10.0, 60.0], [20.0, 4.0]])
    )
    made = FedFB(alpha=0.1)
    _, state = made.aggregate(np.zeros(1, np.float32), [_update("A", [0.0], 100, report=report)], {})
    step = 0.1 / 2**0.5  # d_y = (−h, h), so d_y / ‖d_y‖ = (−1, 1)/√2
    lam = np.array([[0.1 - step, 0.3 + step], [0.4 + step, 0.2 - step]])
    np.testing.assert_allclose(state["lam"], lam)
    np.testing.assert_allclose(state["weights"], lam / [[0.1, 0.3], [0.4, 0.2]])
    assert made.configure(LocalSettings(), state).cell_weights is state["weights"]


def test_fedfb_keeps_each_targets_share_and_starts_as_fedavg(prepared: Prepared) -> None:
    plain = _run(prepared, "ABC", rounds=1).parameters
    np.testing.assert_array_equal(plain, _run(prepared, "ABC", rounds=1, strategy="fedfb").parameters)
    state = _run(prepared, "ABC", rounds=3, strategy="fedfb", strategy_options={"alpha": 5.0}).server
    share = np.mean(np.concatenate([prepared.train[c].y for c in "ABC"]))
    assert (state["lam"] >= 0).all()
    np.testing.assert_allclose(state["lam"].sum(axis=1), [1 - share, share])


def test_fedfb_narrows_the_gap_of_an_unfair_target(schema: Schema, frames: dict[str, pl.DataFrame]) -> None:
    rng = np.random.default_rng(0)
    unfair = {}
    for name in "ABC":
        frame = pl.concat([frames[name]] * 3)
        z = (frame["AGE"] - 50) / 25 + (frame["EDU"] - 3) * 0.8 - (frame["SEX"] == 2) * 1.5
        unfair[name] = frame.with_columns((z + rng.normal(size=frame.height) > 0).cast(pl.Int64).alias("Y"))
    data = prepare(unfair, schema)

    def gap(strategy: str) -> float:
        settings = LocalSettings(optimizer="sgd", lr=0.1)
        return _run(data, "ABC", rounds=25, settings=settings, strategy=strategy).value(
            "eod", attribute="SEX"
        )

    assert gap("fedfb") < 0.7 * gap("fedavg")


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_learns(prepared: Prepared, name: str) -> None:
    settings = LocalSettings(optimizer="sgd", lr=0.1)
    options = {"local_lr": 0.1} if name == "scaffold" else {}
    run = _run(prepared, "ABCDE", rounds=15, settings=settings, strategy=name, strategy_options=options)
    first = next(r.value for r in run.records if (r.rows, r.metric) == ("all", "loss"))
    assert run.value("loss") < first - 0.1


def test_unknown_names_and_options_suggest() -> None:
    with pytest.raises(FedwiseError, match=r"got 'fedavgg'; did you mean 'fedavg'\?"):
        make_strategy("fedavgg")
    with pytest.raises(FedwiseError, match=r"strategy fedprox has no option 'nu'"):
        make_strategy("fedprox", nu=1)
    with pytest.raises(FedwiseError, match="no participant answered"):
        FedProx().aggregate(np.zeros(1, np.float32), [], {})
