"""Verdicts: what a claim of the paper came to, and the two rules that give the word.

*By test.* A claim about trained models is a set of comparisons, mostly one a task. Each has a two-sided rank
p-value among random federations; Holm's correction runs over the claim's comparisons, so that the chance of any
false "better" or "worse" in a claim is at most 5%. A comparison is better or worse when its adjusted p-value is at
most .05. The claim is ``reproduced`` when more than half of its comparisons are better and none is worse,
``reproduced in part`` when more are better than worse, ``contradicted`` when more are worse than better, and
``not reproduced`` otherwise. It is ``not tested`` where so few random federations were trained that no rank could
be significant.

*By criterion.* A claim about noise or search is checked case by case against a criterion stated with it:
``reproduced`` where every case meets it, ``in part`` where some do, ``not reproduced`` where none does. A bound that
is claimed for all cases is ``contradicted`` by one case that exceeds it beyond chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from ranks import LEVEL, Rank, holm

YES, PART, NO = "reproduced", "reproduced in part", "not reproduced"
AGAINST, UNTESTED, OPEN = "contradicted", "not tested", "not run yet"
WORDS = (YES, PART, NO, AGAINST, UNTESTED, OPEN)
BETTER, WORSE, UNCLEAR = "better", "worse", "no clear difference"
#: An adjusted p-value of .05 stays .05 in floating point.
CLEAR = LEVEL + 1e-12

RULE = (
    "A claim about trained models is a set of comparisons, one a task unless stated. Each chosen federation gets a "
    "two-sided rank p-value among random federations of the same size, twice the smaller of (1 + as good)/(1 + n) "
    "and (1 + as bad)/(1 + n), from means over splits and noise draws; Holm's correction runs over the claim's "
    "comparisons. *Reproduced*: significantly better (adjusted p ≤ .05) on more than half and worse on none. *In "
    "part*: better on more than it is worse on. *Contradicted*: worse on more than better. *Not reproduced*: none of "
    "these. *Not tested*: too few random federations for any rank to be significant. Other claims are checked case by "
    "case against a criterion stated with their numbers."
)


class Tested(Protocol):
    """A comparison with a two-sided p-value and a side: a rank, ranks pooled over tasks, a correlation."""

    @property
    def p(self) -> float: ...
    @property
    def good(self) -> bool: ...


@dataclass(frozen=True)
class Sided:
    """A p-value and its side."""

    p: float
    good: bool


@dataclass(frozen=True)
class Verdict:
    """A claim, a word, one phrase that explains it, and a small table of the evidence."""

    #: A short title of the claim.
    name: str
    claim: str
    word: str
    short: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    note: str = ""


def readings(ranks: Sequence[Tested]) -> list[str]:
    """``better``, ``worse`` or ``no clear difference`` for each comparison of one claim."""
    adjusted = holm([one.p for one in ranks])
    return [
        UNCLEAR if p > CLEAR else BETTER if one.good else WORSE
        for one, p in zip(ranks, adjusted, strict=True)
    ]


def by_test(better: int, worse: int, comparisons: int) -> str:
    """The word for a claim with so many significant comparisons on either side."""
    if not comparisons:
        return OPEN
    if better > worse:
        return YES if not worse and 2 * better > comparisons else PART
    return AGAINST if worse > better else NO


def word(ranks: Sequence[Tested]) -> str:
    """The word that the rule gives to the comparisons of a claim."""
    reach = [2 / (1 + one.n) for one in ranks if isinstance(one, Rank)]
    if reach and len(reach) == len(ranks) and len(ranks) * min(reach) > CLEAR:
        return UNTESTED
    found = readings(ranks)
    return by_test(found.count(BETTER), found.count(WORSE), len(found))


def words_of_many(p: npt.NDArray[np.float64], good: npt.NDArray[np.bool_]) -> npt.NDArray[np.str_]:
    """The word for many claims at once: p-values and sides of shape (claims, comparisons)."""
    clear = holm(p) <= CLEAR
    better, worse = (clear & good).sum(axis=1), (clear & ~good).sum(axis=1)
    count = p.shape[1]
    words = np.array([[by_test(b, w, count) for w in range(count + 1)] for b in range(count + 1)])
    return words[better, worse]


def by_criterion(met: Sequence[bool]) -> str:
    """The word for cases checked against a stated criterion."""
    if not met:
        return OPEN
    return YES if all(met) else PART if any(met) else NO


def by_bound(p_values: Sequence[float]) -> str:
    """The word for a bound that is claimed for all cases, from p-values of exceeding it."""
    if not len(p_values):
        return OPEN
    return AGAINST if (holm(p_values) <= CLEAR).any() else YES


def tally(found: Sequence[str], what: str = "tasks") -> str:
    """How many comparisons are better and how many worse, so that no wrong sign is hidden by the word."""
    better, worse = found.count(BETTER), found.count(WORSE)
    return f"better on {better} of {len(found)} {what}, worse on {worse}"
