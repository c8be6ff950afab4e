"""Crossed columns: codes, labels, sources, and what the loss and doubles make of them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import fedwise as fw
from fedwise.doubling.values import Values
from fedwise.errors import DataError, SchemaError
from fedwise.objective.weights import term_of

TEXT = """
[columns.AGE]
role = "feature"
bins = [0, 40, 90]
[columns.SEX]
role = "sensitive"
levels = [1, 2]
[columns.RACE]
role = "sensitive"
levels = ["a", "b", "c"]
unknown = "other"
[columns."SEX by RACE"]
role = "sensitive"
cross = ["SEX", "RACE"]
model = "drop"
[columns.Y]
role = "target"
levels = [0, 1]
"""
ROWS = pl.DataFrame({"AGE": [20, 50, 60], "SEX": [1, 2, 2], "RACE": ["c", "a", "zz"], "Y": [0, 1, 1]})


def test_a_crossed_column_has_the_combinations_of_its_parts() -> None:
    schema = fw.Schema.parse(TEXT)
    column = schema.column("SEX by RACE")
    assert column.size == 8
    assert column.labels[:5] == ("1 × a", "1 × b", "1 × c", "1 × other", "2 × a")
    assert column.sources == ("SEX", "RACE")
    assert schema.encode(ROWS)[3].tolist() == [2, 4, 7]


def test_a_copy_of_a_crossed_schema_has_the_same_digest() -> None:
    schema = fw.Schema.parse(TEXT)
    assert fw.Schema.parse(schema.to_toml()).digest == schema.digest


def test_a_value_outside_a_part_stops_as_the_part_says() -> None:
    with pytest.raises(DataError, match="column 'SEX' holds a value outside"):
        fw.Schema.parse(TEXT).encode(ROWS.with_columns(SEX=pl.lit(3)))


def test_a_crossed_column_and_its_parts_have_no_term() -> None:
    schema = fw.Schema.parse(
        TEXT.replace('[columns.SEX]\nrole = "sensitive"', '[columns.SEX]\nrole = "feature"')
    )
    at = {name: i for i, name in enumerate(schema.names)}
    assert term_of(schema, at["SEX"], at["SEX by RACE"]) is None
    assert term_of(schema, at["SEX by RACE"], at["AGE"]) == "proxy_bias"
    assert term_of(schema, at["SEX by RACE"], at["Y"]) == "direct_bias"
    pairs = {table.pair for table in fw.plan(schema).tables}
    assert ("SEX", "SEX by RACE") not in pairs
    assert ("SEX by RACE", "Y") in pairs


def test_doubles_of_a_crossed_column_agree_with_its_parts() -> None:
    schema = fw.Schema.parse(TEXT)
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(size, size=200) for size in schema.sizes], axis=1).astype(np.int16)
    frame, told = Values(schema).frame(codes, rng)
    assert np.array_equal(schema.encode(frame).T, told)
    assert np.array_equal(told[:, 3], told[:, 1] * 4 + told[:, 2])


@pytest.mark.parametrize(
    ("cross", "message"),
    [
        ('["SEX", "RAC"]', "crosses 'RAC', which is no column of the schema; did you mean 'RACE'"),
        ('["SEX"]', "must cross at least 2"),
        ('["SEX", "SEX"]', "must cross each column once"),
    ],
)
def test_parts_that_cannot_be_crossed(cross: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        fw.Schema.parse(TEXT.replace('["SEX", "RACE"]', cross))


def test_a_crossed_target_is_refused() -> None:
    parts = (fw.Column("A", "feature", levels=(0, 1)), fw.Column("B", "feature", levels=(0, 1)))
    with pytest.raises(SchemaError, match="it is no target"):
        fw.Column("T", "target", cross=parts)
