"""Frames: every source gives the same rows, and a damaged one never quotes them."""

from __future__ import annotations

import bz2
import gzip
import lzma
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from conftest import make_people
from fedwise.errors import DataError
from fedwise.schema.frame import Format, column_types, read

SECRET = "S3NT1NEL"


def compressed(people: pl.DataFrame, folder: Path) -> list[Path]:
    """The same rows separated by tabs, compressed, under a name of large letters, and under no ending."""
    text = people.write_csv().encode()
    tabs = people.write_csv(separator="\t").encode()
    contents = {
        "p.tsv": tabs,
        "p.TAB": tabs,
        "q.txt": text,
        "p.csv.gz": gzip.compress(text),
        "p.tsv.gz": gzip.compress(tabs),
        "p.CSV.ZST": pa.Codec("zstd").compress(text).to_pybytes(),
        "rows": (folder / "p.parquet").read_bytes(),
        "p.pq": (folder / "p.parquet").read_bytes(),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in contents]


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("CA.csv", Format("CSV", "CA")),
        ("CA.1.CSV.GZ", Format("CSV", "CA.1")),
        ("CA.tsv.zst", Format("CSV", "CA", "\t")),
        ("CA.parquet", Format("Parquet", "CA")),
        ("CA.parquet.gz", None),
        ("CA.gz", None),
        ("CA.xlsx", None),
        ("CA", None),
    ],
)
def test_the_name_says_the_format(name: str, form: Format | None) -> None:
    assert Format.of(Path("some.csv") / name) == form


def test_every_source_gives_the_same_rows(tmp_path: Path) -> None:
    people = make_people(30)
    people.write_csv(tmp_path / "p.csv")
    people.write_parquet(tmp_path / "p.parquet")
    sources = [
        people,
        people.lazy(),
        people.to_pandas(),
        people.to_arrow(),
        pa.Table.from_pandas(people.to_pandas()).to_batches()[0],
        tmp_path / "p.csv",
        str(tmp_path / "p.csv"),
        tmp_path / "p.parquet",
        *compressed(people, tmp_path),
    ]
    for source in sources:
        assert read(source).equals(people)
        # Only what is asked for, in the order asked; absent names are the schema's business.
        assert read(source, ["SEX", "AGE", "ABSENT"]).equals(people.select("SEX", "AGE"))


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pd.array([1, None, 3], dtype="Int64"), [1, None, 3]),
        (pd.array([1.5, None, 3], dtype="Float64"), [1.5, None, 3.0]),
        (pd.array([True, None, False], dtype="boolean"), [True, None, False]),
        (pd.array(["a", None, "c"], dtype="string"), ["a", None, "c"]),
        (pd.Categorical(["a", None, "c"]), ["a", None, "c"]),
        (pd.Categorical([1, None, 3]), [1, None, 3]),
        (np.array([1.0, np.nan, 3.0]), [1.0, None, 3.0]),
        (np.array([1, None, 2.5], dtype=object), [1.0, None, 2.5]),
        (np.array(["a", np.nan, "c"], dtype=object), ["a", None, "c"]),
        (np.array([1, 2, 3], dtype=np.uint64), [1, 2, 3]),
        (np.array([1, 2, 3], dtype=np.float32), [1.0, 2.0, 3.0]),
    ],
)
def test_pandas_types(column: object, expected: list[object]) -> None:
    assert read(pd.DataFrame({"A": column}))["A"].to_list() == expected


def test_pandas_index_and_integer_names_do_not_matter() -> None:
    frame = pd.DataFrame({0: [1, 2], "B": ["x", "y"]}, index=[7, 7])
    assert read(frame).to_dict(as_series=False) == {"0": [1, 2], "B": ["x", "y"]}


def test_csv_text_columns_keep_their_zeros(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("A,B\n01,1\n,2\ntrue,3\n")
    frame = read(tmp_path / "t.csv", text=["A", "ABSENT"])
    assert frame["A"].to_list() == ["01", None, "true"]
    assert frame["B"].to_list() == [1, 2, 3]


def test_csv_with_byte_order_mark_and_quoted_header(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes('﻿"A","B b"\n1,2\n'.encode())
    assert read(tmp_path / "t.csv", ["A", "B b"]).to_dict(as_series=False) == {"A": [1], "B b": [2]}


def write(name: str, content: bytes):  # type: ignore[no-untyped-def]
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return make


BAD = {
    "missing": (lambda folder: folder / "absent.csv", "does not exist"),
    "directory": (lambda folder: folder, "is a directory"),
    "empty csv": (write("e.csv", b""), "is empty"),
    "empty parquet": (write("e.parquet", b""), "is empty"),
    "blank csv": (write("b.csv", b"\n\n"), "is empty|cannot be read as CSV"),
    "duplicate column": (write("d.csv", b"A,B,A\n1,2,3\n"), "column 'A' appears twice"),
    "ragged csv": (write("r.csv", f"A,B\n1,2\n1,2,{SECRET}\n".encode()), "cannot be read as CSV"),
    "unclosed quote": (write("q.csv", f'A,B\n"{SECRET},2\n'.encode()), "cannot be read as CSV"),
    "binary csv": (write("x.csv", bytes(range(256)) * 4), "UTF-8|cannot be read"),
    "endless header": (write("w.csv", b'"' + b"a" * 200_000 + b'",B\n1,2\n'), "cannot be read as CSV"),
    "other ending": (write("t.xlsx", SECRET.encode() * 9), "must end in .parquet, .csv or .tsv"),
    "no ending": (write("rows", SECRET.encode() * 9), "must end in .parquet, .csv or .tsv"),
    "cut gzip": (
        write("t.csv.gz", gzip.compress(f"A,B\n{SECRET},2\n".encode())[:-12]),
        "cannot be read as CSV|not UTF-8",
    ),
    "text as gzip": (write("t.tsv.gz", b"A\tB\tB\n1\t2\t3\n"), "column 'B' appears twice"),
    "duplicate in gzip": (write("d.csv.gz", gzip.compress(b"A,B,A\n1,2,3\n")), "column 'A' appears twice"),
    "text as parquet": (write("t.parquet", SECRET.encode() * 9), "cannot be read as Parquet"),
    "name too long": (lambda folder: folder / ("x" * 5000 + ".csv"), "cannot be read"),
}


@pytest.mark.parametrize("case", BAD)
def test_damaged_files_say_so_without_quoting(case: str, tmp_path: Path) -> None:
    make, message = BAD[case]
    with pytest.raises(DataError, match=message) as caught:
        read(make(tmp_path))
    shown = "".join(traceback.format_exception(caught.value))
    # What --debug would print, chained exceptions included; the frames themselves hold file names only.
    assert SECRET not in shown


def test_damaged_parquet_is_an_error_or_other_rows_never_a_crash(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # Random damage, fixed seed: polars raises on most of it and panics on some.
    make_people(200).write_parquet(tmp_path / "ok.parquet")
    whole = (tmp_path / "ok.parquet").read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for trial in range(120):
        damaged = bytearray(whole)
        if trial % 2:
            damaged = damaged[: int(rng.integers(len(damaged)))]
        else:
            for at in rng.integers(len(damaged), size=5):
                damaged[at] = int(rng.integers(256))
        (tmp_path / "x.parquet").write_bytes(bytes(damaged) or b"\0")
        for reader in (read, column_types):
            try:
                reader(tmp_path / "x.parquet")
            except DataError:
                refused += 1
    assert refused > 100


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame([[1, 2]], columns=["A", "A"]), "column 'A' appears twice"),
        (pd.DataFrame([[1, 2]], columns=[1, "1"]), "column '1' appears twice"),
        (pa.table([[1], [2]], names=["A", "A"]), "column 'A' appears twice"),
        (pd.DataFrame({"A": [1, SECRET]}), "column 'A' mixes types"),
        (pd.Series([1]), "got Series"),
        (pa.array([1]), "got Int64Array"),
        (np.zeros((2, 2)), "got ndarray"),
        ([{"A": SECRET}], "got list"),
        (None, "got NoneType"),
    ],
)
def test_wrong_objects(frame: object, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read(frame)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_lazy_frames_fail_quietly(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(f"A,B\n1,2\n{SECRET},4\n")
    lazy = pl.scan_csv(tmp_path / "r.csv", schema_overrides={"A": pl.Int64})
    with pytest.raises(DataError, match="lazy frame") as caught:
        read(lazy)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_column_types_of_files(tmp_path: Path) -> None:
    people = make_people(3)
    people.write_csv(tmp_path / "p.csv")
    people.write_parquet(tmp_path / "p.parquet")
    for name in ("p.csv", "p.parquet", *compressed(people, tmp_path)):
        types = column_types(tmp_path / name)
        assert list(types) == people.columns
        assert types["AGE"].is_integer()
        assert types["JOB"] == pl.String


@pytest.mark.parametrize(
    "case",
    [
        "missing",
        "directory",
        "empty csv",
        "empty parquet",
        "duplicate column",
        "endless header",
        "cut gzip",
        "other ending",
    ],
)
def test_column_types_of_damaged_files(case: str, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        column_types(BAD[case][0](tmp_path))


@pytest.mark.parametrize("pack", [lambda data: data, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252", "latin-1"])
def test_encodings_are_told_from_the_file(
    tmp_path: Path, pack: Callable[[bytes], bytes], encoding: str
) -> None:
    ending = {b"\x1f\x8b": ".gz", b"BZ": ".bz2", b"\xfd7": ".xz"}.get(pack(b"A")[:2], "")
    path = tmp_path / f"l.csv{ending}"
    path.write_bytes(pack("Stra\xdfe;B\ncaf\xe9;2\n".encode(encoding)))
    assert read(path).to_dict(as_series=False) == {"Stra\xdfe": ["caf\xe9"], "B": [2]}
    assert read(path, ["B"]).to_dict(as_series=False) == {"B": [2]}


def test_a_separator_is_taken_only_where_it_separates(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text('NAME,"a;b;c"\nx,1\n')
    assert read(path).columns == ["NAME", "a;b;c"]
    path.write_text("A, title;SEX;AGE\nx;1;2\n")
    assert read(path, ["SEX", "AGE"]).to_dict(as_series=False) == {"SEX": [1], "AGE": [2]}
    path.write_text("A\n1\n")
    assert read(path).columns == ["A"]
    path.write_text('"A\nB";C\n1;2\n')
    assert read(path, ["C"]).columns == ["C"]


def test_a_zip_holds_one_file(tmp_path: Path) -> None:
    for name, files in {"one.csv.zip": 1, "two.zip": 2}.items():
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for number in range(files):
                archive.writestr(f"{number}.csv", "A,B\n1,2\n")
    assert read(tmp_path / "one.csv.zip").rows() == [(1, 2)]
    with pytest.raises(DataError, match="must hold exactly one file; unpack it"):
        read(tmp_path / "two.zip")
