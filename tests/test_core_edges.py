"""Rare turns of the core that no other test takes: degenerate numbers, and columns of the wrong kind."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fedwise as fw
from fedwise.auditing.rates import log_ratio
from fedwise.bounds import global_bound
from fedwise.calibration import fit_and_judge
from fedwise.errors import DataError, FedwiseError, SchemaError
from fedwise.estimation.keeping import positive, scaled_variance
from fedwise.objective.pfl import Weights
from fedwise.schema.rule import Rule


def schema_of(column: str) -> fw.Schema:
    return fw.Schema.parse(
        f'[columns.A]\nrole = "feature"\n{column}\n[columns.T]\nrole = "target"\nlevels = [0, 1]\n'
    )


def test_text_where_numbers_belong_and_numbers_where_text_belongs() -> None:
    frame = pl.DataFrame({"A": ["x", "y"], "T": [0, 1]})
    with pytest.raises(DataError, match=r"column 'A' must hold numbers, as its levels do"):
        schema_of("levels = [1, 2]").encode(frame)
    with pytest.raises(DataError, match=r"column 'A' must hold numbers to be binned"):
        schema_of("bins = [0, 1, 2]").encode(frame)
    with pytest.raises(DataError, match=r"column 'A' must hold text, as its levels do"):
        schema_of('levels = ["a", "b"]').encode(pl.DataFrame({"A": [1, 2], "T": [0, 1]}))


def test_bins_between_two_whole_numbers_hold_none_of_them() -> None:
    """Edges 0.2 and 0.8: no integer lies inside, however many there are."""
    schema = schema_of('bins = [0.2, 0.5, 0.8]\nunknown = "other"')
    whole = pl.DataFrame({"A": [0, 1, 5], "T": [0, 1, 0]})
    other = schema.columns[0].size - 1
    assert schema.encode(whole)[0].tolist() == [other] * 3
    parts = pl.DataFrame({"A": [0.3, 0.6, 0.8], "T": [0, 1, 0]})
    assert schema.encode(parts)[0].tolist() == [0, 1, other]


@pytest.mark.parametrize("text", ["A 5 6", "5 6 A", "A == ==", "A < 'x'", "1 < A 5"])
def test_rules_that_compare_nothing(text: str) -> None:
    with pytest.raises(SchemaError, match="rule"):
        Rule.parse(text)


@pytest.mark.parametrize("value", [-0.1, math.inf, math.nan])
def test_weights_must_be_finite_and_not_negative(value: float) -> None:
    with pytest.raises(FedwiseError, match="weight beta must be a finite number of at least 0"):
        Weights(beta=value)
    with pytest.raises(FedwiseError, match="must not all be 0"):
        Weights(0.0, 0.0, 0.0, 0.0)


def test_weights_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FedwiseError, match="does not exist; check the path"):
        Weights.load(tmp_path / "none.toml")
    for number, text in enumerate((b"alpha = ", b"alpha = 'x'", b"\xff\xfe", b"alpha = -1.0")):
        path = tmp_path / f"{number}.toml"
        path.write_bytes(text)
        with pytest.raises(FedwiseError, match=r"weights file|weight alpha"):
            Weights.load(path)


def test_records_without_noise_are_the_total_itself() -> None:
    np.testing.assert_array_equal(positive(np.array([5.0, 0.0, -2.0]), 0.0), [5.0, 1e-9, 1e-9])
    noisy = positive(np.array([1000.0, 0.0, -300.0]), 100.0)
    assert noisy[0] == pytest.approx(1000.0)
    assert (noisy > 0).all()


def test_a_prior_without_scale_has_no_variance() -> None:
    assert not scaled_variance(np.array([[[1.0, -2.0]]]), np.zeros((1, 1, 2)), np.ones(1)).any()
    assert scaled_variance(np.array([[[3.0, -3.0]]]), np.ones((1, 1, 2)), np.ones(1)).max() > 0


def test_the_global_bound_without_noise() -> None:
    assert global_bound(1.0, 0.4, 0.0) == 0.0
    assert global_bound(1.0, 0.6, 0.0) == 1.0
    assert global_bound(1.0, 0.6, 0.5) == 1.0
    assert 0.0 < global_bound(4.0, 0.5, 0.5) < 1.0


def test_a_metric_without_a_goal_is_refused() -> None:
    terms = np.random.default_rng(0).random((10, 4))
    with pytest.raises(FedwiseError, match="metric 'x' must be declared utility or fairness"):
        fit_and_judge(terms, {"x": terms[:, 0]}, {})
    with pytest.raises(FedwiseError, match="metric 'x' must have one finite value for each federation"):
        fit_and_judge(terms, {"x": terms[:5, 0]}, {"x": "utility"})


def test_ratios_at_the_ends() -> None:
    assert log_ratio(0.0, 0.5) == -math.inf
    assert log_ratio(-0.1, 0.0) == -math.inf
    assert log_ratio(0.5, 0.0) == math.inf
    assert log_ratio(0.5, 0.25) == pytest.approx(math.log(2))
