"""Populations: people of several clients, by their sizes, each with the chances of its own client's model."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import fedwise as fw
from doubling.aged_people import AGED, aged
from fedwise.doubling.draw import Doubles
from fedwise.doubling.drawer import Drawer
from fedwise.doubling.population import population
from fedwise.training.ranking import Ranking


@pytest.fixture(scope="module")
def drawer() -> Drawer:
    """In the first client people are rich from 30 on, in the second from 60 on; it is three times as large."""
    plan = fw.plan(AGED, epsilon=20.0)
    frames = {"a": aged(3000, 30, width=4, seed=0), "b": aged(9000, 60, width=4, seed=1)}
    return Drawer(
        fw.estimate(
            fw.Pool.of(
                fw.release(plan, rows, client=name, simulated=True, seed=i)
                for i, (name, rows) in enumerate(frames.items())
            )
        )
    )


def test_people_come_by_size_and_keep_what_holds_within_a_client(drawer) -> None:
    people = population(drawer, [0, 1], 4000, seed=0)
    assert people.frame.height == len(people.codes) == len(people.chances) == 4000
    np.testing.assert_allclose(people.chances.sum(axis=1), 1.0)
    np.testing.assert_array_equal(drawer.estimates.schema.encode(people.frame).T, people.codes)
    # 1,000 of the first client come first: of those between 40 and 60 nearly all are rich, in the second about a third.
    middle = people.codes[:, 0] == 2
    first = np.arange(4000) < 1000
    assert people.chances[middle & first, 1].mean() > 0.9
    assert people.chances[middle & ~first, 1].mean() < 0.5
    again = population(drawer, [0, 1], 4000, seed=0)
    assert again.frame.equals(people.frame)


def test_some_clients_can_be_asked_for_alone(drawer) -> None:
    people = population(drawer, [1], 501, seed=0)
    assert people.frame.height == 501


def test_chances_know_the_number_and_not_only_its_bin(drawer) -> None:
    """Within the bin of 40 to 60 the chance of the second client's people rises with age, as their labels do."""
    people = population(drawer, [1], 8000, seed=1)
    inside = people.codes[:, 0] == 2
    age, chance = people.frame["AGE"].to_numpy()[inside], people.chances[inside, 1]
    assert np.corrcoef(age, chance)[0, 1] > 0.8
    label = people.codes[inside, 2].astype(float)
    by_age = Ranking.of(age.astype(np.float32), label).auc()
    by_chance = Ranking.of(age.astype(np.float32), chance).auc()
    assert by_chance == pytest.approx(by_age, abs=0.03)  # about three standard errors of the drawn labels
    assert by_age > 0.6


def test_a_double_of_the_target_is_written_beside_the_clients(drawer, tmp_path) -> None:
    made = fw.doubles(drawer.estimates, clients=["a"], target=["a", "b"], records=50, seed=0)
    assert made.target is not None
    assert made.target.height == 20_000
    written = made.save(tmp_path)
    assert sorted(path.name for path in written) == ["a.parquet", "target.parquet"]
    drawer.estimates.schema.encode(pl.read_parquet(tmp_path / "target.parquet"))
    with pytest.raises(fw.FedwiseError, match="no client 'c'"):
        fw.doubles(drawer.estimates, target=["c"])
    with pytest.raises(fw.FedwiseError, match="no client may be called 'target'"):
        Doubles({"target": made["a"]}, made.schema, target=made.target).save(tmp_path)
