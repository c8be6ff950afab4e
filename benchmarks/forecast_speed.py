"""Benchmark of the forecast: federations evaluated in a second, by the metrics asked for.

    python benchmarks/forecast_speed.py [--federations 1000] [--repeats 5]

Fifty synthetic states at ε = 1, random federations of five, one thread, processor time, best of the repeats.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import fedwise as fw
from fedwise.data import synthetic
from fedwise.forecasting import NAMES, Forecaster

#: What is asked for, in the words of docs/theory/forecast.md.
ASKED = {
    "at ½": NAMES,
    "AUC": ("auc",),
    "AUC and EOD at the matched rate": ("auc", "eod@rate"),
    "at ½ and at the matched rate": ("balanced_accuracy", "eod@rate"),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--federations", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    frames, plan = synthetic.states(scale=0.05), fw.plan(synthetic.schema(), epsilon=1.0)
    pool = fw.Pool.of(
        fw.release(plan, frame, client=name, simulated=True, seed=i)
        for i, (name, frame) in enumerate(frames.items())
    )
    forecaster = Forecaster(fw.estimate(pool))
    rng = np.random.default_rng(0)
    chosen = [rng.choice(len(frames), 5, replace=False) for _ in range(options.federations)]
    sums = np.stack([forecaster.rows[members].sum(axis=0) for members in chosen])
    for label, names in ASKED.items():
        forecaster.values(sums[:10], names)
        best = np.inf
        for _ in range(options.repeats):
            began = time.process_time()
            forecaster.values(sums, names)
            best = min(best, time.process_time() - began)
        print(f"{label:<34} {len(sums) / best:>10,.0f} federations a second")


if __name__ == "__main__":
    main()
