"""What can go wrong, as types. Every message is one sentence that names the culprit and the remedy.

No message may hold a value, a count or a category taken from a client's rows: these texts travel
(terminals, logs, Flower replies), the data must not.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FedwiseError(Exception):
    """Base of all errors fedwise raises on purpose. Exit code 2: wrong usage or bad input."""

    exit_code = 2


class SchemaError(FedwiseError):
    """The schema, or a schema file, cannot be used."""


class DataError(FedwiseError):
    """The client's own data does not fit the public schema. The text holds no data."""


class PlanError(FedwiseError):
    """The plan cannot be made, or a plan file is damaged or was edited."""


class ReleaseError(FedwiseError):
    """A release cannot be made, read or trusted."""


class PoolError(FedwiseError):
    """The releases at hand do not form a pool."""


class LedgerError(FedwiseError):
    """The ledger cannot be opened or does not belong to this data set."""


class BudgetExceeded(FedwiseError):
    """The ledger refuses a charge. Exit code 3."""

    exit_code = 3


class Infeasible(FedwiseError):
    """No federation satisfies the constraints. Exit code 4."""

    exit_code = 4


class CheckFailed(FedwiseError):
    """A check (screen, audit, comparison) ran and failed. Exit code 1."""

    exit_code = 1


class MissingExtra(FedwiseError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the '{extra}' extra; run: pip install 'fedwise[{extra}]'")
        self.what, self.extra = what, extra

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str]]:
        # A worker process hands its error over by pickle, which would otherwise call this with the sentence alone.
        return MissingExtra, (self.what, self.extra)


def nearest(name: str, known: Iterable[str]) -> str:
    """Suffix that proposes the closest valid name, or lists a few: ``; did you mean 'CA'?``."""
    options = sorted(known)
    close = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    if close:
        return f"; did you mean '{close[0]}'?"
    shown = ", ".join(options[:8]) + (", …" if len(options) > 8 else "")
    return f"; known: {shown}" if shown else ""
