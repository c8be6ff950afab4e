"""The simulation, its run directory, and what happens when things go wrong."""

import dataclasses
import errno
import importlib.util
import math
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest

from fedwise.errors import DataError, FedwiseError, MissingExtra
from fedwise.schema.schema import Schema
from fedwise.training.comparison import jobs, summarise, train_jobs
from fedwise.training.federation import Prepared, find_frames, prepare
from fedwise.training.local import Diverged, LocalSettings
from fedwise.training.predict import predict_frame
from fedwise.training.run import Manifest, Run, fingerprint
from fedwise.training.samplers import SAMPLERS
from fedwise.training.simulate import Config, Progress, simulate
from fedwise.training.strategies import STRATEGIES

QUICK = Config(rounds=4, replicates=0, model="8", settings=LocalSettings(lr=1e-3))


def _replace(config: Config, **changes) -> Config:
    return msgspec.structs.replace(config, **changes)


def _make(path: Path, prepared: Prepared, config: Config, federation=("A", "B", "C", "D")) -> Run:
    manifest = Manifest(
        config=config, federation=tuple(federation), clients=prepared.clients,
        schema_digest=prepared.encoder.schema.digest, fingerprint=fingerprint(prepared, federation),
    )  # fmt: skip
    return Run.create(path, manifest, prepared.encoder.schema, force=True)


class KilledError(Exception):
    pass


@pytest.mark.parametrize(
    ("strategy", "sampler", "settings"),
    [
        *((name, "full", LocalSettings(lr=1e-3)) for name in STRATEGIES),
        *(("fedavg", name, LocalSettings(lr=1e-3)) for name in SAMPLERS),
        ("fedavg", "uniform", LocalSettings(lr=1e-3, carry=True)),
    ],
)
def test_a_killed_run_resumes_to_the_identical_result(
    tmp_path: Path, prepared: Prepared, strategy: str, sampler: str, settings: LocalSettings
) -> None:
    config = _replace(
        QUICK, strategy=strategy, sampler=sampler, settings=settings, replicates=5 * settings.carry
    )
    whole = simulate(prepared, "ABCD", config)
    run = _make(tmp_path / "run", prepared, config)

    def killed_after_two(now: Progress) -> None:
        run.save(now)
        if now.round == 2:
            raise KilledError

    with pytest.raises(KilledError):
        simulate(prepared, "ABCD", config, on_round=killed_after_two)
    again = Run.open(tmp_path / "run")
    found = again.progress()
    assert found is not None
    assert found.round == 2
    resumed = simulate(prepared, "ABCD", config, resume=found, on_round=again.save)
    np.testing.assert_array_equal(resumed.parameters, whole.parameters)
    assert [msgspec.json.encode(r) for r in resumed.records] == [
        msgspec.json.encode(r) for r in whole.records
    ]
    assert set(resumed.server) == set(whole.server)
    for key, array in whole.server.items():
        np.testing.assert_array_equal(resumed.server[key], array)


def test_metrics_that_ran_ahead_of_the_checkpoint_are_cut(tmp_path: Path, prepared: Prepared) -> None:
    run = _make(tmp_path, prepared, QUICK)
    seen: list[Progress] = []
    simulate(prepared, "ABCD", QUICK, on_round=seen.append)
    run.save(seen[2])
    kept = (tmp_path / "checkpoint.safetensors").read_bytes()
    run.save(seen[3])
    (tmp_path / "checkpoint.safetensors").write_bytes(kept)  # killed between the two files
    found = run.progress()
    assert found is not None
    assert (found.round, max(r.round for r in found.records)) == (2, 2)
    np.testing.assert_array_equal(
        simulate(prepared, "ABCD", QUICK, resume=found).parameters, seen[4].parameters
    )


def test_a_diverging_run_keeps_the_last_good_checkpoint(tmp_path: Path, prepared: Prepared) -> None:
    rows = prepared.train["B"]
    broken = dataclasses.replace(rows, dense=np.full_like(rows.dense, 1e30))
    mixed = dataclasses.replace(prepared, train={**prepared.train, "B": broken})
    config = _replace(QUICK, sampler="ucb_cs", fraction=0.25, settings=LocalSettings(optimizer="sgd", lr=0.1))
    run = _make(tmp_path, mixed, config)
    with pytest.raises(Diverged, match=r"client 'B'") as caught:
        simulate(mixed, "ABCD", config, on_round=run.save)
    found = run.progress()
    assert found is not None
    assert found.round == caught.value.round - 1
    assert np.isfinite(found.parameters).all()
    assert caught.value.exit_code == 1


def test_a_full_disk_keeps_the_last_checkpoint(
    tmp_path: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _make(tmp_path, prepared, QUICK)
    real, calls = os.fsync, [0]

    def full(handle: int) -> None:
        calls[0] += 1
        if calls[0] == 5:  # round 0, 1: two files each; round 2: the checkpoint, then metrics
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        FedwiseError, match=r"No space left on device.*checkpoint of round 1 is intact.*--resume"
    ):
        simulate(prepared, "ABCD", QUICK, on_round=run.save)
    monkeypatch.undo()
    found = Run.open(tmp_path).progress()
    assert found is not None
    assert found.round == 1
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]
    whole = simulate(prepared, "ABCD", QUICK)
    np.testing.assert_array_equal(
        simulate(prepared, "ABCD", QUICK, resume=found).parameters, whole.parameters
    )


def test_damaged_files_are_named(tmp_path: Path, prepared: Prepared) -> None:
    run = _make(tmp_path, prepared, QUICK)
    assert run.progress() is None
    with pytest.raises(FedwiseError, match="holds no model yet; finish it with --resume"):
        run.parameters()
    (tmp_path / "checkpoint.safetensors").write_bytes(b"nonsense")
    with pytest.raises(FedwiseError, match=r"checkpoint.safetensors' is damaged"):
        run.progress()
    with pytest.raises(FedwiseError, match=r"holds a run already; pass --resume"):
        Run.create(tmp_path, run.manifest, prepared.encoder.schema)
    with pytest.raises(FedwiseError, match=r"does not exist"):
        Run.open(tmp_path / "absent")


def test_model_and_predictions_come_back(
    tmp_path: Path, prepared: Prepared, frames: dict[str, pl.DataFrame]
) -> None:
    run = _make(tmp_path, prepared, QUICK)
    now = simulate(prepared, "ABCD", QUICK, on_round=run.save)
    run.finish(now, run.model)
    opened = Run.open(tmp_path)
    np.testing.assert_array_equal(opened.parameters(), now.parameters)
    frame = frames["E"]
    table = predict_frame(opened, frame.drop("Y"))
    x = opened.encoder.encode(frame).matrix
    module = opened.model.module(opened.parameters())
    import torch

    with torch.no_grad():
        expected = torch.sigmoid(module(torch.from_numpy(x)))[:, 0].numpy()
    np.testing.assert_allclose(table["probability"].to_numpy(), expected, atol=1e-6)
    assert table["prediction"].to_list() == ["1" if p > 0.5 else "0" for p in expected]
    assert table["row"].to_list() == list(range(frame.height))


def test_results_do_not_depend_on_the_order_or_company_of_clients(prepared: Prepared) -> None:
    first = simulate(prepared, "ABCD", QUICK)
    second = simulate(prepared, "DCBA", QUICK)
    np.testing.assert_array_equal(first.parameters, second.parameters)
    turned = dataclasses.replace(
        prepared,
        train=dict(reversed(prepared.train.items())),
        test=dict(reversed(prepared.test.items())),
    )
    np.testing.assert_array_equal(simulate(turned, "ABCD", QUICK).parameters, first.parameters)


def test_every_federation_is_tested_on_the_same_rows(prepared: Prepared) -> None:
    assert len(prepared.held_out) == sum(len(rows) for rows in prepared.test.values())
    own = prepared.own(["B", "D"])
    np.testing.assert_array_equal(
        prepared.held_out.take(own).y, np.concatenate([prepared.test["B"].y, prepared.test["D"].y])
    )
    run = simulate(prepared, ["A", "B", "C", "D", "E"], _replace(QUICK, rounds=1))
    for metric in ("loss", "accuracy", "auc"):
        assert run.value(metric) == run.value(metric, rows="own")


def test_training_and_held_out_rows_are_apart(schema: Schema, frames: dict[str, pl.DataFrame]) -> None:
    marked = frames["A"].with_columns(pl.Series("AGE", np.linspace(0, 99, frames["A"].height)))
    data = prepare({"A": marked}, schema)
    train, test = (set(part["A"].dense[:, 0].tolist()) for part in (data.train, data.test))
    assert not train & test
    assert len(train) + len(test) == marked.height
    other = prepare({"A": marked}, schema)
    assert set(other.test["A"].dense[:, 0].tolist()) == test


@pytest.mark.parametrize("rows", [2, 5])
def test_a_client_with_few_rows_trains(schema: Schema, frames: dict[str, pl.DataFrame], rows: int) -> None:
    data = prepare({"A": frames["A"], "tiny": frames["B"][:rows]}, schema)
    now = simulate(data, ["A", "tiny"], _replace(QUICK, rounds=2))
    assert math.isfinite(now.value("loss"))


def test_a_client_with_one_class_trains_with_a_note(schema: Schema, frames: dict[str, pl.DataFrame]) -> None:
    data = prepare({"A": frames["A"], "one": frames["B"].with_columns(pl.lit(1).alias("Y"))}, schema)
    assert any("client 'one': fewer than two classes" in note for note in data.notes)
    for strategy in STRATEGIES:
        now = simulate(data, ["A", "one"], _replace(QUICK, rounds=2, strategy=strategy))
        assert math.isfinite(now.value("loss"))
    alone = simulate(data, ["one"], _replace(QUICK, rounds=2))
    assert math.isnan(alone.value("auc", rows="own"))
    assert math.isfinite(alone.value("auc"))


def test_bad_federations_are_refused(
    prepared: Prepared, schema: Schema, frames: dict[str, pl.DataFrame]
) -> None:
    for federation, message in (
        ([], "at least one client"),
        (["A", "Z"], "client 'Z' has no data"),
        (["A", "A"], "each client once"),
    ):
        with pytest.raises(DataError, match=message):
            simulate(prepared, federation, QUICK)
    data = prepare({"A": frames["A"], "empty": frames["B"][:0]}, schema)
    with pytest.raises(DataError, match="client 'empty' has no training rows; leave it out"):
        simulate(data, ["A", "empty"], QUICK)
    with pytest.raises(DataError, match="at least one client"):
        prepare({}, schema)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rounds": 0}, "rounds and evaluate_every must be at least 1"),
        ({"replicates": -1}, "replicates must be at least 0, got -1"),
        ({"simulated": True}, "simulated must be false without privacy"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"strategy": "fedavgg"}, "did you mean 'fedavg'"),
        ({"sampler": "uniforn"}, "did you mean 'uniform'"),
        ({"sampler_options": {"d": 1}}, "sampler full has no option 'd'"),
    ],
)
def test_bad_configurations_are_refused(fields: dict, message: str) -> None:
    with pytest.raises(FedwiseError, match=message):
        Config(**fields)


def test_a_missing_extra_is_said_before_any_work(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "fairlearn" else real(name))
    with pytest.raises(MissingExtra, match=r"pip install 'fedwise\[train\]'"):
        simulate(prepared, "AB", QUICK, on_round=lambda now: pytest.fail("training began"))


def test_the_fast_engine_and_the_strategies_do_not_import_torch() -> None:
    code = (
        "import sys; import fedwise.training.simulate, fedwise.training.strategies, fedwise.training.samplers; "
        "print([m for m in ('torch', 'opacus', 'fairlearn', 'sklearn', 'flwr') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_evaluating_less_often_changes_nothing_else(prepared: Prepared) -> None:
    often, seldom = (
        simulate(prepared, "AB", QUICK),
        simulate(prepared, "AB", _replace(QUICK, evaluate_every=3)),
    )
    np.testing.assert_array_equal(often.parameters, seldom.parameters)
    assert {r.round for r in seldom.records if r.rows == "all"} == {0, 3, 4}


def test_compare_is_tidy_and_equal_in_processes(prepared: Prepared) -> None:
    work = jobs(
        {"pair": ["A", "B"]},
        strategies=["fedavg", "fedadam"],
        samplers=["full", "uniform"],
        seeds=[0, 1],
        config=_replace(QUICK, rounds=2, replicates=0),
    )
    assert len(work) == 8
    table = train_jobs(prepared, work)
    assert set(table["privacy"]) == {"not private"}
    assert table.equals(train_jobs(prepared, work, workers=2), null_equal=True)
    picked = table.filter(
        federation="pair", strategy="fedavg", sampler="full", seed=1, rows="all", metric="accuracy", round=2
    )
    alone = simulate(prepared, "AB", _replace(QUICK, rounds=2, replicates=0, seed=1))
    assert picked["value"].to_list() == [alone.value("accuracy")]
    summary = summarise(table)
    assert summary.filter(metric="accuracy").height == 4
    assert (summary["seeds"] == 2).all()


def test_summary_by_hand() -> None:
    lines = [
        {
            "federation": "f", "strategy": strategy, "sampler": "full", "seed": seed, "round": round, "rows": "all",
            "client": "", "metric": "accuracy", "attribute": "", "value": value, "low": math.nan, "high": math.nan,
        }
        for strategy, seed, values in (("a", 0, (0.5, 0.7, 0.8)), ("a", 1, (0.5, 0.6, 0.9)), ("b", 0, (0.5, 0.6, 0.6)))
        for round, value in enumerate(values)
    ]  # fmt: skip
    a, b = summarise(pl.DataFrame(lines), target=0.65).iter_rows(named=True)
    # Student's t with one degree of freedom: 12.706 · sd / √2, sd = 0.1/√2.
    reach = 12.7062 * (0.1 / 2**0.5) / 2**0.5
    assert (a["mean"], a["low"], a["high"]) == pytest.approx((0.85, 0.85 - reach, 0.85 + reach), rel=1e-4)
    assert a["rounds_to_target"] == 1.5
    assert b["rounds_to_target"] is None
    # By default 98% of the way from 0.5 to the best mean 0.85: 0.843.
    a, b = summarise(pl.DataFrame(lines)).iter_rows(named=True)
    assert a["rounds_to_target"] is None
    with pytest.raises(FedwiseError, match="metric must be one of accuracy, got 'speed'"):
        summarise(pl.DataFrame(lines), metric="speed")


def test_data_files_by_client(tmp_path: Path, frames: dict[str, pl.DataFrame]) -> None:
    frames["A"].write_csv(tmp_path / "A.csv")
    frames["B"].write_parquet(tmp_path / "B.parquet")
    (tmp_path / "README.md").write_text("no data")
    assert list(find_frames(tmp_path)) == ["A", "B"]
    with pytest.raises(DataError, match="client 'C' has no file"):
        find_frames(tmp_path, ["C"])
    frames["A"].write_parquet(tmp_path / "A.parquet")
    with pytest.raises(DataError, match="client 'A' has two files"):
        find_frames(tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        find_frames(tmp_path / "absent")
