"""Synthetic states: seeded, in original codes, and close to the real ones where those are at hand."""

from __future__ import annotations

import io
import itertools
from importlib import resources
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedwise.data import synthetic
from fedwise.data.states import BY_USPS, FIFTY
from fedwise.errors import DataError
from fedwise.objective.pfl import information
from fedwise.schema.schema import Schema


def test_equal_seeds_give_equal_rows() -> None:
    one = synthetic.states(seed=3, scale=0.01)
    assert list(one) == list(FIFTY)
    assert one["WY"].equals(synthetic.state("Wyoming", rows=one["WY"].height, seed=3))
    assert one["CA"].equals(synthetic.states(seed=3, scale=0.01, names=["ca"])["CA"])
    assert not one["WY"].equals(synthetic.state("WY", rows=one["WY"].height, seed=4))


def test_natural_sizes() -> None:
    sizes = synthetic.sizes()
    assert (sizes["CA"], sizes["FL"], sizes["NY"], sizes["TX"], sizes["WY"]) == (
        195665,
        98925,
        103021,
        135924,
        3064,
    )
    assert sum(sizes.values()) == 1_655_392
    assert synthetic.sizes(0.1)["WY"] == 306
    assert synthetic.sizes(1e-6)["WY"] == 1


def test_the_shipped_schema_encodes_every_row() -> None:
    schema = synthetic.schema()
    for name in ("CA", "WY", "HI"):
        rows = synthetic.state(name, rows=5000)
        assert tuple(rows.columns) == synthetic.COLUMNS
        assert set(rows.dtypes) == {pl.Int16}
        assert rows.null_count().sum_horizontal().item() == 0
        assert schema.encode(rows).shape == (11, 5000)  # nothing outside its domain, nothing filtered out


def test_original_codes_are_plausible() -> None:
    rows = synthetic.state("TX", rows=20_000, seed=1)
    assert rows["AGEP"].min() == 17
    assert rows["AGEP"].max() <= 99  # type: ignore[operator]
    assert rows["AGEP"].n_unique() > 60
    assert rows["WKHP"].min() >= 1  # type: ignore[operator]
    # Forty hours is by far the most common working week, and most Texans were born in Texas.
    assert rows["WKHP"].mode().to_list() == [40]
    assert rows["POBP"].mode().to_list() == [BY_USPS["TX"].fips]


def test_resource_is_small_and_holds_no_pickle() -> None:
    data = (resources.files("fedwise.data") / "income2018.npz").read_bytes()
    assert len(data) < 500_000
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        assert not any(archive[name].dtype.hasobject for name in archive.files)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: synthetic.state("DC"), "must be one of the 50 states"),
        (lambda: synthetic.state("Calforna"), "did you mean 'California'"),
        (lambda: synthetic.state("CA", rows=0), "rows must be at least 1"),
        (lambda: synthetic.state("CA", rows=5, seed=-1), "seed must be at least 0"),
        (lambda: synthetic.states(scale=0), "scale must be above 0"),
        (lambda: synthetic.states(names=["PR"]), "must be one of the 50 states"),
    ],
)
def test_mistakes_in_arguments(call: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        call()  # type: ignore[operator]


def pair_information(schema: Schema, rows: pl.DataFrame) -> np.ndarray:
    """I(X;Y) of all pairs from the rows, straight from the counts."""
    codes, sizes = schema.encode(rows).astype(np.int64), schema.sizes
    found = []
    for x, y in itertools.combinations(range(len(sizes)), 2):
        table = np.bincount(codes[x] * sizes[y] + codes[y], minlength=sizes[x] * sizes[y])
        found.append(information(table.reshape(sizes[x], sizes[y]).astype(float)))
    return np.array(found)


@pytest.mark.acs
@pytest.mark.parametrize("seed", [0, 1])
def test_synthetic_states_look_like_the_real_ones(acs_dir: Path, seed: int) -> None:
    schema = synthetic.schema()
    records = pl.read_parquet(acs_dir / "acs2018_income.parquet").partition_by("ST", as_dict=True)
    real = np.array([pair_information(schema, records[name,]) for name in FIFTY])
    made = np.array(
        [pair_information(schema, synthetic.state(n, rows=records[n,].height, seed=seed)) for n in FIFTY]
    )
    pairs = list(itertools.combinations(schema.names, 2))
    direct = pairs.index(("SEX", "PINCP_gt50k"))
    signal = [j for j, (x, y) in enumerate(pairs) if y == "PINCP_gt50k" and x != "SEX"]
    # Promised: 0.015, 0.9, 0.9. Held to what the network really does, with a little room.
    assert np.abs(real - made).mean() < 0.007
    assert np.corrcoef(real[:, direct], made[:, direct])[0, 1] > 0.95
    assert np.corrcoef(real[:, signal].mean(axis=1), made[:, signal].mean(axis=1))[0, 1] > 0.97
