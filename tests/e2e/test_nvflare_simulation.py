"""NVFlare's own simulator, six sites: the example as it is, and one with a refusal, an empty budget and a dead site."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fedwise as fw
from owners import make_node

pytest.importorskip("nvflare", reason="needs the extra nvflare")
pytestmark = [pytest.mark.soak, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
SITES = tuple(f"site-{i}" for i in range(1, 7))


def simulate(script, root):
    """Run a job's script in a home of its own; its output."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, str(script), str(root / "owners"), str(root / "run")],
        cwd=root, env=env, capture_output=True, text=True, timeout=1200, check=False,
    )  # fmt: skip
    text = done.stdout + done.stderr
    assert (root / "run/federation.json").exists(), text[-6000:]
    return text


def told_to_train(text):
    """Sites named in the server's lines about training tasks."""
    lines = [line for line in text.splitlines() if "Sending task train to" in line]
    assert lines
    return [json.loads(line.split("train to ")[1].replace("'", '"')) for line in lines]


def test_six_sites_three_chosen(tmp_path):
    for i, site in enumerate(SITES):
        make_node(tmp_path / "owners", site, rows=600, seed=i)
    text = simulate(ROOT / "examples/nvflare/job.py", tmp_path)
    saved = json.loads((tmp_path / "run/federation.json").read_text())
    files = fw.select(fw.Pool.load(tmp_path / "run/releases"), 3)
    assert files.pool == 6
    assert saved["clients"] == sorted(files.clients)
    assert saved["absent"] == saved["changes"] == []
    assert [set(names) for names in told_to_train(text)] == [set(files.clients)] * 2
    for site in SITES:
        assert len(fw.Ledger(tmp_path / "owners" / site / "budget.db").history()) == 1


def test_a_plan_in_stages_asks_the_shortlist_again(tmp_path):
    for i, site in enumerate(SITES):
        make_node(tmp_path / "owners", site, rows=600, seed=i)
    text = simulate(ROOT / "tests/nvflare/staged.py", tmp_path)
    saved = json.loads((tmp_path / "run/federation.json").read_text())
    pool = fw.Pool.load(tmp_path / "run/releases")
    files = fw.select(pool, 3)
    assert saved["clients"] == sorted(files.clients)
    assert saved["absent"] == saved["changes"] == []
    assert sorted(pool.epsilons.tolist()) == [0.1] * 2 + [1.0] * 4
    for site, epsilon in zip(pool.clients, pool.epsilons.tolist(), strict=True):
        charges = fw.Ledger(tmp_path / "owners" / site / "budget.db").history()
        assert [charge.epsilon for charge in charges] == ([0.1, 1.0] if epsilon == 1.0 else [0.1])
    assert [set(names) for names in told_to_train(text)] == [set(files.clients)] * 2


def test_refusal_empty_budget_and_a_dead_site_end_well(tmp_path, small_schema):
    policies = {"site-5": {"max_epsilon": 0.1, "name_refusals": True}, "site-6": {"name_refusals": True}}
    for i, site in enumerate(SITES):
        make_node(tmp_path / "owners", site, rows=600, seed=i, **policies.get(site, {}))
    spent = fw.Ledger(tmp_path / "owners/site-6/budget.db", 1.0, 1e-5)
    rows = tmp_path / "owners/site-6/rows.parquet"
    fw.release(fw.plan(small_schema, epsilon=0.9), rows, client="site-6", ledger=spent)
    text = simulate(ROOT / "tests/nvflare/dying.py", tmp_path)
    saved = json.loads((tmp_path / "run/federation.json").read_text())
    dead = (tmp_path / "dead.txt").read_text()
    assert saved["absent"] == [
        "site-5 (declined): the plan asks for a larger epsilon than the owner allows",
        "site-6 (declined): the owner's ledger has not enough budget left",
    ]
    first, second = told_to_train(text)
    assert dead in first
    assert dead not in second
    assert len(set(first) | set(second)) == 4  # the fourth site that released came in its place
    assert not {"site-5", "site-6"} & {*first, *second}
    assert any(f"{dead} left" in line for line in saved["changes"])
    assert len(spent.history()) == 1
