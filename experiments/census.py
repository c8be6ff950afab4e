"""Census tasks of the experiments: rows split once, tables of the training part, rows to train and test on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

import fedwise as fw
from fedwise.data import acs, synthetic
from fedwise.data.split import split_all
from fedwise.estimation.estimates import Estimates
from fedwise.objective.pfl import pair_weights
from fedwise.owner.noise import add_simulated_noise, no_noise
from fedwise.owner.tables import Tables, count
from fedwise.planning import Plan, plan
from fedwise.pool.pool import Pool
from fedwise.schema.schema import Column, Role, Schema
from fedwise.training.federation import Prepared, prepare

#: Where the records are, seen from the root of the repository.
RECORDS = Path(__file__).parents[1].parent / "shared" / "data"
SPLIT_SEED = 0
TEST_SHARE = 0.2
#: Least rows of an area that is a client.
AREA_ROWS = 800
#: Tasks that no decision of the design ever used.
HELD_OUT = ("mobility2024areas", "employment2018five")
#: Held-out rows of all clients together that every model is tested on.
TEST_ROWS = 60_000


@dataclass(frozen=True)
class Source:
    """A task as the experiments name it, and where its rows come from."""

    name: str
    title: str
    task: str
    file: str
    year: int
    #: Mean number of rows a client trains on; ``None`` for all. Tables always come from all training rows.
    mean_rows: int | None = None
    #: States whose areas (state and ``PUMA // 100``) are the clients; none: the states themselves are.
    areas: tuple[str, ...] = ()


SOURCES = {
    source.name: source
    for source in (
        Source("income2018", "ACSIncome 2018", "income", "acs2018_income.parquet", 2018),
        Source("income2024", "ACSIncome 2024", "income", "acs2024_person.parquet", 2024, 5000),
        Source("employment2024", "ACSEmployment 2024", "employment", "acs2024_person.parquet", 2024, 5000),
        Source(
            "coverage2024", "ACSPublicCoverage 2024", "public_coverage", "acs2024_person.parquet", 2024, 5000
        ),
        Source("travel2024", "ACSTravelTime 2024", "travel_time", "acs2024_person.parquet", 2024, 5000),
        Source("synthetic", "Synthetic states", "income", "", 2018, 1500),
        # Held out: fixed in HELD_OUT.md before any number of theirs was seen.
        Source(
            "mobility2024areas",
            "ACSMobility 2024, areas",
            "mobility",
            "acs2024_person.parquet",
            2024,
            5000,
            ("FL", "GA", "IL", "NC", "OH", "PA"),
        ),
        Source(
            "employment2018five",
            "ACSEmployment 2014–2018",
            "employment",
            "acs2014_2018_employment.parquet",
            2018,
            5000,
        ),
    )
}


@dataclass(frozen=True, eq=False)
class Tabled:
    """Exact tables of all clients under one schema: the truth the experiments measure against."""

    schema: Schema
    clients: tuple[str, ...]
    matrix: npt.NDArray[np.int64]

    @property
    def digest(self) -> str:
        """Hash of schema, names and counts."""
        parts = self.schema.digest.encode(), "\0".join(self.clients).encode(), self.matrix.tobytes()
        return hashlib.sha256(b"\0".join(parts)).hexdigest()

    def pool(self, epsilon: float, *, paper: bool = False, seed: int = 0) -> Pool:
        """Releases with simulated noise, under the defaults or in the paper's mode."""
        made = (
            plan(self.schema, epsilon, calibration="rdp", allocation="uniform")
            if paper
            else plan(self.schema, epsilon)
        )
        return Pool(self.clients, made, self._noisy(made, seed), simulated=made.private)

    def _noisy(self, made: Plan, seed: int) -> npt.NDArray[np.int64]:
        rows = []
        for i, exact in enumerate(self.matrix):
            tables = Tables(made.layout, exact)
            if made.private:
                rng = np.random.default_rng([seed, i, 0xACE])
                rows.append(np.asarray(add_simulated_noise(tables, made.sigmas, rng)))
            else:
                rows.append(np.asarray(no_noise(tables)))
        return np.stack(rows)

    def truth(self) -> Estimates:
        """The exact tables as estimates without noise."""
        layout = plan(self.schema, float("inf")).layout
        cells = self.matrix.astype(np.float64)
        return Estimates.plain(self.clients, self.schema, layout, cells)

    def signed_weights(self) -> npt.NDArray[np.float64]:
        """Signed weight of each table in the loss, under the paper's weights."""
        return pair_weights(self.schema, plan(self.schema, float("inf")).layout, fw.Weights())


@dataclass(frozen=True, eq=False)
class Bundle:
    """Everything the experiments need of one task."""

    source: Source
    notes: tuple[str, ...]
    sex: Tabled
    race: Tabled
    prepared: Prepared
    #: Training rows of each client, all of them.
    rows: Mapping[str, int]
    share: float
    positive: float


def load(
    name: str, *, records: Path | None = None, states: int | None = None, mean_rows: int | None = None,
    test_rows: int = TEST_ROWS, split: int = SPLIT_SEED,
) -> Bundle:  # fmt: skip
    """Read a task, split every client once, count its training part, thin what is trained and tested on.

    Parameters
    ----------
    records
        Directory of the census files. Without them ask for ``synthetic``.
    states
        Keep this many clients only, for quick runs.
    mean_rows
        Overrides the source's mean number of rows a client trains on.
    split
        Seed of the division into training and held-out rows.
    """
    source = SOURCES[name]
    if mean_rows is not None:
        source = replace(source, mean_rows=mean_rows)
    frames, schema, notes = _read(source, records or RECORDS, states)
    train, _ = split_all(frames, TEST_SHARE, seed=split)
    white = Column(name="WHITE", role=Role.SENSITIVE, rule="RAC1P == 1", model="drop")
    # Trained on with SEX as an input, measured by SEX and by race.
    measured = msgspec.structs.replace(schema, columns=(*schema.columns, white))
    prepared = prepare(frames, measured, test=TEST_SHARE, seed=split)
    rows = {client: len(part) for client, part in prepared.train.items()}
    mean = sum(rows.values()) / len(rows)
    share = min(1.0, source.mean_rows / mean) if source.mean_rows else 1.0
    return Bundle(
        source=source,
        notes=notes,
        sex=_tabled(schema, train),
        race=_tabled(_by_race(schema, white), train),
        prepared=_thin(prepared, share, min(1.0, test_rows / len(prepared.held_out))),
        rows=rows,
        share=share,
        positive=float(prepared.held_out.y.mean()),
    )


def training_frames(
    name: str, *, records: Path | None = None, split: int = SPLIT_SEED, states: int | None = None
) -> dict[str, pl.DataFrame]:
    """Records of the training part of every client, as `load` divides them."""
    frames, _, _ = _read(SOURCES[name], records or RECORDS, states)
    return dict(split_all(frames, TEST_SHARE, seed=split)[0])


def available(name: str, records: Path | None = None) -> bool:
    """Whether the file of a task is there."""
    source = SOURCES[name]
    return not source.file or ((records or RECORDS) / source.file).is_file()


def _read(
    source: Source, records: Path, states: int | None
) -> tuple[dict[str, pl.DataFrame], Schema, tuple[str, ...]]:
    if not source.file:
        clients: dict[str, pl.DataFrame] = synthetic.states(seed=1, scale=0.1)
        schema, notes = synthetic.schema(), (synthetic.NOTICE,)
    elif source.areas:
        loaded = acs.read(
            source.task, _with_areas(records / source.file), by="AREA", only=source.areas, year=source.year
        )
        clients = {name: rows for name, rows in loaded.clients.items() if rows.height >= AREA_ROWS}
        schema, notes = loaded.schema, loaded.notes
    else:
        loaded = acs.read(source.task, records / source.file, features="paper", year=source.year)
        clients, schema, notes = loaded.clients, loaded.schema, loaded.notes
    if states is not None:
        clients = {name: clients[name] for name in sorted(clients)[:states]}
    return clients, schema, notes


def _with_areas(path: Path) -> pl.LazyFrame:
    """The rows with a column that names the area: codes of a state that begin alike."""
    area = pl.format(
        "{}-{}", pl.col("ST").cast(pl.String), (pl.col("PUMA") // 100).cast(pl.String).str.zfill(3)
    )
    return pl.scan_parquet(path).with_columns(area.alias("AREA"))


def _by_race(schema: Schema, white: Column) -> Schema:
    """WHITE takes the place of RAC1P as the sensitive attribute, and SEX becomes a feature."""
    columns = []
    for column in schema.columns:
        if column.name == "RAC1P":
            columns.append(white)
        elif column.role == Role.SENSITIVE:
            columns.append(msgspec.structs.replace(column, role=Role.FEATURE))
        else:
            columns.append(column)
    return msgspec.structs.replace(schema, columns=tuple(columns), name=f"{schema.name}_race")


def _tabled(schema: Schema, train: Mapping[str, pl.DataFrame]) -> Tabled:
    layout = plan(schema, float("inf")).layout
    matrix = np.stack([count(schema.encode(frame), layout).exact for frame in train.values()])
    return Tabled(schema, tuple(train), matrix)


def _thin(prepared: Prepared, train: float, test: float) -> Prepared:
    """A fixed random share of every client's rows, so that natural proportions stay."""

    def part(rows: Mapping[str, object], share: float, salt: int) -> dict[str, object]:
        kept = {}
        for i, (client, these) in enumerate(rows.items()):
            n = len(these)  # type: ignore[arg-type]
            size = max(min(n, 1), round(n * share))
            index = np.sort(np.random.default_rng([salt, i]).permutation(n)[:size])
            kept[client] = these if share >= 1 else these.take(index)  # type: ignore[attr-defined]
        return kept

    return Prepared(
        prepared.encoder,
        part(prepared.train, train, 11),  # type: ignore[arg-type]
        part(prepared.test, test, 12),  # type: ignore[arg-type]
        prepared.notes,
    )
