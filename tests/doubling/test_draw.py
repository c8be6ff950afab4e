"""Doubles of a pool: sizes, tables, structure, determinism and files."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import fedwise as fw
from conftest import make_people
from fedwise.doubling.draw import ARTIFICIAL, Doubles, doubles
from fedwise.estimation import estimate
from fedwise.owner.tables import count


@pytest.fixture(scope="module")
def pool(small_schema) -> fw.Pool:
    """Six clients of different sizes at ε = 2, one of them tiny."""
    plan = fw.plan(small_schema, epsilon=2.0)
    sizes = {"A": 4000, "B": 3000, "C": 2500, "D": 2000, "E": 1500, "tiny": 40}
    return fw.Pool.of(
        fw.release(plan, make_people(rows, seed=i), client=name, simulated=True, seed=i)
        for i, (name, rows) in enumerate(sizes.items())
    )


@pytest.fixture(scope="module")
def made(pool) -> Doubles:
    return doubles(pool, seed=3)


def test_a_double_has_the_estimated_records_and_tables(pool, made) -> None:
    estimates = estimate(pool)
    for i, client in enumerate(pool.clients):
        frame = made[client]
        assert frame.height == max(1, round(float(estimates.totals[i])))
        if frame.height < 1_000:
            continue
        counts = count(pool.plan.schema.encode(frame), pool.plan.layout).exact
        off = (
            np.abs(counts - np.maximum(estimates.cells[i], 0)).sum()
            / 2
            / frame.height
            / pool.plan.layout.tables
        )
        assert off < 0.01


def test_columns_are_those_the_schema_reads(pool, made) -> None:
    frame = made["A"]
    assert set(frame.columns) == {"AGE", "JOB", "SEX", "INCOME"}
    assert pool.plan.schema.encode(frame).shape == (4, frame.height)


def test_equal_seeds_give_equal_doubles_whoever_else_is_drawn(pool, made) -> None:
    again = doubles(pool, clients=["C"], seed=3)
    assert again["C"].equals(made["C"])
    assert not doubles(pool, clients=["C"], seed=4)["C"].equals(made["C"])


def test_fewer_records_on_request(pool) -> None:
    small = doubles(pool, clients=["A", "tiny"], records=500)
    assert small["A"].height == 500
    assert small["tiny"].height < 500


def test_files_say_that_they_are_artificial(made, tmp_path) -> None:
    paths = made.save(tmp_path / "doubles")
    assert [path.name for path in paths] == [f"{client}.parquet" for client in made]
    note = pl.read_parquet_metadata(paths[0])
    assert "drawn by fedwise from released tables" in note[ARTIFICIAL]
    assert note["fedwise.releases"] == "simulated"
    assert pl.read_parquet(paths[0]).equals(made["A"])
    with pytest.raises(fw.FedwiseError, match="exists already"):
        made.save(tmp_path / "doubles")
    made.save(tmp_path / "doubles", force=True)


def test_a_stranger_is_named(pool, made) -> None:
    with pytest.raises(fw.FedwiseError, match=r"no client 'tine'.*'tiny'"):
        doubles(pool, clients=["tine"])
    with pytest.raises(fw.FedwiseError, match="no client 'tine'"):
        made["tine"]
    with pytest.raises(fw.FedwiseError, match="clients must be a list"):
        doubles(pool, clients="tiny")
    assert "tine" not in made
    assert len(made) == 6
    assert "6 clients (simulated releases)" in repr(made)


def test_structure_beyond_pairs_is_closer_than_independence(small_schema) -> None:
    """Triples of a double from exact tables against the real ones, beside records that only have the marginals."""
    people = make_people(6_000, seed=9)
    plan = fw.plan(small_schema, epsilon=float("inf"))
    pool = fw.Pool.of([fw.release(plan, people, client="X", no_privacy=True)])
    drawn = small_schema.encode(doubles(pool)["X"])
    real = small_schema.encode(people)

    def triples(codes: np.ndarray) -> np.ndarray:
        sizes = small_schema.sizes
        out = []
        for a, b, c in ((0, 1, 3), (0, 1, 2), (1, 2, 3)):
            cell = (codes[a].astype(np.int64) * sizes[b] + codes[b]) * sizes[c] + codes[c]
            out.append(np.bincount(cell, minlength=sizes[a] * sizes[b] * sizes[c]) / codes.shape[1])
        return np.concatenate(out)

    rng = np.random.default_rng(0)
    alone = np.stack([rng.permutation(line) for line in real])
    off, far = (np.abs(triples(codes) - triples(real)).sum() / 2 / 3 for codes in (drawn, alone))
    assert off < 0.03 < 0.1 < far
