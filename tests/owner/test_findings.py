"""A check of an owner's file: everything at once, for free, and nothing about the rows where it may travel."""

from __future__ import annotations

import pickle
from pathlib import Path

import polars as pl
import pytest

import fedwise as fw
from conftest import SMALL, make_people
from fedwise.errors import DataError, MissingExtra
from fedwise.schema.editor import json_schema

PLAN = fw.plan(fw.Schema.parse(SMALL))


def says(found: fw.Findings) -> str:
    return "\n".join(finding.says for finding in found.all)


def test_good_rows_pass_and_tell_what_would_be_sent() -> None:
    found = fw.check(PLAN, make_people(5000), client="CA")
    assert found.ok
    assert not found.warnings
    assert found.rows == found.kept == 5000
    assert "what would be sent: 6 tables" in says(found)
    with pytest.raises(TypeError, match="never serialised"):
        pickle.dumps(found)


def test_all_problems_come_at_once_with_counts_and_cures(tmp_path: Path) -> None:
    people = make_people(300).cast({"AGE": pl.String, "SEX": pl.Int64})
    people[0, "AGE"], people[1, "AGE"], people[2, "SEX"] = "N", "?", 7
    people.rename({"JOB": " job"}).write_csv(tmp_path / "p.csv")
    found = fw.check(PLAN, tmp_path / "p.csv", client="CA")
    text = str(found)
    assert [f.level for f in found.problems] == ["problem"] * 3
    assert "column 'JOB' is missing, but there is ' job'" in text
    assert "(2 of 300 rows: " in text
    assert 'null = ["' in text
    assert "column 'SEX' has values outside its domain (1 of 300 rows: '7' 1×)" in text
    # What a release prints of it holds no figure.
    assert not any(figure in says(found) for figure in ("300", "'7'", "'N'"))


def test_decimal_commas_beside_a_code_have_a_line_each(tmp_path: Path) -> None:
    people = make_people(300).with_columns(
        AGE=pl.col("AGE").cast(pl.String) + ",5", SEX=pl.col("SEX").cast(pl.String)
    )
    people[0, "AGE"] = "?"
    people.write_csv(tmp_path / "p.csv", separator=";")
    text = str(fw.check(PLAN, tmp_path / "p.csv", client="CA"))
    assert "column 'AGE' has decimal commas, and text ('?' 1×)" in text
    assert 'decimal = ","' in text
    assert 'null = ["?"]' in text


def test_rows_without_a_target_are_left_out_by_the_rule_that_is_named() -> None:
    people = make_people(300)
    people[0, "INCOME"] = None
    text = str(fw.check(PLAN, people))
    assert "rule 'INCOME > 50000' reads missing values (1 of 300 rows)" in text
    line = 'where = ["INCOME > -1e12"]'
    assert line in text
    found = fw.check(fw.plan(fw.Schema.parse(f"{line}\n{SMALL}")), people)
    assert (found.ok, found.rows, found.kept) == (True, 300, 299)


def test_a_level_named_other_is_checked_as_any_level() -> None:
    schema = SMALL.replace(
        "[columns.SEX]", '[columns.RACE]\nrole = "sensitive"\nlevels = ["a", "other"]\n[columns.SEX]'
    )
    plan = fw.plan(fw.Schema.parse(schema))
    people = make_people(300).with_columns(RACE=pl.Series(["a", "other", "a"] * 100))
    assert fw.check(plan, people).ok
    people[0, "RACE"], people[1, "RACE"] = None, "b"
    text = str(fw.check(plan, people))
    assert "column 'RACE' has missing values (1 of 300 rows)" in text
    assert "column 'RACE' has values outside its domain (1 of 300 rows: 'b' 1×)" in text
    assert 'rename its level "other" and write for [columns."RACE"]: missing = "other"' in text


def test_odd_data_is_warned_about_and_still_released() -> None:
    few = fw.check(PLAN, make_people(20))
    assert few.ok
    assert "small for this noise" in says(few)
    units = fw.check(PLAN, make_people(3000).with_columns(INCOME=pl.col("INCOME") / 1000))
    assert units.ok
    assert "rule 'INCOME > 50000' is met by nearly all rows or by nearly none" in says(units)
    assert "the target 'RICH' has one class only" in says(units)
    slip = fw.check(PLAN, make_people(1000).with_columns(INCOME=pl.Series([0.0] * 20 + [60_000.0] * 980)))
    assert "rule 'INCOME > 50000' is met by nearly all rows or by nearly none" in says(slip)
    copies = fw.check(PLAN, pl.concat([make_people(500)] * 2))
    assert "exact copies of others" in says(copies)
    weak = fw.plan(fw.Schema.parse(SMALL.replace("sensitive", "feature")), 50.0, delta=0.01)
    odd = says(fw.check(weak, make_people(500)))
    for text in ("epsilon 50 protects little", "no sensitive column", "delta 0.01 is larger"):
        assert text in odd


@pytest.mark.parametrize("where", ["", 'where = ["AGE > 500"]\n'])
def test_nobody_is_refused_at_no_cost(where: str, tmp_path: Path) -> None:
    plan = fw.plan(fw.Schema.parse(SMALL.replace("[columns.AGE]", f"{where}[columns.AGE]", 1)))
    rows = make_people(100) if where else make_people(100).head(0)
    assert not fw.check(plan, rows).ok
    ledger = fw.Ledger(tmp_path / "l.db", 1.0, 1e-5)
    with pytest.raises(DataError, match="at least one row"):
        fw.release(plan, rows, client="CA", ledger=ledger)
    assert ledger.history() == []


def test_a_missing_extra_survives_a_worker() -> None:
    error = MissingExtra("training", "train")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_the_json_schema_takes_shipped_schemas_and_refuses_mistakes() -> None:
    import tomllib

    from fedwise.schema.shipped import shipped_names, shipped_text

    checker = pytest.importorskip("jsonschema")  # altair brings it
    valid = checker.Draft202012Validator(json_schema())
    for name in shipped_names():
        assert valid.is_valid(tomllib.loads(shipped_text(name)))
    assert valid.is_valid(tomllib.loads(SMALL))
    for old, new in (
        ('role = "target"', 'role = "label"'),
        ("levels = [1, 2]", 'levels = [1, "2"]'),
        ("levels = [1, 2]", "values = [1, 2]"),
        ("bins = [0, 18, 40, 65, 120]", 'bins = "many"'),
        ('name = "small"', 'name = "small"\nnulls = []'),
    ):
        assert not valid.is_valid(tomllib.loads(SMALL.replace(old, new, 1))), new
