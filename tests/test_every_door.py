"""One reader: the same file gives the same codes for release, training, prediction, checks and commands."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import fedwise as fw
from fedwise.cli.main import main
from fedwise.data.split import split, split_all
from fedwise.errors import DataError
from fedwise.schema.codes import encode_column
from fedwise.training.encoding import Encoder, Rows
from fedwise.training.federation import find_frames, prepare
from fedwise.training.predict import predict_frame
from fedwise.training.run import Run

#: Text that looks like numbers, booleans or dates; numbers and booleans that are what they look like; gaps.
SCHEMA = """
name = "doors"
where = ["KEEP == 'yes'", "AGE >= 18"]

[columns.REGION]
role = "feature"
levels = ["01", "02", "10"]

[columns.OWNER]
role = "feature"
levels = ["true", "false"]
missing = "other"

[columns.SINCE]
role = "feature"
levels = ["2019-01-01", "2020-01-01"]
unknown = "other"
missing = "other"

[columns.MEMBER]
role = "feature"
levels = [0, 1]
missing = "other"

[columns.AGE]
role = "feature"
bins = [18, 40, 65, 120]
model = "scaled"

[columns.CODE]
role = "sensitive"
levels = ["1", "2"]
unknown = "other"

[columns.GOOD]
role = "target"
rule = "GRADE == '01'"
"""
ROWS = 120
Write = Callable[[Path, str], Path]


def table() -> str:
    """A CSV file. Every text column of it would be read as another type by its values alone."""
    rng = np.random.default_rng(0)
    lines = ["REGION,OWNER,SINCE,MEMBER,AGE,CODE,GRADE,KEEP,NOTE"]
    for row in range(ROWS):
        cells = [
            rng.choice(["01", "02", "10"]),
            rng.choice(["true", "false", ""]),
            rng.choice(["2019-01-01", "2020-01-01", "2021-01-01", "NA", ""]),
            rng.choice(["true", "false", ""]),
            str(rng.integers(10, 90)),
            rng.choice(["1", "2", "3"]),
            rng.choice(["01", "02"]),
            "yes" if row % 4 else "no",
            '"a, quoted note"',
        ]
        lines.append(",".join(cells))
    return "\n".join(lines) + "\n"


def codes_by_hand(text: str) -> np.ndarray:
    """The codes as the schema's documentation defines them, without any library."""
    schema = fw.Schema.parse(SCHEMA)
    out = []
    for line in text.splitlines()[1:]:
        region, owner, since, member, age, code, grade, keep, *_ = line.split(",")
        if keep != "yes" or int(age) < 18:
            continue
        ages = [18, 40, 65, 120]
        out.append(
            [
                ["01", "02", "10"].index(region),
                ["true", "false", ""].index(owner),
                {"2019-01-01": 0, "2020-01-01": 1}.get(since, 2),
                ["false", "true", ""].index(member),
                sum(int(age) >= edge for edge in ages) - 1,
                {"1": 0, "2": 1}.get(code, 2),
                int(grade == "01"),
            ]
        )
    found = np.array(out, dtype=np.int16).T
    assert (found.max(axis=1) < schema.sizes).all()
    return found


def check_counts(released: fw.Release, codes: np.ndarray) -> None:
    """The release's tables are the counts of these codes; it was made without noise."""
    layout = released.plan.layout
    for table, (x, y), shape in zip(released.tables, layout.pairs, layout.shapes, strict=True):
        counts = np.bincount(codes[x] * shape[1] + codes[y], minlength=shape[0] * shape[1])
        np.testing.assert_array_equal(table.counts, counts)


def as_csv(folder: Path, name: str) -> Path:
    path = folder / f"{name}.csv"
    path.write_text(table())
    return path


def as_tsv(folder: Path, name: str) -> Path:
    path = folder / f"{name}.tsv"
    path.write_text(table().replace('"a, quoted note"', "a note").replace(",", "\t"))
    return path


def as_gzip(folder: Path, name: str) -> Path:
    path = folder / f"{name}.csv.gz"
    path.write_bytes(gzip.compress(table().encode()))
    return path


def as_zstandard(folder: Path, name: str) -> Path:
    path = folder / f"{name}.CSV.zst"
    path.write_bytes(pa.Codec("zstd").compress(table().encode()).to_pybytes())
    return path


def as_compressed_tsv(folder: Path, name: str) -> Path:
    path = folder / f"{name}.tsv.gz"
    path.write_bytes(gzip.compress(as_tsv(folder, f"{name}-plain").read_bytes()))
    (folder / f"{name}-plain.tsv").unlink()
    return path


def as_semicolons(folder: Path, name: str) -> Path:
    """As a spreadsheet of many countries saves it: Windows-1252, semicolons, quoted numbers, a byte order mark gone."""
    path = folder / f"{name}.csv"
    text = table().replace('"a, quoted note"', "Größe").replace(",", ";")
    header, *lines = text.splitlines()
    quoted = [";".join(f'"{cell}"' for cell in line.split(";")) for line in lines]
    path.write_bytes("\r\n".join([header, *quoted, ""]).encode("cp1252"))
    return path


def as_xz(folder: Path, name: str) -> Path:
    path = folder / f"{name}.csv.xz"
    path.write_bytes(
        lzma.compress(("\ufeff" + table()).encode().replace(b",", b"|").replace(b"a| quo", b"a quo"))
    )
    return path


def as_utf16(folder: Path, name: str) -> Path:
    path = folder / f"{name}.tsv"
    path.write_bytes(as_tsv(folder, name).read_text().encode("utf-16"))
    return path


def as_bzip2(folder: Path, name: str) -> Path:
    path = folder / f"{name}.csv.bz2"
    path.write_bytes(bz2.compress(table().encode("latin-1")))
    return path


def as_parquet(folder: Path, name: str) -> Path:
    """Types as they are: text stays text, so nothing has to be guessed."""
    text = ["REGION", "OWNER", "SINCE", "CODE", "GRADE"]
    frame = pl.read_csv(table().encode(), schema_overrides=dict.fromkeys(text, pl.String))
    path = folder / f"{name}.parquet"
    frame.write_parquet(path)
    return path


FORMATS = (
    as_csv, as_tsv, as_gzip, as_zstandard, as_compressed_tsv, as_parquet, as_semicolons, as_xz,
    as_utf16, as_bzip2,
)  # fmt: skip
#: The commands read by the same function; two formats show that they do.
TRIED = (as_compressed_tsv, as_parquet, as_semicolons)


@pytest.fixture(scope="module")
def schema() -> fw.Schema:
    return fw.Schema.parse(SCHEMA)


def input_codes(schema: fw.Schema, encoder: Encoder, rows: Rows) -> list[np.ndarray]:
    """Codes of the one-hot inputs, from the positions of their ones."""
    found = []
    starts = [encoder.names.index(f"{c.name}={c.labels[0]}") for c in schema.columns if hot(c)]
    for place, start in enumerate(starts):
        found.append(rows.hot[:, place] - start)
    return found


def hot(column: fw.Column) -> bool:
    return column.model == "one-hot" and column.role != fw.Role.TARGET


@pytest.mark.parametrize("write", FORMATS)
def test_the_library(write: Write, schema: fw.Schema, tmp_path: Path) -> None:
    path = write(tmp_path, "CA")
    expected = codes_by_hand(table())
    # Release and check.
    np.testing.assert_array_equal(schema.encode(path), expected)
    np.testing.assert_array_equal(schema.encode(str(path)), expected)
    released = fw.release(fw.plan(schema, float("inf")), path, client="CA", no_privacy=True)
    check_counts(released, expected)
    # A frame already read by the schema gives the same again.
    np.testing.assert_array_equal(schema.encode(schema.read(path)), expected)
    # Training: all rows at once, and divided.
    encoder = Encoder(schema)
    rows = encoder.encode(path)
    wanted = [expected[i] for i, column in enumerate(schema.columns) if hot(column)]
    for got, want in zip(input_codes(schema, encoder, rows), wanted, strict=True):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(rows.y, expected[schema.target])
    np.testing.assert_array_equal(rows.groups[0], expected[schema.names.index("CODE")])
    train, held = split(path, 0.3, client="CA", schema=schema)
    both = np.concatenate([schema.encode(train), schema.encode(held)], axis=1)
    assert sorted(map(tuple, both.T)) == sorted(map(tuple, expected.T))
    everyone = split_all({"CA": path}, 0.3, schema=schema)
    np.testing.assert_array_equal(schema.encode(everyone[0]["CA"]), schema.encode(train))
    prepared = prepare(find_frames(tmp_path), schema, test=0.3)
    assert prepared.clients == ("CA",)
    np.testing.assert_array_equal(prepared.train["CA"].matrix, encoder.encode(train).matrix)
    # Prediction.
    positions, inputs = encoder.encode_inputs(path)
    np.testing.assert_array_equal(inputs.matrix, rows.matrix)
    assert len(positions) == expected.shape[1]


@pytest.mark.parametrize("write", TRIED)
def test_the_commands(
    write: Write,
    schema: fw.Schema,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    def call(*words: object) -> None:
        monkeypatch.setattr(sys, "argv", ["fedwise", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code in (None, 0), capsys.readouterr().err

    (tmp_path / "data").mkdir()
    path = write(tmp_path / "data", "CA")
    schema.save("schema.toml")
    expected = codes_by_hand(table())
    call("plan", "schema.toml", "--epsilon", "inf", "-o", "plan.json")
    call("release", "plan.json", path, "--client", "CA", "--no-privacy", "-o", "CA.json")
    released = fw.Release.load("CA.json")
    check_counts(released, expected)
    train = ("train", "--data", "data", "--schema", "schema.toml", "--model", "logistic", "--rounds", "1")
    call(*train, "--bootstrap", "0", "-o", "run")
    call("predict", "run", path, "-o", "p.csv")
    run = Run.open("run")
    assert run.manifest.federation == ("CA",)
    monkeypatch.setattr(sys, "argv", ["fedwise", "predict", "run", str(path), "-o", "p.xlsx"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "must end in .csv or .parquet" in capsys.readouterr().err
    call("audit", "schema.toml", path, "--epsilon", "1", "--trials", "100")
    # Predictions of the command are those of the codes, row by row.
    rows = pl.read_csv("p.csv")
    again = predict_frame(run, as_parquet(tmp_path, "typed"))
    assert rows["row"].to_list() == again["row"].to_list()
    np.testing.assert_allclose(rows["probability"], again["probability"], atol=1e-6)
    assert rows.height == expected.shape[1]


def test_a_prediction_needs_neither_the_target_nor_what_the_model_leaves_out(
    schema: fw.Schema, tmp_path: Path
) -> None:
    encoder = Encoder(schema, use_sensitive=False)
    frame = schema.read(as_csv(tmp_path, "CA"))
    positions, rows = encoder.encode_inputs(frame)
    fewer, same = encoder.encode_inputs(frame.drop("GRADE", "CODE"))
    np.testing.assert_array_equal(positions, fewer)
    np.testing.assert_array_equal(rows.matrix, same.matrix)
    # Nor a valid one: gaps in a target that stops a release stop no prediction.
    blank = frame.with_columns(pl.lit(None, dtype=pl.String).alias("GRADE"), pl.lit(7).alias("CODE"))
    np.testing.assert_array_equal(encoder.encode_inputs(blank)[1].matrix, rows.matrix)
    with pytest.raises(DataError, match="'REGION' is missing"):
        encoder.encode_inputs(frame.drop("REGION"))
    with pytest.raises(DataError, match="'AGE' is missing from the data; the filter 'AGE >= 18' reads it"):
        encoder.encode_inputs(frame.drop("AGE"))


def test_a_filter_on_the_target_is_left_out_where_there_is_no_target(tmp_path: Path) -> None:
    """As in the income task, whose filter reads the income."""
    text = SCHEMA.replace('"AGE >= 18"]', "\"AGE >= 18 and GRADE != '02'\", \"GRADE != '09'\"]")
    encoder = Encoder(fw.Schema.parse(text))
    frame = encoder.schema.read(as_csv(tmp_path, "CA"))
    both = frame.filter(pl.col("KEEP") == "yes", pl.col("AGE") >= 18)
    assert len(encoder.encode_inputs(frame)[0]) == both.filter(pl.col("GRADE") == "01").height < both.height
    positions, rows = encoder.encode_inputs(frame.drop("GRADE"))
    assert len(positions) == len(rows) == both.height
    # Training and release do need it.
    with pytest.raises(DataError, match="'GRADE' is missing"):
        encoder.encode(frame.drop("GRADE"))


@pytest.mark.parametrize("bad", ["1", "3", "x", ""])
def test_every_door_refuses_the_same(schema: fw.Schema, tmp_path: Path, bad: str) -> None:
    """A region that is no level stops release, training and prediction with one message."""
    lines = table().splitlines()
    at = next(i for i, line in enumerate(lines) if ",yes," in line and int(line.split(",")[4]) >= 18)
    lines[at] = ",".join([bad, *lines[at].split(",")[1:]])
    path = tmp_path / "CA.csv"
    path.write_text("\n".join(lines) + "\n")
    doors = (
        lambda: schema.encode(path),
        lambda: Encoder(schema).encode(path),
        lambda: Encoder(schema).encode_inputs(path),
        lambda: prepare({"CA": path}, schema, test=0.0),
    )
    told = []
    for door in doors:
        with pytest.raises(DataError, match="column 'REGION' holds") as caught:
            door()
        told.append(str(caught.value).removeprefix("client 'CA': "))
    assert len(set(told)) == 1, json.dumps(told)


def test_codes_by_hand_are_what_encode_column_says(schema: fw.Schema, tmp_path: Path) -> None:
    """The reference itself, against frames whose types leave nothing to guess."""
    rows = schema.select_rows(as_parquet(tmp_path, "CA"))
    got = np.stack([encode_column(column, rows) for column in schema.columns])
    np.testing.assert_array_equal(got, codes_by_hand(table()))
