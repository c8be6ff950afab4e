"""The example app on images in Flower's own simulation (`flwr run`, Ray)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from flower import quiet  # noqa: F401  # Flower, imported quietly and first
from flower.processes import Process, Run, environment, free_ports, listening, wait_for

pytestmark = pytest.mark.soak

ROOT = Path(__file__).parents[2] / "examples" / "flower-images"


def test_the_example_on_images_runs_in_flowers_simulation(tmp_path: Path) -> None:
    shutil.copytree(ROOT, tmp_path / "demo", ignore=shutil.ignore_patterns("__pycache__"))
    env = environment(tmp_path / "home")
    port, control = free_ports(2)
    (tmp_path / "home/config.toml").write_text(
        f'[superlink]\ndefault = "sim"\n[superlink.sim]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    link = Process(
        ["flower-superlink", "--insecure", "--simulation", "--host", "127.0.0.1", "--port", str(port),
         "--control-api-address", f"127.0.0.1:{control}", "--disable-runtime-dependency-installation"],
        tmp_path / "link.log", env=env, cwd=tmp_path,
    )  # fmt: skip
    try:
        wait_for("the SuperLink", lambda: listening(port))
        run = Run(
            ["flwr", "run", ".", "sim", "--stream", "-c", f'rounds=1 output="{tmp_path / "out.json"}"',
             "--federation-config", "num-supernodes=12 client-resources-num-cpus=1"],
            env=env, cwd=tmp_path / "demo",
        )  # fmt: skip
        try:
            run.until(None, seconds=500)
        finally:
            run.kill()
        assert (tmp_path / "out.json").exists(), run.text
    finally:
        link.kill()
    assert len(json.loads((tmp_path / "out.json").read_text())["clients"]) == 6
