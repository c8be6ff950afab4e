"""Federations of the experiments: chosen in several modes, drawn at random, and matched in size."""

from __future__ import annotations

import csv
import hashlib
import math
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from census import Bundle, Tabled
from store import Store

import fedwise as fw
from fedwise.estimation.estimates import Estimates
from fedwise.objective.pfl import TERM_NAMES, terms
from fedwise.search import Annealing, select

SIZES = (5, 10, 15)
EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0, float("inf"))
#: The paper's printed federations (2018 records), by the task's name in its table.
LISTED_TASKS = {"income2018": "ACSIncome"}
MODES = ("default", "paper mode")

# The table "sa_results" of the paper, for a checkout without the reference results.
_PRINTED = {
    ("ACSIncome", 5): "AK,CA,CT,MD,RI",
    ("ACSIncome", 10): "AZ,CA,DE,MA,MD,NH,NJ,NV,OR,VA",
    ("ACSIncome", 15): "AK,AZ,CA,DE,MD,NH,NJ,NM,NV,OR,RI,SD,VA,VT,WA",
}


def choose(
    tabled: Tabled, k: int, epsilon: float, *, mode: str = "default", draw: int = 0, method: str = "auto",
    store: Store,
) -> dict[str, Any]:  # fmt: skip
    """The federation selected from one set of simulated releases, with its true loss and what it cost."""
    question = {
        "what": "selection/3", "code": code_digest(), "tables": tabled.digest, "k": k, "epsilon": str(epsilon),
        "mode": mode, "draw": draw, "method": method,
    }  # fmt: skip

    def answer() -> dict[str, Any]:
        pool = tabled.pool(epsilon, paper=mode == "paper mode", seed=draw)
        # Numbers of seconds are of a warm search: the compiler runs on a tiny one first.
        wall, cpu = time.perf_counter(), time.process_time()
        if mode == "paper mode":
            found = select(
                pool, k, estimator="plain", method=Annealing.paper(chains=5), alternatives=0, evidence="none",
                threads=1, seed=draw,
            )  # fmt: skip
        else:
            found = select(pool, k, method=method, alternatives=0, evidence="none", threads=1, seed=draw)
        return {
            "members": list(found.clients),
            "estimated_loss": found.loss,
            "status": found.status,
            "evaluations": found.evaluations,
            "wall_seconds": time.perf_counter() - wall,
            "cpu_seconds": time.process_time() - cpu,
        }

    return dict(store.get(question, answer))


@cache
def code_digest() -> str:
    """Hash of the estimator's and the search's own files: a stored selection belongs to the code that made it."""
    digest = hashlib.sha256()
    root = Path(fw.__file__).parent
    for file in sorted(
        [*root.glob("estimation/*.py"), *root.glob("search/*.py"), *root.glob("objective/*.py")]
    ):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def warm_up(tabled: Tabled) -> None:
    """Compile the search before anything is timed."""
    for mode in MODES:
        pool = tabled.pool(1.0, paper=mode == "paper mode", seed=99)
        plain = mode == "paper mode"
        for method in (Annealing(chains=1, steps=200), "exact"):
            select(
                pool,
                2,
                estimator="plain" if plain else "shrinkage",
                method=method,
                evidence="none",
                threads=1,
            )


def describe(
    tabled: Tabled, truth: Estimates, members: Sequence[str], rows: dict[str, int]
) -> dict[str, Any]:
    """True terms, loss and training rows of a federation."""
    at = {client: i for i, client in enumerate(tabled.clients)}
    found = terms(truth, [at[client] for client in members])
    described = {name: getattr(found, name) for name in TERM_NAMES}
    return {**described, "true_loss": found.loss(fw.Weights()), "rows": sum(rows[c] for c in members)}


def listed(task: str, k: int, reference: Path | None) -> list[str] | None:
    """The paper's federation for a task, from the reference results where they are there."""
    name = LISTED_TASKS.get(task)
    if name is None:
        return None
    if reference is not None and reference.is_file():
        with reference.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["task"] == name and int(row["k"]) == k:
                    return row["selected_states"].split(",")
    text = _PRINTED.get((name, k))
    return text.split(",") if text else None


def draw_random(clients: Sequence[str], k: int, count: int, *, seed: int = 0) -> list[list[str]]:
    """Different federations, every one equally likely; fewer than `count` where there are not as many."""
    rng = np.random.default_rng([seed, k, 0x5EED])
    found: dict[tuple[str, ...], None] = {}
    while len(found) < min(count, math.comb(len(clients), k)):
        found[tuple(sorted(rng.choice(np.array(clients), size=k, replace=False).tolist()))] = None
    return [list(members) for members in found]


def draw_matched(
    rows: dict[str, int], members: Sequence[str], count: int, *, seed: int = 0, within: float = 0.05
) -> list[list[str]]:
    """Random federations of the same size with about as many training rows as `members`.

    The tolerance widens until enough different ones exist among 200,000 draws.
    """
    clients = sorted(rows)
    sizes = np.array([rows[c] for c in clients], dtype=np.float64)
    goal = sum(rows[c] for c in members)
    rng = np.random.default_rng([seed, len(members), 0x517E])
    own = tuple(sorted(members))
    draws = np.argsort(rng.random((200_000, len(clients))), axis=1)[:, : len(members)]
    totals = sizes[draws].sum(axis=1)
    while True:
        near = np.flatnonzero(np.abs(totals - goal) <= within * goal)
        found: dict[tuple[str, ...], None] = {}
        for i in near:
            candidate = tuple(sorted(clients[j] for j in draws[i]))
            if candidate != own:
                found[candidate] = None
            if len(found) == count:
                return [list(chosen) for chosen in found]
        if within > 1:
            return [list(chosen) for chosen in found]
        within *= 1.5


def selections(
    bundle: Bundle, *, sizes: Sequence[int], store: Store, reference: Path | None, steps: int = 2000
) -> list[dict[str, Any]]:
    """Chosen federations for every size: default and paper mode at ε = 1, exact tables, the paper's list."""
    truth = bundle.sex.truth()
    rows = dict(bundle.rows)
    out = []
    for k in sizes:
        for label, mode, epsilon in (
            ("chosen", "default", 1.0),
            ("paper mode", "paper mode", 1.0),
            ("exact tables", "default", float("inf")),
        ):
            found = choose(bundle.sex, k, epsilon, mode=mode, store=store)
            out.append(
                {
                    "task": bundle.source.name,
                    "k": k,
                    "label": label,
                    "mode": mode,
                    "epsilon": epsilon,
                    **found,
                }
            )
        by_race = choose(bundle.race, k, 1.0, store=store)
        out.append(
            {
                "task": bundle.source.name,
                "k": k,
                "label": "race",
                "mode": "default",
                "epsilon": 1.0,
                **by_race,
            }
        )
        printed = listed(bundle.source.name, k, reference)
        if printed is not None and set(printed) <= set(bundle.rows):
            out.append(
                {"task": bundle.source.name, "k": k, "label": "listed", "mode": "the paper's", "epsilon": 1.0,
                 "members": printed}
            )  # fmt: skip
        # The forecast is a search of its own in Python: the smallest size says enough.
        for label, found in (forecasts(bundle, k, store, steps) if k == sizes[0] else {}).items():
            out.append(
                {
                    "task": bundle.source.name,
                    "k": k,
                    "label": label,
                    "mode": "forecast",
                    "epsilon": 1.0,
                    **found,
                }
            )
    for line in out:
        line.update(describe(bundle.sex, truth, line["members"], rows))
    return out


def forecasts(bundle: Bundle, k: int, store: Store, steps: int = 2000) -> dict[str, dict[str, Any]]:
    """What the forecast likes best from the same releases, by label; nothing where there is no forecast."""
    try:
        from forecast_choice import GOALS, choose_by_forecast
    except ImportError:
        return {}
    return {label: choose_by_forecast(bundle, k, label, store, steps=steps) for label in GOALS}


def sweep(
    bundle: Bundle, *, k: int, draws: int, epsilons: Sequence[float], store: Store
) -> list[dict[str, Any]]:
    """True loss of what is selected, over ε, modes and draws of the noise."""
    truth = bundle.sex.truth()
    out = []
    for epsilon in epsilons:
        for mode in MODES:
            for draw in range(1 if epsilon == float("inf") else draws):
                found = choose(bundle.sex, k, epsilon, mode=mode, draw=draw, method="annealing", store=store)
                described = describe(bundle.sex, truth, found["members"], dict(bundle.rows))
                out.append(
                    {"task": bundle.source.name, "k": k, "epsilon": epsilon, "mode": mode, "draw": draw,
                     **found, **described}
                )  # fmt: skip
    return out


def random_losses(bundle: Bundle, k: int, count: int = 1000) -> list[float]:
    """True losses of random federations: what no selection at all gives."""
    truth = bundle.sex.truth()
    drawn = draw_random(bundle.sex.clients, k, count, seed=7)
    return [describe(bundle.sex, truth, members, dict(bundle.rows))["true_loss"] for members in drawn]
