"""fedwise explore: what it says before it serves, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

import fedwise as fw
from conftest import make_people
from fedwise.cli.explore import explore
from fedwise.errors import FedwiseError

pytest.importorskip("starlette", reason="needs the explore extra")


@pytest.fixture
def served(tmp_path: Path, small_schema: fw.Schema, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three releases, and a server that only says what it was asked to do; Ctrl-C stops it at once."""
    from fedwise.explore import Explorer

    plan = fw.plan(small_schema)
    for seed, name in enumerate(("CA", "NY", "TX")):
        made = fw.release(plan, make_people(300, seed), client=name, simulated=True, seed=seed)
        made.save(tmp_path / "releases" / f"{name}.release.json")
    asked: list[str] = []

    def stop(page: Explorer) -> None:
        asked.append(f"run {page.url}")
        page.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(Explorer, "open_browser", lambda page: asked.append("open"))
    monkeypatch.setattr(Explorer, "run", stop)
    return asked


def run(*words: object) -> Result:
    """The command alone, with standard output and error of its own."""
    app = typer.Typer()
    app.command()(explore)
    return CliRunner().invoke(app, [str(word) for word in words])


def test_json_names_the_address(tmp_path: Path, served: list[str]) -> None:
    outcome = run(tmp_path / "releases", "--no-open", "--json")
    assert outcome.exit_code == 0, outcome.stderr
    found = json.loads(outcome.stdout)
    assert found["clients"] == 3
    assert found["privacy"] == "simulated"
    assert str(found["url"]).startswith(f"http://127.0.0.1:{found['port']}/")
    assert served == [f"run {found['url']}"]
    assert "stopped" in outcome.stderr


def test_people_read_the_address_and_get_a_browser(tmp_path: Path, served: list[str]) -> None:
    outcome = run(tmp_path / "releases")
    assert outcome.exit_code == 0, outcome.stderr
    assert served[0] == "open"
    assert f"3 clients, simulated, at {served[1].removeprefix('run ')}" in outcome.stderr
    assert outcome.stdout == ""


def test_no_releases_no_page(tmp_path: Path, served: list[str]) -> None:
    outcome = run(tmp_path / "nowhere")
    assert isinstance(outcome.exception, FedwiseError)
    assert "nowhere" in str(outcome.exception)
    assert served == []
