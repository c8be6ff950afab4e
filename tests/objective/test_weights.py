"""Weights: signs in one place, and files that people wrote or damaged."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from fedwise import files
from fedwise.errors import FedwiseError
from fedwise.objective.pfl import Terms
from fedwise.objective.weights import TERM_NAMES, Weights, pair_weights, term_of, variable_weights
from fedwise.schema.layout import Layout
from fedwise.schema.schema import Schema


def test_only_signal_lowers_the_loss() -> None:
    weights = Weights(2.0, 3.0, 5.0, 7.0)
    assert weights.signed == (2.0, 3.0, 5.0, -7.0)
    parts = Terms(1.0, 10.0, 100.0, 1000.0)
    assert parts.loss(weights) == 2 + 30 + 500 - 7000
    assert parts.weighted(weights) == dict(zip(TERM_NAMES, (2.0, 30.0, 500.0, -7000.0), strict=True))
    assert parts.unfairness(weights) == 32.0
    assert parts.utility(weights) == 6500.0
    assert parts.unfairness(weights) - parts.utility(weights) == parts.loss(weights)


def test_weights_of_tables_and_variables(small_schema: Schema) -> None:
    layout = Layout.of(small_schema, tuple(itertools.combinations(small_schema.names, 2)))
    weights = Weights(2.0, 3.0, 5.0, 7.0)
    per_table = pair_weights(small_schema, layout, weights)
    signed = {"direct_bias": 2.0, "proxy_bias": 3.0, "redundancy": 5.0, "signal": -7.0, None: 0.0}
    assert per_table.tolist() == [signed[term_of(small_schema, x, y)] for x, y in layout.pairs]
    assert (per_table == -7.0).any()
    for variable, found in enumerate(variable_weights(layout, per_table)):
        touching = [w for (x, y), w in zip(layout.pairs, per_table, strict=True) if variable in (x, y)]
        assert found == -sum(touching)


def test_a_table_or_bare_keys(tmp_path: Path) -> None:
    path = tmp_path / "weights.toml"
    path.write_text("alpha = 1.5\nlam = 0.5\n", encoding="utf-8-sig")
    assert Weights.load(path) == Weights(alpha=1.5, lam=0.5)
    path.write_text("[weights]\ngamma = 0.25\n")
    assert Weights.load(path) == Weights(gamma=0.25)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"alpha = " + b"[" * 5000, "is not valid TOML"),
        (b"alpha = " + b"9" * 5000, "is not valid TOML"),
        (b"a.b.c.d.e.f.g.h.i.j = 1", "dotted key of more than 8 parts"),
        (b"# " + b"x" * (files.MAX_TOML + 1), "must be at most 4 MB of TOML"),
        (b"\xff\xfe", "cannot be read as UTF-8 text"),
        (b"aplha = 1.0", "is not valid: Object contains unknown field 'aplha'"),
        (b"weights = 3", "is not valid: Expected 'object', got 'int'"),
    ],
    ids=["deep", "long number", "long key", "large", "not text", "unknown key", "not a table"],
)
def test_files_that_no_calibration_wrote(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "weights.toml"
    path.write_bytes(content)
    with pytest.raises(FedwiseError) as caught:
        Weights.load(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_directory_is_no_weights_file(tmp_path: Path) -> None:
    with pytest.raises(FedwiseError, match="is a directory; name a file"):
        Weights.load(tmp_path)
    assert np.isfinite(Weights().signed).all()
