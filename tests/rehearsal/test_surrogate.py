"""Surrogate: effects of clients, of label rates and of federations, apart from stages and chance."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fedwise as fw
from conftest import make_people
from fedwise.rehearsal.drawing import Members
from fedwise.rehearsal.goal import Goal
from fedwise.rehearsal.makeup import Clients, Makeup, _Scale
from fedwise.rehearsal.regression import regress
from fedwise.rehearsal.surrogate import Observation, Surrogate

COUNT = 14
RNG = np.random.default_rng(0)
RECORDS = RNG.uniform(50, 500, COUNT)
EFFECTS = RNG.normal(0, 1, COUNT)
#: By sex and label.
LABELS = np.stack([RECORDS / 2, RECORDS / 2], axis=1)[:, :, None] * RNG.dirichlet((2, 2), (COUNT, 2))


def drawn(count: int, seed: int) -> list[Members]:
    rng = np.random.default_rng(seed)
    return [tuple(sorted(rng.choice(COUNT, 4, replace=False).tolist())) for _ in range(count)]


def of_clients(one: Members) -> float:
    share = RECORDS[list(one)] / RECORDS[list(one)].sum()
    return float((EFFECTS[list(one)] * (0.25 + share) / 2).sum())


def of_labels(one: Members) -> float:
    """What is largest where half of the labels are positive."""
    table = LABELS[list(one)].sum(axis=(0, 1))
    return float(-((table[1] / table.sum() - 0.5) ** 2))


def fitted(clients: Clients, truth, seed: int = 1, noise: float = 0.0) -> Surrogate:
    rng = np.random.default_rng(seed)
    seen = [
        Observation(one, i % 2, [truth(one) + 0.5 * (i % 2) + noise * rng.normal()])
        for i, one in enumerate(drawn(60, seed))
    ]
    return Surrogate(clients, seen, Goal.of("auc"), level=(0,))


def summed(made: Surrogate, federations: list[Members]) -> np.ndarray:
    return np.stack([made.rows()[list(one)].sum(axis=0) for one in federations])


def correlation(made: Surrogate, truth) -> float:
    fresh = drawn(40, 9)
    predicted = -made.evaluate(summed(made, fresh))
    return float(np.corrcoef(predicted, [truth(one) for one in fresh])[0, 1])


def test_it_finds_effects_of_clients_whatever_the_stage() -> None:
    made = fitted(Clients(RECORDS), of_clients)
    assert correlation(made, of_clients) > 0.97
    one = drawn(1, 1)[0]
    assert made.estimated(one)["auc"] == pytest.approx(of_clients(one), abs=0.1)
    sums = summed(made, drawn(5, 2))
    assert not np.allclose(made.drawn(np.random.default_rng(0)).evaluate(sums), made.evaluate(sums))


def test_label_rates_tell_what_clients_alone_do_not() -> None:
    alone, both = (correlation(fitted(Clients(RECORDS, t), of_labels), of_labels) for t in ((), (LABELS,)))
    assert both > 0.95
    assert alone < both - 0.05


def test_a_federation_seen_once_is_mostly_what_its_members_say_and_one_seen_often_what_was_seen() -> None:
    """Own effects and noise of equal size: of a residual seen once half is kept, seen eight times most of it."""
    rng = np.random.default_rng(3)
    features = rng.normal(size=(80, 5)) / np.sqrt(5)
    own = rng.normal(size=80)
    which = np.concatenate([np.arange(40), np.repeat(np.arange(40, 80), 8)])
    values = own[which] + rng.normal(size=len(which))
    found = regress(features, which, np.zeros(len(which), np.int64), values)
    seen = np.bincount(which, values) / np.bincount(which) - features @ found.effects - found.levels[0]
    kept = [
        float(found.apart[part] @ seen[part] / (seen[part] @ seen[part]))
        for part in np.split(np.arange(80), 2)
    ]
    assert 0.25 < kept[0] < 0.75 < kept[1] < 1.0


def test_estimates_are_nearer_to_the_truth_than_what_was_seen() -> None:
    """Noise of .3, seen once: what others say of the members takes a third of the error away, mean of ten seeds."""
    errors = []
    for seed in range(10):
        made = fitted(Clients(RECORDS), of_clients, seed, noise=0.3)
        errors += [made.estimated(m)["auc"] - of_clients(m) for m in dict.fromkeys(drawn(60, seed))]
    assert float(np.std(errors)) < 0.2


def test_metrics_that_nobody_knows_are_not_known() -> None:
    goal = Goal.of({"auc": 1.0, "loss": 1.0})
    seen = [Observation(m, 0, [0.7, np.nan if i else 0.5]) for i, m in enumerate(drawn(20, 1))]
    made = Surrogate(Clients(RECORDS), seen, goal, level=(0,))
    first, second = drawn(20, 1)[:2]
    assert made.estimated(first)["loss"] == pytest.approx(0.5)
    assert np.isnan(made.estimated(second)["loss"])
    assert np.isnan(Surrogate(Clients(RECORDS), seen, goal, level=(5,)).estimated(first)["auc"])


def test_limits_cost_what_they_are_missed_by() -> None:
    goal = Goal.of("auc", {"spd:SEX": 0.1})
    seen = [Observation(m, 0, [0.7, 0.3]) for m in drawn(20, 1)]
    made = Surrogate(Clients(RECORDS), seen, goal, level=(0,))
    one = drawn(1, 1)[0]
    assert made.within({"spd:SEX": 0.1}).loss(one) > made.within({"spd:SEX": 0.3}).loss(one) + 0.1
    assert made.loss(one) == pytest.approx(-0.7)
    in_dollars = [o._replace(values=[7e3 * (i % 2), 0.3]) for i, o in enumerate(seen)]
    dollars = Surrogate(Clients(RECORDS), in_dollars, Goal.of("rmse", {"spd:SEX": 0.1}), level=(0,))
    assert dollars.unit == pytest.approx(3500)
    unknown = Surrogate(Clients(RECORDS), [o._replace(values=[np.nan, 0.3]) for o in seen], goal, level=(0,))
    assert unknown.unit == 1.0
    assert unknown.loss(one) == np.inf


def test_shares_of_signal_and_noise_are_found() -> None:
    """Of pure noise nothing is believed, of noiseless effects all, in all of ten seeds."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        features = rng.normal(size=(40, 6)) / np.sqrt(6)
        which = np.repeat(np.arange(40), 2)
        stage = np.tile([0, 1], 40)
        noise = rng.normal(size=80)
        found = regress(features, which, stage, noise)
        assert np.std(features @ found.effects + found.apart) < 0.6
        truth = features @ rng.normal(size=6) * 3
        clear = regress(features, which, stage, truth[which] + 2.0 * stage + 0.01 * noise)
        assert np.corrcoef(features @ clear.effects + clear.apart, truth)[0, 1] > 0.99
        assert clear.levels[1] - clear.levels[0] == pytest.approx(2.0, abs=0.01)


def test_clients_of_a_pool_are_known_by_group_and_class(small_schema) -> None:
    frames = {"one": make_people(100, seed=1), "two": make_people(40, seed=2)}
    plan = fw.plan(small_schema, math.inf)
    found = Clients.of(
        fw.estimate(
            fw.Pool.of(
                fw.release(plan, frame, client=name, no_privacy=True) for name, frame in frames.items()
            )
        )
    )
    assert found.records == pytest.approx([100, 40])
    table = found.labels[0]
    codes = small_schema.encode(frames["one"])
    group, label = codes[small_schema.sensitive[0]], codes[small_schema.target]
    for g, y in ((0, 0), (0, 1), (1, 0), (1, 1)):
        assert table[0, g, y] == pytest.approx(((group == g) & (label == y)).sum())


def test_makeup_is_scaled_kind_by_kind() -> None:
    some = drawn(50, 4)
    made = Makeup(Clients(RECORDS, (LABELS,)), some)
    found = made.features(made.sums(some))
    assert found.mean(axis=0) == pytest.approx(0.0, abs=1e-12)
    sizes, rates = slice(COUNT, COUNT + 3), slice(COUNT + 3, None)
    for kind in (slice(COUNT), sizes, rates):
        assert (found[:, kind] ** 2).sum(axis=1).mean() == pytest.approx(1.0)


def test_what_differs_by_rounding_or_is_not_known_tells_nothing() -> None:
    values = np.stack(
        [np.linspace(5.0, 5.0 + 1e-14, 9), np.linspace(0.0, 1.0, 9), np.full(9, np.nan)], axis=1
    )
    scaled = _Scale.of(values).scaled(values)
    assert not scaled[:, [0, 2]].any()
    assert scaled[:, 1].std() == pytest.approx(1.0)


def test_sizes_are_those_of_a_federation() -> None:
    """Unscaled: all records, the clients' mean, both as logarithms, and how unevenly they are shared."""
    made = Makeup(Clients(RECORDS), drawn(50, 4))
    members = drawn(1, 5)[0]
    records = RECORDS[list(members)]
    total, mean, uneven = made._sizes(made.sums([members]))[0]
    assert total == pytest.approx(np.log(records.sum()))
    assert mean == pytest.approx(np.log(records).mean())
    assert uneven == pytest.approx(((records / records.sum()) ** 2).sum())
