"""Threads: linear algebra keeps to one while something is rehearsed, and has its own number again afterwards."""

from __future__ import annotations

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from fedwise.rehearsal.threads import one_thread_each


def blas() -> set[int]:
    return {int(pool["num_threads"]) for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.mark.parametrize("given", [1, 2])
def test_one_thread_each(given: int) -> None:
    with threadpool_limits(limits=given, user_api="blas"):
        before = blas()
        with one_thread_each():
            assert blas() == {1}
        assert blas() == before
