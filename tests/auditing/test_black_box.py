"""The promise as a black box: every calibration and allocation, all tables and one, empty data and one record.

An honest release fails one examination with probability 1e-8 at most (`examination.FALSE_ALARM`); there are
fewer than 60 of them in a run of this file. Broken mechanisms go through the very same examinations.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest

import fedwise as fw
from auditing.examination import Sample, chi_square, correlation_p, examine
from fedwise.owner.noise import NoisyCounts, add_noise
from fedwise.owner.tables import Tables

pytestmark = pytest.mark.slow

ALL = """
[columns.A]
role = "feature"
levels = [0, 1, 2]
[columns.S]
role = "sensitive"
levels = [0, 1]
[columns.T]
role = "target"
levels = [0, 1]
"""
ONE = ALL.replace('[columns.S]\nrole = "sensitive"\nlevels = [0, 1]\n', "")
SCHEMAS = {"all tables": fw.Schema.parse(ALL), "one table": fw.Schema.parse(ONE)}
RECORD = {"A": [2], "S": [1], "T": [1]}
#: A generous δ and a small ε make the attack strong with few runs.
PROMISE: dict[str, Any] = {"epsilon": 0.3, "delta": 0.05}
#: Neighbouring data sets are these, and these with `RECORD`.
DATA = {
    "some records": pl.DataFrame({"A": [0, 1, 1, 0], "S": [0, 1, 0, 1], "T": [1, 1, 0, 0]}),
    "empty": pl.DataFrame(RECORD).clear(),
    "one record": pl.DataFrame(RECORD),
}
#: Releases of each data set. A domain taken from the data is the hardest to catch: ε is refuted up to 0.43 ± 0.06 with
#: 60 of them, so that one examination in fifty would miss it, and far beyond the promise with these.
RUNS = 120
MODES = list(product(("tight", "rdp"), ("weighted", "uniform")))


#: With thousands of runs a larger ε shows more: an honest bound near 0.27, one of 1.7 at half the noise.
LARGER: dict[str, Any] = {"epsilon": 1.0, "delta": 0.1}


def plan_of(
    tables: str,
    calibration: str = "tight",
    allocation: str = "weighted",
    *,
    promise: dict[str, Any] = PROMISE,
) -> fw.Plan:
    return fw.plan(SCHEMAS[tables], **promise, calibration=calibration, allocation=allocation)


@pytest.mark.parametrize(("calibration", "allocation"), MODES)
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("tables", SCHEMAS)
def test_no_release_breaks_its_promise(tables: str, data: str, calibration: str, allocation: str) -> None:
    plan = plan_of(tables, calibration, allocation)
    assert len(plan.tables) == (3 if tables == "all tables" else 1)
    found = examine(plan, DATA[data], pl.DataFrame(RECORD), runs=RUNS)
    assert found.verdict(plan) == []


@pytest.mark.soak
@pytest.mark.parametrize(("calibration", "allocation"), MODES)
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("tables", SCHEMAS)
def test_no_release_breaks_its_promise_in_two_thousand_runs(
    tables: str, data: str, calibration: str, allocation: str
) -> None:
    plan = plan_of(tables, calibration, allocation, promise=LARGER)
    found = examine(plan, DATA[data], pl.DataFrame(RECORD), runs=2000)
    assert found.verdict(plan) == []
    # With this many runs the bound has teeth where the noise is tight; far below what is expected, about 0.27.
    if calibration == "tight":
        assert found.epsilon > 0.03


# --- Broken mechanisms, caught by the same examinations ----------------------------------------------------


def half_the_noise(tables: Tables, sigmas: Any) -> NoisyCounts:
    return add_noise(tables, sigmas / 2)


def exact_total(tables: Tables, sigmas: Any) -> NoisyCounts:
    noisy = np.asarray(add_noise(tables, sigmas))
    here = tables.layout.slice(0)
    noisy[here.stop - 1] += tables.exact[here].sum() - noisy[here].sum()
    return NoisyCounts(noisy)


def domain_of_the_data(tables: Tables, sigmas: Any) -> NoisyCounts:
    noisy = np.asarray(add_noise(tables, sigmas))
    noisy[tables.exact == 0] = 0  # only what occurs is counted
    return NoisyCounts(noisy)


def seeded(tables: Tables, sigmas: Any) -> NoisyCounts:
    rng = np.random.default_rng(0)
    scale = tables.layout.per_cell(sigmas)
    return NoisyCounts(tables.exact + np.rint(rng.normal(0, scale)).astype(np.int64))


def shared_over_tables(tables: Tables, sigmas: Any) -> NoisyCounts:
    """The right noise in every cell, but the second table repeats the first one's."""
    noisy = np.asarray(add_noise(tables, np.full_like(sigmas, sigmas[0])))
    first, second = tables.layout.slice(0), tables.layout.slice(1)
    size = min(first.stop - first.start, second.stop - second.start)
    drawn = (noisy - tables.exact)[first][:size]
    noisy[second.start : second.start + size] = tables.exact[second][:size] + drawn
    return NoisyCounts(noisy)


def exact_cell(tables: Tables, sigmas: Any) -> NoisyCounts:
    noisy = np.asarray(add_noise(tables, sigmas))
    noisy[-1] = tables.exact[-1]
    return NoisyCounts(noisy)


BROKEN = {
    half_the_noise: {"noise"},
    exact_total: {"epsilon"},
    domain_of_the_data: {"epsilon"},
    seeded: {"repeats"},
    shared_over_tables: {"independence"},
    exact_cell: {"epsilon"},
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_broken_mechanisms_are_caught(broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the runs of the matrix above: what passes there is none of these."""
    monkeypatch.setattr(sys.modules["fedwise.owner.release"], "add_noise", broken)
    plan = plan_of("all tables", "tight", "uniform")
    found = examine(plan, DATA["some records"], pl.DataFrame(RECORD), runs=RUNS)
    assert set(found.verdict(plan)) >= BROKEN[broken]


def test_a_total_in_the_metadata_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["fedwise.owner.release"]
    counting = sys.modules["fedwise.owner.question"]
    real = counting.count

    def counted(codes: Any, layout: Any) -> Tables:
        monkeypatch.setattr(module, "__version__", f"0.1.0+{codes.shape[1]}")
        return real(codes, layout)

    monkeypatch.setattr(counting, "count", counted)
    plan = plan_of("one table")
    found = examine(plan, DATA["empty"], pl.DataFrame(RECORD), runs=RUNS)
    assert "epsilon" in found.verdict(plan)


@pytest.mark.soak
def test_half_the_noise_is_caught_by_the_bound_on_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["fedwise.owner.release"], "add_noise", half_the_noise)
    plan = plan_of("all tables", "tight", "uniform", promise=LARGER)
    found = examine(plan, DATA["some records"], pl.DataFrame(RECORD), runs=3000)
    assert set(found.verdict(plan)) >= {"epsilon", "noise"}


# --- Entropy -------------------------------------------------------------------------------------------------


def test_no_seed_is_written_and_none_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of("all tables")
    frame = DATA["some records"]

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a release must not touch a seedable generator")

    for name in ("default_rng", "normal", "random", "randint", "standard_normal"):
        monkeypatch.setattr(np.random, name, refuse)
    seen = []
    for _ in range(12):
        np.random.seed(7)
        random.seed(7)
        made = fw.release(plan, frame, client="x", uncharged=True)
        seen.append(tuple(np.asarray(made.counts).tolist()))
    # Twelve cells of σ ≈ 4 repeat with probability below 1e-12.
    assert len(set(seen)) == len(seen)
    text = made.encode()
    assert b"seed" not in text
    assert set(json.loads(text)) == {
        "format", "client", "epsilon", "delta", "private", "simulated", "plan_digest", "schema_digest", "library",
        "tables", "plan", "charged",
    }  # fmt: skip


FORKS = """
import json, os, sys
import numpy as np
import polars as pl
import fedwise as fw
from fedwise.owner.noise import add_noise
from fedwise.owner.tables import count

plan = fw.plan(fw.Schema.parse(sys.argv[1]), 0.3, delta=0.05)
# The sampler is warm before the forks: a generator in its memory would be the same in every child.
add_noise(count(np.zeros((3, 1), dtype=np.int16), plan.layout), plan.sigmas)
answers = []
for _ in range(int(sys.argv[2])):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        frame = pl.DataFrame({"A": [0], "S": [0], "T": [0]})
        counts = [fw.release(plan, frame, client="x", uncharged=True).counts.tolist() for _ in range(20)]
        os.write(write, json.dumps(counts).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answers.append(json.loads(pipe.read()))
    os.waitpid(pid, 0)
print(json.dumps(answers))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_processes_draw_noise_of_their_own() -> None:
    """Clients as forks of one process: no release repeats, and no two clients' noise is correlated (1e-8)."""
    words = [sys.executable, "-c", FORKS, ALL, "6"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    noise = np.array(json.loads(done.stdout))  # (processes, releases, cells)
    flat = noise.reshape(-1, noise.shape[-1])
    assert len(np.unique(flat, axis=0)) == len(flat)
    lines = (noise - noise.mean(axis=(0, 1))).reshape(len(noise), -1)
    r = np.corrcoef(lines)[np.triu_indices(len(lines), 1)]
    assert correlation_p(r, lines.shape[1]).min() * r.size > 1e-8


def test_clients_with_the_same_rows_get_independent_noise() -> None:
    plan = plan_of("all tables")
    frame = DATA["some records"]
    drawn = {
        name: np.concatenate(
            [fw.release(plan, frame, client=name, uncharged=True).counts for _ in range(20)]
        ).astype(float)
        for name in ("ash", "birch", "cedar")
    }
    scale = np.tile(plan.layout.per_cell(plan.sigmas), 20)
    base = np.tile(np.mean([d.reshape(20, -1).mean(axis=0) for d in drawn.values()], axis=0), 20)
    lines = np.stack([(d - base) / scale for d in drawn.values()])
    r = np.corrcoef(lines)[np.triu_indices(3, 1)]
    # Taking the mean over three clients away makes them lean apart by −½·(1/20): far inside the bound.
    assert correlation_p(r, lines.shape[1]).min() * 3 > 1e-8


# --- The tests themselves -----------------------------------------------------------------------------------


def test_the_tests_on_noise_are_calibrated() -> None:
    """p-values of honest draws are uniform enough: of 400, between 2 and 45 lie below 0.05 (seeded)."""
    rng = np.random.default_rng(5)
    sigma = 4.0
    support = np.arange(-60, 61)
    mass = np.exp(-(support**2) / (2 * sigma**2))
    low = 0
    for _ in range(400):
        draws = rng.choice(support, 500, p=mass / mass.sum())
        low += chi_square(draws, sigma) < 0.05
    assert 2 <= low <= 45
    pairs = rng.normal(size=(400, 2, 60))
    r = np.array([np.corrcoef(a, b)[0, 1] for a, b in pairs])
    assert 2 <= (correlation_p(r, 60) < 0.05).sum() <= 45


def test_a_sample_reads_the_file_as_anybody_would() -> None:
    sample = Sample.draw(plan_of("one table"), DATA["empty"], 5)
    assert sample.counts.shape == (5, 6)
    assert len(set(sample.rest)) == 1
