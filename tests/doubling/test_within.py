"""Numbers within bins: smooth across edges, falling outwards, and tilted by the rest of the record."""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl
import pytest

import fedwise as fw
from doubling.aged_people import AGED, aged
from fedwise.doubling.drawer import Drawer
from fedwise.doubling.within import Cumulative, _density


def test_cumulative_keeps_each_bin_and_falls_outwards() -> None:
    edges, mass = np.array([0.0, 10.0, 20.0, 100.0]), np.array([0.2, 0.6, 0.2])
    made = Cumulative(edges, mass)
    middle = made(np.array([10.0, 15.0, 20.0]), 1)
    assert middle[-1] - middle[0] == pytest.approx(0.6)
    last = np.diff(made(np.linspace(20, 100, 9), 2))
    assert (np.diff(last) < 0).all()
    first = np.diff(made(np.linspace(0, 10, 6), 0))
    assert (np.diff(first) > 0).all()


def test_an_outer_bin_with_much_in_it_has_died_down_before_its_edge() -> None:
    """An exponential through the same two numbers would still be at a quarter of its height there."""
    edges, mass = np.array([0.0, 45.0, 65.0, 100.0]), np.array([0.4, 0.3, 0.3])
    made = Cumulative(edges, mass)
    last = np.diff(made(np.linspace(65, 100, 36), 2))
    last = 0.3 * last / last.sum()
    assert last[0] == pytest.approx(0.3 / 20, rel=0.01)  # the density of the bin beside it, for a year
    assert last[-1] < 0.15 * last[0]
    assert (np.diff(last) < 0).all()


def test_a_nearly_even_outer_bin_stays_so() -> None:
    made = Cumulative(np.array([0.0, 10.0, 20.0]), np.array([0.5, 0.4999]))
    last = np.diff(made(np.linspace(10, 20, 6), 1))
    np.testing.assert_allclose(last / last.sum(), 0.2, atol=0.001)


def test_a_whole_number_stands_for_all_up_to_the_next() -> None:
    """[20, 40) holds the ages 20 to 39, each as common as the others where the bins beside it are as full."""
    numbers = np.arange(20.0, 40.0)
    made = Cumulative(np.array([0.0, 20.0, 40.0, 60.0]), np.array([0.3, 0.3, 0.3]))
    np.testing.assert_allclose(_density(made, numbers, np.ones(20, int)), 0.05, atol=1e-6)


def test_an_empty_outer_bin_is_even() -> None:
    made = Cumulative(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0]))
    np.testing.assert_allclose(np.diff(made(np.linspace(0, 1, 5), 0)), 0.25)


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    """The older, the more often rich."""
    return aged(8000, 40, width=8, seed=0)


def test_numbers_keep_their_codes_and_lean_with_the_label(rows) -> None:
    plan = fw.plan(AGED, epsilon=10.0)
    release = fw.release(plan, rows, client="c0", simulated=True, seed=0)
    drawer = Drawer(fw.estimate(fw.Pool.of([release])))
    codes = drawer.codes("c0", 6000)
    frame, kept = drawer.values.frame(codes, np.random.default_rng(0), drawer.scaled)
    np.testing.assert_array_equal(drawer.estimates.schema.encode(frame).T, kept)
    np.testing.assert_array_equal(kept, codes)

    def lean(these: pl.DataFrame) -> float:
        """How much older the rich are among those between 20 and 40."""
        inside = these.filter((pl.col("AGE") > 20) & (pl.col("AGE") < 40))
        ages = inside.group_by("RICH").agg(pl.col("AGE").mean()).sort("RICH")["AGE"]
        return float(ages[1] - ages[0])

    even, _ = drawer.values.frame(codes, np.random.default_rng(0))
    assert abs(lean(even)) < 0.6  # three standard errors
    assert lean(frame) == pytest.approx(lean(rows), abs=1.2)


def test_densities_hold_over_people_though_each_draws_by_itself(rows) -> None:
    plan = fw.plan(AGED, epsilon=10.0)
    release = fw.release(plan, rows, client="c0", simulated=True, seed=0)
    drawer = Drawer(fw.estimate(fw.Pool.of([release])))
    [scaled] = drawer.scaled.values()
    even = dataclasses.replace(scaled, density=np.ones_like(scaled.density) / 20)
    fitted = even.fitted(drawer.model.rows)

    def drawn(made, level: int) -> np.ndarray:
        """How common each age of a bin is among many people."""
        codes = drawer.model.rows[drawer.model.rows[:, 0] == level]
        places = made.draw(np.repeat(codes, 20, axis=0), np.random.default_rng(0))
        found = np.bincount(places, minlength=places.max() + 1)
        found = found[found > 0] / found.sum()
        return found * len(found)

    # Leaning with the label alone crowds the ends of a bin; the fitted density makes up for it.
    assert np.abs(drawn(even, 1) - 1).max() > 0.15
    assert np.abs(drawn(fitted, 1) - 1).max() < 0.08


def test_the_likelihood_of_a_bin_adds_up_to_one(rows) -> None:
    plan = fw.plan(AGED, epsilon=10.0)
    release = fw.release(plan, rows, client="c0", simulated=True, seed=0)
    drawer = Drawer(fw.estimate(fw.Pool.of([release])))
    [scaled] = drawer.scaled.values()
    one = drawer.model.rows[drawer.model.rows[:, 0] == 1][:1]
    values = scaled.numbers[scaled.codes == 1]
    told = scaled.likelihood(np.repeat(one, len(values), axis=0), values)
    assert told.sum() == pytest.approx(1.0)
