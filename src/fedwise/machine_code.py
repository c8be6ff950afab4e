"""Machine code: functions compiled by numba, kept on disk and read from there without loading the compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba.core.caching import FunctionCache
from numba.core.runtime import rtsys

F = TypeVar("F", bound=Callable[..., Any])


def compiled(**settings: Any) -> Callable[[F], F]:
    """Compile a function when it is first called, outside the interpreter's lock, and keep its code on disk.

    Parameters
    ----------
    **settings
        Of `numba.njit`, beside ``nogil`` and ``cache``.
    """

    def decorate(function: F) -> F:
        made: Any = numba.njit(nogil=True, **settings)(function)
        if hasattr(made, "enable_caching"):  # not where numba is told not to compile
            made._cache = _OnDisk(function)
        found: F = made
        return found

    return decorate


class _OnDisk(FunctionCache):  # type: ignore[misc]
    """Code on disk, read without numba's tables of what it can compile.

    To load them takes as long as to import numba, and code that is on disk needs only the runtime. They are still
    loaded where there is no such code: the compiler does that first. A numba whose parts have other names reads in its
    own way.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The function for this signature, ``None`` where it is not on disk."""
        if not (hasattr(self, "_load_overload") and hasattr(self, "_guard_against_spurious_io_errors")):
            return super().load_overload(sig, target_context)
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)
