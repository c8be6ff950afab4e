"""Census sources: folktables' layout, other files, older and newer codes, and what users get wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedwise.data import acs
from fedwise.errors import DataError, MissingExtra


def people(rows: int = 400, seed: int = 0) -> pl.DataFrame:
    """Random PUMS-like rows (not census records): plausible codes, missing where not in universe."""
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 96, rows)
    income = np.where(age < 15, np.nan, rng.integers(-5000, 120_000, rows))
    works = (age > 16) & (rng.random(rows) < 0.6)

    def where(mask: np.ndarray, values: np.ndarray) -> np.ndarray:
        return np.where(mask, values, np.nan)

    frame = pl.DataFrame(
        {
            "ST": rng.choice([6, 36], rows),
            "PUMA": rng.choice([101, 3701], rows),
            "PWGTP": np.ones(rows, dtype=int),
            "AGEP": age,
            "SEX": rng.integers(1, 3, rows),
            "RAC1P": rng.integers(1, 10, rows),
            "SCHL": where(age > 2, rng.integers(1, 25, rows)),
            "MAR": rng.integers(1, 6, rows),
            "RELP": rng.integers(0, 18, rows),
            "POBP": rng.integers(1, 555, rows),
            "COW": where(works, rng.integers(1, 9, rows)),
            "OCCP": where(works, rng.integers(10, 9831, rows)),
            "WKHP": where(works, rng.integers(1, 100, rows)),
            "PINCP": income,
            "ESR": where(age > 15, np.where(works, 1, 6)),
            "JWTR": where(works, rng.integers(1, 13, rows)),
            "JWMNP": where(works & (rng.random(rows) < 0.8), rng.integers(1, 120, rows)),
            "PUBCOV": rng.integers(1, 3, rows),
            "DIS": rng.integers(1, 3, rows),
            "CIT": rng.integers(1, 6, rows),
            "MIL": where(age > 16, rng.integers(1, 5, rows)),
            "NATIVITY": rng.integers(1, 3, rows),
            "MIG": where(age > 0, rng.integers(1, 4, rows)),
        }
    )
    whole = [c for c in frame.columns if frame[c].dtype == pl.Float64]
    return frame.with_columns(pl.col(whole).fill_nan(None).cast(pl.Int64))


def by_hand(frame: pl.DataFrame, task: str) -> pl.DataFrame:
    """Filter and label of each task, written out a second time."""
    age = pl.col("AGEP")
    kept, label = {
        "income": ((age > 16) & (pl.col("PINCP") > 100) & (pl.col("WKHP") > 0), pl.col("PINCP") > 50_000),
        "employment": ((age > 16) & (age < 90), pl.col("ESR") == 1),
        "public_coverage": ((age < 65) & (pl.col("PINCP") <= 30_000), pl.col("PUBCOV") == 1),
        "travel_time": ((age > 16) & (pl.col("ESR") == 1), pl.col("JWMNP") > 20),
        "mobility": ((age > 18) & (age < 35), pl.col("MIG") != 1),
    }[task]
    return frame.filter(kept).with_columns(label.fill_null(False).cast(pl.Int8).alias("label"))


@pytest.mark.parametrize("task", sorted(acs.TASKS))
@pytest.mark.parametrize("kind", ["frame", "parquet", "csv"])
def test_tasks_filter_label_and_encode(task: str, kind: str, tmp_path: Path) -> None:
    frame = people()
    source: object = frame
    if kind != "frame":
        source = tmp_path / f"people.{kind}"
        frame.write_csv(source) if kind == "csv" else frame.write_parquet(source)  # type: ignore[arg-type]
    loaded = acs.read(task, source)
    expected = by_hand(frame, task)
    assert list(loaded.clients) == ["CA", "NY"]
    for usps, fips in (("CA", 6), ("NY", 36)):
        rows = loaded.clients[usps]
        assert rows.columns == list(loaded.schema.names)
        mine = expected.filter(pl.col("ST") == fips)
        assert rows[loaded.task.label].to_list() == mine["label"].to_list()
        for name in loaded.schema.names[:-1]:
            assert rows[name].to_list() == mine[name].to_list(), name
        assert loaded.schema.encode(rows).shape == (len(loaded.schema.names), rows.height)
    assert loaded.notes == ()


def test_pums_areas_are_named_after_their_state() -> None:
    clients = acs.load("employment", people(), by="PUMA")
    assert list(clients) == ["CA-00101", "CA-03701", "NY-00101", "NY-03701"]
    other = acs.load("employment", people().with_columns(bank=pl.lit("first")), by="bank")
    assert list(other) == ["first"]


def write_folder(root: Path, frame: pl.DataFrame, year: int = 2018) -> None:
    folder = root / str(year) / "1-Year"
    folder.mkdir(parents=True)
    frame = frame.with_columns(SOCP=pl.lit("1110XX"), ANC=1, ESP=1)
    for fips, part in frame.partition_by("ST", as_dict=True).items():
        name = {6: "ca", 36: "ny"}[fips[0]]
        file = f"psam_p{fips[0]:02d}.csv" if year >= 2017 else f"ss{year % 100}p{name}.csv"
        part.write_csv(folder / file)


@pytest.mark.parametrize("year", [2016, 2018])
def test_folktables_layout(tmp_path: Path, year: int) -> None:
    write_folder(tmp_path, people(), year)
    found = acs.load("income", tmp_path, year=year)
    direct = acs.load("income", people())
    assert list(found) == list(direct)
    for name in direct:
        assert found[name].cast(pl.Int64).equals(direct[name].cast(pl.Int64))
    assert list(acs.load("income", tmp_path, year=year, only=["New York"])) == ["NY"]
    assert acs.read("income", tmp_path, year=year).notes == ("48 states have no file, such as AK: left out",)


@pytest.mark.filterwarnings("default")
def test_same_rows_and_labels_as_folktables(tmp_path: Path) -> None:
    folktables = pytest.importorskip("folktables", reason="needs the 'acs' extra")
    write_folder(tmp_path, people())
    source = folktables.ACSDataSource(
        survey_year="2018", horizon="1-Year", survey="person", root_dir=str(tmp_path)
    )
    features, label, _ = folktables.ACSIncome.df_to_numpy(source.get_data(states=["CA"]))
    ours = acs.load("income", tmp_path, year=2018, only=["CA"])["CA"]
    assert ours.select(folktables.ACSIncome.features).to_numpy().tolist() == features.astype(int).tolist()
    assert ours["PINCP_gt50k"].to_list() == label.astype(int).tolist()


def test_newer_codes_become_older_ones() -> None:
    frame = people().rename({"RELP": "RELSHIPP", "JWTR": "JWTRNS", "ST": "STATE"})
    frame = frame.with_columns(RELSHIPP=pl.lit(24), JWTRNS=pl.lit(3), STATE=pl.lit("06"))
    loaded = acs.read("travel_time", frame)
    assert list(loaded.clients) == ["CA"]
    rows = loaded.clients["CA"]
    assert set(rows["RELP"]) == {13}  # unmarried partner
    assert set(rows["JWTR"]) == {4}  # subway


def test_zero_that_stands_for_missing_is_missing() -> None:
    frame = people().with_columns(MIL=pl.lit(0), RELP=pl.lit(0))
    rows = pl.concat(acs.load("public_coverage", frame).values())
    assert rows["MIL"].null_count() == rows.height
    assert acs.load("employment", frame)["CA"]["RELP"].null_count() == 0


def test_labelled_extract_is_taken_as_it_is() -> None:
    frame = by_hand(people(), "income").rename({"label": "PINCP_gt50k"}).drop("PINCP")
    rows = pl.concat(acs.load("income", frame).values())
    assert rows.height == frame.height
    assert rows["PINCP_gt50k"].sum() == frame["PINCP_gt50k"].sum()
    with pytest.raises(DataError, match=r"label 'PINCP_gt70k'.*holds 'PINCP_gt50k' instead"):
        acs.load("income", frame, threshold=70_000)


MISTAKES = {
    "no such file": (lambda d: {"source": d / "nothing.parquet"}, "nothing.parquet' does not exist"),
    "directory without a year": (lambda d: {"source": d}, "year must be given"),
    "directory without files": (lambda d: {"source": d, "year": 2018}, "psam_p02.csv' does not exist"),
    "state without a file": (
        lambda d: {"source": d, "year": 2018, "only": ["CA"]},
        "psam_p06.csv' does not exist",
    ),
    "other horizon": (lambda d: {"source": d, "year": 2018, "horizon": "3-Year"}, "'1-Year' or '5-Year'"),
    "client column": (lambda d: {"source": people(), "by": "PUMAS"}, "did you mean 'PUMA'"),
    "no state column": (lambda d: {"source": people().drop("ST")}, "'ST' \\(or 'STATE'\\) is missing"),
    "keep states without one": (
        lambda d: {"source": people().drop("ST"), "by": "PUMA", "only": ["CA"]},
        "needed to keep some states",
    ),
    "no sensitive column": (lambda d: {"source": people().drop("SEX")}, "column 'SEX' is missing"),
    "no filter column": (lambda d: {"source": people().drop("WKHP")}, "the filter 'WKHP > 0' reads it"),
    "no target column": (lambda d: {"source": people().drop("PINCP")}, "the target 'PINCP > 50000' reads it"),
    "no rows left": (lambda d: {"source": people().with_columns(AGEP=5)}, "got none after its filter"),
    "text in a column": (lambda d: {"source": people().with_columns(COW=pl.lit("private"))}, "as numbers"),
    "missing client": (
        lambda d: {"source": people().with_columns(bank=pl.lit(None, pl.String)), "by": "bank"},
        "'bank' holds missing values",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str, tmp_path: Path) -> None:
    options, message = MISTAKES[mistake]
    with pytest.raises(DataError, match=message):
        acs.load("income", **options(tmp_path))


def test_text_is_not_quoted_in_errors() -> None:
    with pytest.raises(DataError) as caught:
        acs.load("income", people().with_columns(COW=pl.lit("secret")))
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_download_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "folktables.load_acs", None)
    with pytest.raises(MissingExtra, match=r"fedwise\[acs\]"):
        acs.load("income", tmp_path, year=2018, download=True)


def test_failed_download_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fake:
        @staticmethod
        def initialize_and_download(folder: str, state: str, *_: object, download: bool) -> str:
            sys.stdout.write("folktables chatter")
            return f"{folder}/psam_p06.csv"

    monkeypatch.setitem(sys.modules, "folktables.load_acs", Fake)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="CA 2018 could not be downloaded"):
        acs.load("income", tmp_path, year=2018, only=["CA"], download=True)


@pytest.mark.parametrize(
    ("task", "rows", "rate"),
    [
        ("income", 1_399_926, 0.336),
        ("employment", 2_240_783, 0.555),
        ("public_coverage", 763_775, 0.333),
        ("travel_time", 1_243_954, 0.398),
        ("mobility", 506_276, 0.225),
    ],
)
@pytest.mark.acs
def test_all_tasks_load_from_2024(acs_dir: Path, task: str, rows: int, rate: float) -> None:
    loaded = acs.read(task, acs_dir / "acs2024_person.parquet", year=2024, features="full")
    assert len(loaded.clients) == 49
    assert sum(frame.height for frame in loaded.clients.values()) == rows
    labels = pl.concat([frame[loaded.task.label] for frame in loaded.clients.values()])
    assert labels.mean() == pytest.approx(rate, abs=0.0006)
    for name in ("AK", "FL", "WY"):
        frame = loaded.clients[name]
        assert loaded.schema.encode(frame).shape == (len(loaded.schema.names), frame.height)


@pytest.mark.acs
@pytest.mark.parametrize(
    ("task", "file", "clients", "rows", "stand_ins"),
    [
        ("income", "acs2018_income", 50, 763_698, ()),
        ("income", "acs2018_income_nearfull", 51, 1_436_037, ("MAR2", "RAC5")),
        ("employment", "acs2014_2018_employment", 51, 810_719, ("MAR_married",)),
    ],
)
def test_labelled_census_extracts(
    acs_dir: Path, task: str, file: str, clients: int, rows: int, stand_ins: tuple[str, ...]
) -> None:
    loaded = acs.read(task, acs_dir / f"{file}.parquet")
    assert len(loaded.clients) == clients
    assert sum(frame.height for frame in loaded.clients.values()) == rows
    assert set(stand_ins) <= set(loaded.schema.names)
    assert len(loaded.schema.names) == 11
    kept = sum(loaded.schema.encode(frame).shape[1] for frame in loaded.clients.values())
    assert kept == rows
