"""A selection remembers what it had to satisfy, so that it can be reproduced from its file."""

from __future__ import annotations

from pathlib import Path

from fedwise.search import Selection, select
from search.pools import random_estimates


def test_constraints_are_kept_and_survive_a_file(tmp_path: Path) -> None:
    estimates = random_estimates(8)
    groups = {name: "ab"[i % 2] for i, name in enumerate(estimates.clients)}
    chosen = select(
        estimates,
        3,
        include=["c01"],
        exclude=["c02"],
        min_records=10,
        min_client_records=1,
        groups=groups,
        max_per_group=2,
        evidence="none",
    )
    assert chosen.constraints == {
        "include": ["c01"],
        "exclude": ["c02"],
        "min_records": 10,
        "min_client_records": 1,
        "groups": groups,
        "max_per_group": 2,
    }
    chosen.save(tmp_path / "selection.json")
    assert Selection.load(tmp_path / "selection.json") == chosen
    assert select(estimates, 3, evidence="none").constraints == {}
