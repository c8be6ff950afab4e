"""Selecting: constraints in one spelling, keywords that do not exist, and points of a frontier."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import msgspec
import numpy as np
import pytest

import fedwise as fw
from fedwise.errors import FedwiseError
from fedwise.objective.weights import Weights
from fedwise.search import Point, frontier, pareto, select
from fedwise.search.constraints import Constraints, Rules
from fedwise.search.entry import More
from fedwise.search.point import undominated
from search.pools import random_estimates

ROOT = Path(fw.__file__).parent


@pytest.fixture(scope="module")
def estimates():
    return random_estimates(9, seed=2)


def test_keywords_and_constraints_are_one_thing(estimates):
    rules = {"include": ["c03"], "costs": {"c01": 2.0, "c03": 1.0}, "budget": 1.5}
    by_keyword = select(estimates, 3, evidence="none", **rules)
    whole = select(estimates, 3, evidence="none", constraints=fw.Constraints(**rules))
    assert by_keyword.clients == whole.clients
    assert by_keyword.constraints == whole.constraints
    assert "c03" in whole.clients
    assert "c01" not in whole.clients
    assert Constraints.of(None, **rules) == fw.Constraints(**rules)


def test_constraints_are_given_one_way(estimates):
    with pytest.raises(FedwiseError, match="got Constraints and the keyword include; put all of them"):
        select(estimates, 3, constraints=Constraints(exclude=("c01",)), include=["c02"])
    empty = {"include": [], "groups": None, "costs": {}, "budget": None}
    assert Constraints.of(Constraints(exclude=("c01",)), **empty) == Constraints(exclude=("c01",))


def test_the_keywords_are_the_fields_of_constraints():
    assert set(Rules.__annotations__) == {field.name for field in Constraints.__dataclass_fields__.values()}
    assert set(Rules.__annotations__) < set(More.__annotations__)


def test_a_keyword_that_does_not_exist_is_named(estimates):
    with pytest.raises(TypeError, match="no keyword 'inclde'; did you mean 'include'"):
        select(estimates, 3, inclde=["c01"])


class WithFirst:
    """The lowest total of records among federations with the first client; without it, infinite."""

    name = "with-first"

    def rows(self, estimates):
        first = np.zeros((len(estimates.clients), 1))
        first[0] = 1.0
        return np.concatenate([first, estimates.totals[:, None]], axis=1)

    def evaluate(self, sums):
        return np.where(sums[:, 0] > 0.5, sums[:, 1], np.inf)


@pytest.mark.parametrize("method", ["annealing", "exact", "greedy-exchange"])
@pytest.mark.parametrize("seed", range(4))
def test_a_search_crosses_federations_of_infinite_loss(estimates, method, seed):
    """Warnings are errors here: the difference of two infinite losses is never taken."""
    found = select(estimates, 3, objective=WithFirst(), method=method, seed=seed, evidence="none", threads=1)
    smallest = sorted(range(1, 9), key=lambda i: estimates.totals[i])[:2]
    assert found.clients == tuple(estimates.clients[i] for i in sorted([0, *smallest]))


def test_select_has_few_parameters():
    assert len(inspect.signature(select).parameters) <= 12


def test_points_tell_what_was_computed_and_no_more(estimates):
    plain: dict[str, list[dict[str, object]]] = frontier(
        estimates, (2, 4), pareto_points=3, threads=1
    ).to_dict()
    assert set(plain["points"][0]) == {"k", "loss", "std_error", "terms", "clients", "status"}
    assert set(plain["pareto"][0]) == {"k", "loss", "share", "unfairness", "utility", "terms", "clients"}
    sizes = msgspec.to_builtins(select(estimates, (2, 4), evidence="none", threads=1))["sizes"]
    assert [set(size) for size in sizes] == [{"k", "loss", "clients"}] * 3


def test_unfairness_less_utility_is_the_loss(estimates):
    weights = Weights(1.0, 0.5, 0.25, 2.0)
    for point in pareto(estimates, 3, weights=weights, points=5, threads=1):
        assert point.unfairness is not None
        assert point.utility is not None
        assert point.unfairness - point.utility == pytest.approx(point.loss)
        assert point.k == len(point.clients) == 3


def test_a_point_of_a_selection_reads_the_files_of_old():
    found = msgspec.json.decode(b'{"k": 2, "loss": -1.5, "clients": ["a", "b"]}', type=Point)
    assert found == Point(k=2, loss=-1.5, clients=("a", "b"))
    assert found.terms is None


@pytest.mark.parametrize(
    ("points", "front"),
    [
        ([], []),
        ([(1, 1), (1, 1)], [0]),
        ([(2, 5), (1, 3), (3, 4), (1, 2)], [1, 0]),
        ([(1, 9), (2, 5), (3, 9), (4, 10)], [0, 3]),
    ],
)
def test_undominated(points, front):
    found = undominated(range(len(points)), cost=lambda i: points[i][0], gain=lambda i: points[i][1])
    assert list(found) == front


#: What each inner package may import of fedwise, beside itself and the modules at the top.
MAY_IMPORT = {
    "objective": {"schema"},
    "estimation": {"schema", "objective", "planning"},
    "pool": {"schema", "privacy", "objective", "planning", "owner", "estimation", "notebook"},
    "search": {
        "schema",
        "objective",
        "planning",
        "owner",
        "estimation",
        "pool",
        "certificate",
        "bounds",
        "notebook",
    },
}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_inner_packages_import_nothing_above_them(package):
    """Counting imports inside functions and for types: the search knows no forecast, the objective no estimates."""
    free = {package, "errors", "files", "cache", "deferred", "machine_code", "__version__"}
    for path in (ROOT / package).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level == 2:
                names = [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]
                assert set(names) <= MAY_IMPORT[package] | free, (path.name, names)
            elif isinstance(node, ast.Import):
                assert not any(alias.name.startswith("fedwise") for alias in node.names), path.name
