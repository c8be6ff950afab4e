"""The federations a forecast of the trained model likes best, from the same private releases."""

from __future__ import annotations

import time
from typing import Any

from census import Bundle
from federations import code_digest
from store import Store

from fedwise.estimation import estimate
from fedwise.forecasting import Forecast
from fedwise.search import Annealing, select

#: What is asked of the forecast, by the label of the federation.
GOALS = {"forecast accuracy": "accuracy", "forecast fair": {"accuracy": 1.0, "eod": -1.0}}


def choose_by_forecast(
    bundle: Bundle, k: int, label: str, store: Store, *, steps: int = 2000
) -> dict[str, Any]:
    """The federation with the best forecast at ε = 1, first draw of the noise."""
    question = {
        "what": "forecast/3",
        "code": code_digest(),
        "tables": bundle.sex.digest,
        "k": k,
        "steps": steps,
        "goal": GOALS[label],
    }

    def answer() -> dict[str, Any]:
        estimates = estimate(bundle.sex.pool(1.0, seed=0))
        wall, cpu = time.perf_counter(), time.process_time()
        found = select(
            estimates, k, objective=Forecast(GOALS[label]), method=Annealing(chains=2, steps=steps), alternatives=0,
            evidence="none", threads=1,
        )  # fmt: skip
        return {
            "members": list(found.clients), "estimated_loss": found.loss, "status": found.status,
            "evaluations": found.evaluations, "wall_seconds": time.perf_counter() - wall,
            "cpu_seconds": time.process_time() - cpu,
        }  # fmt: skip

    return dict(store.get(question, answer))
