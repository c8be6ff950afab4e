"""Codes: equal to a slow reference, whatever the rows come in."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedwise as fw
from conftest import make_people
from fedwise.errors import DataError


def one_column(body: str) -> fw.Schema:
    """A schema whose first column A is under test."""
    return fw.Schema.parse(
        f'[columns.A]\nrole = "feature"\n{body}\n[columns.T]\nrole = "target"\nlevels = [0, 1]\n'
    )


def reference(column: fw.Column, value: object) -> int | str:
    """Code of one value by the docs, in plain Python; a text names the reason to stop."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return column.size - 1 if column.missing == "other" else "missing"
    if column.levels is not None:
        for code, level in enumerate(column.levels):
            if value == level:
                return code
    else:
        assert column.bins is not None
        for code in range(len(column.bins) - 1):
            if column.bins[code] <= value < column.bins[code + 1]:  # type: ignore[operator]
                return code
    return column.size - 1 if column.unknown == "other" else "a value outside"


def check(schema: fw.Schema, values: list[object], frame: object) -> None:
    """Codes equal the reference, or the reason to stop is the reference's, without any value."""
    column = schema.columns[0]
    expected = [reference(column, value) for value in values]
    reasons = [e for e in expected if isinstance(e, str)]
    if not reasons:
        np.testing.assert_array_equal(schema.encode(frame)[0], np.array(expected, dtype=np.int16))
        return
    with pytest.raises(DataError) as caught:
        schema.encode(frame)
    assert any(reason in str(caught.value) for reason in reasons)
    assert "column 'A'" in str(caught.value)


NUMBERS = (
    *(pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Int128, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64),
    *(pl.Float32, pl.Float64, pl.Decimal(10, 2)),
)
HANDLING = st.sampled_from(["stop", "other"])
HUGE = (2**31, -(2**62), 2**53, 2**53 + 1)
LEVELS = st.lists(st.one_of(st.integers(-10, 10), st.just(2**53)), min_size=1, max_size=6, unique=True)
EDGES = st.lists(
    st.one_of(
        st.integers(-10, 10).map(float),
        st.floats(-10, 10, allow_subnormal=False),
        st.sampled_from([4e5, 1e9, 2.0**53, 1e300]),
    ),
    min_size=2,
    max_size=6,
    unique=True,
).map(sorted)


@st.composite
def domains(draw: st.DrawFn) -> tuple[fw.Schema, list[float]]:
    """A schema of one numeric column, and the numbers at which its codes change."""
    kind, numbers = draw(st.one_of(LEVELS.map(lambda n: ("levels", n)), EDGES.map(lambda n: ("bins", n))))
    body = f'{kind} = {numbers}\nmissing = "{draw(HANDLING)}"\nunknown = "{draw(HANDLING)}"'
    return one_column(body), list(numbers)


def near(numbers: list[float], *, whole: bool) -> st.SearchStrategy[float | None]:
    """Values on, just beside and far from the borders of a domain; missing ones; sometimes only known ones."""
    if whole:
        borders = [int(f(n)) for n in numbers if abs(n) < 2**60 for f in (math.floor, math.ceil)]
        beside = [b + step for b in borders for step in (-1, 0, 1)]
        return st.one_of(
            st.none(), st.sampled_from(beside or [0]), st.integers(-12, 12), st.sampled_from(HUGE)
        )
    sides = [side for n in numbers for side in (n, math.nextafter(n, -math.inf), math.nextafter(n, math.inf))]
    odd = [math.nan, math.inf, -math.inf, -0.0]
    return st.one_of(
        st.none(),
        st.sampled_from([*sides, *odd]).map(float),
        st.floats(-12, 12),
        st.integers(-12, 12).map(float),
    )


@settings(max_examples=150)
@given(domain=domains(), data=st.data())
def test_whole_numbers(domain: tuple[fw.Schema, list[float]], data: st.DataObject) -> None:
    schema, numbers = domain
    values = data.draw(st.lists(near(numbers, whole=True), max_size=6))
    check(
        schema,
        values,
        pl.DataFrame({"A": pl.Series(values, dtype=pl.Int64), "T": pl.Series([0] * len(values))}),
    )


@settings(max_examples=150)
@given(domain=domains(), data=st.data())
def test_decimal_numbers(domain: tuple[fw.Schema, list[float]], data: st.DataObject) -> None:
    schema, numbers = domain
    values = data.draw(st.lists(near(numbers, whole=False), max_size=6))
    check(
        schema,
        values,
        pl.DataFrame({"A": pl.Series(values, dtype=pl.Float64), "T": pl.Series([0] * len(values))}),
    )


@settings(max_examples=100)
@given(numbers=st.one_of(LEVELS, EDGES), levels=st.booleans())
def test_every_border_of_a_domain(numbers: list[float], levels: bool) -> None:
    """All values on and beside each border at once, as whole numbers and as decimals."""
    if levels:
        numbers = sorted({int(n) for n in numbers if abs(n) <= 2**53}) or [0]
    elif len(numbers) < 2:
        numbers = [*numbers, 2.0**53 + 2]
    numbers = sorted(numbers)
    schema = one_column(f'{"levels" if levels else "bins"} = {numbers}\nmissing = "other"\nunknown = "other"')
    near_by = [
        f(n) + step for n in numbers if abs(n) < 2**60 for f in (math.floor, math.ceil) for step in (-1, 0, 1)
    ]
    whole = [*near_by, *HUGE, None]
    check(schema, list(whole), pl.DataFrame({"A": pl.Series(whole, dtype=pl.Int64), "T": [0] * len(whole)}))
    sides = [
        float(f) for n in numbers for f in (n, math.nextafter(n, -math.inf), math.nextafter(n, math.inf))
    ]
    decimal = [*sides, *map(float, near_by), math.nan, math.inf, -math.inf, None]
    check(
        schema,
        list(decimal),
        pl.DataFrame({"A": pl.Series(decimal, dtype=pl.Float64), "T": [0] * len(decimal)}),
    )
    # One by one where the schema says stop: a value on the wrong side must stop, and no other.
    strict = one_column(f"{'levels' if levels else 'bins'} = {numbers}")
    for value in sides[:9]:
        check(strict, [value], pl.DataFrame({"A": [value], "T": [0]}))
    for number in near_by[:9]:
        check(strict, [number], pl.DataFrame({"A": [number], "T": [0]}))
    for value in sides[-3:]:
        check(strict, [value], pl.DataFrame({"A": [value], "T": [0]}))


@pytest.mark.parametrize("last", [4, 4.5, 2_000_000])
def test_bins_are_half_open(last: float) -> None:
    # The first edge belongs to a bin, the last one to none; also past the size of a look-up table.
    schema = one_column(f'bins = [0, 2, {last}]\nunknown = "other"')
    end = math.ceil(last)
    values = [-1, 0, 1, 2, end - 1, end, end + 1]
    for dtype in (pl.Int64, pl.Float64):
        codes = schema.encode(pl.DataFrame({"A": pl.Series(values, dtype=dtype), "T": [0] * 7}))[0]
        assert codes.tolist() == [2, 0, 0, 1, 1, 2, 2]


@given(
    levels=st.lists(st.sampled_from(["a", "b", "ä", "", "01", "A "]), min_size=1, max_size=5, unique=True),
    missing=HANDLING,
    unknown=HANDLING,
    values=st.lists(st.sampled_from([None, "a", "b", "ä", "", "01", "1", "A "]), max_size=8),
    kind=st.sampled_from([pl.String, pl.Categorical, pl.Enum(["a", "b", "ä", "", "01", "1", "A "])]),
)
def test_text(
    levels: list[str], missing: str, unknown: str, values: list[str | None], kind: pl.DataType
) -> None:
    quoted = "[" + ", ".join(f'"{level}"' for level in levels) + "]"
    schema = one_column(f'levels = {quoted}\nmissing = "{missing}"\nunknown = "{unknown}"')
    frame = pl.DataFrame(
        {"A": pl.Series(values, dtype=pl.String).cast(kind), "T": pl.Series([0] * len(values))}
    )
    check(schema, values, frame)


@pytest.mark.parametrize(
    "dtype",
    NUMBERS,
)
@pytest.mark.parametrize(
    "domain", ["levels = [3, 1, 2]", "bins = [1, 2, 2.5, 4]", "levels = [3, 1, 2, 70000000]"]
)
def test_every_number_type(dtype: pl.DataType, domain: str) -> None:
    schema = one_column(f'{domain}\nmissing = "other"\nunknown = "other"')
    values = [3, None, 2, 1, 9, 0, 3]
    frame = pl.DataFrame({"A": pl.Series(values).cast(dtype), "T": [0] * len(values)})
    check(schema, list(values), frame)


def test_huge_whole_numbers_do_not_round_into_the_domain() -> None:
    schema = one_column(f'levels = [0, {2**53}]\nunknown = "other"')
    values = [2**53, 2**53 + 1, 2**63 - 1, -(2**63), 0]
    codes = schema.encode(pl.DataFrame({"A": values, "T": [0] * 5}))[0]
    assert codes.tolist() == [1, 2, 2, 2, 0]
    codes = schema.encode(pl.DataFrame({"A": pl.Series([2**64 - 1], dtype=pl.UInt64), "T": [0]}))[0]
    assert codes.tolist() == [2]


def test_booleans_are_zero_and_one() -> None:
    frame = pl.DataFrame({"A": [True, False, None], "T": [0, 0, 0]})
    assert one_column('levels = [1, 0]\nmissing = "other"').encode(frame)[0].tolist() == [0, 1, 2]
    assert one_column('bins = [0, 1, 2]\nmissing = "other"').encode(frame)[0].tolist() == [1, 0, 2]


def test_every_source_gives_the_same_codes(tmp_path: Path, small_schema: fw.Schema) -> None:
    people = make_people(200).with_columns(
        pl.when(pl.int_range(pl.len()) % 7 == 0).then(None).otherwise(pl.col("JOB")).alias("JOB")
    )
    people.write_csv(tmp_path / "p.csv")
    people.write_parquet(tmp_path / "p.parquet")
    pandas = people.to_pandas()
    expected = small_schema.encode(people)
    assert expected.shape == (4, 200)
    assert expected.dtype == np.int16
    assert expected.flags.c_contiguous
    for source in [
        people.lazy(),
        pandas,
        pandas.astype({"AGE": float, "JOB": "category", "SEX": "Int64"}),
        people.to_arrow(),
        people.with_columns(pl.col("JOB").cast(pl.Categorical), pl.col("SEX").cast(pl.Int8)).to_arrow(),
        tmp_path / "p.csv",
        str(tmp_path / "p.parquet"),
    ]:
        np.testing.assert_array_equal(small_schema.encode(source), expected)


def test_csv_codes_that_look_like_numbers(tmp_path: Path) -> None:
    # A code such as 01 is text where the schema says so, in CSV as in Parquet.
    schema = fw.Schema.parse(
        '[columns.A]\nrole = "feature"\nlevels = ["01", "02"]\nmissing = "other"\n'
        '[columns.T]\nrole = "target"\nrule = "CODE == \'07\'"\n'
    )
    frame = pl.DataFrame({"A": ["02", None, "01"], "CODE": ["07", "7", "07"]})
    frame.write_csv(tmp_path / "p.csv")
    for source in (frame, tmp_path / "p.csv"):
        assert schema.encode(source).tolist() == [[1, 2, 0], [1, 0, 1]]


def test_files_without_rows_and_columns_without_values(tmp_path: Path, small_schema: fw.Schema) -> None:
    (tmp_path / "h.csv").write_text("AGE,JOB,SEX,INCOME\n")
    assert small_schema.encode(tmp_path / "h.csv").shape == (4, 0)
    assert small_schema.encode(make_people(0)).shape == (4, 0)
    (tmp_path / "v.csv").write_text("AGE,JOB,SEX,INCOME\n20,,1,3\n30,,2,4\n")
    assert small_schema.encode(tmp_path / "v.csv")[1].tolist() == [3, 3]
    with pytest.raises(DataError, match="column 'AGE' holds a missing value"):
        small_schema.encode(pl.DataFrame({"AGE": [None], "JOB": ["farm"], "SEX": [1], "INCOME": [1]}))


def test_target_by_rule_and_its_missing_values() -> None:
    text = '[columns.A]\nrole = "feature"\nlevels = [0, 1]\n[columns.T]\nrole = "target"\nrule = "X >= 2"\n'
    frame = pl.DataFrame({"A": [0, 1, 1], "X": [2, None, 1]})
    assert fw.Schema.parse(text + 'missing = "other"').encode(frame)[1].tolist() == [1, 2, 0]
    with pytest.raises(DataError, match="column 'T' holds a missing value"):
        fw.Schema.parse(text).encode(frame)


def test_filter_and_sources() -> None:
    schema = fw.Schema.parse(
        'where = ["AGE > 16", "HOURS > 0"]\n[columns.A]\nrole = "feature"\nlevels = [1, 2]\nsource = ["NEW", "OLD"]\n'
        '[columns.T]\nrole = "target"\nlevels = [0, 1]\n'
    )
    frame = pl.DataFrame(
        {"OLD": [1, 2, 2, 1], "T": [0, 1, 1, 1], "AGE": [17, 16, 40, 50], "HOURS": [1, 1, 2, None]}
    )
    assert schema.encode(frame).tolist() == [[0, 1], [0, 1]]
    newer = frame.with_columns(NEW=3 - pl.col("OLD"))
    assert schema.encode(newer).tolist() == [[1, 0], [0, 1]]
    with pytest.raises(
        DataError, match="column 'HOURS' is missing from the data; the filter 'HOURS > 0' reads it"
    ):
        schema.encode(frame.drop("HOURS"))
    with pytest.raises(DataError, match="'NEW' or 'OLD' is missing"):
        schema.encode(frame.drop("OLD"))
