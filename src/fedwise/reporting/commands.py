"""Commands: the command lines that lead to a report."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..pool.pool import Pool
from ..search.selection import Selection


def command_lines(
    selection: Selection, pool: Pool | None, config: Mapping[str, Any], releases: Path | None
) -> list[str]:
    """Command lines that lead here. Paths are cut to names, so that the page tells nothing about this machine."""
    lines = []
    if selection.method != "given":
        words = [
            "fedwise",
            "select",
            (releases.name if releases else "releases") + "/",
            "-k",
            str(selection.k),
        ]
        default = pool.plan.weights if pool else None
        for name in selection.weights.__struct_fields__:
            value = getattr(selection.weights, name)
            if default is None or value != getattr(default, name):
                words += [f"--{name}", repr(value)]
        for name in ("include", "exclude"):
            if name in selection.constraints:
                words += [f"--{name}", ",".join(selection.constraints[name])]
        for name in ("min_records", "min_client_records"):
            if name in selection.constraints:
                words += [f"--{name.replace('_', '-')}", repr(selection.constraints[name])]
        if selection.estimator not in ("", "shrinkage"):
            words += ["--estimator", selection.estimator]
        words += ["--method", selection.method, "--seed", str(selection.seed), "-o", "selection.json"]
        lines.append(shlex.join(words))
    settings = config.get("config")
    if isinstance(settings, dict):
        words = ["fedwise", "train", "--selection", "selection.json"]
        for name in ("rounds", "strategy", "sampler", "model", "seed"):
            if name in settings:
                words += [f"--{name}", str(settings[name])]
        lines.append(shlex.join([*words, "-o", "run"]))
    lines.append("fedwise report " + ("run" if config else "selection.json") + " -o report.html")
    return lines
