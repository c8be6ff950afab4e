"""Attack study: every attack runs, crude ones are flagged, and the measures mean what they say."""

from __future__ import annotations

import math

import attacks
import doctored
import numpy as np
import pytest

from fedwise.data import synthetic
from fedwise.pool.screen import screen


@pytest.fixture(scope="module")
def world() -> doctored.World:
    names = ("AL", "AZ", "CA", "CO", "CT", "FL", "GA", "IL", "MD", "MA", "NY", "TX")
    frames = {name: synthetic.state(name, rows=2500, seed=1) for name in names}
    return doctored.World.of(frames, synthetic.schema())


@pytest.fixture(scope="module")
def scene(world: doctored.World) -> doctored.Scene:
    return doctored.Scene.of(world, 1.0, 0)


@pytest.mark.parametrize("name", doctored.ATTACKS)
def test_every_attack_answers_the_plan(name: str, scene: doctored.Scene) -> None:
    sent = doctored.ATTACKS[name](scene)
    assert set(sent) <= set(scene.attackers)
    assert scene.rival not in sent
    for who, row in sent.items():
        assert row.shape == scene.honest[who].shape
        assert row.dtype == np.int64
        assert not np.array_equal(row, scene.honest[who])
    again = doctored.ATTACKS[name](scene)
    assert all(np.array_equal(again[who], row) for who, row in sent.items())


def test_measures_of_an_honest_pool_are_zero(
    scene: doctored.Scene, world: doctored.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attacks, "SIZES", (3,))
    found = screen(world.clients, scene.honest, scene.plan)
    (row,) = attacks.measure(scene, "none", found, scene.honest, set())
    assert (row["flagged"], row["loss"], row["loss_unscreened"]) == (0.0, 0.0, 0.0)
    assert row["chosen"] == row["chosen_honest"] == row["chosen_unscreened"]
    assert row["rival"] == 1.0


def test_a_copy_wins_a_seat_only_where_nobody_screens(
    scene: doctored.Scene, world: doctored.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attacks, "SIZES", (3,))
    matrix = scene.honest.copy()
    matrix[scene.me] = matrix[scene.rival]
    found = screen(world.clients, matrix, scene.plan)
    (row,) = attacks.measure(scene, "copy", found, matrix, {scene.me})
    assert (row["flagged"], row["others_flagged"]) == (1.0, 1)
    assert (row["chosen_unscreened"], row["chosen"], row["rival"]) == (1.0, 0.0, 0.0)


def test_capping_changes_nobody_of_common_size(scene: doctored.Scene) -> None:
    np.testing.assert_array_equal(attacks.capped(scene.estimates).cells, scene.estimates.cells)


def test_alarms_of_honest_pools(world: doctored.World) -> None:
    table = attacks.study_alarms({"twelve": world}, (1.0, math.inf), 2)
    assert table["releases"].to_list() == [24, 12]
    assert table["flagged"].sum() == 0
