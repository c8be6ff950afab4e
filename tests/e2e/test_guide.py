"""The deployment guide, done literally: its commands are read from the page and run, on this machine."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

import fedwise as fw
from fedwise.data import schema_text, synthetic
from fedwise.flower.new import write_app
from flower import quiet  # noqa: F401  # Flower, imported quietly and first
from flower.processes import Process, environment, free_ports, listening, wait_for

GUIDE = Path(__file__).parents[2] / "docs/how-to/deploy.md"
OWNERS = ("AL", "CA", "NY")


def blocks() -> dict[str, str]:
    """Every titled block of the guide."""
    found = re.findall(
        r'^```(?:bash|ini) title="([^"]+)"\n(.*?)^```', GUIDE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert len(found) == len(dict(found))
    return dict(found)


def test_services_start_what_the_guide_starts():
    """The service files hold the very commands of the page, variables in systemd's spelling."""
    guide = blocks()
    for who, title in (("node", "fedwise-node"), ("server", "fedwise-server")):
        command = shlex.split(guide[f"{who}: start"].replace("\\\n", " "))
        (line,) = re.findall(
            r"^ExecStart=(.*)$", guide[f"{who}: /etc/systemd/system/{title}.service"], re.MULTILINE
        )
        service = [re.sub(r"\$\{(\w+)\}", r"$\1", word) for word in shlex.split(line)]
        assert Path(service[0]).name == command[0]
        assert service[1:] == command[1:]


def test_the_policy_of_the_guide_is_one(tmp_path):
    from fedwise.owner.policy import Policy

    subprocess.run(["bash", "-ec", blocks()["node: policy"]], cwd=tmp_path, check=True)
    (tmp_path / "schema.toml").write_text(schema_text("income"))
    found = Policy.load(tmp_path / "policy.toml")
    assert found.client == tmp_path.name
    found.check(fw.plan(fw.Schema.load(tmp_path / "schema.toml"), epsilon=1.0))


class Machine:
    """Runs blocks of the guide in folders, with the names of this machine in place of the example's."""

    def __init__(self, root: Path) -> None:
        self.root, self.blocks = root, blocks()
        self.env = {**environment(root / ".flwr"), "HOME": str(root)}
        self.port, *self.node_ports = free_ports(1 + len(OWNERS))
        self.running: list[Process] = []

    def names(self, node_port: int = 0) -> str:
        values = {"SERVER": "localhost", "BIND": "127.0.0.1", "PORT": self.port, "NODE_PORT": node_port}
        lines = self.blocks["names"].splitlines()
        assert [line.split("=")[0] for line in lines] == [f"export {name}" for name in values]
        return "".join(f"export {name}={value}\n" for name, value in values.items())

    def script(self, title: str, node_port: int = 0) -> list[str]:
        return ["bash", "-ec", self.names(node_port) + self.blocks[title]]

    def run(self, title: str, folder: Path, seconds: float = 900) -> str:
        done = subprocess.run(
            self.script(title),
            cwd=folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, f"{title}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout + done.stderr

    def start(self, title: str, folder: Path, node_port: int = 0) -> Process:
        log = self.root / f"{title.replace(': ', '-')}-{folder.name}.log"
        self.running.append(Process(self.script(title, node_port), log, env=self.env, cwd=folder))
        return self.running[-1]

    def stop(self) -> None:
        for process in self.running:
            process.kill()
        # A simulation leaves a SuperLink of Flower's own behind: only those with this very home are ours.
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                ours = f"FLWR_HOME={self.root}/.flwr".encode() in (entry / "environ").read_bytes().split(
                    b"\0"
                )
                if ours and int(entry.name) != os.getpid():
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                continue


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path)
    try:
        yield made
    finally:
        made.stop()


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_the_simulation_runs_as_the_guide_says(machine):
    text = machine.run("simulation", machine.root)
    assert "fedwise: the federation is" in text
    assert "2 releases from 2 nodes" in text
    assert "[ROUND 3/3]" in text


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_the_deployment_runs_as_the_guide_says(machine):
    server = machine.root / "server"
    write_app(server)
    machine.run("server: certificate", server)
    machine.start("server: start", server)
    wait_for("the SuperLink", lambda: listening(machine.port))
    machine.run("server: connection", server)
    nodes = {}
    for name, port in zip(OWNERS, machine.node_ports, strict=True):
        home = machine.root / "owners" / name
        home.mkdir(parents=True)
        synthetic.state(name, rows=300, seed=0).write_parquet(home / "rows.parquet")
        shutil.copy(server / "app/schema.toml", home / "schema.toml")
        shutil.copy(server / "tls/ca.crt", home / "ca.crt")
        machine.run("node: key", home)
        machine.run("node: policy", home)
        if name == "NY":  # a node that nobody registered yet is refused
            stranger = machine.start("node: start", home, port)
            wait_for("the refusal", lambda node=stranger: not node.running)
        machine.run("server: register", home)
        nodes[name] = machine.start("node: start", home, port)
    text = machine.run("server: run", server)
    assert (server / "result/federation.json").exists(), text[-4000:] + machine.running[0].text[-3000:]
    saved = json.loads((server / "result/federation.json").read_text())
    assert len(saved["clients"]) == 2
    assert fw.Pool.load(server / "result/releases").clients == OWNERS
    assert fw.Pool.load(server / "result/releases").label == "private"
    for name in OWNERS:
        assert len(fw.Ledger(machine.root / "owners" / name / "budget.db").history()) == 1
