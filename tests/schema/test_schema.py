"""A schema as a value: files, digests, labels, and columns built in Python."""

from __future__ import annotations

import pickle
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedwise as fw
from conftest import SMALL
from fedwise.data import schema as shipped
from fedwise.data import schemas
from fedwise.errors import SchemaError


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
