"""Constraints: required clients, groups and costs, and what each rule costs in loss."""

from __future__ import annotations

import fedwise as fw
from fedwise.data import synthetic

NAMES = ("AK", "CA", "FL", "HI", "MA", "NY", "TX", "VT", "WA", "WY")


def main() -> None:
    """Choose four of ten synthetic states under different rules."""
    plan = fw.plan(synthetic.schema(), epsilon=1.0)
    frames = synthetic.states(seed=0, scale=0.02, names=NAMES)
    pool = fw.Pool.of(
        fw.release(plan, frame, client=name, simulated=True, seed=0) for name, frame in frames.items()
    )
    free = fw.select(pool, k=4, seed=0)
    print(f"{'free':<28}{', '.join(free.clients):<20}{free.loss:.4f}")
    rules = {
        "with California": fw.Constraints(include=("CA",)),
        "one of each coast": fw.Constraints(
            groups={"CA": "west", "WA": "west", "MA": "east", "NY": "east"}, max_per_group=1
        ),
        "cheap": fw.Constraints(costs=dict.fromkeys(("CA", "NY", "TX"), 3.0) | {"AK": 1.0}, budget=1.0),
    }
    for title, rule in rules.items():
        found = fw.select(pool, k=4, constraints=rule, seed=0)
        print(f"{title:<28}{', '.join(found.clients):<20}{found.loss:.4f}  ({found.loss - free.loss:+.4f})")


if __name__ == "__main__":
    main()
