"""Benchmark of doubles: beside MST and AIM at the same ε, on single clients.

    python benchmarks/doubles.py --rival PYTHON [--methods MST AIM] [--clients WY MN] [--epsilon 1]

A rival sees one client's rows and spends all of ε on them; a double is drawn from the client's release of the same ε in
a pool of all states (ACSIncome 2018). Written for each: mean distance (half the sum of absolute differences) of pair
tables and of 60 triples to the client's own rows, and the AUC on held-out rows of a logistic regression of one-hot
levels trained on the records. PYTHON is an environment with dpmm (see benchmarks/rivals.py). Needs ../shared/data.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rehearsal_pools import load, split_all
from rehearsal_pools import states as frames_of
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from fedwise.doubling.drawer import Drawer
from fedwise.estimation import estimate


def distance(a: np.ndarray, b: np.ndarray, variables: tuple[int, ...], sizes: tuple[int, ...]) -> float:
    """Half the sum of absolute differences of the shares of two tables."""

    def shares(codes: np.ndarray) -> np.ndarray:
        key = np.zeros(len(codes), np.int64)
        for v in variables:
            key = key * sizes[v] + codes[:, v]
        return np.bincount(key, minlength=int(np.prod([sizes[v] for v in variables]))) / len(codes)

    return float(np.abs(shares(a) - shares(b)).sum() / 2)


def one_hot(codes: np.ndarray, variables: list[int], sizes: tuple[int, ...]) -> np.ndarray:
    """Indicators of levels."""
    return np.concatenate([np.eye(sizes[v], dtype=np.float32)[codes[:, v]] for v in variables], axis=1)


def main() -> int:
    """Draw, compare, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rival", help="python of an environment with dpmm; without it only doubles")
    parser.add_argument("--methods", nargs="+", default=["MST", "AIM"])
    parser.add_argument("--clients", nargs="+", default=["WY", "MN"])
    parser.add_argument("--epsilon", type=float, default=1.0)
    args = parser.parse_args()
    real = load("income2018")
    schema, sizes = real.schema, real.schema.sizes
    train, test = split_all(frames_of("income2018")[0], 0.2, seed=0)
    drawer = Drawer(estimate(real.pool(args.epsilon, 0)), seed=0)
    pairs = list(itertools.combinations(range(len(sizes)), 2))
    every = list(itertools.combinations(range(len(sizes)), 3))
    triples = [every[i] for i in np.random.default_rng(0).permutation(len(every))[:60]]
    inputs = [v for v in range(len(sizes)) if v != schema.target]
    print(
        "| client | rows | records of | pairs | triples | AUC on real rows | processor s |\n"
        + "|---" * 7
        + "|"
    )
    for client in args.clients:
        rows, held = (schema.encode(part[client]).T.astype(np.int64) for part in (train, test))
        made: dict[str, tuple[np.ndarray, float]] = {"real rows": (rows, 0.0)}
        began = time.process_time()
        made["double"] = drawer.codes(client, len(rows)).astype(np.int64), time.process_time() - began
        for method in args.methods if args.rival else ():
            with tempfile.TemporaryDirectory() as folder:
                given, out = Path(folder, "rows.npz"), Path(folder, "out.npz")
                np.savez(given, codes=rows, sizes=np.array(sizes))
                script = str(Path(__file__).with_name("rivals.py"))
                run = [args.rival, script, method, str(given), str(out), "--epsilon", str(args.epsilon)]
                subprocess.run(run, check=True)
                found = np.load(out)
                made[method] = found["codes"].astype(np.int64), float(found["seconds"])
        for name, (codes, seconds) in made.items():
            model = LogisticRegression(C=10, max_iter=300)
            model.fit(one_hot(codes, inputs, sizes), codes[:, schema.target])
            scores = model.decision_function(one_hot(held, inputs, sizes))
            off = [np.mean([distance(codes, rows, v, sizes) for v in those]) for those in (pairs, triples)]
            auc = roc_auc_score(held[:, schema.target], scores)
            print(
                f"| {client} | {len(rows):,} | {name} | {off[0]:.4f} | {off[1]:.4f} | {auc:.4f} | {seconds:.1f} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
