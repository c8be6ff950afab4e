"""Schema: what people may write, and codes that equal a slow reference whatever the rows come in."""

from __future__ import annotations

import math
import pickle
import traceback
from copy import deepcopy
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedwise as fw
from conftest import SMALL, make_people
from fedwise.data import schema as shipped
from fedwise.data import schemas
from fedwise.errors import DataError, SchemaError

SECRET = "S3NT1NEL"
SECRET_NUMBER = 987654321


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


LEAKS = {
    "unknown text": ({"JOB": SECRET}, 'unknown = "other"', 'unknown = "stop"'),
    "unknown number": ({"SEX": SECRET_NUMBER}, "", ""),
    "unknown bin": ({"AGE": SECRET_NUMBER}, "", ""),
    "text for numbers": ({"AGE": SECRET}, "", ""),
    "number for text": ({"JOB": SECRET_NUMBER}, "", ""),
    "text in the rule": ({"INCOME": SECRET}, "", ""),
    "missing": ({"SEX": None, "JOB": SECRET}, "", ""),
}


@pytest.mark.parametrize("case", LEAKS)
@pytest.mark.parametrize("kind", ["polars", "pandas", "csv"])
def test_no_message_holds_a_value(case: str, kind: str, tmp_path: Path) -> None:
    change, old, new = LEAKS[case]
    schema = fw.Schema.parse(SMALL.replace(old, new) if old else SMALL)
    rows = [{"AGE": 20, "JOB": "farm", "SEX": 1, "INCOME": 5}] * 3 + [
        {"AGE": 20, "JOB": "farm", "SEX": 1, "INCOME": 5} | change
    ]
    table = pd.DataFrame(rows)
    if kind == "polars" and not any(isinstance(v, str) and k != "JOB" for k, v in change.items()):
        source: object = pl.DataFrame(
            {name: pl.Series([row[name] for row in rows], strict=False) for name in rows[0]}
        )
        if case == "number for text":
            source = pl.DataFrame(rows[-1:])
    elif kind == "csv":
        table.to_csv(tmp_path / "p.csv", index=False)
        source = tmp_path / "p.csv"
        if case == "number for text":
            # A CSV file has no types of its own: the number is an unknown text, counted as other.
            assert schema.encode(source)[1].tolist() == [0, 0, 0, 3]
            return
    else:
        source = table
    with pytest.raises(DataError) as caught:
        schema.encode(source)
    shown = "".join(traceback.format_exception(caught.value))
    for secret in (SECRET, str(SECRET_NUMBER)):
        assert secret not in str(caught.value)
        assert secret not in shown
    assert not any(word.isdigit() for word in str(caught.value).replace("50000", "").split())


REFUSED = {
    "not toml": ("= 3", "not valid TOML"),
    "no columns": ('name = "x"', "at least one"),
    "columns no table": ("columns = 3", "at least one"),
    "column no table": ("[columns]\nA = 3", "must be a table"),
    "unknown key": (SMALL.replace("bins =", "bin ="), "AGE"),
    "unknown role": (SMALL.replace('"sensitive"', '"private"'), "SEX.role"),
    "name given twice": (
        SMALL.replace("[columns.AGE]", '[columns.AGE]\nname = "SEX"'),
        "drop the key 'name'",
    ),
    "no domain": (SMALL.replace("levels = [1, 2]", ""), "exactly one of levels, bins or rule"),
    "two domains": (SMALL.replace("levels = [1, 2]", "levels = [1, 2]\nbins = [0, 1]"), "exactly one"),
    "empty levels": (SMALL.replace("levels = [1, 2]", "levels = []"), "'SEX' must have at least 1 level"),
    "one edge": (SMALL.replace("bins = [0, 18, 40, 65, 120]", "bins = [0]"), "'AGE' must have at least 1"),
    "edges fall": (SMALL.replace("18, 40", "40, 18"), "increasing order"),
    "edges repeat": (SMALL.replace("18, 40", "18, 18"), "increasing order"),
    "edge infinite": (SMALL.replace("120]", "inf]"), "finite"),
    "edge nan": (SMALL.replace("120]", "nan]"), "finite"),
    "edge huge": (SMALL.replace("120]", "1" + "0" * 400 + "]"), "AGE"),
    "level twice": (SMALL.replace("[1, 2]", "[1, 1]"), "each level once"),
    "levels mixed": (SMALL.replace("[1, 2]", '[1, "x"]'), "one type"),
    "levels boolean": (SMALL.replace("[1, 2]", "[true, false]"), "SEX"),
    "level huge": (SMALL.replace("[1, 2]", f"[1, {2**53 + 1}]"), "below 2"),
    "level other": (SMALL.replace('"office"]', '"other"]'), "rename it"),
    "too many levels": (SMALL.replace("[1, 2]", str(list(range(10_001)))), "at most 10000"),
    "two targets": (SMALL.replace('"sensitive"', '"target"'), "exactly one target"),
    "no target": (SMALL.replace('"target"', '"feature"'), "exactly one target"),
    "no feature": (SMALL.replace('"feature"', '"sensitive"'), "at least one column"),
    "target of one level": (
        SMALL.replace('rule = "INCOME > 50000"', "levels = [1]"),
        "at least 2 levels, got 1",
    ),
    "target of one bin": (
        SMALL.replace('rule = "INCOME > 50000"', "bins = [0, 9]"),
        "at least 2 levels, got 1",
    ),
    "bad rule": (SMALL.replace("INCOME > 50000", "INCOME >> 50000"), "rule 'INCOME >> 50000'"),
    "rule with source": (SMALL + 'source = "INCOME"', "drop 'source'"),
    "bad filter": ('where = ["AGE"]\n' + SMALL.replace('name = "small"', ""), "rule 'AGE'"),
    "bad column name": (SMALL.replace("[columns.AGE]", '[columns."a/b"]'), "must start with a letter"),
    "column name with line": (
        SMALL.replace("[columns.AGE]", '[columns."AGE\\n"]'),
        "must start with a letter",
    ),
    "terminal codes in name": (SMALL.replace('"small"', '"\\u001b[2J"'), "printable"),
    "scale without model": (SMALL.replace("120]", "120]\nscale = [1, 2]"), "scale needs model"),
    "scale nan": (SMALL.replace("120]", '120]\nmodel = "scaled"\nscale = [nan, 2]'), "scale needs model"),
    "scaled text": (SMALL.replace('"office"]', '"office"]\nmodel = "scaled"\nscale = [1, 2]'), "numeric"),
    "deep nesting": ("x = " + "[" * 5000 + "]" * 5000, "."),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_schemas(case: str) -> None:
    text, message = REFUSED[case]
    with pytest.raises(SchemaError, match=message) as caught:
        fw.Schema.parse(text, where="schema file 'x.toml'")
    assert str(caught.value).startswith("schema file 'x.toml'")
    assert len(str(caught.value)) < 500


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="does not exist"):
        fw.Schema.load(tmp_path / "absent.toml")
    with pytest.raises(SchemaError, match="is a directory"):
        fw.Schema.load(tmp_path)
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SchemaError, match="cannot be read"):
        fw.Schema.load(tmp_path / "x.toml")


def test_lookup_suggests_the_nearest_name(small_schema: fw.Schema) -> None:
    assert small_schema.column("AGE").size == 4
    with pytest.raises(SchemaError, match="did you mean 'AGE'"):
        small_schema.column("AG")


@pytest.mark.parametrize("name", schemas())
def test_shipped_schemas_round_trip(name: str, tmp_path: Path) -> None:
    schema = shipped(name)
    schema.save(tmp_path / "s.toml")
    again = fw.Schema.load(tmp_path / "s.toml")
    assert again == schema
    assert again.digest == schema.digest


def test_round_trip_of_odd_texts() -> None:
    schema = fw.Schema.parse(
        'name = "é \\"q\\""\nwhere = ["A != \'x\'"]\n[columns."a b.c-d"]\nrole = "feature"\n'
        'levels = ["\\"", "\\\\", "é", "\\t"]\nsource = ["x/y", "z"]\nunknown = "other"\n'
        '[columns.T]\nrole = "target"\nbins = [-1e300, 0.1, 1e15, 1e16]\n'
    )
    assert fw.Schema.parse(schema.to_toml()) == schema


@given(st.lists(st.text(st.characters(max_codepoint=0x2FF), max_size=4), min_size=2, max_size=6, unique=True))
def test_round_trip_of_any_text(texts: list[str]) -> None:
    """Control characters, DEL, quotes, brackets, commas: as levels, as sources, in one list."""
    schema = fw.Schema(
        (
            fw.Column("A", fw.Role.FEATURE, levels=tuple(texts), source=tuple(texts)),
            fw.Column("T", fw.Role.TARGET, levels=(0, 1)),
        )
    )
    again = fw.Schema.parse(schema.to_toml())
    assert again == schema
    assert again.digest == schema.digest


@pytest.mark.parametrize(
    "text", [*map(chr, range(32)), "\x7f", "\x85", "\u2028", "], [", "],", "x = [\n", '",\n"', "\\", "]", ","]
)
def test_round_trip_of_awkward_texts(text: str) -> None:
    levels = (text, f"a{text}", f"{text}a", f"{text}{text},")
    schema = fw.Schema(
        (
            fw.Column("A", "feature", levels=levels),
            fw.Column("T", "target", levels=(0, 1)),
        )
    )
    assert fw.Schema.parse(schema.to_toml()) == schema


@pytest.mark.parametrize(
    ("name", "spelt", "digest"),
    [
        ("", "", "ff524fdca1cd"),
        ("", 'missing = "stop"\nunknown = "stop"\nsource = []\n', "ff524fdca1cd"),
        ("", 'model = "one-hot"\n', "5adb58339b35"),
        ("", 'source = "A"\n', "907079383af0"),
        ('name = "schema"\n', "", "7916d419684c"),
        ('name = "schema"\n', 'model = "one-hot"\n', "9e0b40773838"),
    ],
)
def test_digests_are_those_of_0_1_0_and_copies_keep_them(name: str, spelt: str, digest: str) -> None:
    """Also where the file spells out a default: a plan of 0.1.0 has this digest, a run keeps a copy and checks it."""
    text = f'{name}[columns.A]\nrole = "feature"\nlevels = [0, 1]\n{spelt}'
    schema = fw.Schema.parse(text + '[columns.T]\nrole = "target"\nlevels = [0, 1]\n')
    assert schema.digest.startswith(digest)
    for again in (fw.Schema.parse(schema.to_toml()), pickle.loads(pickle.dumps(schema)), deepcopy(schema)):
        assert again == schema
        assert again.digest == schema.digest


def test_lists_are_written_on_one_line() -> None:
    lines = shipped("income").to_toml().splitlines()
    assert "levels = [1, 2, 3, 4, 5, 6, 7, 8]" in lines
    assert all(line == "" or line.startswith("[columns.") or " = " in line for line in lines)


def test_saving_does_not_overwrite(small_schema: fw.Schema, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "s.toml"
    small_schema.save(path)
    path.write_text("# edited by hand\n" + path.read_text())
    with pytest.raises(SchemaError, match="exists"):
        small_schema.save(path)
    assert path.read_text().startswith("# edited by hand")
    small_schema.save(path, force=True)
    assert path.read_text() == small_schema.to_toml()


def test_a_column_built_in_python_equals_one_from_a_file(tmp_path: Path) -> None:
    """Text, lists, whole and numpy numbers: the same value, the same digest, the same hash."""
    built = fw.Schema(
        (
            fw.Column("A", "feature", bins=[0, 1, np.float64(2.5)], source="a", model="scaled", scale=[1, 2]),  # type: ignore[arg-type]
            fw.Column("S", role="sensitive", levels=np.array([1, 2])),  # type: ignore[arg-type]
            fw.Column("T", role="target", levels=["no", "yes"], source=["t", "T"]),  # type: ignore[arg-type]
        ),  # type: ignore[arg-type]
    )
    assert built.columns[0].role is fw.Role.FEATURE
    read = fw.Schema.parse(built.to_toml())
    assert read == built
    assert read.digest == built.digest
    assert hash(read.columns[0]) == hash(built.columns[0])
    assert built.sensitive == (1,)
    assert fw.plan(built).schema_digest == built.digest


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"role": "label"}, "column 'A' must have role feature, sensitive or target, got 'label'"),
        ({"role": None}, "must have role feature, sensitive or target, got 'None'"),
        ({"missing": "drop"}, "must have missing stop or other, got 'drop'"),
        ({"unknown": 3}, "must have unknown stop or other"),
        ({"model": "onehot"}, "must have model one-hot, scaled or drop, got 'onehot'"),
        ({"levels": [True, False]}, "levels of integers or text"),
        ({"levels": [1.5]}, "levels of integers or text"),
        ({"levels": "abc"}, "levels of integers or text"),
        ({"levels": 3}, "levels of integers or text"),
        ({"levels": None, "bins": ["a", 1]}, "bins and scale of numbers"),
        ({"levels": None, "bins": [0, 10**400]}, "bins and scale of numbers"),
        ({"model": "scaled", "scale": (1, 2, 3)}, "bins and scale of numbers"),
        ({"source": [1]}, "text as rule and sources"),
        ({"levels": None, "rule": 5}, "text as rule and sources"),
        ({"name": 5}, "column name must be text, got int"),
        ({"levels": range(20_000)}, "at most 10000 levels, got 20000"),
    ],
)
def test_columns_built_in_python_are_refused_at_once(fields: dict[str, object], message: str) -> None:
    given: dict[str, object] = {"name": "A", "role": "feature", "levels": (0, 1), **fields}
    with pytest.raises(SchemaError, match=message):
        fw.Column(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "words"),
    [("role", "feature, sensitive, target"), ("missing", "stop, other"), ("model", "one-hot, scaled, drop")],
)
def test_a_wrong_word_in_a_file_is_told_with_the_right_ones(key: str, words: str) -> None:
    body = "" if key == "role" else 'role = "feature"\n'
    with pytest.raises(SchemaError, match=f"columns.A.{key}'; use {words}"):
        fw.Schema.parse(f'[columns.A]\n{body}levels = [0, 1]\n{key} = "label"\n')


def test_digest_sees_every_change(small_schema: fw.Schema) -> None:
    changes = [
        ("18", "19"),
        ("shop", "shoq"),
        ("[1, 2]", "[2, 1]"),
        ("50000", "50001"),
        ('"small"', '"smell"'),
    ]
    changes += [
        ('missing = "other"', 'missing = "stop"'),
        ("> 50000", ">= 50000"),
        ("columns.AGE", "columns.AG"),
    ]
    digests = {fw.Schema.parse(SMALL.replace(old, new)).digest for old, new in changes}
    assert len(digests | {small_schema.digest}) == len(changes) + 1
    assert fw.Schema.parse(SMALL.replace("[0, 18", "[0.0, 18.0")).digest == small_schema.digest


def test_labels_name_every_code(small_schema: fw.Schema) -> None:
    for column in small_schema.columns:
        assert len(column.labels) == column.size
    assert small_schema.columns[0].labels == ("[0,18)", "[18,40)", "[40,65)", "[65,120)")
    assert small_schema.columns[1].labels == ("farm", "shop", "office", "other")
