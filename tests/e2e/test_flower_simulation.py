"""Flower's simulation as users run it (`flwr run`, Ray), 20 synthetic states: release, selection, training."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fedwise as fw
from fedwise.data import synthetic
from fedwise.flower.new import write_app
from fedwise.pool.pool import Pool
from fedwise.search.entry import select
from flower import quiet  # noqa: F401  # Flower, imported quietly and first
from flower.generated import model_of, run_in_process
from flower.processes import Process, Run, environment, free_ports, listening, wait_for

pytestmark = pytest.mark.slow

#: The app gives node i the i-th state. Proving the best five of fifty would take longer than all the rest.
NODES, K, ROWS = 20, 5, 300
NAMES = tuple(sorted(synthetic.sizes())[:NODES])
SPY = '''"""Writes down who is sent what."""

from fedwise.flower.grid import GridView

class Spy(GridView):
    def push_messages(self, messages):
        found = list(messages)
        with open({path!r}, "a") as file:
            for message in found:
                file.write(f"{{message.metadata.dst_node_id}} {{message.metadata.message_type}}\\n")
        return self.grid.push_messages(found)

    def send_and_receive(self, messages, *, timeout=None):
        raise AssertionError("every message goes through push_messages")
'''


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """One run of the generated app, with a spy on its Grid; yields the directory of everything it left."""
    root = tmp_path_factory.mktemp("simulation")
    write_app(root / "demo")
    (root / "demo/app/spy.py").write_text(SPY.format(path=str(root / "spy.txt")))
    server = root / "demo/app/server_app.py"
    before = "    config = context.run_config\n"
    assert server.read_text().count(before) == 1
    server.write_text(
        server.read_text().replace(before, f"    from .spy import Spy\n\n    grid = Spy(grid)\n{before}")
    )
    env = environment(root / "home")
    port, control = free_ports(2)
    (root / "home/config.toml").write_text(
        f'[superlink]\ndefault = "sim"\n[superlink.sim]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    link = Process(
        ["flower-superlink", "--insecure", "--simulation", "--host", "127.0.0.1", "--port", str(port),
         "--control-api-address", f"127.0.0.1:{control}", "--disable-runtime-dependency-installation"],
        root / "link.log", env=env, cwd=root,
    )  # fmt: skip
    try:
        wait_for("the SuperLink", lambda: listening(port))
        config = f'k={K} expected={NODES} rounds=3 rows={ROWS} output="{root / "out"}" ledgers="{root / "ledgers"}"'
        run = Run(
            ["flwr", "run", ".", "sim", "--stream", "-c", config, "--federation-config",
             f"num-supernodes={NODES} client-resources-num-cpus=1"],
            env=env, cwd=root / "demo",
        )  # fmt: skip
        try:
            run.until(None, seconds=400)
        finally:
            run.kill()
        assert (root / "out/federation.json").exists(), run.text
    finally:
        link.kill()
    return root


def test_every_state_answers_and_the_selection_is_that_of_the_files(simulated):
    pool = Pool.load(simulated / "out/releases")
    assert pool.clients == NAMES
    assert not pool.simulated
    summary = json.loads((simulated / "out/federation.json").read_text())
    chosen = select(pool, K, seed=0, evidence="none")
    assert sorted(chosen.clients) == summary["clients"]
    assert chosen.loss == pytest.approx(summary["loss"], abs=1e-12)
    assert summary["absent"] == []
    assert summary["missing_in_training"] == []


def test_nobody_outside_the_federation_hears_anything_after_the_release(simulated):
    lines = [line.split() for line in (simulated / "spy.txt").read_text().splitlines()]
    asked = [node for node, kind in lines if kind == "query.fedwise_release"]
    trained = [node for node, kind in lines if kind == "train"]
    assert len(asked) == len(set(asked)) == NODES
    assert len(trained) == 3 * K
    assert len(set(trained)) == K
    assert len(lines) == NODES + 3 * K


def test_every_ledger_shows_the_release_and_nothing_else(simulated):
    digest = Pool.load(simulated / "out/releases").plan.digest
    for name in NAMES:
        ledger = fw.Ledger(simulated / "ledgers" / f"{name}.db")
        (charge,) = ledger.history()
        assert (charge.client, charge.plan, charge.epsilon) == (name, digest, 1.0)
        assert ledger.balance().spent == pytest.approx(1.0, abs=1e-4)


def test_ray_and_in_process_agree(simulated):
    """The same nodes asked again in this process send the same releases, so everything after is the same."""
    spy, arrays = run_in_process(
        simulated / "demo", NODES, k=K, expected=NODES, rounds=3, rows=ROWS,
        output=str(simulated / "again"), ledgers=str(simulated / "ledgers"),
    )  # fmt: skip
    there = model_of(simulated / "out")
    assert set(arrays) == set(there)
    for name, array in arrays.items():
        np.testing.assert_allclose(array, there[name], atol=1e-5)
    assert len(spy.sent) == NODES + 3 * K
    for name in NAMES:
        assert len(fw.Ledger(simulated / "ledgers" / f"{name}.db").history()) == 1
