"""The example app on images: selection by features, training on pixels, through Flower."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from flwr.app import Context, RecordDict

from fedwise.flower import InProcessGrid
from flower.generated import imported

ROOT = Path(__file__).parents[2] / "examples" / "flower-images"


def config(output: Path, **changes: Any) -> dict[str, Any]:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    return {**found, "output": str(output), **changes}


def spoilt(clients: list[str]) -> list[str]:
    """Clients whose partition has shuffled labels: simulated clients are named by their partition."""
    return [name for name in clients if int("".join(c for c in name if c.isdigit())) % 3 == 2]


def test_features_choose_and_images_train(tmp_path: Path) -> None:
    asked = config(tmp_path / "summary.json", rounds=3)
    with imported(ROOT) as (client, server):
        grid = InProcessGrid(client.app, 12, run_config=asked)
        server.app(grid, Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=asked))
    found = json.loads((tmp_path / "summary.json").read_text())
    assert len(found["clients"]) == 6
    assert len(spoilt(found["clients"])) <= 1
    assert found["accuracy"] > 0.75
