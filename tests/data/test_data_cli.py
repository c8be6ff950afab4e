"""``fedwise data``: what it prints, what it writes, what it refuses."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import polars as pl
import pytest

from fedwise.data import schema, schemas
from fedwise.data.synthetic import NOTICE
from fedwise.errors import FedwiseError
from fedwise.schema.schema import Schema

with warnings.catch_warnings():
    # typer imports a name that click deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from typer.testing import CliRunner

    from fedwise.cli.data import app


def run(*words: object) -> tuple[str, str]:
    """Standard output and error of a command that must succeed; expected errors are raised."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and isinstance(result.exception, FedwiseError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def test_schemas_are_listed() -> None:
    out, err = run("schemas")
    assert "Print one" in err
    assert all(name in out for name in schemas())
    listed = json.loads(run("schemas", "--json")[0])["schemas"]
    assert [entry["name"] for entry in listed] == schemas()
    assert {entry["tables"] for entry in listed} == {55}


def test_a_schema_is_printed_and_written(tmp_path: Path) -> None:
    assert Schema.parse(run("schemas", "income")[0]) == schema("income")
    assert len(Schema.parse(run("schemas", "mobility", "--features", "full")[0]).features) == 20
    assert json.loads(run("schemas", "income", "--json")[0])["name"] == "income"
    file = tmp_path / "schema.toml"
    assert run("schemas", "income", "-o", file)[0] == ""
    assert Schema.load(file) == schema("income")
    with pytest.raises(FedwiseError, match="exists"):
        run("schemas", "income", "-o", file)
    run("schemas", "employment", "-o", file, "--force")
    assert Schema.load(file) == schema("employment")
    with pytest.raises(FedwiseError, match="must be named"):
        run("schemas", "-o", file)


def test_synthetic_clients_are_written_and_labelled(tmp_path: Path) -> None:
    folder = tmp_path / "clients"
    out, err = run("synthetic", "-o", folder, "--states", "CA, ny", "--scale", "0.01", "--seed", "5")
    assert "SYNTHETIC" in out
    assert "SYNTHETIC" in err
    assert sorted(file.name for file in folder.iterdir()) == [
        "CA.parquet",
        "NY.parquet",
        "SYNTHETIC.txt",
        "schema.toml",
    ]
    assert pl.read_parquet_metadata(folder / "CA.parquet")["fedwise.notice"] == NOTICE
    assert Schema.load(folder / "schema.toml").encode(folder / "NY.parquet").shape == (11, 1030)


def test_synthetic_json_and_reruns(tmp_path: Path) -> None:
    folder = tmp_path / "clients"
    words = ("synthetic", "-o", folder, "--scale", "0.001", "--json", "--states")
    answer = json.loads(run(*words, "CA,NY")[0])
    assert answer["synthetic"] is True
    assert answer["rows"] == {"CA": 196, "NY": 103}
    with pytest.raises(FedwiseError, match="exists and is not empty"):
        run(*words, "CA")
    again = json.loads(run(*words, "CA", "--force")[0])
    assert again["notes"] == [f"1 other Parquet files stay in '{folder}', such as NY"]
    with pytest.raises(FedwiseError, match="at least one state"):
        run("synthetic", "-o", tmp_path / "other", "--states", ",")


def test_census_clients_are_written(tmp_path: Path) -> None:
    source = tmp_path / "people.parquet"
    # Columns of an already labelled extract; a synthetic one serves as well as a real one here.
    run("synthetic", "-o", tmp_path / "made", "--states", "CA,WY", "--scale", "0.01")
    frames = [
        pl.read_parquet(tmp_path / "made" / f"{s}.parquet").with_columns(ST=pl.lit(s)) for s in ("CA", "WY")
    ]
    pl.concat(frames).drop("POBP").write_parquet(source)
    folder = tmp_path / "clients"
    out, err = run("acs", "--task", "income", "--source", source, "-o", folder)
    assert "ACS income" in out
    assert "POBP is not in the data: left out" in err
    written = Schema.load(folder / "schema.toml")
    assert "POBP" not in written.names
    assert written.encode(folder / "WY.parquet").shape == (10, 31)
    answer = json.loads(
        run("acs", "--task", "income", "--source", source, "-o", folder, "--force", "--json")[0]
    )
    assert (answer["clients"], answer["rows"]["WY"], answer["label"]) == (2, 31, "PINCP_gt50k")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--task", "incomes"), "did you mean 'income'"),
        (("--task", "income", "--by", "bad"), "cannot|usable as file names"),
        (("--task", "income", "--features", "some"), "'paper' or 'full'"),
        (("--task", "employment"), "'ESR' \\(or the label 'ESR_employed'\\) is missing"),
    ],
)
def test_mistakes_write_nothing(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    source, folder = tmp_path / "people.csv", tmp_path / "clients"
    pl.DataFrame(
        {"ST": ["CA"], "bad": ["../up"], "AGEP": [30], "SEX": [1], "PINCP": [60000], "WKHP": [40]}
    ).write_csv(source)
    with pytest.raises(FedwiseError, match=message):
        run("acs", *words, "--source", source, "-o", folder)
    assert not folder.exists()
