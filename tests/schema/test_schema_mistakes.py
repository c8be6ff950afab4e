"""Mistakes in a schema and in the rows: what a person is told, and that no message holds a value of a row."""

from __future__ import annotations

import traceback
from pathlib import Path

import pandas as pd
import polars as pl
import pytest

import fedwise as fw
from conftest import SMALL
from fedwise.errors import DataError, SchemaError

SECRET = "S3NT1NEL"
SECRET_NUMBER = 987654321


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
    "no domain": (SMALL.replace("levels = [1, 2]", ""), "exactly one of levels, bins, rule or cross"),
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
    "no target": (SMALL.replace('"target"', '"feature"'), 'at least one column with role = "target"'),
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


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"role": "label"}, "column 'A' must have role feature, sensitive or target, got 'label'"),
        ({"role": None}, "must have role feature, sensitive or target, got 'None'"),
        ({"missing": "drop"}, "must have missing stop or other, got 'drop'"),
        ({"unknown": 3}, "must have unknown stop or other"),
        ({"model": "onehot"}, "must have model one-hot, scaled, drop or binned, got 'onehot'"),
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
    [
        ("role", "feature, sensitive, target"),
        ("missing", "stop, other"),
        ("model", "one-hot, scaled, drop, binned"),
    ],
)
def test_a_wrong_word_in_a_file_is_told_with_the_right_ones(key: str, words: str) -> None:
    body = "" if key == "role" else 'role = "feature"\n'
    with pytest.raises(SchemaError, match=f"columns.A.{key}'; use {words}"):
        fw.Schema.parse(f'[columns.A]\n{body}levels = [0, 1]\n{key} = "label"\n')
