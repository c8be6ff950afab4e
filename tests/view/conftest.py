"""A small pool and a selection of it."""

from __future__ import annotations

import pytest

import fedwise as fw
from fedwise.search import select
from fedwise.search.selection import Selection
from reporting.report_kit import NAMES, make_pool


@pytest.fixture(scope="session")
def pool(small_schema: fw.Schema) -> fw.Pool:
    """Eight clients at epsilon 1."""
    return make_pool(small_schema, NAMES)


@pytest.fixture(scope="session")
def selection(pool: fw.Pool) -> Selection:
    """Three of the eight, with all the evidence."""
    return select(pool, 3, seed=0)
