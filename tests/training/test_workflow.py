"""fw.train: a whole run from Python, its resume, its costs and its label."""

import io
import math
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest

import fedwise as fw
from fedwise.errors import DataError, FedwiseError
from fedwise.schema.schema import Schema
from fedwise.training import workflow
from fedwise.training.accounting import Cost, decode_costs, encode_costs
from fedwise.training.run import Run
from fedwise.training.strategies import STRATEGIES

QUICK = fw.Training(rounds=3, model="8", lr=1e-3, replicates=0)
PRIVATE = fw.Training(rounds=2, model="logistic", batch=64, replicates=0, epsilon=8.0)


def _replace(settings: fw.Training, **changes) -> fw.Training:
    return msgspec.structs.replace(settings, **changes)


@pytest.fixture
def quick_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The accountant has tests of its own."""
    monkeypatch.setattr("fedwise.training.simulate.scale_noise", lambda *_: 1.1)


@pytest.fixture(scope="module")
def selection(frames: dict[str, pl.DataFrame], schema: Schema) -> fw.Selection:
    plan = fw.plan(schema, epsilon=1.0)
    made = [
        fw.release(plan, frame, client=name, simulated=True, seed=i)
        for i, (name, frame) in enumerate(frames.items())
    ]
    pool = fw.Pool.of(made)
    return fw.select(pool, k=2, seed=0)


def test_a_selection_is_trained_and_kept(
    tmp_path: Path, frames: dict[str, pl.DataFrame], schema: Schema, selection: fw.Selection
) -> None:
    seen: list[tuple[int, int, float]] = []
    run = fw.train(
        frames, schema, selection, QUICK, output=tmp_path / "run", progress=lambda *now: seen.append(now)
    )
    assert set(run.manifest.federation) == set(selection.clients)
    assert [(done, total) for done, total, _ in seen] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert seen[-1][2] == max(run.metrics().filter(metric="accuracy", rows="all")["value"])
    assert np.isfinite(run.parameters()).all()
    assert fw.Selection.load(tmp_path / "run" / "selection.json") == selection
    assert {r.round for r in run.final()} == {3}
    assert run.costs() == []
    assert run.to_frame().equals(Run.open(tmp_path / "run").metrics(), null_equal=True)


def test_frames_may_be_files_or_a_directory(
    tmp_path: Path, frames: dict[str, pl.DataFrame], schema: Schema
) -> None:
    (tmp_path / "data").mkdir()
    for name, frame in frames.items():
        frame.write_parquet(tmp_path / "data" / f"{name}.parquet")
    paths = {name: tmp_path / "data" / f"{name}.parquet" for name in frames}
    runs = [
        fw.train(given, schema, ["A", "C"], QUICK, output=tmp_path / f"run {i}")
        for i, given in enumerate((frames, paths, tmp_path / "data"))
    ]
    for run in runs[1:]:
        np.testing.assert_array_equal(run.parameters(), runs[0].parameters())
    assert [run.manifest.data for run in runs] == ["", "", str(tmp_path / "data")]


class KilledError(Exception):
    pass


def _killed_after(round: int):
    def progress(done: int, total: int, best: float) -> None:
        if done == round:
            raise KilledError

    return progress


def test_resume_goes_on_with_the_same_run_only(
    tmp_path: Path, frames: dict[str, pl.DataFrame], schema: Schema
) -> None:
    whole = fw.train(frames, schema, ["A", "B"], QUICK, output=tmp_path / "whole")
    out = tmp_path / "run"
    with pytest.raises(KilledError):
        fw.train(frames, schema, ["A", "B"], QUICK, output=out, progress=_killed_after(1))
    with pytest.raises(FedwiseError, match="holds a run already"):
        fw.train(frames, schema, ["A", "B"], QUICK, output=out)
    for federation, settings, word in (
        (["A", "B"], _replace(QUICK, rounds=5), "another rounds"),
        (["A", "B"], _replace(QUICK, lr=0.5), "another settings"),
        (["A", "B"], _replace(QUICK, seed=1), "another seed"),
    ):
        with pytest.raises(FedwiseError, match=f"was started with {word}"):
            fw.train(frames, schema, federation, settings, output=out, resume=True)
    with pytest.raises(DataError, match="is not what run"):
        fw.train(frames, schema, ["A", "C"], QUICK, output=out, resume=True)
    done: list[int] = []
    fw.train(
        frames, schema, ["A", "B"], QUICK, output=out, resume=True, progress=lambda now, *_: done.append(now)
    )
    assert done == [2, 3]  # round 1 was not trained again
    for name in ("model.safetensors", "metrics.parquet", "config.json"):
        assert (out / name).read_bytes() == (whole.path / name).read_bytes(), name
    # A finished run is returned as it is; an empty directory is a new run.
    fw.train(frames, schema, ["A", "B"], QUICK, output=out, resume=True)
    for name in ("model.safetensors", "metrics.parquet", "checkpoint.safetensors"):
        assert (out / name).read_bytes() == (whole.path / name).read_bytes(), name
    assert fw.train(frames, schema, ["A"], QUICK, output=tmp_path / "new", resume=True).final()


def test_frames_from_memory_must_come_again(
    tmp_path: Path, frames: dict[str, pl.DataFrame], schema: Schema
) -> None:
    out = tmp_path / "run"
    with pytest.raises(KilledError):
        fw.train(frames, schema, ["A", "B"], QUICK, output=out, progress=_killed_after(1))
    with pytest.raises(FedwiseError, match="was started with frames from memory; pass them again"):
        workflow.resume_run(out)
    assert workflow.resume_run(out, frames=frames).final()[0].round == 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rounds": 0}, "rounds and evaluate_every must be at least 1"),
        ({"optimizer": "adma"}, "option is not valid: Invalid enum value 'adma'"),
        ({"rounds": "many"}, r"option is not valid: Expected int, got str - at \$.rounds"),
        ({"lr": -1.0}, "lr must be a positive number, got -1"),
        ({"epsilon": 0.0}, "training epsilon must be a positive number, got 0"),
        ({"epsilon": 1.0, "sampler": "ucb_cs"}, "reads exact losses"),
        ({"strategy": "fedavgg"}, "did you mean 'fedavg'"),
        ({"test": 1.0}, "test must be a share of at least 0 and below 1, got 1.0"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
    ],
)
def test_impossible_settings_are_refused_when_they_are_made(fields: dict, message: str) -> None:
    with pytest.raises(FedwiseError, match=message):
        fw.Training(**fields)


def test_settings_reach_the_configuration() -> None:
    made = fw.Training(
        rounds=7, strategy="fedprox", strategy_options={"mu": 0.5}, sampler="power_of_choice", sampler_options={"d": 4},
        fraction=0.25, model="4", optimizer="sgd", lr=0.5, batch=8, epochs=2, mu=0.25, carry=True, engine="fast",
        seed=3, evaluate_every=2, replicates=9,
    ).config()  # fmt: skip
    local = made.settings
    assert (made.rounds, made.strategy, made.strategy_options) == (7, "fedprox", {"mu": 0.5})
    assert (made.sampler, made.sampler_options, made.fraction) == ("power_of_choice", {"d": 4}, 0.25)
    assert (made.model, made.engine, made.seed, made.evaluate_every) == ("4", "fast", 3, 2)
    assert (made.replicates, made.privacy, made.simulated) == (9, None, False)
    assert (local.optimizer, local.lr, local.batch, local.epochs) == ("sgd", 0.5, 8, 2)
    assert (local.mu, local.carry) == (0.25, True)


@pytest.mark.usefixtures("quick_noise")
def test_noise_is_the_systems_unless_a_seed_is_given(
    tmp_path: Path, frames: dict[str, pl.DataFrame], schema: Schema
) -> None:
    def parameters(name: str, settings: fw.Training):
        run = fw.train(frames, schema, ["A"], settings, output=tmp_path / name)
        return run, run.parameters()

    (first, a), (second, b) = parameters("first", PRIVATE), parameters("second", PRIVATE)
    assert (a != b).any()
    seeded = _replace(PRIVATE, seed=0)
    (third, c), (fourth, _) = parameters("third", seeded), parameters("fourth", seeded)
    for name in ("model.safetensors", "metrics.parquet", "privacy.json", "config.json"):
        assert (third.path / name).read_bytes() == (fourth.path / name).read_bytes(), name
    assert (c != parameters("fifth", _replace(PRIVATE, seed=1))[1]).any()
    assert [run.simulated for run in (first, second, third, fourth)] == [False, False, True, True]


@pytest.mark.usefixtures("quick_noise")
def test_a_simulated_run_says_so_wherever_it_is_read(
    tmp_path: Path, frames: dict[str, pl.DataFrame], schema: Schema
) -> None:
    run = fw.train(frames, schema, ["A"], _replace(PRIVATE, seed=0), output=tmp_path / "seeded")
    for name in ("config.json", "privacy.json"):
        assert b'"simulated": true' in (run.path / name).read_bytes(), name
    assert b"simulated" in (run.path / "model.safetensors").read_bytes()
    assert "simulated: the noise" in str(run)
    assert "simulated: the noise" in run._repr_html_()
    assert {cost.client for cost in run.costs() if cost.simulated} == {"A"}  # the others drew no noise
    assert Run.open(run.path).simulated
    real = fw.train(frames, schema, ["A"], PRIVATE, output=tmp_path / "real")
    assert b'"simulated": true' not in (real.path / "config.json").read_bytes()
    assert not any(cost.simulated for cost in real.costs())
    assert "simulated: the noise" not in str(real)


@pytest.mark.usefixtures("quick_noise")
@pytest.mark.parametrize("position", range(4, 12))
def test_a_killed_private_run_never_draws_a_written_round_again(
    tmp_path: Path,
    frames: dict[str, pl.DataFrame],
    schema: Schema,
    position: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever was written about a round, to any file, comes from one draw of its noise."""
    out, real, written = tmp_path / "run", Run._write, 0
    losses: dict[int, set[float]] = {}

    def write(run: Run, name: str, data: bytes, good: int | None = None) -> None:
        nonlocal written
        real(run, name, data, good)
        written += 1
        if name == "metrics.parquet":
            table = pl.read_parquet(io.BytesIO(data)).filter(rows="all", metric="loss")
            for round, value in table.select("round", "value").iter_rows():
                losses.setdefault(round, set()).add(value)
        elif name == "checkpoint.safetensors":
            now = run.progress()
            assert now is not None
            losses.setdefault(now.round, set()).add(now.value("loss"))
        if written == position:
            raise KilledError

    monkeypatch.setattr(Run, "_write", write)
    settings = _replace(PRIVATE, lr=0.1)
    # Two files to begin with, two a round from round 0 to 2, then the costs and the model.
    if position <= 10:
        with pytest.raises(KilledError):
            fw.train(frames, schema, ["A", "B"], settings, output=out)
    run = fw.train(frames, schema, ["A", "B"], settings, output=out, resume=True)
    assert sorted(losses) == [0, 1, 2]
    assert {round: len(values) for round, values in losses.items()} == {0: 1, 1: 1, 2: 1}
    assert run.metrics().filter(rows="all", metric="loss")["round"].to_list() == [0, 1, 2]
    now = run.progress()
    assert now is not None
    steps = {client: sum(entry[2] for entry in now.spent[client]) for client in "AB"}
    assert steps == {"A": 2 * math.ceil(128 / 64), "B": 2 * math.ceil(160 / 64)}


def test_a_private_run_of_0_1_0_was_simulated(
    tmp_path: Path, frames: dict[str, pl.DataFrame], schema: Schema
) -> None:
    """Version 0.1.0 drew the noise from the run's seed and did not write so."""
    run = fw.train(frames, schema, ["A"], QUICK, output=tmp_path / "run")
    plain = msgspec.json.decode((run.path / "config.json").read_bytes())
    plain["format"] = "fedwise/run/1"
    del plain["config"]["simulated"]
    (run.path / "config.json").write_bytes(msgspec.json.encode(plain))
    assert not Run.open(run.path).simulated  # it was not private at all
    plain["config"]["privacy"] = {"epsilon": 2.0, "delta": 1e-5, "clip": 1.0}
    (run.path / "config.json").write_bytes(msgspec.json.encode(plain))
    assert Run.open(run.path).simulated


def test_costs_come_back_from_their_file() -> None:
    costs = [
        Cost("A", True, 1.0, math.inf, math.inf, math.inf, 1e-5),
        Cost("B", False, 1.0, 0.0, 1.0, 1.0, 1e-5),
    ]
    data = encode_costs(costs)
    assert b"null" not in data
    assert decode_costs(data, what="file") == costs
    # 0.1.0 wrote null for infinity, and no label.
    old = (
        b'[{"client":"A","selected":true,"release":1.0,"training":null,"joint":null,"summed":null,'
        b'"delta":1e-5,"steps":0}]'
    )
    assert decode_costs(old, what="file") == costs[:1]
    with pytest.raises(FedwiseError, match="file is not valid"):
        decode_costs(b'[{"client": 3}]', what="file")


def test_a_run_prints_in_one_screen(tmp_path: Path, frames: dict[str, pl.DataFrame], schema: Schema) -> None:
    run = fw.train(frames, schema, ["A", "B"], QUICK, output=tmp_path / "run")
    text = str(run)
    assert "A, B" in text
    assert "round 3 of 3" in text
    assert "not private" in text
    assert len(text.splitlines()) < 24
    assert repr(run) == f"Run({str(tmp_path / 'run')!r})"


def test_mistakes_of_the_caller(tmp_path: Path, frames: dict[str, pl.DataFrame], schema: Schema) -> None:
    with pytest.raises(FedwiseError, match="training needs a schema"):
        fw.train(frames, None, ["A"], QUICK, output=tmp_path / "run")
    with pytest.raises(FedwiseError, match="federation must name at least one client, got none"):
        fw.train(frames, schema, [], QUICK, output=tmp_path / "run")
    with pytest.raises(DataError, match="client 'Q' has no data"):
        fw.train(frames, schema, ["Q"], QUICK, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    # The schema of a plan will do.
    run = fw.train(frames, None, ["A"], QUICK, output=tmp_path / "run", plan=fw.plan(schema, epsilon=1.0))
    assert {cost.client: cost.joint for cost in run.costs()} == {"A": math.inf, **dict.fromkeys("BCDE", 1.0)}


def test_compare_from_frames(frames: dict[str, pl.DataFrame], schema: Schema) -> None:
    seen: list[tuple[int, int, float]] = []
    found = fw.compare(
        frames, schema, {"pair": ["A", "B"]}, QUICK, strategies=["fedavg", "fedprox"], seeds=[0, 1],
        progress=lambda *now: seen.append(now),
    )  # fmt: skip
    assert (found.runs, found.attributes) == (4, ("SEX", "RACE"))
    assert [now[:2] for now in seen] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert found.summary().filter(metric="accuracy").height == 2
    assert set(found.table["privacy"]) == {"not private"}
    noisy = fw.compare(frames, schema, {"pair": ["A", "B"]}, PRIVATE, seeds=[0])
    assert set(noisy.table["privacy"]) == {"simulated"}  # whose noise has a seed, as everything compared
    everyone = fw.compare(frames, schema, settings=QUICK, seeds=[0])
    assert set(everyone.to_frame()["federation"]) == {"everyone"}
    every = fw.compare(frames, schema, settings=_replace(QUICK, rounds=1), strategies=["all"], seeds=[0])
    assert set(every.table["strategy"]) == set(STRATEGIES)


def test_calibrate_from_frames(frames: dict[str, pl.DataFrame], schema: Schema) -> None:
    found = fw.calibrate(frames, schema, _replace(QUICK, rounds=1), count=8, sizes=(1, 15), resamples=10)
    assert len(found.federations) == 8
    assert (found.calibration.fitted_on, found.calibration.judged_on) == (4, 4)
    assert found.cached == 0
    with pytest.raises(
        FedwiseError, match="attribute must be a sensitive column, got 'SEXX'; did you mean 'SEX'"
    ):
        fw.calibrate(frames, schema, QUICK, attribute="SEXX")
