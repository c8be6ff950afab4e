"""fedwise explore: what it says before it serves, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedwise as fw
from cli.cli_kit import Run, check_refused
from conftest import make_people

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


def test_json_names_the_address(run: Run, served: list[str]) -> None:
    outcome = run("explore", "releases", "--no-open", "--json")
    assert outcome.code == 0, outcome.err
    found = outcome.json
    assert found["clients"] == 3
    assert found["privacy"] == "simulated"
    assert str(found["url"]).startswith(f"http://127.0.0.1:{found['port']}/")
    assert served == [f"run {found['url']}"]
    assert "stopped" in outcome.err


def test_people_read_the_address_and_get_a_browser(run: Run, served: list[str]) -> None:
    outcome = run("explore", "releases")
    assert outcome.code == 0, outcome.err
    assert served[0] == "open"
    assert f"3 clients, simulated, at {served[1].removeprefix('run ')}" in outcome.err
    assert outcome.out == ""


def test_no_releases_no_page(run: Run, served: list[str]) -> None:
    check_refused(run("explore", "nowhere"), "nowhere")
    assert served == []
