"""The network: tables are distributions, draws follow them, the file gives it back."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy import stats

from fedwise.data.network import Family, Network, Values, margin_shape, margins, quantise_pool, quantise_tilts
from fedwise.errors import DataError


def tiny(seed: int = 0) -> Network:
    """Two features, b depending on a; two states; one binned feature."""
    rng = np.random.default_rng(seed)

    def family(name: str, parents: tuple[str, ...], shape: tuple[int, ...]) -> Family:
        cells = sum(int(np.prod(margin_shape(shape, m))) for m in margins(len(shape)))
        pool = rng.dirichlet(np.ones(shape[-1]), size=shape[:-1])
        return Family(
            name, parents, shape, quantise_pool(pool), quantise_tilts(rng.normal(0, 0.3, (2, cells)))
        )

    return Network(
        states=("CA", "NY"),
        rows=(10, 20),
        groups=np.array([[1, 2, 3, 4], [4, 4, 1, 1]], np.uint16),
        families=(family("a", (), (2, 2, 3)), family("b", ("a",), (2, 2, 3, 4))),
        values={"a": Values(np.array([1, 5, 7, 9], np.int16), np.array([0, 1, 1, 2], np.uint8), WEIGHTS)},
        home=np.array([10, 200], np.uint8),
    )


WEIGHTS = np.array([[5, 1, 3, 1], [5, 2, 2, 1], [5, 3, 1, 1], [5, 4, 0, 1]], np.uint16)


def test_tables_are_the_tilted_pool() -> None:
    family = tiny().families[1]
    table = family.table(1).reshape(family.shape)
    tilt = family.tilts[1].astype(float) / 20
    for at in np.ndindex(2, 2, 3):
        y, s, a = at
        weights = []
        for x in range(4):
            joint = tilt[:16].reshape(2, 2, 4)[y, s, x]
            label = tilt[16:40].reshape(2, 3, 4)[y, a, x]
            sex = tilt[40:64].reshape(2, 3, 4)[s, a, x]
            p = 2.0 ** ((float(family.pool[y, s, a, x]) - 255) / 16)
            weights.append(p * np.exp(joint + label + sex))
        np.testing.assert_allclose(table[at], np.array(weights) / sum(weights), rtol=1e-12)


def test_never_stays_never() -> None:
    pool = np.array([[0.0, 0.25, 0.75]])
    assert quantise_pool(pool).tolist() == [[0, 223, 248]]
    base = tiny().families[0]
    family = Family("a", (), base.shape, base.pool.copy(), base.tilts)
    family.pool[:, :, 1] = 0
    assert (family.table(0)[:, 1] == 0).all()
    network = tiny()
    closed = Network(network.states, network.rows, network.groups, (family,), {}, network.home)
    assert 1 not in closed.draw(0, 5000, np.random.default_rng(0))["a"]


def test_quantisation_is_finer_than_five_percent() -> None:
    p = np.linspace(0.001, 1, 1000)
    back = 2.0 ** ((quantise_pool(p).astype(float) - 255) / 16)
    assert np.abs(back / p - 1).max() < 0.022
    assert quantise_tilts(np.array([100.0, -100.0, 0.1])).tolist() == [127, -127, 2]


def test_draws_follow_the_tables() -> None:
    """χ² of the whole joint distribution; false alarms at 1e-6, seed fixed."""
    network, rows = tiny(), 200_000
    drawn = network.draw(0, rows, np.random.default_rng(7))
    group = drawn["label"] * 2 + drawn["SEX"]
    share = network.groups[0] / network.groups[0].sum()
    a, b = (family.table(0) for family in network.families)
    expected = share[:, None, None] * a[:, :, None] * b.reshape(4, 3, 4)
    flat = group.astype(int) * 12 + drawn["a"] * 4 + drawn["b"]
    seen = np.bincount(flat, minlength=48)
    assert stats.chisquare(seen, expected.ravel() * rows).pvalue > 1e-6


def test_values_stay_in_their_bin_and_follow_their_weights() -> None:
    values = tiny().values["a"]
    rng = np.random.default_rng(3)
    bins = rng.integers(0, 3, 60_000).astype(np.int16)
    group = rng.integers(0, 4, 60_000).astype(np.int16)
    drawn = values.draw(bins, group, rng.random(60_000))
    assert set(drawn[bins == 0]) == {1}
    assert set(drawn[bins == 2]) == {9}
    for g, share in enumerate((0.25, 0.5, 0.75, 1.0)):
        inside = drawn[(bins == 1) & (group == g)]
        assert set(inside) <= {5, 7}
        # 5000 draws: five standard errors, false alarm below 1e-6.
        assert np.mean(inside == 5) == pytest.approx(share, abs=5 * np.sqrt(0.25 / 5000))
    edges = values.draw(
        np.repeat(np.int16(1), 8), np.tile(np.arange(4, dtype=np.int16), 2), np.repeat([0.0, 1 - 2**-53], 4)
    )
    assert set(edges) <= {5, 7}


def test_the_file_gives_the_network_back() -> None:
    network = tiny()
    data = network.dump()
    assert data == network.dump()
    back = Network.parse(data)
    first = network.draw(1, 500, np.random.default_rng(1))
    second = back.draw(1, 500, np.random.default_rng(1))
    assert pl.DataFrame(first).equals(pl.DataFrame(second))
    assert (back.states, back.rows) == (network.states, network.rows)


def test_other_formats_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedwise.data.network.FORMAT", "fedwise-network-0")
    old = tiny().dump()
    monkeypatch.undo()
    with pytest.raises(DataError, match="must have format fedwise-network-1, got fedwise-network-0"):
        Network.parse(old)
