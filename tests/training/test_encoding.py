"""Encoding from the public schema."""

import numpy as np
import polars as pl
import pytest

from fedwise.errors import DataError, SchemaError
from fedwise.schema.schema import Schema
from fedwise.training.encoding import Encoder, Rows

FRAME = pl.DataFrame(
    {
        "AGE": [0.0, 50.0, None, 99.0],
        "JOB": ["a", "d", "nothing", "b"],
        "EDU": [1, 5, 3, 3],
        "SEX": [1, 2, 2, 1],
        "RACE": [3, 1, 2, 2],
        "Y": [0, 1, 1, 0],
    }
)


def test_inputs_by_hand(schema: Schema) -> None:
    encoder = Encoder(schema)
    rows = encoder.encode(FRAME)
    expected = np.zeros((4, encoder.width), dtype=np.float32)
    at = {name: i for i, name in enumerate(encoder.names)}
    for r, row in enumerate(FRAME.iter_rows(named=True)):
        # The bins run from 0 to 100: centre 50, half width 50. A missing age is 0 with its own mark.
        expected[r, at["AGE"]] = 0.0 if row["AGE"] is None else (row["AGE"] - 50) / 50
        expected[r, at["AGE=other"]] = row["AGE"] is None
        expected[r, at[f"JOB={row['JOB'] if row['JOB'] != 'nothing' else 'other'}"]] = 1
        for name in ("EDU", "SEX", "RACE"):
            expected[r, at[f"{name}={row[name]}"]] = 1
    np.testing.assert_array_equal(rows.matrix, expected)
    np.testing.assert_array_equal(rows.y, [0, 1, 1, 0])
    np.testing.assert_array_equal(rows.groups, [[0, 1, 1, 0], [2, 0, 1, 1]])


def test_sensitive_inputs_can_be_left_out(schema: Schema) -> None:
    encoder = Encoder(schema, use_sensitive=False)
    assert not any(name.startswith(("SEX", "RACE")) for name in encoder.names)
    assert encoder.encode(FRAME).groups.shape == (2, 4)


def test_inputs_do_not_depend_on_the_rows_seen(schema: Schema) -> None:
    encoder = Encoder(schema)
    whole = encoder.encode(FRAME)
    apart = [encoder.encode(FRAME[i : i + 1]) for i in range(4)]
    np.testing.assert_array_equal(Rows.concat(apart).matrix, whole.matrix)
    np.testing.assert_array_equal(whole.take(np.array([2, 0])).matrix, whole.matrix[[2, 0]])


def test_declared_scale_wins_over_bins() -> None:
    text = (
        '[columns.AGE]\nrole = "feature"\nbins = [0, 100]\nmodel = "scaled"\nscale = [40, 10]\n'
        '[columns.Y]\nrole = "target"\nrule = "AGE > 50"\n'
    )
    rows = Encoder(Schema.parse(text)).encode(pl.DataFrame({"AGE": [40, 60]}))
    np.testing.assert_array_equal(rows.matrix, [[0.0], [2.0]])
    np.testing.assert_array_equal(rows.y, [0, 1])


def test_rows_with_an_unknown_target_are_left_out() -> None:
    text = (
        '[columns.X]\nrole = "feature"\nlevels = [0, 1]\n'
        '[columns.Y]\nrole = "target"\nlevels = [0, 1]\nmissing = "other"\n'
    )
    rows = Encoder(Schema.parse(text)).encode(pl.DataFrame({"X": [0, 1, 1], "Y": [1, None, 0]}))
    np.testing.assert_array_equal(rows.y, [1, 0])
    np.testing.assert_array_equal(rows.matrix, [[1, 0], [0, 1]])


def test_a_target_of_three_levels_is_one_of_classes() -> None:
    text = (
        '[columns.X]\nrole = "feature"\nlevels = [0, 1]\n[columns.Y]\nrole = "target"\nlevels = [0, 1, 2]\n'
    )
    task = Encoder(Schema.parse(text)).task
    assert (task.kind, task.outputs, task.labels) == ("classes", 3, ("0", "1", "2"))


def test_all_columns_dropped_is_refused() -> None:
    text = (
        '[columns.X]\nrole = "feature"\nlevels = [0, 1]\nmodel = "drop"\n'
        '[columns.Y]\nrole = "target"\nlevels = [0, 1]\n'
    )
    with pytest.raises(SchemaError, match="drops every column"):
        Encoder(Schema.parse(text))


def test_an_all_missing_column_stops_by_name(schema: Schema) -> None:
    frame = FRAME.with_columns(pl.lit(None).cast(pl.Int64).alias("EDU"))
    with pytest.raises(DataError, match=r"client 'Ohio': column 'EDU' holds a missing value"):
        Encoder(schema).encode(frame, client="Ohio")


def test_an_all_missing_column_with_other_is_usable(schema: Schema) -> None:
    encoder = Encoder(schema)
    rows = encoder.encode(FRAME.with_columns(pl.lit(None).cast(pl.Float64).alias("AGE")))
    np.testing.assert_array_equal(rows.matrix[:, :2], [[0, 1]] * 4)
