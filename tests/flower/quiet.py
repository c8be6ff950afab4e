"""Flower imported without its telemetry, and with the deprecations of its dependencies silenced by name."""

from __future__ import annotations

import os
import warnings

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

with warnings.catch_warnings():
    # typer 0.20, which Flower pins, uses names that click 8.5 deprecates.
    warnings.filterwarnings("ignore", message=r"'click\.", category=DeprecationWarning)
    import flwr.clientapp
    import flwr.serverapp.strategy  # noqa: F401
