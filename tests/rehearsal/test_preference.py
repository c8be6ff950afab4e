"""Between models that a rehearsal cannot tell apart, the network."""

from __future__ import annotations

from fedwise.rehearsal.preference import preferred

MODELS = ("logistic", "mlp", "16-16", "logistic")


def test_a_network_within_the_gap_is_taken() -> None:
    assert preferred(MODELS, (0.73, 0.72, 0.725, 0.71), 0.01) == 2


def test_a_logistic_regression_beyond_the_gap_is_taken() -> None:
    assert preferred(MODELS, (0.73, 0.70, 0.70, 0.735), 0.01) == 3


def test_the_best_network_needs_no_gap_and_a_lone_kind_no_rule() -> None:
    assert preferred(MODELS, (0.73, 0.74, 0.70, 0.72), 0.0) == 1
    assert preferred(("logistic", "logistic"), (0.7, 0.8), 1.0) == 1
