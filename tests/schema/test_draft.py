"""Drafts: every column appears, no value does, and nobody can use one by mistake."""

from __future__ import annotations

import tomllib
from pathlib import Path

import polars as pl
import pytest

import fedwise as fw
from conftest import make_people
from fedwise.errors import SchemaError
from fedwise.schema.draft import draft_schema
from fedwise.schema.frame import column_types


def test_draft_names_columns_and_shows_no_value(tmp_path: Path) -> None:
    people = make_people(50).with_columns(JOB=pl.lit("S3NT1NEL"), AGE=pl.lit(987654))
    people.write_parquet(tmp_path / "people.parquet")
    text = draft_schema(column_types(tmp_path / "people.parquet"), name="people")
    tree = tomllib.loads(text)
    assert list(tree["columns"]) == people.columns
    assert tree["name"] == "people"
    assert "S3NT1NEL" not in text
    assert "987654" not in text
    assert "PUBLIC" in text


def test_draft_cannot_be_used_until_completed(tmp_path: Path) -> None:
    text = draft_schema({"A": pl.Int64(), "B": pl.String(), "T": pl.Boolean()}, name="x")
    with pytest.raises(
        SchemaError, match=r"columns 'A', .* must have at least 1 level, .*; fill in levels or bins"
    ):
        fw.Schema.parse(text)
    done = text.replace("levels = []    # CONFIRM: int", "levels = [1]  # int").replace(
        "levels = []", 'levels = ["b"]'
    )
    assert fw.Schema.parse(done).names == ("A", "B", "T")


@pytest.mark.parametrize(
    ("kind", "domain"),
    [(pl.Float64(), "bins"), (pl.UInt8(), "levels"), (pl.String(), "levels"), (pl.Date(), "bins")],
)
def test_domain_kind_follows_the_type(kind: pl.DataType, domain: str) -> None:
    assert tomllib.loads(draft_schema({"A": kind, "T": pl.Boolean()}, name="x"))["columns"]["A"][domain] == []


def test_odd_names_stay_valid_toml_and_find_their_column() -> None:
    odd = [
        'a"b',
        "a_b",
        "a/b",
        "1st",
        "",
        "tab\there",
        "new\nline",
        "back\\slash",
        "del\x7f",
        "é",
        "x" * 100,
        "x" * 101,
    ]
    text = draft_schema({name: pl.Boolean() for name in odd}, name='we"ird')
    tree = tomllib.loads(text)
    assert len(tree["columns"]) == len(odd)
    found = [body.get("source", [name])[0] for name, body in tree["columns"].items()]
    assert found == odd
    schema = fw.Schema.parse(text)
    frame = pl.DataFrame({name: [True, False] for name in odd})
    assert schema.encode(frame).tolist() == [[1, 0]] * len(odd)


def test_a_public_sample_says_decimal_commas_and_which_columns_have_missing_values() -> None:
    sample = pl.DataFrame(
        {
            "JOB": ["care", "N", "craft", "care"],
            "KIND": ["other", "N", "a", "a"],
            "SEX": ["f", "m", "f", "m"],
            "INCOME": ["100,5", "200,25", "?", "30"],
        }
    )
    text = draft_schema(sample.schema, name="x", sample=sample)
    tree = tomllib.loads(text)
    assert tree["decimal"] == ","
    assert tree["null"] == ["N", "?"]
    assert tree["columns"]["INCOME"]["rule"] == "INCOME > 100.5"
    # A category "other" leaves no room for the level of missing values, and a target has none.
    missing = {name: body["missing"] for name, body in tree["columns"].items()}
    assert missing == {"JOB": "other", "KIND": "stop", "SEX": "stop", "INCOME": "stop"}
    assert fw.Schema.parse(text).decimal == ","
