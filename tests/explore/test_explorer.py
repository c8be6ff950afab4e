"""The explorer as a running server, and its command."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import fedwise as fw
from conftest import SMALL
from fedwise.explore import Explorer
from reporting.report_kit import make_releases

PROGRAM = """
import typer
from fedwise.cli.explore import explore
app = typer.Typer()
app.command()(explore)
app()
"""


def test_runs_beside_other_work_and_stops(pool: fw.Pool) -> None:
    with Explorer(pool) as page:
        assert page.url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(page.url + "api/pool", timeout=20) as answer:
            assert len(json.loads(answer.read())["clients"]) == len(pool)
        with pytest.raises(urllib.error.HTTPError, match="403") as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{page.port}/wrong/", timeout=20)
        refused.value.close()
        port = page.port
    with socket.socket() as probe:
        probe.settimeout(5)
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_listens_on_this_machine_only(pool: fw.Pool) -> None:
    with Explorer(pool) as page:
        assert page._socket.getsockname()[0] == "127.0.0.1"


def test_a_taken_port_is_explained(pool: fw.Pool) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(fw.FedwiseError, match="--port"):
            Explorer(pool, port=taken.getsockname()[1])


def test_command_prints_its_address_and_stops_on_ctrl_c(tmp_path: Path) -> None:
    for found in make_releases(fw.Schema.parse(SMALL), ("CA", "NY", "TX")):
        found.save(tmp_path / f"{found.client}.release.json")
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path), "--no-open", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "}\n")
            said = json.loads("".join(lines) + "}")
            assert said["clients"] == 3
            assert said["privacy"] == "simulated"
            with urllib.request.urlopen(said["url"], timeout=240) as answer:
                assert b"fedwise" in answer.read()
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=240)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert "stopped" in errors
    assert "Traceback" not in errors
