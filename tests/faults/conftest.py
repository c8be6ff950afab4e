"""One small world for every fault: inputs that nobody changes, and a server that breaks processes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

import fedwise as fw
from conftest import SMALL, make_people
from faults.fork_server import ForkServer
from faults.recovery import World

if not sys.platform.startswith("linux"):
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Schema, plan, rows of four clients and their releases, and what each command makes of them undisturbed."""
    root = tmp_path_factory.mktemp("world")
    (root / "schema.toml").write_text(SMALL)
    plan = fw.plan(fw.Schema.parse(SMALL), epsilon=1.0)
    plan.save(root / "plan.json")
    (root / "clients").mkdir()
    for seed, client in enumerate("ABCD"):
        rows = make_people(120 + 20 * seed, seed)
        rows.write_parquet(root / "clients" / f"{client}.parquet")
        made = fw.release(plan, rows, client=client, simulated=True, seed=seed)
        made.save(root / "releases" / f"{client}.release.json")
    (root / "chosen.json").write_text(json.dumps({"clients": ["A", "C"]}))
    make_people(60).write_csv(root / "people.csv")
    return World(root)


@pytest.fixture(scope="session")
def server(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """The warm process that forks."""
    started = ForkServer(tmp_path_factory.mktemp("server"), world.root / "releases")
    yield started
    started.close()
