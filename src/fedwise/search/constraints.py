"""Constraints people put on a federation, and the arrays the searches check them with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError, Infeasible, nearest
from .compiled import strict

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Rounding allowed in a sum of costs or records before it counts as a violation.
_SLACK = 1e-9


@dataclass(frozen=True)
class Constraints:
    """What a federation must satisfy beside its size.

    Parameters
    ----------
    include, exclude
        Clients that must, or must not, take part.
    min_records
        Least total of (noisy, estimated) records.
    min_client_records
        Least (noisy, estimated) records of each member. A client with next to nothing changes no sum, so a
        federation with it is scored like one without: it would take the seat of a real one for free.
    groups, max_per_group
        Group of each client (region, owner) and how many of one group may take part: one number, or
        one for each group. Clients without a group are not limited.
    costs, budget
        Cost of each client and the most the federation may cost. Clients without a cost are free.
    exclude_suspect
        Exclude clients that `fedwise.quality` suspects of spoilt records, and doubtful ones while enough are left.
    answered
        Exclude clients that have not answered the last stage of the plan that anybody has answered. Of many clients
        known by a first, noisy release alone, the one that looks best may look so by its noise.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    min_records: float | None = None
    min_client_records: float | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    max_per_group: int | Mapping[str, int] | None = None
    costs: Mapping[str, float] = field(default_factory=dict)
    budget: float | None = None
    exclude_suspect: bool = False
    answered: bool = False

    def __post_init__(self) -> None:
        for name in ("include", "exclude"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise FedwiseError(f"{name} must be a list of client names, got the text '{value}'")
            object.__setattr__(self, name, tuple(dict.fromkeys(value)))
        for name in ("groups", "costs"):
            object.__setattr__(self, name, dict(getattr(self, name)))
        for name in ("min_records", "min_client_records"):
            least = getattr(self, name)
            if least is not None and not math.isfinite(least):
                raise FedwiseError(f"{name} must be a finite number, got {least}")
        if self.max_per_group is not None and not self.groups:
            raise FedwiseError("max_per_group needs groups; give the group of each client")
        if self.groups and self.max_per_group is None:
            raise FedwiseError("groups need max_per_group; say how many clients of one group may take part")
        caps = self.max_per_group
        for cap in caps.values() if isinstance(caps, Mapping) else () if caps is None else (caps,):
            if isinstance(cap, bool) or not isinstance(cap, int) or cap < 0:
                raise FedwiseError(f"max_per_group must be an integer of at least 0, got {cap}")
        if (self.budget is None) != (not self.costs):
            have, need = ("budget", "costs") if self.budget is not None else ("costs", "budget")
            raise FedwiseError(f"{have} must come together with {need}; give both or neither")
        if self.budget is not None and not math.isfinite(self.budget):
            raise FedwiseError(f"budget must be a finite number, got {self.budget}")
        for client, cost in self.costs.items():
            if not (math.isfinite(cost) and cost >= 0):
                raise FedwiseError(
                    f"cost of client '{client}' must be a finite number of at least 0, got {cost}"
                )

    @classmethod
    def of(cls, constraints: Constraints | None = None, **rules: Unpack[Rules]) -> Constraints:
        """The constraints given whole, or made of single rules.

        Raises
        ------
        FedwiseError
            Both were given.
        """
        named = {name: value for name, value in rules.items() if value is not None}
        if constraints is None:
            return cls(**named)  # type: ignore[arg-type]
        single = [name for name, value in named.items() if value not in ((), [], {})]
        if single:
            raise FedwiseError(
                f"constraints must be given one way, got Constraints and the keyword {' and '.join(single)}; "
                "put all of them into Constraints"
            )
        return constraints

    def given(self) -> dict[str, Any]:
        """The constraints that were set, as plain values by argument name."""
        found = {}
        for name in (entry.name for entry in fields(self)):
            value = getattr(self, name)
            if value is not None and value is not False and value != () and value != {}:
                found[name] = list(value) if isinstance(value, tuple) else value
        return found

    @property
    def any(self) -> bool:
        """Whether anything is constrained."""
        return self != Constraints()

    def resolve(self, clients: tuple[str, ...], records: Floats) -> Limits:
        """Positions and arrays for a pool. Raises `FedwiseError` for a name that is not in it."""
        for name in ("exclude_suspect", "answered"):
            if getattr(self, name):
                raise FedwiseError(f"{name} needs the pool of releases; use select or frontier with a Pool")
        at = {client: i for i, client in enumerate(clients)}
        for what, names in (
            ("include", self.include),
            ("exclude", self.exclude),
            ("groups", self.groups),
            ("costs", self.costs),
        ):
            _check_names(what, names, at)
        both = sorted(set(self.include) & set(self.exclude))
        if both:
            raise Infeasible(f"client '{both[0]}' cannot be both included and excluded; drop one of the two")
        small = self._too_small(clients, records)
        for name in self.include:
            if name in small:
                raise Infeasible(
                    f"client '{name}' must be included but has about {max(records[at[name]], 0):.0f} records, fewer "
                    f"than min_client_records={self.min_client_records:g}; drop one of the two"
                )
        linear, bounds = [], []
        if self.min_records is not None:
            linear.append(-np.asarray(records, dtype=np.float64))
            bounds.append(-float(self.min_records))
        if self.budget is not None:
            linear.append(np.array([float(self.costs.get(client, 0.0)) for client in clients]))
            bounds.append(float(self.budget))
        labels = sorted(set(self.groups.values()))
        if isinstance(self.max_per_group, Mapping):
            for label in self.max_per_group:
                if label not in labels:
                    raise FedwiseError(
                        f"max_per_group names an unknown group '{label}'{nearest(label, labels)}"
                    )
            caps = [self.max_per_group.get(label, len(clients)) for label in labels]
        else:
            caps = [self.max_per_group or 0] * len(labels)
        number = {label: i for i, label in enumerate(labels)}
        taken = {*self.include, *self.exclude, *small}
        return Limits(
            fixed=np.array(sorted(at[name] for name in self.include), dtype=np.int64),
            free=np.array([i for i, name in enumerate(clients) if name not in taken], dtype=np.int64),
            linear=np.array(linear, dtype=np.float64).reshape(-1, len(clients)),
            bounds=np.array(bounds, dtype=np.float64),
            group=np.array([number.get(self.groups.get(c, ""), -1) for c in clients], dtype=np.int64),
            caps=np.array(caps, dtype=np.int64),
        )

    def _too_small(self, clients: tuple[str, ...], records: Floats) -> set[str]:
        least = self.min_client_records
        if least is None:
            return set()
        return {client for client, found in zip(clients, records, strict=True) if found < least}

    def relaxations(self) -> list[tuple[str, Constraints]]:
        """Each constraint in words, with what remains when it alone is dropped."""
        found: list[tuple[str, Constraints]] = []
        if self.min_records is not None:
            found.append((f"min_records={self.min_records:g}", replace(self, min_records=None)))
        if self.min_client_records is not None:
            words = f"min_client_records={self.min_client_records:g}"
            found.append((words, replace(self, min_client_records=None)))
        if self.budget is not None:
            found.append((f"budget={self.budget:g}", replace(self, costs={}, budget=None)))
        if self.groups:
            found.append(
                (f"max_per_group={self.max_per_group}", replace(self, groups={}, max_per_group=None))
            )
        if self.include:
            found.append((f"include={','.join(self.include)}", replace(self, include=())))
        if self.exclude:
            found.append((f"exclude={','.join(self.exclude)}", replace(self, exclude=())))
        return found


class Rules(TypedDict, total=False):
    """The fields of `Constraints` as keywords."""

    include: Iterable[str]
    exclude: Iterable[str]
    min_records: float | None
    min_client_records: float | None
    groups: Mapping[str, str] | None
    max_per_group: int | Mapping[str, int] | None
    costs: Mapping[str, float] | None
    budget: float | None
    exclude_suspect: bool
    answered: bool


class Limits(NamedTuple):
    """Constraints as arrays: Σ linear[l, i] ≤ bounds[l], and at most caps[g] members of group g."""

    fixed: Ints
    free: Ints
    linear: Floats
    bounds: Floats
    group: Ints
    caps: Ints


def usage(limits: Limits, members: Ints) -> tuple[Floats, Ints]:
    """What a federation uses of each linear bound, and how many members each group has."""
    used = limits.linear[:, members].sum(axis=1)
    groups = limits.group[members]
    counts = np.bincount(groups[groups >= 0], minlength=len(limits.caps)).astype(np.int64)
    return used, counts


def satisfied(limits: Limits, members: Ints) -> bool:
    """Whether a whole federation keeps every limit."""
    used, counts = usage(limits, members)
    scale = np.maximum(1.0, np.abs(limits.bounds))
    return bool((used <= limits.bounds + _SLACK * scale).all() and (counts <= limits.caps).all())


def keeps(limits: Limits, used: Floats, counts: Ints, outs: Ints, ins: Ints) -> npt.NDArray[np.bool_]:
    """`allowed` of each swap of ``outs[i]`` for ``ins[i]``."""
    kept = np.ones(len(outs), dtype=np.bool_)
    for amount, coefficients, bound in zip(used, limits.linear, limits.bounds, strict=True):
        after = amount - coefficients[outs] + coefficients[ins]
        kept &= after <= bound + _SLACK * max(1.0, abs(bound))
    if len(limits.caps):
        full = counts >= limits.caps
        group = limits.group[ins]
        kept &= (group < 0) | (limits.group[outs] == group) | ~full[group]
    return kept


@strict
def allowed(limits: Limits, used: Floats, counts: Ints, out: int, into: int) -> bool:
    """Whether the federation with this usage keeps every limit after `out` leaves and `into` joins."""
    for i in range(limits.bounds.size):
        after = used[i] - limits.linear[i, out] + limits.linear[i, into]
        if after > limits.bounds[i] + _SLACK * max(1.0, abs(limits.bounds[i])):
            return False
    group = limits.group[into]
    return bool(group < 0 or limits.group[out] == group or counts[group] < limits.caps[group])


@strict
def exchange(limits: Limits, used: Floats, counts: Ints, out: int, into: int) -> None:
    """Update the usage for a swap."""
    for i in range(limits.bounds.size):
        used[i] += limits.linear[i, into] - limits.linear[i, out]
    if limits.group[out] >= 0:
        counts[limits.group[out]] -= 1
    if limits.group[into] >= 0:
        counts[limits.group[into]] += 1


def _check_names(what: str, names: Iterable[str], at: Mapping[str, int]) -> None:
    for name in names:
        if name not in at:
            raise FedwiseError(f"{what} must name clients of the pool, got '{name}'{nearest(name, at)}")
