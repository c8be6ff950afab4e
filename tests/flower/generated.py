"""The app that `fedwise flower new` writes, run in this process."""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, RecordDict

from fedwise.flower import InProcessGrid
from flower.kit import SpyGrid


@contextmanager
def imported(root: Path) -> Iterator[tuple[Any, Any]]:
    """The generated client_app and server_app modules, imported for a while."""
    sys.path.insert(0, str(root))
    try:
        yield importlib.import_module("app.client_app"), importlib.import_module("app.server_app")
    finally:
        sys.path.remove(str(root))
        for name in [name for name in sys.modules if name.split(".")[0] == "app"]:
            del sys.modules[name]


def run_in_process(
    root: Path, nodes: int | Sequence[Mapping[str, Any]], **overrides: Any
) -> tuple[SpyGrid, dict[str, np.ndarray]]:
    """Release, selection and training of the generated app; returns the spy and the trained arrays."""
    config = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    config |= {key.replace("_", "-"): value for key, value in overrides.items()}
    with imported(root) as (client, server):
        spy = SpyGrid(InProcessGrid(client.app, nodes, run_config=config))
        context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config)
        server.app(spy, context)
    with np.load(Path(config["output"]) / "model.npz") as file:
        return spy, dict(file)


def model_of(output: Path) -> dict[str, np.ndarray]:
    """The arrays a run saved."""
    with np.load(output / "model.npz") as file:
        return dict(file)
