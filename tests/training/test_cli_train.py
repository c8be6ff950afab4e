"""fedwise train, compare and predict as a user types them."""

import json
from pathlib import Path

import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from fedwise.cli.compare import compare
from fedwise.cli.predict import predict
from fedwise.cli.report import report
from fedwise.cli.train import options, train
from fedwise.errors import DataError, FedwiseError
from fedwise.owner.release import release
from fedwise.planning import plan
from fedwise.schema.schema import Schema
from fedwise.search.selection import Selection
from fedwise.training.run import Run

APP = typer.Typer()
for _command in (train, compare, predict, report):
    APP.command(_command.__name__)(_command)


def _call(*words: object):
    result = CliRunner().invoke(APP, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def data(tmp_path: Path, schema: Schema, frames: dict[str, pl.DataFrame]) -> Path:
    folder = tmp_path / "clients"
    folder.mkdir()
    for name, frame in frames.items():
        frame.write_parquet(folder / f"{name}.parquet")
    schema.save(tmp_path / "toy.toml")
    return folder


QUICK = ("--rounds", 3, "--model", "8", "--bootstrap", 20, "--lr", 0.001)


def test_train_resume_predict(tmp_path: Path, data: Path) -> None:
    (tmp_path / "selection.json").write_text(json.dumps({"clients": ["B", "D", "A"], "k": 3, "loss": -1.0}))
    out = tmp_path / "run"
    words = (
        "train",
        "--data",
        data,
        "--schema",
        tmp_path / "toy.toml",
        "--selection",
        tmp_path / "selection.json",
    )
    result = _call(*words, "-o", out, *QUICK, "--json")
    answer = json.loads(result.stdout)
    assert answer["federation"] == ["A", "B", "D"]
    assert answer["rounds"] == 3
    accuracy = next(m for m in answer["metrics"] if (m["rows"], m["metric"]) == ("all", "accuracy"))
    assert accuracy["low"] <= accuracy["value"] <= accuracy["high"]
    for name in ("config.json", "schema.toml", "selection.json", "metrics.parquet", "model.safetensors"):
        assert (out / name).exists(), name
    # A finished run resumes to itself.
    before = (out / "model.safetensors").read_bytes()
    _call("train", "--resume", "-o", out)
    assert (out / "model.safetensors").read_bytes() == before
    with pytest.raises(FedwiseError, match="holds a run already"):
        _call(*words, "-o", out, *QUICK)
    _call("predict", out, data / "C.parquet", "-o", tmp_path / "p.csv")
    table = pl.read_csv(tmp_path / "p.csv")
    assert table.columns == ["row", "probability", "prediction"]
    with pytest.raises(FedwiseError, match="exists; choose another name or pass --force"):
        _call("predict", out, data / "C.parquet", "-o", tmp_path / "p.csv")


def test_resume_refuses_other_data(tmp_path: Path, data: Path, frames: dict[str, pl.DataFrame]) -> None:
    out = tmp_path / "run"
    _call("train", "--data", data, "--schema", tmp_path / "toy.toml", "--clients", "A,B", "-o", out, *QUICK)
    frames["C"].write_parquet(data / "A.parquet")
    with pytest.raises(DataError, match=r"the data is not what run .* was started with"):
        _call("train", "--resume", "-o", out)


def test_private_training_reports_the_joint_cost(tmp_path: Path, data: Path, schema: Schema) -> None:
    plan(schema, epsilon=1.0).save(tmp_path / "plan.json")
    out = tmp_path / "run"
    result = _call(
        "train", "--data", data, "--plan", tmp_path / "plan.json", "--clients", "A", "-o", out, "--epsilon", 2.0,
        "--rounds", 1, "--model", "logistic", "--batch", 64, "--bootstrap", 0, "--json",
    )  # fmt: skip
    costs = {c["client"]: c for c in json.loads(result.stdout)["privacy"]}
    assert list(costs) == list("ABCDE")
    assert costs["A"]["selected"]
    assert 1.0 < costs["A"]["joint"] < costs["A"]["summed"] <= 3.0
    assert costs["A"]["training"] <= 2.0
    assert not costs["B"]["selected"]
    assert costs["B"]["joint"] == 1.0
    assert (out / "privacy.json").exists()


@pytest.fixture
def quick_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The accountant takes seconds and has tests of its own."""
    monkeypatch.setattr("fedwise.training.simulate.scale_noise", lambda *_: 1.1)


@pytest.mark.usefixtures("quick_noise")
def test_a_seed_makes_private_training_simulated_and_it_says_so(tmp_path: Path, data: Path) -> None:
    words = (
        "train", "--data", data, "--schema", tmp_path / "toy.toml", "--clients", "A", "--epsilon", 2.0, "--rounds", 1,
        "--model", "logistic", "--batch", 64, "--bootstrap", 0,
    )  # fmt: skip

    def model(name: str, *more: object) -> tuple[bytes, dict, str]:
        table = _call(*words, "-o", tmp_path / name, *more)
        answer = _call(*words, "-o", tmp_path / name, *more, "--force", "--json")
        saved = (tmp_path / name / "model.safetensors").read_bytes()
        return saved, json.loads(answer.stdout), table.output

    (first, real, table), (second, _, _) = model("first"), model("second")
    assert first != second  # noise of the operating system
    assert real["simulated"] is False
    assert not real["privacy"][0]["simulated"]
    assert "simulated" not in table
    (third, seeded, table), (fourth, _, _) = model("third", "--seed", 0), model("fourth", "--seed", 0)
    assert third == fourth
    assert seeded["simulated"] is True
    assert seeded["privacy"][0]["simulated"] is True
    assert "simulated" in " ".join(table.split())


def test_a_federation_chosen_from_a_pool_can_be_read_and_reported(
    tmp_path: Path, data: Path, schema: Schema, frames: dict[str, pl.DataFrame]
) -> None:
    asked = plan(schema, epsilon=5.0)
    for i, (name, frame) in enumerate(frames.items()):
        release(asked, frame, client=name, simulated=True, seed=i).save(
            tmp_path / "releases" / f"{name}.release.json"
        )
    out = tmp_path / "run"
    _call("train", "--data", data, "--releases", tmp_path / "releases", "-k", 2, "-o", out, *QUICK)
    chosen = Selection.load(out / "selection.json")
    assert set(chosen.clients) == set(Run.open(out).manifest.federation)
    assert chosen.plan_digest == asked.digest
    _call("report", out, "-o", tmp_path / "report.html")
    assert all(client in (tmp_path / "report.html").read_text() for client in chosen.clients)


def test_open_training_of_a_private_release_says_so(tmp_path: Path, data: Path, schema: Schema) -> None:
    plan(schema, epsilon=1.0).save(tmp_path / "plan.json")
    words = (
        "train",
        "--data",
        data,
        "--plan",
        tmp_path / "plan.json",
        "--clients",
        "A",
        "-o",
        tmp_path / "run",
    )
    costs = json.loads(_call(*words, *QUICK, "--json").stdout)["privacy"]
    assert costs[0]["joint"] == "inf"
    assert costs[1]["joint"] == 1.0


def test_compare_writes_one_tidy_table(tmp_path: Path, data: Path) -> None:
    result = _call(
        "compare", "--data", data, "--schema", tmp_path / "toy.toml", "-f", "two=A,B", "--random", 1, "-k", 3,
        "--strategies", "fedavg,fedfb", "--samplers", "full", "--seeds", 1, "--rounds", 2, "--model", "4",
        "--workers", 1, "-o", tmp_path / "c.csv", "--json",
    )  # fmt: skip
    answer = json.loads(result.stdout)
    assert answer["runs"] == 4
    table = pl.read_csv(tmp_path / "c.csv")
    assert set(table["federation"]) == {"two", "random 1"}
    assert {"mean", "low", "high", "rounds_to_target"} <= set(answer["summary"][0])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--clients", "A,Q"), r"client 'Q' has no data"),
        (("--strategy", "fedavgg"), r"did you mean 'fedavg'"),
        (("--set", "mu"), r"option must be written name=value, got 'mu'"),
        (("--model", "deep"), r"model must be mlp, logistic"),
        (("--optimizer", "adma"), r"option is not valid"),
        (
            ("--clients", "A", "--releases", "x"),
            r"must come from one of --selection, --clients and --releases",
        ),
        (("--synthetic", "0.1"), r"--data DIRECTORY or --synthetic SCALE, and not both"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, data: Path, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(FedwiseError, match=message):
        _call(
            "train",
            "--data",
            data,
            "--schema",
            tmp_path / "toy.toml",
            "-o",
            tmp_path / "run",
            "--rounds",
            1,
            *words,
        )
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()


def test_a_selection_without_clients_is_refused(tmp_path: Path, data: Path) -> None:
    (tmp_path / "s.json").write_text("{}")
    words = ("--data", data, "--schema", tmp_path / "toy.toml", "--selection", tmp_path / "s.json")
    with pytest.raises(FedwiseError, match=r"must hold a JSON object with a list of clients"):
        _call("train", *words, "-o", tmp_path / "run")


def test_options_are_typed() -> None:
    assert options(["mu=0.1", "d=4", "weighted=false", "metric=spd", "optimizer=none"]) == {
        "mu": 0.1,
        "d": 4,
        "weighted": False,
        "metric": "spd",
        "optimizer": None,
    }


def test_the_run_directory_reproduces_its_configuration(tmp_path: Path, data: Path) -> None:
    out = tmp_path / "run"
    words = (
        "--strategy",
        "fedprox",
        "--set",
        "mu=0.5",
        "--sampler",
        "power_of_choice",
        "--sampler-set",
        "d=4",
    )
    _call("train", "--data", data, "--schema", tmp_path / "toy.toml", "-o", out, *QUICK, *words)
    config = Run.open(out).manifest.config
    assert (config.strategy_options, config.sampler_options) == ({"mu": 0.5}, {"d": 4})
