"""The drawer: a client's model has the client's tables, and not the pool's or something beyond them."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

import fedwise as fw
from fedwise.doubling.drawer import Drawer
from fedwise.estimation import estimate

FEATURES = 9
SCHEMA = fw.Schema(
    name="many features",
    columns=(
        *(fw.Column(f"x{i}", fw.Role.FEATURE, levels=(0, 1)) for i in range(FEATURES)),
        fw.Column("sex", fw.Role.SENSITIVE, levels=(0, 1)),
        fw.Column("label", fw.Role.TARGET, levels=(0, 1)),
    ),
)
RATES = {"few": 0.15, "some": 0.4, "many": 0.65}


def rows(client: str, number: int = 5_000) -> pl.DataFrame:
    """People of a client: the label is more or less frequent, and every feature goes with it."""
    rng = np.random.default_rng(sorted(RATES).index(client))
    label = (rng.random(number) < RATES[client]).astype(int)
    sex = (rng.random(number) < 0.4 + 0.2 * label).astype(int)
    columns = {
        f"x{i}": (rng.random(number) < 0.3 + 0.04 * i + 0.2 * label).astype(int) for i in range(FEATURES)
    }
    return pl.DataFrame({**columns, "sex": sex, "label": label})


@pytest.mark.parametrize("joint", [False, True])
def test_a_clients_model_has_its_label_rate_and_gap(joint: bool) -> None:
    """Learnt in five sweeps, as once, models overshoot: rates are off by .1, gaps by .07; now by .02 and .01."""
    plan = fw.plan(SCHEMA, math.inf, joint=joint)
    frames = {name: rows(name) for name in RATES}
    pool = fw.Pool.of(fw.release(plan, frames[name], client=name, no_privacy=True) for name in RATES)
    drawer = Drawer(estimate(pool), seed=1)
    for name, frame in frames.items():
        model = drawer.model_of(name, 400)
        codes = model.sample(20_000, sweeps=2, seed=3)
        chance = model.chances(codes, FEATURES + 1)[:, 1]
        assert chance.mean() == pytest.approx(frame["label"].mean(), abs=0.03), name
        found = [chance[codes[:, FEATURES] == sex].mean() for sex in (0, 1)]
        real = [frame.filter(pl.col("sex") == sex)["label"].mean() for sex in (0, 1)]
        assert found[1] - found[0] == pytest.approx(real[1] - real[0], abs=0.02), name
