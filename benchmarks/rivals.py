"""Records by MST or AIM of one client, for `benchmarks/doubles.py`: runs in an environment of its own.

    python benchmarks/rivals.py MST rows.npz out.npz --epsilon 1

dpmm does not resolve with fedwise's pins (it wants pandas 2.1 and numpy below 2): install it apart
(``python -m venv rivals && rivals/bin/pip install dpmm torch==2.13.0``). The rows are codes, with the number of levels
of each column; so are the records written. One process does all: with more, dpmm starts new ones in every round of AIM
and ends none. Its noise comes from OpenDP's own entropy, so a seed does not repeat a run.
"""

from __future__ import annotations

import argparse
import importlib
import time

import numpy as np
import pandas as pd


def main() -> None:
    """Fit, draw as many records, write."""
    parser = argparse.ArgumentParser(description="records by MST or AIM")
    parser.add_argument("method", choices=["MST", "AIM"])
    parser.add_argument("rows")
    parser.add_argument("out")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model-size", type=float, help="largest model of AIM in MB; dpmm's default is 80")
    parser.add_argument(
        "--iterations", type=int, help="of each fit; dpmm's default is 5,000 for MST, 1,000 for AIM"
    )
    args = parser.parse_args()
    given = np.load(args.rows)
    names = [f"c{i}" for i in range(given["codes"].shape[1])]
    frame = pd.DataFrame(given["codes"].astype(int), columns=names)
    module = importlib.import_module(f"dpmm.models.{args.method.lower()}")
    given_limits = {"max_model_size": args.model_size, "n_iters": args.iterations}
    limits = {name: value for name, value in given_limits.items() if value is not None}
    model = getattr(module, f"{args.method}GM")(epsilon=args.epsilon, delta=args.delta, n_jobs=1, **limits)
    began = time.process_time()
    model.set_domain(dict(zip(names, map(int, given["sizes"]), strict=True)))
    model.set_random_state(np.random.RandomState(args.seed))
    model.fit(frame)
    drawn = model.generate(n_records=len(frame))
    np.savez(args.out, codes=drawn[names].to_numpy(), seconds=time.process_time() - began)


if __name__ == "__main__":
    main()
