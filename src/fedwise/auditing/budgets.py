"""Budgets: the audit of one schema at several budgets, with every attack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ..errors import FedwiseError
from ..files import write_new
from ..planning import plan
from ..schema.frame import FrameLike
from ..schema.schema import Schema
from .audit import LEAST, Attack, audit, audit_cells, check
from .outcome import Audit

ATTACKS: tuple[Attack, ...] = ("single", "joint", "release")


class Audits(msgspec.Struct, frozen=True):
    """Audits of plans that differ in their budget only, as ``audit.json`` keeps them."""

    calibration: str
    allocation: str
    audits: list[Audit]

    @property
    def ok(self) -> bool:
        """Whether every promise held."""
        return all(found.ok for found in self.audits)

    def encode(self) -> bytes:
        """Indented JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write as JSON; an existing file is kept unless `force`."""
        write_new(Path(path), self.encode(), force=force)


def audit_budgets(
    schema: Schema,
    frame: FrameLike,
    epsilons: Sequence[float],
    *,
    delta: float = 1e-5,
    calibration: str = "tight",
    allocation: str = "weighted",
    trials: int = 1000,
    runs: int = 100,
    seed: int = 0,
    confidence: float = 0.999,
    progress: Callable[[int, int, float], None] | None = None,
) -> Audits:
    """Audit the plan of each budget with every attack.

    Parameters
    ----------
    frame
        Rows to draw targets from.
    epsilons, delta, calibration, allocation
        As for `fedwise.plan`, one plan for each epsilon.
    trials, seed, confidence
        As for `fedwise.audit` with the attacks ``single`` and ``joint``.
    runs
        Trials of the attack ``release``: as many releases with each canary as without. 0 leaves it out.
    progress
        Called with audits done, audits asked for, and the largest AUC of an attack so far.
    """
    rows = schema.select_rows(frame)
    if runs and runs < LEAST:
        raise FedwiseError(f"runs must be 0 or at least {LEAST}, got {runs}; fewer say nothing (--runs)")
    attacks = ATTACKS if runs else ATTACKS[:2]
    found: list[Audit] = []
    for budget in epsilons:
        asked = plan(schema, budget, delta=delta, calibration=calibration, allocation=allocation)
        check(asked, rows, trials=trials, confidence=confidence)
        found += audit_cells(
            asked, rows, ("single", "joint"), trials=trials, seed=seed, confidence=confidence
        )
        if runs:
            found.append(audit(asked, rows, attack="release", trials=runs, seed=seed, confidence=confidence))
        if progress:
            progress(len(found), len(attacks) * len(epsilons), max(each.auc for each in found))
    return Audits(calibration, allocation, found)
