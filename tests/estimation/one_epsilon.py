"""Numbers that estimates of a pool with one ε for all must keep: see `test_one_epsilon.py`.

`one_epsilon.json` was written before pools carried a noise scale for each client:
``python tests/estimation/one_epsilon.py > tests/estimation/one_epsilon.json``.
"""

from __future__ import annotations

import json
import sys

import numpy as np

import fedwise as fw
from fedwise.bounds import with_bounds
from fedwise.data import synthetic
from fedwise.estimation.consistency import consistent
from fedwise.estimation.redraw import redraw
from fedwise.estimation.uncertainty import error_and_lift
from fedwise.search.client_errors import client_errors

STATES = ("AK", "AL", "CA", "CO", "DE", "FL", "HI", "IA", "NY", "OR", "TX", "UT", "VT", "WY")
MEMBERS = np.array([1, 4, 7, 10])


def simulated_pool(epsilon: float, **options: str) -> fw.Pool:
    """Fourteen synthetic states at a fiftieth of their size, released with seeded noise."""
    schema = synthetic.schema()
    plan = fw.plan(schema, epsilon, **options)  # type: ignore[arg-type]
    clients = synthetic.states(seed=3, scale=0.02, names=STATES)
    return fw.Pool.of(
        fw.release(plan, frame, client=name, simulated=True, seed=5) for name, frame in clients.items()
    )


def numbers(pool: fw.Pool, estimator: str) -> dict[str, list[float]]:
    """What the estimator, its error bars, redraws, the search and the paper's bounds make of a pool."""
    weights = fw.Weights()
    found = fw.estimate(pool, estimator)
    again = redraw(found, np.random.default_rng(0))
    chosen = fw.select(found, 4, seed=0)
    bounded = with_bounds(chosen.certificate, found, MEMBERS.tolist(), weights, seed=1)
    known = consistent(pool.matrix, pool.plan.layout, pool.plan.sigmas)[3]
    made = {
        "cells": [_summary(row) for row in found.cells],
        "marginals": [_summary(row) for row in found.marginals],
        "totals": found.totals.tolist(),
        "redrawn": [_summary(row) for row in again.cells],
        "error": list(error_and_lift(found, MEMBERS, weights)),
        "loss": [chosen.loss, chosen.std_error or 0.0, *(chosen.interval or ())],
        "chosen": [float(found.clients.index(name)) for name in chosen.clients],
        "chance": [chosen.certificate.swap_chance or 0.0, chosen.certificate.regret or 0.0],
        "bounds": [bounded.sigma or 0.0, bounded.mu or 0.0, bounded.global_bound or 0.0],
        "p_values": known.p_value.tolist(),
    }
    if found.posterior is not None:
        made["client_errors"] = client_errors(
            found, found.posterior, MEMBERS, np.arange(len(found.clients)), weights
        ).tolist()
        for part in ("totals", "marginals", "strength", "pool_cells", "spread_factor", "gap"):
            made[f"posterior {part}"] = [_summary(np.ravel(getattr(found.posterior, part)))]
    return made


def cases() -> dict[str, dict[str, list[float]]]:
    """Three plans and both estimators."""
    return {
        "1, shrinkage": numbers(simulated_pool(1.0), "shrinkage"),
        "0.1, shrinkage": numbers(simulated_pool(0.1), "shrinkage"),
        "1, paper": numbers(simulated_pool(1.0, calibration="rdp", allocation="uniform"), "plain"),
    }


def _summary(values: np.ndarray) -> float:
    """One number that any change of the values changes."""
    return float(np.cos(np.arange(len(values))) @ np.asarray(values, dtype=np.float64))


if __name__ == "__main__":
    json.dump(cases(), sys.stdout, indent=1)
    sys.stdout.write("\n")
