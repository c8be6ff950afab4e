"""Values of doubles: whatever the schema, reading them gives the codes back."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import fedwise as fw
from fedwise.doubling.values import Values

TANGLED = """
name = "tangled"
where = ["16 < AGE < 90", "INCOME > 100", "REGION != \\"sea\\""]

[columns.AGE]
role = "feature"
bins = [0, 18, 30.5, 65, 100]

[columns.ADULT]
role = "feature"
rule = "AGE >= 21 and AGE < 60"

[columns.INCOME]
role = "feature"
bins = [0, 20000, 60000, 1000000]
unknown = "other"

[columns.RICH]
role = "target"
rule = "INCOME > 50000"

[columns.JOB]
role = "feature"
levels = ["01", "other0", "x"]
missing = "other"

[columns.RACE]
role = "feature"
levels = [1, 2, 6]
unknown = "other"

[columns.WHITE]
role = "sensitive"
rule = "RACE == 1"

[columns.ALONE]
role = "feature"
rule = "STATUS != 1 and CHILDREN == 0"
missing = "other"

[columns.NAMED]
role = "feature"
levels = [0, 1]
source = ["first", "second"]
"""


def every_code(schema: fw.Schema, rows: int, seed: int = 0) -> np.ndarray:
    """Codes drawn without regard to what is possible."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(size, size=rows) for size in schema.sizes], axis=1).astype(np.int16)


def test_reading_a_frame_gives_its_codes_back() -> None:
    schema = fw.Schema.parse(TANGLED)
    values = Values(schema)
    frame, codes = values.frame(every_code(schema, 3_000), np.random.default_rng(1))
    assert frame.height == 3_000
    np.testing.assert_array_equal(schema.encode(frame), codes.T)


def test_possible_codes_are_kept_as_they_are() -> None:
    schema = fw.Schema.parse(TANGLED)
    values = Values(schema)
    _, possible = values.frame(every_code(schema, 2_000), np.random.default_rng(1))
    frame, codes = values.frame(possible, np.random.default_rng(2))
    np.testing.assert_array_equal(codes, possible)
    np.testing.assert_array_equal(schema.encode(frame), possible.T)


def test_columns_of_one_source_agree() -> None:
    schema = fw.Schema.parse(TANGLED)
    values = Values(schema)
    race, white = schema.names.index("RACE"), schema.names.index("WHITE")
    np.testing.assert_array_equal(
        values.possible(race, white), [[False, True], [True, False], [True, False], [True, False]]
    )
    income, rich = schema.names.index("INCOME"), schema.names.index("RICH")
    # 50,000 lies inside a bin; above the last bin is the level for what is unknown, and it is rich.
    np.testing.assert_array_equal(
        values.possible(income, rich), [[True, False], [True, True], [False, True], [False, True]]
    )


def test_levels_the_filter_excludes_are_impossible() -> None:
    schema = fw.Schema.parse(
        'where = ["A > 5"]\n[columns.A]\nrole = "feature"\nbins = [0, 5, 6, 9]\n'
        '[columns.Y]\nrole = "target"\nlevels = [0, 1]\n'
    )
    # Above 5 and below 6 lies no whole number.
    np.testing.assert_array_equal(
        Values(schema).possible(0, 1), [[False, False], [False, False], [True, True]]
    )


def test_values_spread_over_their_bin() -> None:
    schema = fw.Schema.parse(TANGLED)
    codes = np.zeros((500, len(schema.columns)), np.int16)
    codes[:, schema.names.index("AGE")] = 2
    codes[:, schema.names.index("INCOME")] = 1
    frame, _ = Values(schema).frame(codes, np.random.default_rng(0))
    assert frame["AGE"].n_unique() > 20
    assert frame["INCOME"].n_unique() > 20


def test_whole_numbers_stay_whole() -> None:
    schema = fw.Schema.parse(TANGLED)
    frame, _ = Values(schema).frame(every_code(schema, 50), np.random.default_rng(0))
    assert frame.schema["RACE"] == pl.Int64
    assert frame.schema["AGE"] == pl.Float64  # an edge at 30.5
    assert frame.schema["JOB"] == pl.String
    assert "first" in frame.columns
    assert "second" not in frame.columns


def test_a_filter_that_nothing_passes_is_refused() -> None:
    schema = fw.Schema.parse(
        'where = ["A > 5", "A < 3"]\n[columns.A]\nrole = "feature"\nbins = [0, 5, 9]\n'
        '[columns.Y]\nrole = "target"\nlevels = [0, 1]\n'
    )
    with pytest.raises(fw.FedwiseError, match="some value of 'A'"):
        Values(schema)
