"""NVFlare's POC mode, as docs/how-to/nvflare.md says: a server and three sites as processes with TLS, two chosen."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fedwise as fw
from owners import make_node

pytest.importorskip("nvflare", reason="needs the extra nvflare")
pytestmark = [pytest.mark.soak, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
SITES = ("site-1", "site-2", "site-3")
#: Ports that NVFlare's POC mode takes.
PORTS = (8002, 8003)
#: Writes the example's job as a folder in place of simulating it.
EXPORT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import job
job.K = 2
made, _ = job.make_job(Path(sys.argv[2]), Path(sys.argv[3]))
made.export_job(sys.argv[4])
"""


@pytest.fixture
def nvflare(tmp_path):
    """Runs a command of NVFlare in a home of its own; the system it started is stopped at the end."""
    for port in PORTS:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                pytest.skip(f"port {port}, which POC mode needs, is in use")
    env = {
        **os.environ,
        "HOME": str(tmp_path),
        "NVFLARE_POC_WORKSPACE": str(tmp_path / "poc"),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }

    def run(*words):
        done = subprocess.run(
            ["nvflare", *words],
            cwd=tmp_path, env=env, input="y\n", capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    yield run
    run("poc", "stop")


def allow_fedwise(local):
    """The class list of a server or site, as the guide says."""
    own = local / "resources.json"
    if not own.exists():
        shutil.copy(local / "resources.json.default", own)
    tree = json.loads(own.read_text())
    tree["class_allow_list"].append("fedwise.nvflare.")
    own.write_text(json.dumps(tree))


def test_three_sites_two_chosen(tmp_path, nvflare):
    for i, site in enumerate(SITES):
        make_node(tmp_path / "owners", site, rows=600, seed=i)
    nvflare("poc", "prepare", "-n", "3")
    places = tmp_path / "poc/example_project/prod_00"
    for name in ("server", *SITES):
        allow_fedwise(places / name / "local")
    # The first site has a policy of its own, which goes before the one that the job names.
    own = places / "site-1/local/fedwise"
    shutil.copytree(tmp_path / "owners/site-1", own)
    words = [ROOT / "examples/nvflare", tmp_path / "owners", tmp_path / "run", tmp_path]
    subprocess.run([sys.executable, "-c", EXPORT, *map(str, words)], check=True, capture_output=True)
    nvflare("poc", "start", "--timeout", "300")
    nvflare(
        "job",
        "submit",
        "-j",
        str(tmp_path / "hospitals"),
        "--startup-kit",
        str(places / "admin@nvidia.com/startup"),
    )
    saved, end = tmp_path / "run/federation.json", time.monotonic() + 300
    log = places / "server/poc_console.log"
    while not saved.exists():
        assert time.monotonic() < end, log.read_text()[-6000:]
        time.sleep(1)
    files = fw.select(fw.Pool.load(tmp_path / "run/releases"), 2)
    assert files.pool == 3
    assert json.loads(saved.read_text())["clients"] == sorted(files.clients)
    told = [
        line.split("train to ")[1] for line in log.read_text().splitlines() if "Sending task train to" in line
    ]
    assert [set(json.loads(names.replace("'", '"'))) for names in told] == [set(files.clients)] * 2
    homes = (own, tmp_path / "owners/site-2", tmp_path / "owners/site-3")
    assert [len(fw.Ledger(home / "budget.db").history()) for home in homes] == [1, 1, 1]
    assert not (tmp_path / "owners/site-1/budget.db").exists()
