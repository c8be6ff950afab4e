"""Policies: the terms of one owner for several tasks, over one ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ..errors import FedwiseError
from ..planning import Plan
from .policy import Declined, Policy, Refusal

#: Reasons of a refusal, the most telling last: the policy that came furthest says why.
_DEPTH = (Refusal.POLICY, Refusal.SCHEMA, Refusal.COLUMNS, Refusal.DELTA, Refusal.EPSILON)


class Policies:
    """Policies of one client that share a ledger, each for a schema of its own. The first that fits a plan answers it.

    Parameters
    ----------
    policies
        At least one. All name the same client and the same ledger: one person must not have two budgets.
    names
        What each is called; default its place in the list.
    """

    def __init__(self, policies: Sequence[Policy], names: Sequence[str] = ()) -> None:
        self._all = tuple(policies)
        self.names = tuple(names) or tuple(str(place) for place in range(len(self._all)))
        if not self._all:
            raise FedwiseError("node must have at least one policy, got none")
        first = self._all[0]
        for other in self._all[1:]:
            if other.client != first.client:
                raise FedwiseError(
                    f"policies of one node must name one client, got '{first.client}' and '{other.client}'"
                )
            if (other.ledger and other.ledger.resolve()) != (first.ledger and first.ledger.resolve()):
                raise FedwiseError(
                    "policies of one node must name one ledger: the budget holds for a person, not for a task"
                )

    @classmethod
    def load(cls, source: str | Path) -> Policies:
        """Read a policy file, a folder of them (every ``*.toml`` with a client in it), or several, separated by commas.

        Raises
        ------
        FedwiseError
            A file is missing or not a policy, or they do not go together.
        """
        paths = [Path(part.strip()) for part in str(source).split(",") if part.strip()]
        if len(paths) == 1 and paths[0].is_dir():
            folder = paths[0]
            paths = sorted(folder.glob("*.toml"))
            if not paths:
                raise FedwiseError(f"folder '{folder}' holds no policy; write policy.toml files into it")
        return cls([Policy.load(path) for path in paths], [path.stem for path in paths])

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Policy]:
        return iter(self._all)

    def name_like(self, policy: Policy | None) -> str:
        """What the policy equal to this one is called; empty where none is."""
        return next((name for name, own in zip(self.names, self._all, strict=True) if own == policy), "")

    def for_plan(self, plan: Plan) -> Policy:
        """The first policy that allows a plan. Raises `Declined` with the reason of the one that came furthest."""
        if len(self._all) == 1:
            return self._all[0]  # which checks the plan itself
        refused: list[Declined] = []
        for policy in self._all:
            try:
                policy.check(plan)
            except Declined as cause:
                refused.append(Declined(cause.refusal, client=policy.client if policy.name_refusals else ""))
            except FedwiseError:
                refused.append(Declined(Refusal.POLICY))
            else:
                return policy
        raise max(refused, key=lambda cause: _DEPTH.index(cause.refusal))

    def named(self, name: str | None) -> Policy:
        """The policy of a name; the only one where there is one. Raises `Declined` where it is not clear."""
        if len(self._all) == 1:
            return self._all[0]
        if name not in self.names:
            raise Declined(Refusal.POLICY)
        return self._all[self.names.index(name)]
