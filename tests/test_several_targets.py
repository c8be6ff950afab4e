"""Several targets in one release, a label alone, and schemas without a sensitive attribute or a feature."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest

import fedwise as fw
from fedwise.allocation import LABEL_ALONE
from fedwise.errors import FedwiseError, SchemaError
from fedwise.planning import Plan

FEATURES = tuple(fw.Column(name, "feature", levels=(0, 1, 2)) for name in ("A", "B"))
GROUP = fw.Column("G", "sensitive", levels=(0, 1))
FIRST = fw.Column("T", "target", levels=(0, 1))
SECOND = fw.Column("U", "target", levels=(0, 1, 2))
BOTH = fw.Schema((*FEATURES, GROUP, FIRST, SECOND), name="both")


def rows(number: int, count: int = 400) -> pl.DataFrame:
    rng = np.random.default_rng(number)
    a, b, g = rng.integers(3, size=count), rng.integers(3, size=count), rng.integers(2, size=count)
    clear = number / 8
    t = np.where(rng.random(count) < clear, a > 0, rng.random(count) < 0.5).astype(int)
    u = np.where(rng.random(count) < 1 - clear, b, rng.integers(3, size=count))
    return pl.DataFrame({"A": a, "B": b, "G": g, "T": t, "U": u})


def pool_of(schema: fw.Schema, epsilon: float = math.inf) -> fw.Pool:
    plan = fw.plan(schema, epsilon)
    exact = math.isinf(epsilon)
    return fw.Pool.of(
        fw.release(
            plan, rows(i), client=f"c{i}", no_privacy=exact, simulated=not exact, seed=None if exact else i
        )
        for i in range(8)
    )


def test_each_task_of_one_release_selects_as_a_release_of_its_own_does() -> None:
    pool = pool_of(BOTH)
    for target, other in (("T", FIRST), ("U", SECOND)):
        alone = fw.select(pool_of(fw.Schema((*FEATURES, GROUP, other))), 3, evidence="none")
        shared = fw.select(pool, 3, task=target, evidence="none")
        assert shared.clients == alone.clients
        assert shared.loss == pytest.approx(alone.loss, abs=1e-12)
        assert shared.targets == (target,)
    assert fw.select(pool, 3, task="T").clients != fw.select(pool, 3, task="U").clients


def test_without_a_task_the_loss_sums_over_all_of_them() -> None:
    found = fw.select(pool_of(BOTH), 3, evidence="none")
    assert any("chosen for the targets T, U together" in flag for flag in found.flags)


def test_two_tasks_cost_what_one_release_costs() -> None:
    shared, alone = fw.plan(BOTH, 1.0), fw.plan(fw.Schema((*FEATURES, GROUP, FIRST)), 1.0)
    assert shared.epsilon == alone.epsilon == 1.0
    assert shared.mu == pytest.approx(alone.mu, rel=1e-2)
    assert ("T", "U") not in {table.pair for table in shared.tables}
    parts = shared.budget_shares()
    assert sum(parts.values()) == pytest.approx(1.0)
    assert parts["T"] == pytest.approx(parts["U"])
    assert "2 targets share one budget, which is spent once" in str(shared)


def test_a_task_reads_releases_of_the_whole_plan_and_keeps_its_digest() -> None:
    pool = pool_of(BOTH, 2.0)
    seen = pool.for_target("U")
    assert seen.plan.digest == pool.plan.digest
    assert seen.matrix.shape[1] == seen.plan.layout.cells < pool.plan.layout.cells
    assert pool_of(fw.Schema((*FEATURES, GROUP, FIRST))).for_target(None).plan.schema.names[-1] == "T"
    assert Plan.decode(pool.plan.encode()).schema.targets == (3, 4)


def test_what_needs_one_target_says_so() -> None:
    pool = pool_of(BOTH)
    with pytest.raises(SchemaError, match=r"has the targets T, U; name one: task=NAME"):
        fw.quality(pool)
    with pytest.raises(SchemaError, match=r"task must be one of the targets T, U, got 'V'"):
        fw.select(pool, 3, task="V")
    with pytest.raises(FedwiseError, match="task must be named for a pool"):
        fw.select(fw.estimate(pool), 3, task="T")


def test_training_takes_the_task_the_federation_was_selected_for(tmp_path: Path) -> None:
    selection = fw.select(pool_of(BOTH), 2, task="T", evidence="none")
    frames = {f"c{i}": rows(i, 60) for i in range(8)}
    run = fw.train(frames, BOTH, selection, fw.Training(rounds=1, replicates=0), output=tmp_path / "run")
    assert run.schema.names[run.schema.target] == "T"


def test_a_label_alone_is_chosen_for_equal_classes() -> None:
    schema = fw.Schema((SECOND,), name="label")
    plan = fw.plan(schema, math.inf)
    assert plan.schema.names == ("U", LABEL_ALONE)
    releases = []
    for i in range(4):
        labels = pl.DataFrame({"U": np.full(90, i % 3) if i < 3 else np.arange(90) % 3})
        releases.append(fw.release(plan, labels, client=f"c{i}", no_privacy=True))
    found = fw.select(fw.Pool.of(releases), 1)
    assert (found.clients, found.objective) == (("c3",), "balance")
    assert any("the label alone was released" in flag for flag in found.flags)
    assert fw.select(fw.Pool.of(releases), 3).loss == pytest.approx(0.0)


def test_a_private_plan_for_a_label_alone_keeps_its_promise() -> None:
    plan = fw.plan(fw.Schema((FIRST,)), 1.0)
    plan.verify()
    assert [table.shape for table in plan.tables] == [(2, 1)]


def test_no_sensitive_attribute_is_said() -> None:
    schema = fw.Schema((*FEATURES, FIRST))
    assert "no sensitive attribute" in str(fw.plan(schema))
    found = fw.select(pool_of(schema), 3)
    assert any("no sensitive attribute: chosen for utility only" in flag for flag in found.flags)
    assert msgspec.to_builtins(found.terms)["direct_bias"] == 0


def test_a_schema_without_a_feature_has_direct_bias_alone() -> None:
    schema = fw.Schema((GROUP, FIRST))
    found = fw.select(pool_of(schema), 3)
    assert found.terms.signal == found.terms.proxy_bias == 0
    assert found.terms.direct_bias > 0


def test_the_command_line_names_a_task(tmp_path: Path) -> None:
    import json

    from typer.testing import CliRunner

    from fedwise.cli.main import app

    plan = fw.plan(BOTH, 5.0)
    for i in range(4):
        made = fw.release(plan, rows(i), client=f"c{i}", simulated=True, seed=i)
        made.save(tmp_path / f"c{i}.release.json")
    done = CliRunner().invoke(app, ["select", str(tmp_path), "-k", "2", "--task", "U", "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["targets"] == ["U"]
    missing = CliRunner().invoke(app, ["select", str(tmp_path), "-k", "2", "--task", "W"])
    assert isinstance(missing.exception, SchemaError)
