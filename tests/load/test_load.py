"""Load, small: the benchmark's own measurements at a size for every day, answers checked, times not.

`python benchmarks/load.py` runs the full sizes and holds the bounds.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import fedwise as fw
from conftest import make_people

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def load() -> Iterator[ModuleType]:
    """benchmarks/load.py as a module, on the small schema so that counting costs nothing."""
    path = Path(__file__).parents[2] / "benchmarks" / "load.py"
    spec = importlib.util.spec_from_file_location("fedwise_load_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture
def small(load: ModuleType, small_schema: fw.Schema, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark with a schema of four columns."""
    monkeypatch.setattr(load, "open_schema", lambda: small_schema)
    monkeypatch.setattr(load, "people", lambda _, rows, seed: make_people(rows, seed))
    return load


def test_many_releases_are_read_as_they_were_written(small: ModuleType, tmp_path: Path) -> None:
    plan = fw.plan(small.open_schema())
    small.write_releases(tmp_path / "r", 500, plan)
    found = small.load_pool(tmp_path / "r")
    assert (found["pool_clients"], found["pool_flagged"]) == (500, 0)
    pool = fw.Pool.load(tmp_path / "r")
    assert pool.clients == tuple(f"c{i:05}" for i in range(500))
    one = fw.Release.load(tmp_path / "r" / "c00321.release.json")
    np.testing.assert_array_equal(pool.matrix[321], one.counts)
    # What the benchmark writes is what `Release.save` writes.
    assert one.encode() == (tmp_path / "r" / "c00321.release.json").read_bytes()


def test_memory_of_a_pool_grows_with_its_counts_only(small: ModuleType, tmp_path: Path) -> None:
    """The files of 500 clients are larger than what is kept of them: the counts, eight bytes each."""
    small.write_releases(tmp_path / "r", 20, fw.plan(small.open_schema()))
    pool = fw.Pool.load(tmp_path / "r")
    assert pool.matrix.nbytes == 20 * pool.plan.layout.cells * 8
    assert sum(file.stat().st_size for file in (tmp_path / "r").iterdir()) > 3 * pool.matrix.nbytes


def test_sixty_nodes_answer_at_once(small: ModuleType) -> None:
    pytest.importorskip("flwr")
    logger = logging.getLogger("flwr")
    before = logger.level
    try:
        found = small.measure_nodes(60, k=4, method="greedy-exchange", evidence="none")
    finally:
        logger.setLevel(before)
    assert found["nodes_wrong"] == 0
    assert len(found["nodes_federation"]) == 4


def test_ten_users_get_the_answers_they_would_get_alone(small: ModuleType) -> None:
    pytest.importorskip("starlette")
    found = small.measure_explorer(10, clients=6, each=3, patient=4)
    assert found["explorer_answers"] == 34
    assert found["explorer_wrong"] == 0


def test_a_wrong_answer_is_counted(small: ModuleType) -> None:
    """Proof that the comparison can fail: another loss, other clients, an error in place of an answer."""
    ours = {"clients": ["a"], "loss": -1.0, "seconds": 0.1, "command": "x"}
    assert not small._differs({**ours, "seconds": 9.0, "command": "y"}, ours)
    assert small._differs({**ours, "loss": -1.0000001}, ours)
    assert small._differs({**ours, "clients": ["b"]}, ours)
    assert small._differs({"error": "no"}, ours)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", ["pool", "nodes", "explorer"])
def test_the_full_load_keeps_its_bounds(part: str, load: ModuleType) -> None:
    found = load.MEASURES[part](load.SIZES[part])
    assert [name for name, bound in load.BOUNDS.items() if name in found and found[name] > bound] == [], found
