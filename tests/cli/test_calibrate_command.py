"""fedwise calibrate: writes weights that plan takes, resumes from its cache, and refuses nonsense readably."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

import fedwise as fw
from fedwise.cli.calibrate import calibrate
from fedwise.errors import FedwiseError, SchemaError

pytest.importorskip("safetensors", reason="needs the train extra")

app = typer.Typer()
app.command()(calibrate)


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory, small_schema: fw.Schema) -> Path:
    """Six small clients that differ in how much SEX matters, with their schema beside them."""
    folder = tmp_path_factory.mktemp("calibrate")
    (folder / "data").mkdir()
    for i in range(6):
        rng = np.random.default_rng(i)
        sex, job = rng.integers(1, 3, 150), rng.integers(0, 3, 150)
        frame = pl.DataFrame(
            {
                "AGE": rng.integers(0, 100, 150),
                "JOB": np.array(["farm", "shop", "office"])[job],
                "SEX": sex,
                "INCOME": rng.normal(30_000 + 15_000 * job + 6_000 * i * (sex == 1), 12_000, 150).round(),
            }
        )
        frame.write_parquet(folder / "data" / f"C{i}.parquet")
    small_schema.save(folder / "schema.toml")
    return folder


def run(clients: Path, out: Path, *more: str) -> dict[str, object]:
    arguments = [
        "--data", str(clients / "data"), "--schema", str(clients / "schema.toml"), "-r", "8", "-k", "1:3",
        "--rounds", "2", "--bootstrap", "20",
        "--workers", "1", "--cache", str(out / "cache"),
        "-o", str(out / "weights.toml"), "--json",
    ]  # fmt: skip
    result = CliRunner().invoke(app, [*arguments, *more], catch_exceptions=False)
    assert result.exit_code == 0
    return dict(json.loads(result.stdout))


def test_weights_are_written_and_the_second_run_trains_nothing(clients: Path, tmp_path: Path) -> None:
    first = run(clients, tmp_path, "--table", str(tmp_path / "table.csv"))
    weights = fw.Weights.load(tmp_path / "weights.toml")
    assert max(weights.alpha, weights.beta, weights.gamma, weights.lam) == pytest.approx(2.0)
    fw.plan(fw.Schema.load(clients / "schema.toml"), 1.0, weights=weights)
    assert first["from_cache"] == 0
    assert (first["fitted_on"], first["judged_on"]) == (4, 4)
    names = [judgement["name"] for judgement in first["judgements"]]  # type: ignore[attr-defined]
    assert names == ["calibrated", "paper", "only signal", "only direct bias"]
    table = pl.read_csv(tmp_path / "table.csv")
    assert table.height == 8
    assert {"direct_bias", "signal", "accuracy", "eod"} <= set(table.columns)
    again = run(clients, tmp_path, "--force")
    assert again["from_cache"] == 8
    assert {**again, "from_cache": 0} == first


def test_what_decides_a_training_is_in_its_key(clients: Path, tmp_path: Path) -> None:
    run(clients, tmp_path)
    changed = run(clients, tmp_path, "--force", "--split-seed", "5")
    assert changed["from_cache"] == 0


def test_a_damaged_cache_file_is_trained_again(clients: Path, tmp_path: Path) -> None:
    first = run(clients, tmp_path)
    victim = sorted((tmp_path / "cache").glob("*.parquet"))[0]
    victim.write_bytes(b"half a fi")
    again = run(clients, tmp_path, "--force")
    assert again["from_cache"] == 7
    assert again["weights"] == first["weights"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["--size", "nine"], FedwiseError, "--size must be written low:high"),
        (["--size", "5:2"], FedwiseError, "--size must be written low:high"),
        (["--attribute", "SEXX"], SchemaError, "did you mean 'SEX'"),
        (["-r", "4"], FedwiseError, "at least 8 federations"),
        (["-r", "5000"], FedwiseError, "fewer than 5000 different federations"),
    ],
)
def test_wrong_usage_names_the_option(
    clients: Path, tmp_path: Path, arguments: list[str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(clients, tmp_path, *arguments)


def test_existing_weights_are_not_overwritten(clients: Path, tmp_path: Path) -> None:
    (tmp_path / "weights.toml").write_text("mine")
    with pytest.raises(FedwiseError, match="exists"):
        run(clients, tmp_path)
