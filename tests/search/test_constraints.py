"""Constraints: words in, the right blame out."""

from __future__ import annotations

import numpy as np
import pytest

from fedwise.errors import FedwiseError, Infeasible
from fedwise.search.constraints import Constraints, allowed, keeps, satisfied, usage
from fedwise.search.feasible import check, start

CLIENTS = tuple(f"c{i}" for i in range(6))
RECORDS = np.array([100.0, 200, 300, 400, 500, 600])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"include": "CA"}, "include must be a list of client names, got the text 'CA'"),
        ({"max_per_group": 2}, "max_per_group needs groups"),
        ({"groups": {"c0": "a"}}, "groups need max_per_group"),
        ({"groups": {"c0": "a"}, "max_per_group": -1}, "at least 0, got -1"),
        ({"costs": {"c0": 1.0}}, "costs must come together with budget"),
        ({"budget": 3.0}, "budget must come together with costs"),
        ({"budget": float("nan"), "costs": {"c0": 1.0}}, "budget must be a finite number"),
        (
            {"budget": 3.0, "costs": {"c0": -1.0}},
            "cost of client 'c0' must be a finite number of at least 0, got -1",
        ),
        ({"min_records": float("inf")}, "min_records must be a finite number, got inf"),
        ({"min_client_records": float("nan")}, "min_client_records must be a finite number, got nan"),
    ],
)
def test_constraints_that_make_no_sense(given, message):
    with pytest.raises(FedwiseError, match=message):
        Constraints(**given)


@pytest.mark.parametrize("field", ["include", "exclude", "groups", "costs"])
def test_unknown_names_come_with_the_nearest(field):
    given = {
        "include": {"include": ["cal"]},
        "exclude": {"exclude": ["cal"]},
        "groups": {"groups": {"cal": "a"}, "max_per_group": 1},
        "costs": {"costs": {"cal": 1.0}, "budget": 5.0},
    }[field]
    with pytest.raises(
        FedwiseError, match=f"{field} must name clients of the pool, got 'cal'; did you mean 'cali'"
    ):
        check(Constraints(**given), ("cali", "texas"), np.ones(2), 1)


def test_unknown_group_in_caps():
    with pytest.raises(FedwiseError, match="unknown group 'est'; did you mean 'east'"):
        check(Constraints(groups={"c0": "east"}, max_per_group={"est": 1}), CLIENTS, RECORDS, 2)


@pytest.mark.parametrize(
    ("given", "k", "message"),
    [
        ({"include": ["c0", "c1", "c2"]}, 2, "include names 3 clients but k is 2"),
        ({"exclude": ["c0", "c1", "c2"]}, 4, "exclude leaves 3 clients but k is 4"),
        ({"include": ["c0"], "exclude": ["c0"]}, 2, "client 'c0' cannot be both included and excluded"),
        ({"min_records": 1101.0}, 2, "satisfies min_records=1101; the largest has about 1100 records"),
        (
            {"costs": dict.fromkeys(CLIENTS, 2.0), "budget": 5.0},
            3,
            "satisfies budget=5; the cheapest costs 6",
        ),
        (
            {"groups": dict.fromkeys(CLIENTS, "a"), "max_per_group": 2},
            3,
            "satisfies max_per_group=2; relax it",
        ),
        ({"min_client_records": 250.0}, 5, "min_client_records=250 leaves 4 clients but k is 5"),
        (
            {"min_client_records": 250.0, "include": ["c1"]},
            2,
            "client 'c1' must be included but has about 200 records, fewer than min_client_records=250",
        ),
        (
            {"min_client_records": 450.0, "groups": {"c4": "a", "c5": "a"}, "max_per_group": 1},
            2,
            "satisfies min_client_records=450; relax it",
        ),
        (
            {"min_records": 1000.0, "include": ["c0"]},
            2,
            "satisfies min_records=1000; the largest has about 700",
        ),
    ],
)
def test_the_constraint_to_blame(given, k, message):
    with pytest.raises(Infeasible, match=message) as error:
        check(Constraints(**given), CLIENTS, RECORDS, k)
    assert error.value.exit_code == 4


def test_constraints_that_only_fail_together():
    groups = {"c5": "big", "c4": "big"}
    # 1100 records need c4 and c5, of one group; and the budget allows neither pair: two must go.
    rules = Constraints(
        min_records=1100.0, groups=groups, max_per_group=1, costs={"c5": 10.0, "c4": 10.0}, budget=15.0,
        include=("c5",),
    )  # fmt: skip
    with pytest.raises(Infeasible, match="satisfies min_records=1100"):
        check(rules, CLIENTS, RECORDS, 2)
    rules = Constraints(
        min_records=600.0, groups={"c0": "a", "c1": "a"}, max_per_group=1, costs={"c0": 0.0, "c1": 0.0, "c2": 9.0,
        "c3": 9.0, "c4": 9.0, "c5": 9.0}, budget=1.0,
    )  # fmt: skip
    with pytest.raises(Infeasible, match="satisfies budget=1"):
        check(rules, CLIENTS, RECORDS, 2)


def test_really_together():
    # Dropping either alone does not help: the budget leaves c0, c1; the group leaves one of them.
    rules = Constraints(
        groups=dict.fromkeys(CLIENTS, "a"), max_per_group=1, costs=dict.fromkeys(CLIENTS, 1.0), budget=1.0
    )
    with pytest.raises(Infeasible, match="budget=1 and max_per_group=1 together; relax at least two"):
        check(rules, CLIENTS, RECORDS, 2)


@pytest.mark.parametrize("k", [0, -1, 7, 2.0, True, "3"])
def test_sizes_outside_the_pool(k):
    with pytest.raises(FedwiseError, match="k must be"):
        check(Constraints(), CLIENTS, RECORDS, k)


def test_starts_are_feasible_even_when_feasible_federations_are_rare():
    rng = np.random.default_rng(0)
    clients = tuple(f"c{i:03d}" for i in range(200))
    records = rng.integers(1, 100, 200).astype(float)
    best = np.sort(records)[-20:].sum()
    rules = Constraints(min_records=float(best - 3), exclude=("c000",) if records[0] < 50 else ())
    limits = check(rules, clients, records, 20)
    for chain in range(5):
        members = start(limits, 20, 0, chain)
        assert len(set(members.tolist())) == 20
        assert satisfied(limits, members)
    assert np.array_equal(start(limits, 20, 0, 1), start(limits, 20, 0, 1))


def test_swaps_that_keep_the_limits_are_the_same_in_numpy_and_compiled():
    rng = np.random.default_rng(0)
    names = tuple(f"c{i}" for i in range(14))
    rules = Constraints(
        min_records=260.0,
        groups={name: "xyz"[i % 3] for i, name in enumerate(names[:11])},
        max_per_group={"x": 2, "y": 1, "z": 2},
        costs={name: float(i) for i, name in enumerate(names)},
        budget=30.0,
    )
    for given in (rules, Constraints()):
        limits = given.resolve(names, rng.uniform(10, 100, len(names)))
        members = np.array([0, 1, 5, 8, 12])
        used, counts = usage(limits, members)
        outs, ins = (side.ravel() for side in np.meshgrid(members, np.setdiff1d(np.arange(14), members)))
        wanted = [allowed(limits, used, counts, a, b) for a, b in zip(outs, ins, strict=True)]
        assert keeps(limits, used, counts, outs, ins).tolist() == wanted
        assert given is not rules or 0 < sum(wanted) < len(wanted)
