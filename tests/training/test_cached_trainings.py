"""Cached trainings: the same numbers from any number of processes, from memory, and after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedwise.data import synthetic
from fedwise.errors import FedwiseError
from fedwise.objective.pfl import TERM_NAMES, information
from fedwise.training.cached import Cache, Job, train_all
from fedwise.training.calibration import draw_federations, exact_estimates
from fedwise.training.federation import Prepared, prepare
from fedwise.training.records import final
from fedwise.training.simulate import Config

CONFIG = Config(rounds=2, evaluate_every=2, replicates=0)
NAMES = ("AK", "DE", "ND", "RI", "VT", "WY")


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return prepare(synthetic.states(scale=0.02, names=NAMES), synthetic.schema())


def test_two_processes_and_one_give_the_same_records(prepared: Prepared, tmp_path: Path) -> None:
    work = [Job(("AK", "DE"), CONFIG), Job(("RI",), CONFIG), Job(("DE", "AK"), CONFIG)]
    seen: list[tuple[int, bool]] = []
    alone = train_all(
        prepared, work, cache=Cache(tmp_path / "a", prepared), workers=1,
        on_done=lambda i, _, cached: seen.append((i, cached)),
    )  # fmt: skip
    both = train_all(prepared, work, cache=Cache(tmp_path / "b", prepared), workers=2)
    assert all(a.equals(b) for a, b in zip(alone, both, strict=True))
    # The order of members does not matter: two files for three trainings.
    assert len(list((tmp_path / "a").iterdir())) == 2
    assert sorted(i for i, _ in seen) == [0, 1, 2]
    seen.clear()
    again = train_all(
        prepared, work, cache=Cache(tmp_path / "a", prepared), workers=2,
        on_done=lambda i, _, cached: seen.append((i, cached)),
    )  # fmt: skip
    assert all(a.equals(b) for a, b in zip(alone, again, strict=True))
    assert all(cached for _, cached in seen)


def test_a_changed_row_changes_the_key(prepared: Prepared, tmp_path: Path) -> None:
    other = prepare(synthetic.states(scale=0.02, names=NAMES, seed=1), synthetic.schema())
    training = Job(("AK", "DE"), CONFIG)
    assert Cache(tmp_path, prepared).key(training) != Cache(tmp_path, other).key(training)
    assert Cache(tmp_path, prepared).key(training) == Cache(tmp_path, prepared).key(training)


def test_interrupt_keeps_what_is_finished(tmp_path: Path) -> None:
    """SIGINT in the middle: the process ends soon, and the files that are there can be read."""
    code = f"""
from fedwise.data import synthetic
from fedwise.training.cached import Cache, Job, train_all
from fedwise.training.federation import prepare
from fedwise.training.simulate import Config
if __name__ == "__main__":
    prepared = prepare(synthetic.states(scale=0.02, names={NAMES!r}), synthetic.schema())
    work = [Job(("AK",), Config(rounds=2, replicates=0, seed=s)) for s in range(5000)]
    train_all(prepared, work, cache=Cache({str(tmp_path / "cache")!r}, prepared), workers=2)
"""
    script = tmp_path / "script.py"
    script.write_text(code)
    running = subprocess.Popen([sys.executable, str(script)], stderr=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and len(list((tmp_path / "cache").glob("*.parquet"))) < 2:
        time.sleep(0.2)
    os.killpg(running.pid, signal.SIGINT)
    _, errors = running.communicate(timeout=240)
    assert b"KeyboardInterrupt" in errors
    done = list((tmp_path / "cache").glob("*.parquet"))
    assert 2 <= len(done) < 5000
    assert all(pl.read_parquet(file).height > 0 for file in done)


def test_federations_vary_in_size_and_never_repeat() -> None:
    drawn = draw_federations(NAMES, 30, sizes=(2, 4), seed=3)
    assert len(set(drawn)) == 30
    assert {len(members) for members in drawn} == {2, 3, 4}
    assert drawn == draw_federations(NAMES, 30, sizes=(2, 4), seed=3)
    with pytest.raises(FedwiseError, match="sizes must satisfy"):
        draw_federations(NAMES, 3, sizes=(2, 9))


def test_exact_estimates_are_the_counts() -> None:
    frames = synthetic.states(scale=0.01, names=("AK", "RI"))
    found = exact_estimates(frames, synthetic.schema())
    at = {name: i for i, name in enumerate(found.layout.names)}
    pair = found.layout.pairs.index((at["SEX"], at["PINCP_gt50k"]))
    table = found.cells[1][found.layout.slice(pair)].reshape(2, 2)
    rows = frames["RI"]
    for i, sex in enumerate((1, 2)):
        for label in (0, 1):
            assert table[i, label] == rows.filter(SEX=sex, PINCP_gt50k=label).height
    assert information(table) > 0
    assert len(TERM_NAMES) == 4


def test_final_reads_the_last_round() -> None:
    table = pl.DataFrame(
        {
            "round": [0, 2, 2], "rows": ["all", "all", "own"], "metric": ["f1"] * 3, "attribute": [""] * 3,
            "value": [0.1, 0.5, 0.9],
        }
    )  # fmt: skip
    assert final(table, "f1") == 0.5
    assert final(table, "f1", rows="own") == 0.9
    assert np.isfinite(final(table, "f1", "SEX"))
    with pytest.raises(FedwiseError, match="was not recorded"):
        final(table, "eod", "SEX")
