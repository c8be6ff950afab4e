"""The audit of whole releases: an honest release passes, and planted faults do not.

Honest audits run at confidence 1 − 1e-8, so that one fails by chance with probability 1e-8 at most.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest

import fedwise as fw
from fedwise.auditing.canaries import choose
from fedwise.auditing.outcome import Audit
from fedwise.auditing.releases import audit_releases
from fedwise.errors import CheckFailed, FedwiseError
from fedwise.owner.noise import NoisyCounts, add_noise
from fedwise.owner.release import Release, release
from fedwise.owner.tables import Tables

pytestmark = pytest.mark.slow

SURE = 1 - 1e-8
MODULE = sys.modules["fedwise.owner.release"]
COUNTING = sys.modules["fedwise.owner.question"]


def broken(found: Audit) -> set[str]:
    return {check.name for check in found.checks if check.verdict == "BROKEN"}


@pytest.mark.parametrize(
    ("epsilon", "mode"), [(0.1, {}), (1.0, {}), (5.0, {"calibration": "rdp", "allocation": "uniform"})]
)
def test_an_honest_release_passes(
    small_schema: fw.Schema, people: pl.DataFrame, epsilon: float, mode: dict[str, str]
) -> None:
    plan = fw.plan(small_schema, epsilon, **mode)
    found = fw.audit(plan, people, confidence=SURE)
    assert found.ok
    assert found.findings == []
    assert (found.attack, found.trials, found.releases, found.rows) == ("release", 100, 200, 500)
    assert found.mu_lower_bound <= found.mu_promised == plan.mu
    assert 0 < found.epsilon_of_mu <= epsilon
    assert [mode.name for mode in found.modes] == ["rarest", "typical", "heaviest", "other", "repeated"]
    assert found.worst_mode in {mode.name for mode in found.modes}
    assert found.smallest_detectable == found.modes[-1].smallest_detectable < 2
    assert {check.name for check in found.checks} == {
        "mu", "epsilon", "noise", "shift", "distribution", "independence", "counting", "files", "reuse",
    }  # fmt: skip
    assert msgspec.json.decode(msgspec.json.encode(found), type=type(found)) == found


def test_the_measured_mu_is_the_plans(small_schema: fw.Schema, people: pl.DataFrame) -> None:
    """μ of the repeated canary has a relative standard error of about 5%: 6 of them, 1 in 10⁹ audits."""
    plan = fw.plan(small_schema, 1.0)
    repeated = fw.audit(plan, people, confidence=SURE).modes[-1]
    assert repeated.mu == pytest.approx(plan.mu, rel=0.33)
    assert repeated.auc > 0.99
    assert repeated.epsilon_lower_bound is None


# --- Planted faults ------------------------------------------------------------------------------------------


def weak(tables: Tables, sigmas: Any) -> NoisyCounts:
    return add_noise(tables, sigmas / 1.5)


def one_table_without(tables: Tables, sigmas: Any) -> NoisyCounts:
    noisy = np.asarray(add_noise(tables, sigmas))
    noisy[tables.layout.slice(2)] = tables.exact[tables.layout.slice(2)]
    return NoisyCounts(noisy)


def shared(tables: Tables, sigmas: Any) -> NoisyCounts:
    """Two tables of one scale with the same noise in their first cells."""
    noisy = np.asarray(add_noise(tables, sigmas))
    first, second = tables.layout.slice(1), tables.layout.slice(3)
    assert sigmas[1] == sigmas[3]
    size = min(first.stop - first.start, second.stop - second.start)
    noise = noisy[first][:size] - tables.exact[first][:size]
    noisy[second.start : second.start + size] = tables.exact[second][:size] + noise
    return NoisyCounts(noisy)


def domain_of_the_data(tables: Tables, sigmas: Any) -> NoisyCounts:
    noisy = np.asarray(add_noise(tables, sigmas))
    noisy[tables.exact == 0] = 0
    return NoisyCounts(noisy)


def exact_total(tables: Tables, sigmas: Any) -> NoisyCounts:
    noisy = np.asarray(add_noise(tables, sigmas))
    here = tables.layout.slice(0)
    noisy[here.stop - 1] += tables.exact[here].sum() - noisy[here].sum()
    return NoisyCounts(noisy)


def no_negatives(tables: Tables, sigmas: Any) -> NoisyCounts:
    return NoisyCounts(np.maximum(np.asarray(add_noise(tables, sigmas)), 0))


FAULTS: dict[Any, str] = {
    weak: "noise", one_table_without: "noise", shared: "independence", domain_of_the_data: "noise",
    exact_total: "noise", no_negatives: "distribution",
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_faults_of_the_noise_are_found(
    small_schema: fw.Schema, people: pl.DataFrame, fault: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "add_noise", fault)
    found = fw.audit(fw.plan(small_schema, 1.0), people, confidence=SURE)
    assert not found.ok
    assert FAULTS[fault] in broken(found)
    assert len(found.findings) == len(broken(found))


def test_noise_too_small_by_half_shows_in_mu_itself(
    small_schema: fw.Schema, people: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the real code at the default confidence: found in at least 4 of 5 audits (power 99%: 1e-3)."""
    monkeypatch.setattr(MODULE, "add_noise", weak)
    plan = fw.plan(small_schema, 1.0)
    found = [fw.audit(plan, people, seed=seed) for seed in range(5)]
    assert all(audit.smallest_detectable < 1.5 for audit in found)
    assert sum("mu" in broken(audit) for audit in found) >= 4
    assert not any(audit.epsilon_lower_bound > 1.0 for audit in found)  # which is why μ is there


def test_wrong_counts_are_found(
    small_schema: fw.Schema, people: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = COUNTING.count

    def twice(codes: Any, layout: Any) -> Tables:
        """The last record is counted twice in one table."""
        tables = real(codes, layout)
        tables.exact[layout.slice(2)] += real(codes[:, -1:], layout).exact[layout.slice(2)]
        return tables

    monkeypatch.setattr(COUNTING, "count", twice)
    found = fw.audit(fw.plan(small_schema, 1.0), people, confidence=SURE)
    assert "counting" in broken(found)
    assert "counts before noise are wrong" in found.findings[0]


def test_a_total_beside_the_counts_is_found(small_schema: fw.Schema, people: pl.DataFrame) -> None:
    def door(plan: fw.Plan, data: pl.DataFrame, **fields: Any) -> Release:
        return msgspec.structs.replace(release(plan, data, **fields), library=f"0+{data.height}")

    rows = small_schema.select_rows(people)
    found = audit_releases(fw.plan(small_schema, 1.0), rows, trials=100, seed=0, confidence=SURE, door=door)
    assert broken(found) == {"files"}


def test_a_seeded_release_is_found(small_schema: fw.Schema, people: pl.DataFrame) -> None:
    """Every client has noise of its own, but the same each time it is asked."""

    def door(plan: fw.Plan, data: pl.DataFrame, *, client: str, **fields: Any) -> Release:
        if "uncharged" in fields:
            return release(plan, data, client=client, simulated=True, seed=1)
        return release(plan, data, client=client, **fields)

    rows = small_schema.select_rows(people)
    found = audit_releases(fw.plan(small_schema, 1.0), rows, trials=100, seed=0, confidence=SURE, door=door)
    assert {"independence", "mu"} <= broken(found)


def test_answers_drawn_anew_are_found(
    small_schema: fw.Schema, people: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedwise.owner.archive.Archive.find", lambda *_: None)
    monkeypatch.setattr("fedwise.owner.archive.Archive.keep", lambda *_: None)
    plan = fw.plan(small_schema, 1.0)
    monkeypatch.setattr("fedwise.owner.ledger.Ledger.charge", lambda *_, **__: None)
    assert "reuse" in broken(fw.audit(plan, people, confidence=SURE))


def test_a_release_of_another_shape_stops_the_audit(small_schema: fw.Schema, people: pl.DataFrame) -> None:
    def door(plan: fw.Plan, data: pl.DataFrame, **fields: Any) -> Release:
        made = release(plan, data, **fields)
        return msgspec.structs.replace(made, tables=made.tables[1:])

    rows = small_schema.select_rows(people)
    with pytest.raises(CheckFailed, match=r"does not fit its plan .*; do not release with this build"):
        audit_releases(fw.plan(small_schema, 1.0), rows, trials=100, seed=0, confidence=SURE, door=door)

    def other(plan: fw.Plan, data: pl.DataFrame, **fields: Any) -> Release:
        return release(fw.plan(small_schema, 0.5), data, **fields)

    with pytest.raises(CheckFailed, match="answers another plan"):
        audit_releases(fw.plan(small_schema, 1.0), rows, trials=100, seed=0, confidence=SURE, door=other)


# --- Canaries ------------------------------------------------------------------------------------------------


def test_canaries_are_what_they_are_called(small_schema: fw.Schema, people: pl.DataFrame) -> None:
    plan = fw.plan(small_schema, 1.0)
    rows = small_schema.select_rows(people)
    found = {canary.name: canary for canary in choose(plan, rows, np.random.default_rng(0))}
    codes = small_schema.encode(rows)
    exact = np.asarray(release(fw.plan(small_schema, float("inf")), rows, client="x", no_privacy=True).counts)
    for line, code in zip(codes, small_schema.encode(found["rarest"].rows)[:, 0], strict=True):
        assert np.bincount(line)[code] == np.bincount(line)[line].min()
    assert exact[found["rarest"].cells].sum() < exact[found["typical"].cells].sum()
    assert exact[found["heaviest"].cells].sum() >= exact[found["typical"].cells].sum()
    assert found["other"].rows["JOB"].to_list() == [None]
    assert found["repeated"].rows.height == found["repeated"].copies == 30  # 8 / μ
    assert all(len(canary.cells) == plan.layout.tables for canary in found.values())


def test_a_schema_without_a_level_for_the_rest_has_no_such_canary() -> None:
    schema = fw.Schema.parse(
        '[columns.A]\nrole = "feature"\nlevels = [0, 1]\n[columns.T]\nrole = "target"\nlevels = [0, 1]\n'
    )
    rows = pl.DataFrame({"A": [0, 1, 1], "T": [0, 0, 1]})
    plan = fw.plan(schema, 60.0)
    found = fw.audit(plan, rows, confidence=SURE)
    assert [mode.name for mode in found.modes] == ["rarest", "typical", "heaviest", "repeated"]
    unseen = {check.name for check in found.checks if check.verdict == "not checked"}
    assert unseen == {"noise", "shift", "distribution", "independence"}
    assert found.ok
    # A lattice of scores is not normal: the bound comes from the AUC, and no power is claimed.
    assert found.smallest_detectable is None
    assert all(mode.mu_lower_bound == mode.mu_lower_bound_auc for mode in found.modes)


def test_mistakes(small_schema: fw.Schema, people: pl.DataFrame) -> None:
    plan = fw.plan(small_schema, 1.0)
    with pytest.raises(FedwiseError, match="attack must be release, joint or single, got 'all'"):
        fw.audit(plan, people, attack="all")  # type: ignore[arg-type]
    with pytest.raises(FedwiseError, match="confidence must lie between 0 and 1, got 1"):
        fw.audit(plan, people, confidence=1.0)
    with pytest.raises(FedwiseError, match="mechanism must be left out for attack 'release'"):
        fw.audit(plan, people, mechanism=add_noise)
