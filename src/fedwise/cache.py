"""Cache: answers kept beside the value they follow from."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """Answers by question, made when first asked for.

    It never changes an answer, only how long it takes, so it takes no part in comparing or printing what
    owns it. Full, it makes answers and does not keep them.

    Parameters
    ----------
    most
        How many answers are kept; ``None`` for all.
    """

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self._known: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, key: object) -> bool:
        return key in self._known

    def get(self, key: K, make: Callable[[], V], *, keep: bool = True) -> V:
        """The answer to `key`, by `make` where it is not known; kept if there is room and `keep` says so."""
        if key in self._known:
            return self._known[key]
        made = make()
        if keep and (self.most is None or len(self._known) < self.most):
            self._known[key] = made
        return made
