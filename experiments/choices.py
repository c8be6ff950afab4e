"""Choices: federations that the loss, the forecast and the plain rules take from one set of simulated releases."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from baselines import RULES, label_rates
from census import Tabled
from store import Store

import fedwise as fw
from fedwise.estimation import estimate
from fedwise.estimation.estimates import Estimates
from fedwise.forecasting import Forecast, Forecaster
from fedwise.objective.pfl import terms
from fedwise.search import Annealing, select

#: What the forecast is asked for, by the kind of federation.
GOALS: dict[str, str | dict[str, float]] = {
    "forecast_balanced": "balanced_accuracy",
    "forecast_auc": "auc",
    "forecast_rate": "balanced_accuracy@rate",
    "forecast_fair": {"balanced_accuracy@rate": 1.0, "eod@rate": -1.0},
}
#: Forecast metrics that are kept for each federation, beside the trained ones.
FORECAST = ("balanced_accuracy", "auc", "balanced_accuracy@rate", "eod", "eod@rate", "spd@rate")


def choose_all(
    tabled: Tabled, k: int, *, draw: int, seed: int, store: Store, steps: int, kinds: Sequence[str] | None = None
) -> dict[str, list[str]]:  # fmt: skip
    """Federations by kind from the releases of one draw of the noise at ε = 1.

    Parameters
    ----------
    draw
        Which draw; -1 for exact tables, from which only the loss chooses.
    seed
        Mixed with the draw: another split has other noise.
    steps
        Proposals of each chain that searches by forecast.
    """
    wanted = list(kinds) if kinds is not None else ["pfl_exact"] if draw < 0 else ["pfl", *GOALS, *RULES]
    made: list[Estimates] = []

    def estimates() -> Estimates:
        if not made:
            made.append(
                tabled.truth() if draw < 0 else estimate(tabled.pool(1.0, seed=noise_seed(seed, draw)))
            )
        return made[0]

    forecasters: list[Forecaster] = []

    def forecaster() -> Forecaster:
        if not forecasters:
            forecasters.append(Forecaster(estimates()))
        return forecasters[0]

    def answer(kind: str) -> list[str]:
        if kind in RULES:
            return RULES[kind](estimates(), k)
        if kind in GOALS:
            objective = Forecast.of(forecaster(), GOALS[kind])
            found = select(
                estimates(), k, objective=objective, method=Annealing(chains=2, steps=steps), alternatives=0,
                evidence="none", threads=1,
            )  # fmt: skip
        else:
            found = select(estimates(), k, method="annealing", alternatives=0, evidence="none", threads=1)
        return sorted(found.clients)

    out = {}
    for kind in wanted:
        question = {
            "what": "choice/1", "code": code_digest(), "tables": tabled.digest, "k": k, "draw": draw, "seed": seed,
            "kind": kind, "steps": steps,
        }  # fmt: skip
        out[kind] = list(store.get(question, lambda kind=kind: answer(kind)))  # type: ignore[misc]
    return out


def noise_seed(seed: int, draw: int) -> int:
    """Seed of the simulated noise of a draw; splits have noise of their own."""
    return 1000 * seed + draw


def describe_all(
    tabled: Tabled, federations: Sequence[Sequence[str]], *, seed: int, store: Store
) -> list[dict[str, float]]:
    """What is known of federations before training: from releases at ε = 1 (first draw), and from exact tables.

    ``pfl``, ``forecast_…`` and ``estimated_label_rate`` are private estimates, ``pfl_true`` and ``label_rate``
    the truth of the training rows.
    """
    question = {
        "what": "described/1", "code": code_digest(), "tables": tabled.digest, "seed": seed,
        "federations": [list(members) for members in federations],
    }  # fmt: skip

    def answer() -> list[dict[str, float]]:
        truth, noisy = tabled.truth(), estimate(tabled.pool(1.0, seed=noise_seed(seed, 0)))
        at = {client: i for i, client in enumerate(tabled.clients)}
        places = [np.array(sorted(at[client] for client in members)) for members in federations]
        forecasts = _forecasts(Forecaster(noisy), places)
        rates, estimated = label_rates(truth), label_rates(noisy)
        out = []
        for members, forecast in zip(places, forecasts, strict=True):
            out.append(
                {
                    "label_rate": float(np.average(rates[members], weights=truth.totals[members])),
                    "estimated_label_rate": float(
                        np.average(estimated[members], weights=noisy.totals[members])
                    ),
                    "pfl": float(terms(noisy, members.tolist()).loss(fw.Weights())),
                    "pfl_true": float(terms(truth, members.tolist()).loss(fw.Weights())),
                    **{f"forecast_{name}": value for name, value in forecast.items()},
                }
            )
        return out

    found: list[dict[str, float]] = store.get(question, answer)
    return found


def _forecasts(forecaster: Forecaster, federations: Sequence[Any]) -> list[dict[str, float]]:
    found = [forecaster.predict(members, draws=0).metrics for members in federations]
    return [{name: metrics.value(name) for name in FORECAST} for metrics in found]


@cache
def code_digest() -> str:
    """Hash of the estimator's, the search's and the forecast's files: a stored choice belongs to its code."""
    root = Path(fw.__file__).parent
    digest = hashlib.sha256()
    for room in ("estimation", "search", "objective", "forecasting"):
        for file in sorted((root / room).glob("*.py")):
            digest.update(file.name.encode() + file.read_bytes())
    digest.update((Path(__file__).parent / "baselines.py").read_bytes())
    return digest.hexdigest()[:16]
