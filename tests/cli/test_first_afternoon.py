"""From one messy file of 20 areas to a report in eight commands, without a script of one's own."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fedwise as fw
from cli.cli_kit import Run
from fedwise.data.division import divide
from fedwise.data.split import split


def _messy() -> object:
    path = Path(__file__).parents[2] / "examples" / "messy_files.py"
    spec = importlib.util.spec_from_file_location("messy_files", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def messy(tmp_path: Path) -> Path:
    _messy().write(tmp_path, people=120)  # type: ignore[attr-defined]
    return tmp_path


COMMANDS = (
    ("plan", "--init", "all.csv", "-o", "draft.toml"),
    ("plan",),
    ("check",),
    ("release",),
    ("inspect",),
    ("select", "--evidence", "none"),
    ("train", "--bootstrap", "0"),
    ("report", "--no-forecast", "--no-frontier"),
)


def test_from_the_raw_file_to_the_report(run: Run, messy: Path) -> None:
    assert len(COMMANDS) <= 8
    told = {}
    for words in COMMANDS:
        done = run(*words)
        assert done.code == 0, (words, done.err)
        told[words] = done
    draft = (messy / "draft.toml").read_text()
    assert "PWGTP is left out: a weight of the survey" in draft
    assert "SERIALNO is left out" in draft
    assert "PUMA is left out: it names a client or area; release a file of several with --by PUMA" in draft
    assert 'role = "sensitive"    # by its name' in draft.partition('[columns."SEX"]')[2][:120]
    assert 'role = "target"' in draft.partition('[columns."PINCP"]')[2][:60]
    pool = fw.Pool.load(messy / "releases")
    assert pool.clients == tuple(str(100 + i) for i in range(20))
    assert pool.label == "private"
    assert len(list((messy / "all.csv.ledgers").glob("*.db"))) == 20
    selection = fw.Selection.load(messy / "selection.json")
    assert selection.k == 5
    assert fw.Run.open(messy / "run").manifest.federation == selection.clients
    page = (messy / "report.html").read_text(encoding="utf-8")
    assert all(client in page for client in selection.clients)
    # Again: nothing is charged twice.
    again = run("release", "--force")
    assert "20 of them had answered before and are not charged again" in again.out


def test_part_train_is_the_part_that_training_trains_on(run: Run, messy: Path) -> None:
    assert run("plan", "--epsilon", "inf", "-o", "open.json").code == 0
    frames = divide(messy / "all.csv", "PUMA")
    schema = fw.Schema.load(messy / "dictionary.toml")
    one = frames["105"]
    one.write_csv(messy / "one.csv")
    words = ("release", "open.json", "one.csv", "--client", "105", "--no-privacy", "-o", "105.json")
    (messy / "fedwise.toml").unlink()
    assert run(*words, "--part", "train").code == 0
    released = fw.Release.load(messy / "105.json")
    train, held = split(one, 0.2, client="105", schema=schema)
    # The tables count exactly the rows that satisfy the filter among those trained on.
    assert sum(released.tables[0].counts) == schema.encode(train).shape[1]
    assert held.height > 0
    assert sum(released.tables[0].counts) < schema.encode(one).shape[1]


def test_one_file_divided_gives_the_codes_of_its_parts(messy: Path) -> None:
    schema = fw.Schema.load(messy / "dictionary.toml")
    whole = schema.encode(messy / "all.csv")
    frames = divide(messy / "all.csv", "PUMA")
    parts = [schema.encode(frame) for frame in frames.values()]
    assert sorted(map(tuple, np.concatenate(parts, axis=1).T)) == sorted(map(tuple, whole.T))
    assert isinstance(frames["100"], pl.DataFrame)


def test_a_batch_charges_nobody_where_one_does_not_fit(run: Run, messy: Path) -> None:
    assert run("plan").code == 0
    text = (messy / "all.csv").read_bytes().decode("cp1252").splitlines()
    bad = text[5].split(";")
    bad[3], bad[6] = '"40"', "?"
    (messy / "all.csv").write_bytes("\n".join([*text[:5], ";".join(bad), *text[6:]]).encode("cp1252"))
    done = run("release", "--part", "all")
    assert done.code == 2
    assert "client '104': column 'SEX' holds a value outside its declared domain" in done.err
    assert not (messy / "all.csv.ledgers").exists()
    assert not (messy / "releases").exists()
    looked = run("check", "--part", "all")
    assert looked.code == 1
    assert "column 'SEX' has values outside its domain (1 of" in looked.out
    assert 'write for [columns."SEX"]: null = ["?"]' in looked.out
