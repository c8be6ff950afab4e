"""Summary: a selection in a few lines of a log, with a warning where the choice is within the noise."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import numpy as np

from ..estimation import estimate
from ..objective.pfl import loss
from ..pool.card import quick_quality
from ..pool.pool import Pool
from ..search.selection import Selection

#: A chance of a truly better swap above this means that the noise decided at least as much as the data.
NOISY_CHANCE = 0.5
#: Standard errors by which a selection must beat random federations to stand out of the noise.
ENOUGH_ERRORS = 2.0
#: Random federations it is compared with.
RANDOM = 50


def summarise(selection: Any, pool: Pool) -> list[tuple[int, str]]:
    """Level and text of each line: who, loss and error, how stable, quality, what was spent, and warnings."""
    lines = [(logging.INFO, f"the federation is {', '.join(sorted(selection.clients))}")]
    if not isinstance(selection, Selection):
        return lines  # a function of the user's chose, and says no more
    spread = "" if selection.std_error is None else f" ± {selection.std_error:.2g}"
    lines.append((logging.INFO, f"loss {selection.loss:.4f}{spread}; {_stability(selection)}"))
    lines.append((logging.INFO, f"{_spent(pool)}; edition {pool.plan.number}; {pool.label}"))
    lines += [(logging.INFO, note) for note in selection.alerts if not note.startswith("release of ")]
    lines += _quality(selection, pool)
    reason = within_noise(selection, pool)
    if reason:
        lines.append(
            (
                logging.WARNING,
                f"the choice is within the noise: {reason}; ask for a larger epsilon, a larger federation, or clients "
                "with more records",
            )
        )
    return lines


def within_noise(selection: Selection, pool: Pool) -> str:
    """Why the noise may have decided a selection as much as the data; empty where it did not.

    The loss of the selection is compared with that of random federations of its size: an advantage of less than
    two standard errors may be luck.
    """
    error = selection.std_error
    if not error or not pool.private or selection.k >= len(pool):
        return ""
    if selection.objective == "pfl":
        usual = _usual_loss(selection, pool)
        if usual - selection.loss < ENOUGH_ERRORS * error:
            return f"its loss is {selection.loss:.3g} ± {error:.2g}, that of random federations {usual:.3g}"
        return ""
    chance = selection.certificate.swap_chance
    if chance is not None and chance > NOISY_CHANCE:
        return f"some other member would truly be better with a chance of {chance:.0%}"
    return ""


def _usual_loss(selection: Selection, pool: Pool) -> float:
    """Median estimated loss of random federations of the same size."""
    estimates, rng = estimate(pool), np.random.default_rng(0)
    found = [
        loss(estimates, np.sort(rng.choice(len(pool), selection.k, replace=False)), selection.weights)
        for _ in range(RANDOM)
    ]
    return float(np.median(found))


def _spent(pool: Pool) -> str:
    """What the clients spent: one figure, or after stages and smaller answers each with its number of clients."""
    if not pool.private:
        return f"spent by each of {len(pool)} clients: nothing is promised"
    amounts = Counter(np.round(pool.epsilons, 9).tolist())
    if len(amounts) == 1:
        (epsilon,) = amounts
        return f"spent by each of {len(pool)} clients: epsilon {epsilon:g} at delta {pool.plan.delta:g}"
    each = ", ".join(f"{epsilon:g} by {number}" for epsilon, number in sorted(amounts.items()))
    return f"spent by {len(pool)} clients at delta {pool.plan.delta:g}: epsilon {each}"


def _stability(selection: Selection) -> str:
    if selection.frequency:
        again = min(selection.frequency.get(client, 0.0) for client in selection.clients)
        return (
            f"each member is chosen again in at least {again:.0%} of {selection.redraws} redraws of the noise"
        )
    chance = selection.certificate.swap_chance
    if chance is None:
        return "how stable it is was not measured"
    return f"a better swap exists with a chance of {chance:.0%}"


def _quality(selection: Selection, pool: Pool) -> list[tuple[int, str]]:
    cards = quick_quality(pool)
    if cards is None:
        return [(logging.INFO, "quality was not checked; see: fedwise inspect --quality")]
    suspects = sorted(name for name in selection.clients if cards[name].suspect)
    if suspects:
        return [
            (
                logging.WARNING,
                f"the records of {', '.join(suspects)} look spoilt; see: fedwise inspect --quality",
            )
        ]
    doubtful = sorted(name for name in selection.clients if cards[name].doubtful)
    doubts = f"; in doubt: {', '.join(doubtful)}" if doubtful else ""
    return [(logging.INFO, f"quality: no member is suspect{doubts}")]
