"""Tables: one pass counts what a crosstab counts, and exact counts cannot leave."""

from __future__ import annotations

import copy
import pickle
import sys
from itertools import combinations

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedwise as fw
from conftest import make_people
from fedwise.errors import DataError
from fedwise.owner import tables
from fedwise.owner.tables import count, count_few, count_many
from fedwise.schema.layout import Layout


@st.composite
def problems(draw: st.DrawFn) -> tuple[Layout, np.ndarray]:
    sizes = tuple(draw(st.lists(st.integers(1, 6), min_size=2, max_size=5)))
    every = list(combinations(range(len(sizes)), 2))
    pairs = tuple(draw(st.lists(st.sampled_from(every), min_size=1, max_size=len(every), unique=True)))
    pairs = tuple(pair if draw(st.booleans()) else pair[::-1] for pair in pairs)
    rows = draw(st.integers(0, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    codes = np.stack([rng.integers(0, size, rows) for size in sizes]).astype(np.int16)
    return Layout(tuple(f"v{i}" for i in range(len(sizes))), sizes, pairs), codes


def brute_force(layout: Layout, codes: np.ndarray) -> np.ndarray:
    """One record at a time, one table at a time."""
    tables = [np.zeros(shape, dtype=np.int64) for shape in layout.shapes]
    for row in range(codes.shape[1]):
        for table, (x, y) in zip(tables, layout.pairs, strict=True):
            table[codes[x, row], codes[y, row]] += 1
    return np.concatenate([table.ravel() for table in tables])


@given(problems())
def test_count_is_brute_force(problem: tuple[Layout, np.ndarray]) -> None:
    layout, codes = problem
    wanted = brute_force(layout, codes)
    np.testing.assert_array_equal(count(codes, layout).exact, wanted)
    np.testing.assert_array_equal(count_few(codes, layout), wanted)
    np.testing.assert_array_equal(count_many(codes, layout), wanted)


def test_count_is_a_crosstab_over_block_borders() -> None:
    # 5,000 rows: the kernel works in blocks of 2,048, so two borders and a rest.
    rng = np.random.default_rng(3)
    sizes = (7, 1, 300, 2)
    codes = np.stack([rng.integers(0, size, 5000) for size in sizes]).astype(np.int16)
    layout = Layout(("a", "b", "c", "d"), sizes, tuple(combinations(range(4), 2)))
    exact = count_many(codes, layout)
    np.testing.assert_array_equal(count_few(codes, layout), exact)
    frame = pd.DataFrame(codes.T, columns=list(layout.names))
    for j, (x, y) in enumerate(layout.pairs):
        expected = pd.crosstab(frame.iloc[:, x], frame.iloc[:, y]).reindex(
            index=range(sizes[x]), columns=range(sizes[y]), fill_value=0
        )
        np.testing.assert_array_equal(layout.view(exact, j), expected.to_numpy())


def test_codes_past_int16_products_do_not_overflow() -> None:
    layout = Layout(("a", "b"), (1000, 1000), ((0, 1),))
    for way in (count_few, count_many):
        exact = way(np.array([[999], [999]], dtype=np.int16), layout)
        assert exact[-1] == 1
        assert exact.sum() == 1


@pytest.mark.parametrize("rows", [0, 1])
def test_no_records_and_one_record(rows: int, small_schema: fw.Schema) -> None:
    plan = fw.plan(small_schema)
    tables = count(small_schema.encode(make_people(rows)), plan.layout)
    assert tables.exact.sum() == rows * plan.layout.tables
    assert all(tables.exact[plan.layout.slice(j)].sum() == rows for j in range(plan.layout.tables))


@given(rows=st.integers(1, 40), seed=st.integers(0, 1000), gone=st.integers(0, 39))
def test_neighbours_differ_by_one_in_one_cell_of_each_table(rows: int, seed: int, gone: int) -> None:
    schema = fw.Schema.parse(SCHEMA)
    layout = fw.plan(schema).layout
    people = make_people(rows, seed)
    with_record = count(schema.encode(people), layout).exact
    without = count(
        schema.encode(people.with_row_index().filter(pl.col("index") != gone % rows)), layout
    ).exact
    change = with_record - without
    assert np.abs(change).sum() == layout.tables
    for j in range(layout.tables):
        assert sorted(change[layout.slice(j)].tolist())[-2:] in ([0, 1], [1])
        assert (change[layout.slice(j)] >= 0).all()


def test_filtered_records_change_nothing() -> None:
    # A row filter looks at one record at a time: adding a filtered one changes no cell.
    schema = fw.Schema.parse('where = ["AGE > 16"]\n' + SCHEMA)
    layout = fw.plan(schema).layout
    people = make_people(50, 1)
    adults = people.filter(people["AGE"] > 16)
    assert len(adults) < len(people)
    np.testing.assert_array_equal(
        count(schema.encode(people), layout).exact, count(schema.encode(adults), layout).exact
    )


@pytest.mark.parametrize(
    ("codes", "reason"),
    [
        (
            np.array([[0, 2], [0, 0]], dtype=np.int16),
            "a code past the domain would write into the next table",
        ),
        (np.array([[0, -1], [0, 0]], dtype=np.int16), "a negative code would write before the table"),
        (np.zeros((3, 2), dtype=np.int16), "one variable too many"),
        (np.zeros(2, dtype=np.int16), "not a matrix"),
        (np.zeros((2, 2)), "not integers"),
    ],
)
def test_count_refuses_codes_of_another_layout(codes: np.ndarray, reason: str) -> None:
    with pytest.raises(DataError, match=r"use Schema\.encode"):
        count(codes, Layout(("a", "b"), (2, 2), ((0, 1),)))


def test_exact_counts_do_not_leave(people: object, small_schema: fw.Schema) -> None:
    tables = count(small_schema.encode(people), fw.plan(small_schema).layout)
    assert not any(ch.isdigit() for ch in repr(tables).split("cells")[1])
    for leak in (pickle.dumps, copy.copy, copy.deepcopy, msgspec.json.encode, msgspec.msgpack.encode):
        with pytest.raises(TypeError):
            leak(tables)
    with pytest.raises(TypeError):
        vars(tables)


def test_layout_addresses() -> None:
    layout = Layout(("a", "b", "c"), (2, 3, 4), ((0, 1), (2, 1)))
    assert layout.shapes == ((2, 3), (4, 3))
    assert layout.offsets.tolist() == [0, 6, 18]
    flat = np.arange(36).reshape(2, 18)
    assert layout.view(flat, 1).shape == (2, 4, 3)
    assert layout.view(flat, 1)[1, 0, 0] == 18 + 6
    assert layout.per_cell([1.5, 2.5]).tolist() == [1.5] * 6 + [2.5] * 12
    assert layout == Layout(("a", "b", "c"), (2, 3, 4), ((0, 1), (2, 1)))
    assert layout != Layout(("a", "b", "c"), (2, 3, 4), ((0, 1), (1, 2)))
    assert len({layout, Layout(("a", "b", "c"), (2, 3, 4), ((0, 1), (2, 1)))}) == 1


SCHEMA = """
[columns.AGE]
role = "feature"
bins = [0, 18, 40, 65, 120]
[columns.JOB]
role = "feature"
levels = ["farm", "shop", "office"]
[columns.SEX]
role = "sensitive"
levels = [1, 2]
[columns.RICH]
role = "target"
rule = "INCOME > 50000"
"""


def test_numpy_counts_the_first_pairs_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    # Loading the compiled way pays for a process that counts a lot, not for a command that counts one file.
    layout = Layout(("a", "b"), (2, 2), ((0, 1),))
    codes = np.zeros((2, 60), dtype=np.int16)
    ways: list[str] = []
    monkeypatch.setattr(tables, "count_few", lambda *_: ways.append("numpy"))
    monkeypatch.setattr(tables, "count_many", lambda *_: ways.append("compiled"))
    monkeypatch.setattr(tables._Numpy, "pairs_left", 100)
    monkeypatch.delitem(sys.modules, "fedwise.owner.counting", raising=False)
    for _ in range(2):
        count(codes, layout)
    assert ways == ["numpy", "compiled"]
    monkeypatch.setitem(sys.modules, "fedwise.owner.counting", tables)
    count(codes[:, :1], layout)
    assert ways[-1] == "compiled"
