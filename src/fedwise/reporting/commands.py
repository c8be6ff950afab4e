"""Commands: the command lines that lead to a report."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..pool.pool import Pool
from ..search.selection import Selection
from ..view.command import select_lines

#: Where each part of a configuration goes on the command line of `fedwise train`.
_TRAIN = {
    "rounds": "--rounds", "strategy": "--strategy", "sampler": "--sampler", "fraction": "--fraction",
    "model": "--model", "engine": "--engine", "replicates": "--bootstrap",
}  # fmt: skip
_LOCAL = {"optimizer": "--optimizer", "lr": "--lr", "batch": "--batch", "epochs": "--epochs"}
_SPLIT = {"test": "--test", "split_seed": "--split-seed"}


def command_lines(
    selection: Selection,
    pool: Pool | None,
    config: Mapping[str, Any],
    *,
    releases: Path | None = None,
    folder: Path | None = None,
    plan: bool = False,
) -> list[str]:
    """Command lines that lead here. Paths are cut to names, so that the page tells nothing about this machine.

    Parameters
    ----------
    config
        ``config.json`` of the training; empty where there was none.
    releases, folder
        Where the releases and the run lie.
    plan
        Whether the run directory holds the plan its clients answered.
    """
    named = (releases.name if releases else "releases") + "/"
    run = folder.name if folder is not None and folder.name else "run"
    lines = [] if selection.method == "given" else _select(selection, pool, named)
    if isinstance(config.get("config"), dict):
        lines.append(shlex.join(_train(config, run, plan=plan, searched=selection.method != "given")))
        lines.append(
            shlex.join(["fedwise", "report", f"{run}-again", "--releases", named, "-o", "report.html"])
        )
    else:
        lines.append(f"fedwise report selection.json --releases {shlex.quote(named)} -o report.html")
    return lines


def _select(selection: Selection, pool: Pool | None, releases: str) -> list[str]:
    more, notes = [], []
    if selection.estimator not in ("", "shrinkage"):
        more += ["--estimator", selection.estimator]
    if pool is not None and pool.flags:
        more.append("--accept-flagged")
    if selection.objective != "pfl":
        notes.append(
            f"add the objective '{selection.objective}' with --maximise and --subject-to, or use Python"
        )
    return select_lines(
        releases,
        selection.k,
        selection.constraints,
        weights=selection.weights,
        plan_weights=pool.plan.weights if pool else None,
        method=selection.method,
        seed=selection.seed,
        more=more,
        notes=notes,
    )


def _train(config: Mapping[str, Any], run: str, *, plan: bool, searched: bool) -> list[str]:
    """The training as it was asked, from the same selection, into a directory of its own."""
    settings: Mapping[str, Any] = config["config"]
    source = str(config.get("data") or "")
    words = ["fedwise", "train"]
    if source.startswith("synthetic:"):
        words += ["--synthetic", source.removeprefix("synthetic:")]
    else:
        words += ["--data", (Path(source).name or "clients") + "/"]
    words += ["--schema", f"{run}/schema.toml"]
    words += (
        ["--selection", "selection.json"]
        if searched
        else ["--clients", ",".join(config.get("federation") or ())]
    )
    words += ["--plan", f"{run}/plan.json"] if plan else []
    local = settings.get("settings") or {}
    for held, spelling in ((settings, _TRAIN), (local, _LOCAL), (config, _SPLIT)):
        for name, option in spelling.items():
            if name in held:
                words += [option, str(held[name])]
    for name, option in (("strategy_options", "--set"), ("sampler_options", "--sampler-set")):
        for key, value in (settings.get(name) or {}).items():
            words += [option, f"{key}={value}"]
    if config.get("use_sensitive") is False:
        words.append("--no-sensitive")
    privacy = settings.get("privacy")
    if isinstance(privacy, dict):
        for name in ("epsilon", "delta", "clip"):
            if name in privacy:
                words += [f"--{name}", str(privacy[name])]
    # With privacy a seed would make the noise repeatable, and so simulated.
    if "seed" in settings and (not isinstance(privacy, dict) or settings.get("simulated")):
        words += ["--seed", str(settings["seed"])]
    return [*words, "-o", f"{run}-again"]
