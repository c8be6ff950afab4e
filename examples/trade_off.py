"""Trade-offs: the lowest loss by size, and a forecast objective with a limit on the gap between groups."""

from __future__ import annotations

import fedwise as fw
from fedwise.data import synthetic

NAMES = ("AK", "CA", "FL", "HI", "MA", "NY", "TX", "VT")


def main() -> None:
    """Sizes from 1 to 6, then the best forecast AUC with and without a limit."""
    plan = fw.plan(synthetic.schema(), epsilon=1.0)
    frames = synthetic.states(seed=0, scale=0.02, names=NAMES)
    pool = fw.Pool.of(
        fw.release(plan, frame, client=name, simulated=True, seed=0) for name, frame in frames.items()
    )
    for point in fw.frontier(pool, (1, 6), seed=0).points:
        print(f"k = {point.k}: {point.loss:.4f}  {', '.join(point.clients)}")
    for limit in (None, 0.5):
        limits = {} if limit is None else {"eod@rate": limit}
        found = fw.select(pool, k=3, objective=fw.Forecast("auc", subject_to=limits), seed=0, evidence="none")
        print(f"best forecast AUC, EOD at most {limit}: {', '.join(found.clients)}")


if __name__ == "__main__":
    main()
