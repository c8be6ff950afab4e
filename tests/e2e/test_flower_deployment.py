"""A real deployment on this machine: SuperLink and SuperNodes with TLS and node keys, nodes killed on the way."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import time
from contextlib import closing

import numpy as np
import pytest

import fedwise as fw
from fedwise.data import synthetic
from fedwise.flower.new import write_app
from fedwise.pool.pool import Pool
from flower import quiet  # noqa: F401  # Flower, imported quietly and first
from flower.generated import model_of, run_in_process
from flower.keys import make_certificates, make_node_key
from flower.processes import Process, Run, environment, free_ports, listening, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

STATES = ("AL", "CA", "NY", "TX")
STRANGER = "WY"
GRACE = 15
#: Seconds after which the SuperLink gives up a silent node: twice the interval of heartbeats, 30 s in Flower.
FORGOTTEN = 60


class Deployment:
    """One SuperLink, and the nodes of four owners."""

    def __init__(self, root):
        self.root, self.env = root, environment(root / "home")
        self.nodes: dict[str, Process] = {}
        self.killed: dict[str, float] = {}
        write_app(root / "demo")
        make_certificates(root / "tls")
        self.port, *ports = free_ports(2 + len(STATES) + 1)
        self.ports = iter(ports)
        (root / "home/config.toml").write_text(
            f'[superlink]\ndefault = "dep"\n[superlink.dep]\naddress = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{root / "tls/ca.crt"}"\n'
        )
        for name in STATES:
            self.make_owner(name)
        self.node_ports = {name: next(self.ports) for name in (*STATES, STRANGER)}
        tls = root / "tls"
        self.link = Process(
            ["flower-superlink", "--host", "127.0.0.1", "--port", str(self.port), "--enable-supernode-auth",
             "--ssl-ca-certfile", str(tls / "ca.crt"), "--ssl-certfile", str(tls / "server.pem"),
             "--ssl-keyfile", str(tls / "server.key"), "--disable-runtime-dependency-installation"],
            root / "link.log", env=self.env, cwd=root,
        )  # fmt: skip
        wait_for("the SuperLink", lambda: listening(self.port))

    def make_owner(self, name):
        """What one owner has: rows, terms, a key."""
        home = self.root / "owners" / name
        home.mkdir(parents=True)
        synthetic.state(name, rows=300, seed=0).write_parquet(home / "rows.parquet")
        shutil.copy(self.root / "demo/app/schema.toml", home / "schema.toml")
        (home / "policy.toml").write_text(
            f'client = "{name}"\nschema = "schema.toml"\ndata = "rows.parquet"\nledger = "budget.db"\n'
            "max_epsilon = 1.0\n"
        )
        make_node_key(home / "key")

    def config(self, name):
        return {"policy": str(self.root / "owners" / name / "policy.toml")}

    def ledger(self, name):
        return self.root / "owners" / name / "budget.db"

    def released(self, name):
        return any(self.ledger(name).parent.glob("*.releases/*.release.json"))

    def register(self, name):
        key = self.root / "owners" / name / "key.pub"
        done = subprocess.run(
            ["flwr", "supernode", "register", str(key), "dep"],
            env=self.env,
            cwd=self.root,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self, name, attempt=0):
        home = self.root / "owners" / name
        self.nodes[name] = Process(
            ["flower-supernode", "--superlink", f"127.0.0.1:{self.port}",
             "--root-certificates", str(self.root / "tls/ca.crt"), "--port", str(self.node_ports[name]),
             "--auth-supernode-private-key", str(home / "key"),
             "--node-config", f'policy="{home / "policy.toml"}"'],
            home / f"node{attempt}.log", env=self.env, cwd=home,
        )  # fmt: skip

    def kill(self, name):
        self.nodes[name].kill()
        self.killed[name] = time.monotonic()

    def bring_back(self, name):
        """Start a killed node again, once its heartbeat has run out: until then the SuperLink takes it for alive."""
        time.sleep(max(0.0, self.killed[name] + FORGOTTEN - time.monotonic()))
        for attempt in range(1, 60):
            self.start(name, attempt)
            node = self.nodes[name]
            wait_for(
                f"the return of {name}",
                lambda node=node: "SuperNode ID" in node.text or "Failed to activate" in node.text,
            )
            if "SuperNode ID" in node.text:
                return
            node.kill()
            time.sleep(5)
        raise AssertionError(f"{name} did not come back")

    def run(self, **options):
        config = " ".join(f'{k.replace("_", "-")}="{v}"' if isinstance(v, str) else f'{k.replace("_", "-")}={v}'
                          for k, v in options.items())  # fmt: skip
        return Run(
            ["flwr", "run", ".", "dep", "--stream", "-c", config], env=self.env, cwd=self.root / "demo"
        )

    def stop(self):
        for node in self.nodes.values():
            node.kill()
        self.link.kill()


@pytest.fixture
def deployment(tmp_path):
    made = Deployment(tmp_path)
    try:
        yield made
    finally:
        made.stop()


def test_killed_nodes_do_not_stop_the_run_and_nothing_is_released_twice(deployment):
    root = deployment.root
    for name in STATES:
        deployment.register(name)
        deployment.start(name)

    # A node whose key nobody registered is refused.
    deployment.make_owner(STRANGER)
    deployment.start(STRANGER)
    wait_for("the refusal", lambda: not deployment.nodes[STRANGER].running)
    assert deployment.nodes[STRANGER].popen.returncode != 0
    assert "Failed to activate SuperNode" in deployment.nodes[STRANGER].text

    # TX cannot answer, as its ledger is locked; it is killed while the others release.
    shelf = root / "owners/TX/budget.db.releases"
    shelf.mkdir()
    with closing(sqlite3.connect(shelf / "lock.db", isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        run = deployment.run(k=3, expected=4, rounds=2, grace=GRACE, output=str(root / "first"))
        try:
            others = STATES[:3]
            wait_for("the other releases", lambda: all(map(deployment.released, others)))
            deployment.kill("TX")
            # NY is killed when it has been told to train.
            run.until("configure_train: Sampled 3 nodes")
            deployment.kill("NY")
            run.until(None)
        finally:
            run.kill()
    assert (root / "first/federation.json").exists(), run.text + deployment.link.text[-3000:]
    first = json.loads((root / "first/federation.json").read_text())
    assert first["clients"] == list(others)
    assert len(first["absent"]) == 1
    assert "no answer in time" in first["absent"][0]
    assert {name for name, _, _ in first["missing_in_training"]} == {"NY"}
    assert "NY is missing (train)" in run.text
    assert all(np.isfinite(array).all() for array in model_of(root / "first").values())
    assert not deployment.ledger("TX").exists() or fw.Ledger(deployment.ledger("TX")).history() == []

    # Both come back, and everyone is asked the same plan again.
    for name in ("TX", "NY"):
        deployment.bring_back(name)
    run = deployment.run(k=2, expected=4, rounds=1, output=str(root / "second"))
    try:
        run.until(None)
    finally:
        run.kill()
    assert (root / "second/federation.json").exists(), run.text
    second = json.loads((root / "second/federation.json").read_text())
    assert second["absent"] == []
    assert second["missing_in_training"] == []
    for name in STATES:
        (charge,) = fw.Ledger(deployment.ledger(name)).history()
        assert charge.epsilon == 1.0
    for name in others:
        files = [root / folder / "releases" / f"{name}.release.json" for folder in ("first", "second")]
        assert files[0].read_bytes() == files[1].read_bytes()
    assert Pool.load(root / "second/releases").clients == STATES

    # The same owners in this process send the same releases: selection and model are those of the deployment.
    spy, arrays = run_in_process(
        root / "demo",
        [deployment.config(name) for name in STATES],
        k=2,
        expected=4,
        rounds=1,
        output=str(root / "third"),
    )
    third = json.loads((root / "third/federation.json").read_text())
    assert third["clients"] == second["clients"]
    for name, array in model_of(root / "second").items():
        np.testing.assert_allclose(arrays[name], array, atol=1e-5)
    assert len(spy.sent) == 4 + 2
