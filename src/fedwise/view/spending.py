"""Spending in words: who spent what, stage by stage, and what asking again changes."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ..pool.pool import Pool

#: Most names listed in one sentence.
_NAMES = 12


def spending_sentences(pool: Pool) -> list[str]:
    """One sentence for each total ε that clients ended at, then those who allowed less, then the shortlist.

    Empty for a pool whose clients all spent the same in one release.
    """
    groups: dict[tuple[int, float], list[str]] = defaultdict(list)
    for spending in pool.spendings:
        groups[spending.stage, round(spending.epsilon, 9)].append(spending.client)
    if len(groups) < 2 and not pool.plan.staged:
        return []
    said = [
        f"{len(names)} client{'s' if len(names) > 1 else ''} spent epsilon {epsilon:g} in all"
        + (f", after stage {stage}" if pool.plan.staged else "")
        + f": {_listed(names)}."
        for (stage, epsilon), names in sorted(groups.items())
    ]
    said.append(f"On average a client spent epsilon {float(np.mean(pool.epsilons)):.3g}.")
    less = [s.client for s in pool.spendings if any(part.asked is not None for part in s.parts)]
    if less:
        said.append(f"Allowed less than they were asked, and answered with more noise: {_listed(less)}.")
    listed = pool.shortlist
    if listed is not None:
        after = f", {listed.regret_after:.4f} after it" if listed.regret_after is not None else ""
        said.append(
            f"The shortlist for stage {listed.stage} asks {len(listed.clients)} of {len(listed.standings)} clients. "
            f"Expected loss above the best: {listed.regret:.4f} before that stage{after}. {listed.statement}"
        )
    return said


def spent_by_client(pool: Pool) -> dict[str, tuple[float, str]]:
    """Total ε of each client, and stage by stage in words; empty where `spending_sentences` is."""
    if not spending_sentences(pool):
        return {}
    found = {}
    for spending in pool.spendings:
        steps = [
            (f"stage {part.stage}: " if pool.plan.staged else "")
            + f"epsilon {part.epsilon:g}"
            + (f", {part.asked:g} was asked" if part.asked is not None else "")
            for part in spending.parts
        ]
        found[spending.client] = (spending.epsilon, "; ".join(steps))
    return found


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more
