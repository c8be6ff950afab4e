"""Verdicts: what a claim of the paper came to, and the rule that gives the word.

A comparison is *better* when the 95% interval of the difference lies on the right side of zero. A claim about
trained models is ``reproduced`` when the comparison is better for every task that was run, ``reproduced in
part`` when it is for some, ``not reproduced`` when it is for none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

YES, PART, NO, OPEN = "reproduced", "reproduced in part", "not reproduced", "not run yet"


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
    #: The word was given by judgement and follows from no rule.
    judged: bool = False


def by_words(words: Sequence[str]) -> str:
    """The word that the rule gives to comparisons over tasks."""
    if not words:
        return OPEN
    good = sum(word == "better" for word in words)
    return YES if good == len(words) else PART if good else NO


def tally(words: Sequence[str], what: str = "tasks") -> str:
    """How many comparisons are better and how many worse, so that no wrong sign is hidden by the word."""
    better, worse = (sum(word == wanted for word in words) for wanted in ("better", "worse"))
    return f"better on {better} of {len(words)} {what}, worse on {worse}"
