"""A pool of eight small states, and the session that answers questions about it."""

from __future__ import annotations

import pytest

import fedwise as fw
from fedwise.explore.session import Session
from reporting.report_kit import make_pool

STATES = ("CA", "CO", "MD", "NY", "TX", "VA", "WA", "WY")


@pytest.fixture(scope="session")
def pool(small_schema: fw.Schema) -> fw.Pool:
    """Eight clients at epsilon 1."""
    return make_pool(small_schema, STATES)


@pytest.fixture(scope="session")
def session(pool: fw.Pool) -> Session:
    """The session over them."""
    return Session(pool, releases="releases/")
