"""Labels: whether what is shown is private, as each value says of itself.

A plan states its epsilon, a pool whether any of its releases is simulated, a selection carries flags, a run
the settings of its training. The gravest statement wins. Where nothing was stated or checked the label is
``not checked``, never ``private``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from ..planning import Plan
from ..pool.pool import Pool
from ..search.selection import Selection

Label = Literal["private", "simulated", "not private", "not charged", "not checked"]

#: Gravest first.
ORDER: tuple[Label, ...] = ("not private", "simulated", "not charged", "not checked", "private")

#: What each label says about releases, and about everything made from them.
RELEASES: dict[Label, str] = {
    "private": "Every release carries the noise its plan promises.",
    "simulated": "The noise came from a seeded generator and protects nobody; for experiments on public data only.",
    "not charged": "The noise is real, but a release was made without a ledger: nobody counts what its data cost.",
    "not private": "The releases are exact counts. Do not use this set-up on data of people.",
    "not checked": "The releases are not part of this report, so their noise was not checked.",
}
#: What each label says about a training.
TRAINING: dict[Label, str] = {
    "private": "Training carried differential privacy.",
    "simulated": "The noise of this training came from a seeded generator and protects nobody; its ε is what the same "
    "training would cost with real noise.",
    "not private": "Training carried no differential privacy: no promise covers what the chosen clients sent while "
    "training. Clients that were not chosen sent nothing more.",
    "not charged": "Training carried differential privacy, but was charged to no ledger.",
    "not checked": "Whether this training was private is not recorded beside its metrics.",
}
#: The same in a few words, for a heading.
STAMPS: dict[Label, str] = {
    "private": "",
    "simulated": "simulated",
    "not private": "not private",
    "not charged": "not charged",
    "not checked": "privacy not checked",
}
TRAINING_STAMPS: dict[Label, str] = {
    "private": "",
    "simulated": "training noise simulated",
    "not private": "trained without privacy",
    "not charged": "training not charged",
    "not checked": "privacy of training not checked",
}
#: Where the numbers come from, at the start of a caption.
SOURCES: dict[Label, str] = {
    "private": "Estimated from the noisy releases",
    "simulated": "Estimated from releases with simulated noise, which protects nobody",
    "not private": "Computed from exact counts, not private",
    "not charged": "Estimated from noisy releases that were not all charged to a ledger",
    "not checked": "Estimated from releases whose noise was not checked",
}


def label_of(pool: Pool | None, selection: Selection | None = None, *, plan: Plan | None = None) -> Label:
    """The label of a pool, of a selection made from it, or of a selection alone with its plan.

    A plan is only a request: it can say that nothing is private, not that the noise was real.
    """
    stated: list[Label] = []
    if selection is not None:
        stated += marks_of(selection)
    if plan is not None and not plan.private:
        stated.append("not private")
    if pool is not None:
        same = selection is None or selection.plan_digest in (None, pool.plan.digest)
        stated.append(pool.label if same else "not checked")
    return gravest(stated)


def marks_of(selection: Selection) -> list[Label]:
    """What a selection's own flags say against it. No mark is no statement: it may come from anywhere."""
    heads = {flag.partition(":")[0] for flag in selection.flags}
    return [
        label for label in ORDER if label in ("not private", "simulated", "not charged") and label in heads
    ]


def gravest(labels: Iterable[Label]) -> Label:
    """The label of something made from several; ``not checked`` where nothing is known."""
    found = set(labels)
    return next((label for label in ORDER if label in found), "not checked")
