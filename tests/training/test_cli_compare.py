"""fedwise compare, and what train and calibrate say when they are stopped."""

import json
from pathlib import Path

import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from fedwise.cli.calibrate import calibrate
from fedwise.cli.compare import compare
from fedwise.cli.train import train
from fedwise.errors import FedwiseError
from fedwise.owner.release import release
from fedwise.planning import plan
from fedwise.schema.schema import Schema

APP = typer.Typer()
for _command in (train, compare, calibrate):
    APP.command(_command.__name__)(_command)

QUICK = ("--rounds", 1, "--model", "4", "--workers", 1, "--seeds", 1, "--strategies", "fedavg")


def _call(*words: object):
    # Wide enough that no word of a table is broken.
    result = CliRunner().invoke(APP, [str(word) for word in words], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def data(tmp_path: Path, schema: Schema, frames: dict[str, pl.DataFrame]) -> tuple[object, ...]:
    (tmp_path / "clients").mkdir()
    for name, frame in frames.items():
        frame.write_parquet(tmp_path / "clients" / f"{name}.parquet")
    schema.save(tmp_path / "toy.toml")
    return ("--data", tmp_path / "clients", "--schema", tmp_path / "toy.toml")


def test_the_table_for_people_names_every_method(tmp_path: Path, data: tuple[object, ...]) -> None:
    (tmp_path / "best.json").write_text(json.dumps({"clients": ["A", "B"]}))
    out = tmp_path / "table.parquet"
    result = _call(
        "compare", *data, *QUICK, "--selection", tmp_path / "best.json", "-f", "pair=C,D", "-o", out
    )  # fmt: skip
    shown = result.output
    for word in ("best", "pair", "fedavg", "rounds to target", "accuracy", "2 runs in"):
        assert word in shown, word
    assert set(pl.read_parquet(out)["federation"]) == {"best", "pair"}
    with pytest.raises(FedwiseError, match="exists"):
        _call("compare", *data, *QUICK, "-o", out)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-f", "pair"), "federation must be written NAME=CA,NY,…, got 'pair'"),
        (("-f", "pair=A,B", "-f", "pair=C"), "federation 'pair' is given twice; rename one"),
        (("--random", 1, "-k", 9), "k must be between 1 and 5, got 9"),
        (("--samplers", "uniforn"), "did you mean 'uniform'"),
        (("--seeds", 0), "compare needs at least one federation, strategy, sampler and seed"),
    ],
)
def test_mistakes(tmp_path: Path, data: tuple[object, ...], words: tuple[object, ...], message: str) -> None:
    with pytest.raises(FedwiseError, match=message):
        _call("compare", *data, *QUICK, *words, "-o", tmp_path / "c.csv")


def test_a_client_with_one_class_is_noted(
    tmp_path: Path, data: tuple[object, ...], frames: dict[str, pl.DataFrame]
) -> None:
    frames["C"].with_columns(pl.lit(1).alias("Y")).write_parquet(tmp_path / "clients" / "C.parquet")
    note = "note: client 'C': fewer than two classes"
    assert note in _call("compare", *data, *QUICK, "-o", tmp_path / "c.csv").output
    assert note in _call("train", *data, "--rounds", 1, "--model", 4, "-o", tmp_path / "run").output


def test_synthetic_states_need_no_files(tmp_path: Path) -> None:
    words = ("--synthetic", 0.01, "--rounds", 1, "--model", "logistic", "--bootstrap", 0)
    answer = json.loads(_call("train", *words, "--clients", "AK,VT", "-o", tmp_path / "run", "--json").stdout)
    assert answer["federation"] == ["AK", "VT"]
    assert json.loads((tmp_path / "run" / "config.json").read_bytes())["data"] == "synthetic:0.01"
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    _call("train", "--resume", "-o", tmp_path / "run")
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before


def test_a_stopped_command_says_how_to_go_on(
    tmp_path: Path, data: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedwise.training.workflow.simulate", stop)
    monkeypatch.setattr("fedwise.training.calibration.train_all", stop)
    for words, text in (
        (("train", "-o", tmp_path / "run"), f"go on with: fedwise train --resume -o {tmp_path / 'run'}"),
        (
            ("calibrate", "-o", tmp_path / "w.toml", "-r", 8, "-k", "1:3"),
            "run the same command to go on",
        ),
    ):
        result = CliRunner().invoke(APP, [str(word) for word in (*words, *data)])
        assert result.exit_code == 130
        assert text in result.output


def test_calibration_from_releases_shows_a_table(
    tmp_path: Path, data: tuple[object, ...], schema: Schema, frames: dict[str, pl.DataFrame]
) -> None:
    asked = plan(schema, epsilon=5.0)
    for i, (name, frame) in enumerate(frames.items()):
        made = release(asked, frame, client=name, simulated=True, seed=i)
        made.save(tmp_path / "releases" / f"{name}.release.json")
    result = _call(
        "calibrate", *data, "--releases", tmp_path / "releases", "-r", 8, "-k", "1:3", "--rounds", 1,
        "--bootstrap", 10, "--workers", 1, "--cache", tmp_path / "cache", "-o", tmp_path / "w.toml",
    )  # fmt: skip
    for word in ("calibrated", "paper", "only signal", "federations held back", "alpha"):
        assert word in result.output, word
    assert "[weights]" in (tmp_path / "w.toml").read_text()
