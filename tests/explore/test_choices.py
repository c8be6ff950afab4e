"""What the page offers to make best and to limit, for each kind of target."""

from __future__ import annotations

import pytest

import fedwise as fw
from fedwise.explore.choices import forecast_choices


@pytest.mark.parametrize(
    ("target", "objectives", "limits"),
    [
        (
            "levels = [0, 1]",
            ["auc", "balanced_accuracy@rate", "balanced_accuracy", "f1"],
            ["eod:S@rate", "spd:S@rate"],
        ),
        ("levels = [0, 1, 2]", ["balanced_accuracy", "macro_f1"], ["eod:S", "spd:S"]),
        ('bins = [0, 1, 2, 3]\nmodel = "scaled"', ["rmse", "mae"], ["error_gap:S", "mae_gap:S"]),
        ('levels = [0, 1, 2]\nunknown = "other"', [], []),
    ],
)
def test_choices_follow_the_target(target: str, objectives: list[str], limits: list[str]) -> None:
    schema = fw.Schema.parse(
        '[columns.A]\nrole = "feature"\nlevels = [0, 1]\n[columns.S]\nrole = "sensitive"\nlevels = [0, 1]\n'
        f'[columns.T]\nrole = "target"\n{target}\n'
    )
    found = forecast_choices(schema)
    assert list(found["objectives"]) == objectives
    assert [name for name, _ in found["limits"]] == limits
    assert all(words.endswith("of S, at most") for _, words in found["limits"])
