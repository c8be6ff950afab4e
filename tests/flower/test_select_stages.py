"""select_federation in stages: a second question for the shortlist, none for the others."""

from __future__ import annotations

import pytest

import fedwise as fw
from fedwise.errors import FedwiseError
from fedwise.flower import select_federation
from fedwise.owner import envelope
from fedwise.pool.pool import Pool
from flower.kit import NAMES, SpyGrid, first, make_grid

OPTIONS = {"k": 2, "select": first, "timeout": 20.0, "poll": 0.05, "stages": [0.1, 1.0]}


def test_only_the_shortlist_is_asked_again(tmp_path, small_schema):
    spy = SpyGrid(make_grid(tmp_path))
    federation = select_federation(
        spy, small_schema, shortlist={"size": 2, "redraws": 10}, save=tmp_path / "releases", **OPTIONS
    )
    assert len(spy.sent) == len(NAMES) + 2
    epsilons = dict(zip(federation.pool.clients, federation.pool.epsilons.tolist(), strict=True))
    assert sorted(epsilons.values()) == [0.1, 0.1, 0.1, 1.0, 1.0]
    asked = {name for name, epsilon in epsilons.items() if epsilon == 1.0}
    for name in NAMES:
        charges = fw.Ledger(tmp_path / name / "budget.db").history()
        assert len(charges) == (2 if name in asked else 1)
    loaded = Pool.load(tmp_path / "releases")
    assert loaded.epsilons.tolist() == federation.pool.epsilons.tolist()
    assert (loaded.matrix == federation.pool.matrix).all()


def test_a_node_that_refuses_the_second_stage_keeps_its_first(tmp_path, small_schema):
    grid = make_grid(tmp_path)
    for name in NAMES:
        path = next((tmp_path / name).glob("*.toml"))
        text = path.read_text()
        assert "max_epsilon" in text
        lines = ["max_epsilon = 0.5" if "max_epsilon" in line else line for line in text.splitlines()]
        path.write_text("\n".join(lines) + "\n")
    federation = select_federation(grid, small_schema, shortlist={"size": 2, "redraws": 10}, **OPTIONS)
    assert federation.pool.epsilons.tolist() == [0.1] * len(NAMES)
    for name in NAMES:
        assert len(fw.Ledger(tmp_path / name / "budget.db").history()) == 1


def test_stages_belong_to_the_plan(tmp_path, small_schema):
    with pytest.raises(FedwiseError, match="stages must not be given beside a plan"):
        select_federation(make_grid(tmp_path), fw.plan(small_schema), **OPTIONS)


def test_a_request_names_its_stage(small_schema):
    plan = fw.plan(small_schema).encode()
    assert envelope.read_stage(envelope.request(plan)) == 1
    assert envelope.read_stage(envelope.request(plan, stage=2)) == 2
    assert b"stage" not in envelope.request(plan).replace(plan, b"")
    assert envelope.read_stage(b"nothing") == 1
