"""The explorer as a running server, and its command."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import webbrowser
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

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


def test_the_browser_is_not_started_with_the_token(pool: fw.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    with Explorer(pool) as page:
        page.open_browser()
        (argument,) = opened
        assert page.token not in argument
        assert str(page.port) not in argument
        file = Path(url2pathname(urlsplit(argument).path))
        if os.name == "posix":
            assert file.stat().st_mode & 0o777 == 0o600
        text = file.read_text()
        assert f'content="0; url={page.url}"' in text
        # A stranger's request leaves it for the browser; the browser's own takes it away.
        with pytest.raises(urllib.error.HTTPError, match="403") as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{page.port}/wrong/", timeout=20)
        refused.value.close()
        assert file.exists()
        urllib.request.urlopen(page.url, timeout=20).close()
        assert not file.exists()


def test_a_redirect_that_nobody_followed_is_removed_at_the_end(
    pool: fw.Pool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Explorer(pool) as page:
        page.open_browser()
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with Explorer(pool) as page, pytest.raises(fw.FedwiseError, match="--no-open"):
        page.open_browser()


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
def test_the_command_shows_the_token_in_no_process_list(tmp_path: Path) -> None:
    """A stand-in for a browser writes down the arguments it is started with."""
    for found in make_releases(fw.Schema.parse(SMALL), ("CA", "NY", "TX")):
        found.save(tmp_path / f"{found.client}.release.json")
    browser = tmp_path / "browser"
    seen = tmp_path / "seen"
    browser.write_text(f"#!/bin/sh\ncp /proc/$$/cmdline '{seen}.part'\nmv '{seen}.part' '{seen}'\n")
    browser.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "BROWSER": f"{browser} %s"},
    ) as process:
        try:
            assert process.stdout is not None
            said = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
            token = said["url"].rstrip("/").rpartition("/")[2]
            deadline = time.monotonic() + 120
            while not seen.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            arguments = seen.read_text()
            own = Path(f"/proc/{process.pid}/cmdline").read_text()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=240)
        finally:
            process.kill()
    assert "file://" in arguments
    assert token not in arguments
    assert token not in own


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
