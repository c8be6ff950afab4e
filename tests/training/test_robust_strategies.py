"""Robust rules and FADE: hand computations, what an outlier can do, and equality with FedAvg where they are it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from fedwise.errors import FedwiseError
from fedwise.training.federation import Prepared
from fedwise.training.local import (
    GroupSums,
    Instruction,
    LocalSettings,
    Update,
    local_update,
    predict,
    sum_groups,
)
from fedwise.training.model import Model
from fedwise.training.simulate import Config, simulate
from fedwise.training.strategies import REPORTING, STRATEGIES, make_strategy
from fedwise.training.strategies.fade import balance, fairest, onto_simplex
from fedwise.training.strategies.krum import krum_scores
from fedwise.training.strategies.strategy import Strategy

ROBUST = ("median", "trimmed_mean", "krum", "multi_krum", "fltrust")
ORIGIN = np.zeros(2, dtype=np.float32)


def _update(client: str, parameters: list[float], rows: int = 10, **more: object) -> Update:
    return Update(client, np.array(parameters, dtype=np.float32), rows, loss=0.5, steps=1, **more)  # type: ignore[arg-type]


def _aggregate(made: Strategy, updates: list[Update], origin: np.ndarray = ORIGIN) -> np.ndarray:
    moved, state = made.aggregate(origin, updates, made.start(origin, {u.client: u.rows for u in updates}))
    assert moved.dtype == np.float32
    assert state == {}
    return moved


def test_median_and_trimmed_mean_by_hand() -> None:
    updates = [
        _update(c, [v, -v], 10**i) for i, (c, v) in enumerate(zip("ABCDE", (1, 2, 4, 8, 99), strict=True))
    ]
    assert _aggregate(make_strategy("median"), updates).tolist() == [4, -4]
    # ⌊0.3·5⌋ = 1 value off at either end.
    assert _aggregate(make_strategy("trimmed_mean"), updates) == pytest.approx([14 / 3, -14 / 3])
    assert _aggregate(make_strategy("trimmed_mean", share=0.0), updates) == pytest.approx([114 / 5, -114 / 5])
    # Never all of them: of two updates nothing is taken off.
    assert _aggregate(make_strategy("trimmed_mean", share=0.49), updates[:2]) == pytest.approx([1.5, -1.5])


def test_krum_scores_against_a_loop_and_its_choice() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(9, 6)) + 1000.0
    nearest = 9 - int(0.3 * 9) - 2
    expected = [
        sum(sorted(float(np.sum((v - w) ** 2)) for j, w in enumerate(vectors) if j != i)[:nearest])
        for i, v in enumerate(vectors)
    ]
    np.testing.assert_allclose(krum_scores(vectors, 0.3), expected, rtol=1e-9)
    updates = [_update("A", [0, 0]), _update("B", [1, 0]), _update("C", [0, 1]), _update("D", [90, 90])]
    # Each counts its 4 − 1 − 2 = 1 nearest: A, B and C have 1, D has 89² + 90²; the first of equals wins.
    assert _aggregate(make_strategy("krum"), updates).tolist() == [0, 0]
    assert _aggregate(make_strategy("multi_krum"), updates) == pytest.approx([1 / 3, 1 / 3])
    assert _aggregate(make_strategy("krum"), updates[1:2]).tolist() == [1, 0]


def test_fltrust_by_hand() -> None:
    start = np.array([1.0, 1.0], dtype=np.float32)
    updates = [
        _update("root", [4, 5]),  # (3, 4), length 5
        _update("agrees", [1, 11]),  # (0, 10): cosine 0.8, scaled to (0, 5)
        _update("turned", [-2, -3]),  # cosine −1: not trusted
        _update("still", [1, 1]),  # no direction
    ]
    moved = _aggregate(make_strategy("fltrust", root="root"), updates, start)
    assert moved == pytest.approx([1.0, 6.0])
    # Nobody agrees: the root is followed alone.
    assert _aggregate(make_strategy("fltrust", root="root"), updates[::2], start) == pytest.approx([4.0, 5.0])
    assert _aggregate(make_strategy("fltrust", root="still"), updates, start) == pytest.approx([1.0, 1.0])
    with pytest.raises(FedwiseError, match=r"root of fltrust must be a participant .* did you mean 'root'\?"):
        _aggregate(make_strategy("fltrust", root="roots"), updates, start)


@pytest.mark.parametrize("name", ROBUST)
def test_a_wild_minority_does_not_move_a_robust_rule(name: str) -> None:
    rng = np.random.default_rng(1)
    honest = [_update(f"h{i}", (1 + 0.1 * rng.normal(size=30)).tolist()) for i in range(8)]
    wild = [_update(f"w{i}", (-1e3 * (1 + rng.random(30))).tolist(), 10**6) for i in range(3)]
    origin = np.zeros(30, dtype=np.float32)
    moved = _aggregate(make_strategy(name), [*honest, *wild], origin)
    assert np.abs(moved - 1.0).max() < 0.4
    assert np.abs(_aggregate(make_strategy("fedavg"), [*honest, *wild], origin)).max() > 900


@pytest.mark.parametrize("name", ROBUST)
def test_copies_of_one_update_are_that_update(name: str) -> None:
    vector = np.random.default_rng(2).normal(size=40).astype(np.float32)
    updates = [_update(f"c{i}", vector.tolist()) for i in range(7)]
    moved = _aggregate(make_strategy(name), updates, np.zeros(40, dtype=np.float32))
    np.testing.assert_allclose(moved, vector, rtol=1e-6)


@pytest.mark.parametrize("name", ["trimmed_mean", "krum", "multi_krum"])
@pytest.mark.parametrize("share", [-0.1, 0.5, float("nan")])
def test_impossible_shares_are_refused(name: str, share: float) -> None:
    with pytest.raises(FedwiseError, match=r"share must be at least 0 and below 0\.5, got"):
        make_strategy(name, share=share)


@pytest.mark.parametrize("name", ROBUST)
def test_nobody_answered(name: str) -> None:
    with pytest.raises(FedwiseError, match="no participant answered"):
        make_strategy(name).aggregate(ORIGIN, [], {})


def _simplex_grid(steps: int) -> np.ndarray:
    grid = np.arange(steps + 1) / steps
    points = [(a, b, 1 - a - b) for a in grid for b in grid if a + b <= 1 + 1e-12]
    return np.maximum(np.array(points), 0.0)


def test_balancing_weights_are_the_least_on_a_grid() -> None:
    rng = np.random.default_rng(3)
    points = _simplex_grid(200)
    for _ in range(20):
        gaps, near = rng.normal(size=3), rng.dirichlet(np.ones(3))
        found = balance(gaps, near, 0.2)
        assert found.sum() == pytest.approx(1.0)
        assert (found >= 0).all()

        def cost(w: np.ndarray, gaps: np.ndarray = gaps, near: np.ndarray = near) -> np.ndarray:
            return np.square(w @ gaps) + 0.2 * np.square(w - near).sum(axis=-1)

        assert cost(found) <= cost(points).min() + 1e-9
    assert onto_simplex(np.array([0.5, 0.5])).tolist() == [0.5, 0.5]
    assert onto_simplex(np.array([3.0, 0.0])).tolist() == [1.0, 0.0]


def test_fairest_subset_by_hand_and_beyond_enumeration() -> None:
    gaps, weights = np.array([0.2, -0.1, 0.5]), np.array([0.25, 0.5, 0.25])
    # A and B: (0.05 − 0.05)/0.75 = 0.
    assert fairest(gaps, weights, 2).tolist() == [True, True, False]
    assert fairest(gaps, weights, 3).tolist() == [True, True, True]
    many = np.concatenate([np.full(10, 0.1), np.full(5, -0.1)])
    kept = fairest(many, np.full(15, 1 / 15), 8)
    assert kept.sum() == 10  # five of each sign balance
    assert many[kept].sum() == pytest.approx(0.0)


def _counts(first: int, second: int) -> GroupSums:
    """True positive rates first/10 and second/10."""
    counts = np.array([[[5, 5], [5, 5]], [[10 - first, first], [10 - second, second]]])
    return GroupSums(counts, np.zeros((2, 2)))


def test_fade_by_hand() -> None:
    updates = [
        _update("A", [0, 0], report=_counts(8, 6)),  # gap −0.2
        _update("B", [1, 0], report=_counts(5, 7)),  # gap 0.2
        _update("C", [0, 1], report=_counts(1, 9)),  # gap 0.8
    ]
    assert _aggregate(make_strategy("fade_subset"), updates).tolist() == [0.5, 0.0]
    gaps = np.array([-0.2, 0.2, 0.8])
    w = balance(gaps, np.full(3, 1 / 3), 0.1)
    assert abs(w @ gaps) < 0.15 < 0.26
    assert _aggregate(make_strategy("fade_weights"), updates) == pytest.approx([w[1], w[2]])
    # A strong pull towards the shares of rows is FedAvg.
    assert _aggregate(make_strategy("fade_weights", penalty=1e9), updates) == pytest.approx([1 / 3, 1 / 3])
    assert _aggregate(make_strategy("fade_subset", least=1.0), updates) == pytest.approx([1 / 3, 1 / 3])
    absent = _update("D", [5, 5], report=GroupSums(np.array([[[9, 1]], [[2, 8]]]), np.zeros((2, 1))))
    assert _aggregate(make_strategy("fade_subset"), [*updates[:2], absent]).shape == (2,)
    with pytest.raises(FedwiseError, match="FADE needs a report from every participant"):
        _aggregate(make_strategy("fade_subset"), [_update("A", [0, 0])])
    for options in ({"penalty": 0.0}, {"penalty": float("nan")}):
        with pytest.raises(FedwiseError, match="penalty must be above 0"):
            make_strategy("fade_weights", **options)
    with pytest.raises(FedwiseError, match="least must be a share above 0"):
        make_strategy("fade_subset", least=0.0)


def test_a_report_on_trained_parameters_is_about_them(prepared: Prepared) -> None:
    model, rows = Model(prepared.encoder.width, (4,)), prepared.train["A"]
    asked = Instruction(LocalSettings(optimizer="sgd", lr=0.5), report=True, trained=True)
    update = local_update(model, model.initial(0), rows, instruction=asked, client="A", seed=0, round=1)
    assert update.report is not None
    after = sum_groups(rows, predict(model, update.parameters, rows), 0)
    before = sum_groups(rows, predict(model, model.initial(0), rows), 0)
    np.testing.assert_array_equal(update.report.counts, after.counts)
    assert not np.array_equal(before.losses, after.losses)


def test_strategies_that_ask_for_sums_are_named_and_refused_under_dp_sgd() -> None:
    asking = {
        name
        for name, kind in STRATEGIES.items()
        if kind().configure(LocalSettings(), {"control": np.zeros(1)}).report
    }
    assert asking == REPORTING
    from fedwise.training.private import Privacy

    for name in REPORTING:
        with pytest.raises(FedwiseError, match="asks for exact sums by group"):
            Config(strategy=name, privacy=Privacy(epsilon=1.0))


def test_a_root_of_public_rows_trains_with_the_others(prepared: Prepared) -> None:
    config = Config(rounds=4, strategy="fltrust", strategy_options={"root": "C"}, replicates=0)
    losses = [
        r.value for r in simulate(prepared, "ABC", config).records if (r.rows, r.metric) == ("all", "loss")
    ]
    assert all(later < sooner for sooner, later in pairwise(losses))
