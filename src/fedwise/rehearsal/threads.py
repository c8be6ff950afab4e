"""Threads: linear algebra in one thread each, since the trainings use the cores already.

On small matrices the threads of BLAS mostly wait for one another: the search of a choice took 18 s of processor time
with one and 29 s with two, beside another process. And two round otherwise than one, so that equal seeds led a search
to other federations.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Keep BLAS to one thread."""
    # Comes with the extra [train], without which nothing is rehearsed.
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield
