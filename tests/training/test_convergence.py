"""Convergence: a training that stopped while its loss still fell says so."""

from __future__ import annotations

import polars as pl
import pytest

from fedwise.training.convergence import still_falling


def table(losses: list[float]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "round": list(range(1, len(losses) + 1)),
            "rows": ["all"] * len(losses),
            "metric": ["loss"] * len(losses),
            "attribute": [""] * len(losses),
            "value": losses,
        }
    )


@pytest.mark.parametrize(
    ("losses", "says"),
    [
        ([1.0, 0.9, 0.8, 0.7, 0.6], "fell by 16.7% in the last round; train for more rounds"),
        ([1.0 - 0.05 * i for i in range(10)], "over the last 2 rounds; train"),
    ],
)
def test_a_loss_that_still_falls_is_told_with_its_rounds(losses: list[float], says: str) -> None:
    assert says in (still_falling(table(losses)) or "")


def test_a_loss_that_is_level_and_a_short_training_are_not_judged() -> None:
    assert still_falling(table([1.0, 0.6, 0.5, 0.5, 0.5])) is None
    assert still_falling(table([1.0, 0.9, 0.8])) is None
