"""Decorators that compile a function and keep its type.

Parts of a loop are pasted into it (`forceinline`): passing arrays to a compiled function counts references, by atomic
instructions that cost a tenth of evaluating a swap. It makes compiling no slower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

from ..machine_code import compiled

F = TypeVar("F", bound=Callable[..., Any])


def fast(function: F) -> F:
    """Compile for speed: sums may be reordered and division does not check for zero, so loops vectorise."""
    return compiled(fastmath=True, error_model="numpy")(function)


def strict(function: F) -> F:
    """Compile with the arithmetic as written; pasted into compiled callers."""
    return compiled(forceinline=True)(function)


def part(function: F) -> F:
    """Like `fast`, for a part of other compiled functions: never called from Python, on disk only inside them."""
    made: F = numba.njit(
        fastmath=True, error_model="numpy", nogil=True, no_cpython_wrapper=True, forceinline=True
    )(function)
    return made


def inlined(function: F) -> F:
    """Like `fast`, but pasted into the caller, so that the caller's loop vectorises."""
    made: F = numba.njit(inline="always", fastmath=True, error_model="numpy")(function)
    return made
