"""The command line in this process, and a directory it can work in."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import fedwise as fw
from cli.cli_kit import Outcome, Run
from conftest import SMALL, make_people
from fedwise.cli.main import main


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run the command line in this process, in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["fedwise", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        shown = capsys.readouterr()
        code = caught.value.code
        return Outcome(code if isinstance(code, int) else 0, shown.out, shown.err)

    return call


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    """A directory with a schema, a plan at epsilon 1, and data."""
    (tmp_path / "schema.toml").write_text(SMALL)
    fw.plan(fw.Schema.parse(SMALL)).save(tmp_path / "plan.json")
    make_people(50).write_csv(tmp_path / "people.csv")
    return tmp_path
