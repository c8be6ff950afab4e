"""`fedwise flower new`: the generated app is complete, clean, and runs."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import fedwise as fw
from fedwise.cli.flower import app
from fedwise.errors import FedwiseError
from fedwise.flower.new import write_app
from fedwise.pool.pool import Pool
from flower.generated import run_in_process

FILES = {
    ".gitignore",
    "README.md",
    "app/__init__.py",
    "app/client_app.py",
    "app/schema.toml",
    "app/server_app.py",
    "app/task.py",
    "env.sh",
    "policy.toml",
    "pyproject.toml",
}


def test_it_writes_a_complete_app(tmp_path):
    written = write_app(tmp_path / "My App!")
    root = tmp_path / "My App!"
    assert {str(path.relative_to(root)) for path in written} == FILES
    project = tomllib.loads((root / "pyproject.toml").read_text())
    assert project["project"]["name"] == "my-app"
    assert project["project"]["dependencies"] == []
    assert "@NAME@" not in (root / "README.md").read_text()
    assert "FLWR_TELEMETRY_ENABLED=0" in (root / "env.sh").read_text()
    assert "RAY_USAGE_STATS_ENABLED=0" in (root / "env.sh").read_text()


def test_the_example_policy_is_one(tmp_path):
    from fedwise.flower import Policy

    write_app(tmp_path / "demo")
    policy = Policy.load(tmp_path / "demo/policy.toml")
    policy.check(fw.plan(fw.Schema.load(tmp_path / "demo/app/schema.toml"), epsilon=1.0))


def test_the_generated_code_is_clean(tmp_path):
    write_app(tmp_path / "demo")
    rules = ["--isolated", "--select", "E,F,W,I,B,UP", "--line-length", "110"]
    for command in (["check", *rules], ["format", "--check", "--isolated", "--line-length", "110"]):
        done = subprocess.run(
            [Path(sys.executable).parent / "ruff", *command, "."],
            cwd=tmp_path / "demo",
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_it_does_not_overwrite(tmp_path):
    write_app(tmp_path / "demo")
    with pytest.raises(FedwiseError, match="not empty"):
        write_app(tmp_path / "demo")
    (tmp_path / "file").write_text("x")
    with pytest.raises(FedwiseError, match="is a file"):
        write_app(tmp_path / "file")
    with pytest.raises(FedwiseError, match="must have a name"):
        write_app(tmp_path / "---")
    assert write_app(tmp_path / "demo", force=True)


def test_the_command(tmp_path):
    result = CliRunner().invoke(app, ["new", str(tmp_path / "demo"), "--json"])
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["files"]) == len(FILES)
    assert "flwr run" in CliRunner().invoke(app, ["new", str(tmp_path / "two")]).stderr


def test_it_runs_in_process_and_repeats_with_a_seed(tmp_path):
    write_app(tmp_path / "demo")
    options = {"rows": 200, "k": 3, "expected": 6, "rounds": 1, "simulated_seed": 0}
    runs = [run_in_process(tmp_path / "demo", 6, output=str(tmp_path / str(i)), **options) for i in range(2)]
    for name in runs[0][1]:
        np.testing.assert_array_equal(runs[0][1][name], runs[1][1][name])
    summary = json.loads((tmp_path / "0/federation.json").read_text())
    assert list(fw_select(tmp_path / "0/releases", 3)) == summary["clients"]


def fw_select(folder, k):
    from fedwise.search.entry import select

    return select(Pool.load(folder), k, seed=0).clients
