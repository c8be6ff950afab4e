"""Pools of the rehearsal's benchmark: census tasks with states or areas as clients, and what training gives."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

import fedwise as fw
from fedwise.data import acs, pums
from fedwise.data.split import split_all
from fedwise.owner.noise import add_simulated_noise, no_noise
from fedwise.owner.tables import Tables, count
from fedwise.planning import plan
from fedwise.pool.pool import Pool
from fedwise.schema.schema import Column, Role, Schema
from fedwise.training.encoding import Encoder, Rows
from fedwise.training.federation import Prepared, prepare
from fedwise.training.local import predict
from fedwise.training.metrics import measure_scores
from fedwise.training.model import Model, Vector
from fedwise.training.simulate import Config, simulate

Members = tuple[str, ...]

DATA = Path(__file__).parents[1].parent / "shared" / "data"
_PERSONS = "acs2024_person.parquet"
#: Tasks with states as clients: task, file, year.
STATES = {
    "income2018": ("income", "acs2018_income.parquet", 2018),
    "travel2024": ("travel_time", _PERSONS, 2024),
    "employment2024": ("employment", _PERSONS, 2024),
    "coverage2024": ("public_coverage", _PERSONS, 2024),
    "income2024": ("income", _PERSONS, 2024),
}
#: Pools with areas (PUMAs) as clients and race as sensitive attribute: state, rows, target.
AREAS = {
    "poverty_ny": ("NY", ("AGEP > 16", "POVPIP >= 0"), "POVPIP < 150"),
    "fulltime_fl": ("FL", ("17 < AGEP < 65",), "WKHP >= 35"),
}
_AREA_FEATURES = ("AGEP", "SCHL", "MAR", "DIS", "CIT", "SEX", "NATIVITY")
#: Least rows of an area that is a client.
_AREA_ROWS = 600
#: Pools on which the intervals were calibrated; the others check them.
CALIBRATED = ("income2018", "coverage2024", "poverty_ny")
#: Most rows of a client, as in the income file of 2018. Tables count the very rows that train: trained on a sample of
#: the rows counted, federations differ by that sample too, which no release knows of.
ROWS = 20_000
#: Held-out rows of all clients that the trained models are tested on.
TESTED = 100_000


def settings(name: str) -> fw.Training:
    """How the federations of a pool are trained; the tables are those of the training rows, so none are held out."""
    return fw.Training(rounds=20, lr=1e-3 if name in AREAS else 3e-4, test=0.0, replicates=0)


@dataclass(frozen=True, eq=False)
class Real:
    """A pool's records: exact tables of the training rows, joint ones, and rows to train and test on."""

    name: str
    schema: Schema
    clients: tuple[str, ...]
    exact: np.ndarray
    prepared: Prepared

    def pool(self, epsilon: float, seed: int, *, joint: bool = False) -> Pool:
        """Releases with simulated noise under the default plan, or under one that asks for joint tables."""
        made, folding = (
            plan(self.schema, epsilon, joint=joint),
            plan(self.schema, math.inf, joint=True).folding,
        )
        assert folding is not None
        rows = [
            no_noise(Tables(made.layout, exact))
            if math.isinf(epsilon)
            else add_simulated_noise(
                Tables(made.layout, exact), made.sigmas, np.random.default_rng([seed, i, 0xD0])
            )
            for i, exact in enumerate(self.exact if joint else folding.cells(self.exact))
        ]
        matrix = np.stack([np.asarray(row) for row in rows])
        return Pool.folded(self.clients, made, matrix, simulated=made.private)

    @property
    def label_rates(self) -> dict[str, float]:
        """Share of positives among each client's training rows."""
        return {client: float(rows.y.mean()) for client, rows in self.prepared.train.items()}


def load(name: str, *, cap: int | None = ROWS, sample: int | None = None, tested: int = TESTED) -> Real:
    """Read a pool. Each client keeps at most `cap` rows, for tables, training and tests together.

    With `sample` clients train on at most so many of the rows that their tables count, and `tested` rows of all clients
    test the models.
    """
    frames, schema = records(name)
    if cap is not None:
        frames = {client: f.sample(min(cap, f.height), seed=1) for client, f in frames.items()}
    train, _ = split_all(frames, 0.2, seed=0)
    asked = plan(schema, math.inf, joint=True)
    exact = np.stack([count(asked.schema.encode(rows), asked.layout).exact for rows in train.values()])
    prepared = prepare(frames, schema, test=0.2, seed=0)
    held = sum(map(len, prepared.test.values()))
    share = min(1.0, tested / held)
    train_rows = prepared.train
    if sample is not None:
        train_rows = {
            client: _part(rows, min(sample, len(rows)), client) for client, rows in train_rows.items()
        }
    thin = Prepared(
        prepared.encoder,
        train_rows,
        {client: _part(rows, round(len(rows) * share), client) for client, rows in prepared.test.items()},
    )
    return Real(name, schema, tuple(train), exact, thin)


def federations(clients: Sequence[str], size: int, number: int, seed: int = 0) -> list[tuple[str, ...]]:
    """Distinct random federations."""
    rng = np.random.default_rng([seed, size, 0xFED])
    found: dict[tuple[str, ...], None] = {}
    while len(found) < min(number, math.comb(len(clients), size)):
        places = np.sort(rng.choice(len(clients), size, replace=False))
        found[tuple(clients[i] for i in places)] = None
    return list(found)


def config_of(training: fw.Training, seed: int = 0) -> Config:
    """A training of this seed that is tested once, at its end."""
    return msgspec.structs.replace(training.config(), seed=seed, replicates=0, evaluate_every=training.rounds)


def scorer(prepared: Prepared, members: Sequence[str], config: Config) -> Callable[[Rows], Vector]:
    """Train a federation: what then gives its model's scores of any rows."""
    model = Model.named(config.model, prepared.encoder.width, prepared.encoder.task)
    done = simulate(prepared, members, config, model=model)
    return lambda rows: predict(model, done.parameters, rows, engine=config.engine)


def measured(scores: Vector, rows: Rows, encoder: Encoder) -> dict[str, float]:
    """Every metric of scores of rows, by full name."""
    return measure_scores(scores, rows.y, dict(zip(encoder.attributes, rows.groups, strict=True)))


def train(real: Real, members: Sequence[str], seed: int) -> dict[str, float]:
    """Metrics of a federation trained on its rows, by full name, on the held-out rows of all clients."""
    scores = scorer(real.prepared, members, config_of(settings(real.name), seed))
    held = real.prepared.held_out
    return measured(scores(held), held, real.prepared.encoder)


class Trained:
    """Metrics of trained federations by seed, kept in a file as each ends: a run that was stopped goes on."""

    def __init__(self, path: Path, train: Callable[[Members, int], dict[str, float]]) -> None:
        self.path, self._train = path, train
        self._lock = threading.Lock()
        self._known: dict[tuple[Members, int], dict[str, float]] = {}
        if path.exists():
            for line in map(json.loads, path.read_text().splitlines()):
                self._known[tuple(line["clients"]), line["seed"]] = line["metrics"]

    @classmethod
    def of(cls, real: Real, folder: Path) -> Trained:
        """Federations of a pool, trained on their rows."""
        return cls(folder / f"{real.name}.trained.jsonl", partial(train, real))

    def __call__(self, members: Members, seed: int = 0) -> dict[str, float]:
        """Metrics of one training."""
        members = tuple(sorted(members))
        if (members, seed) not in self._known:
            found = self._train(members, seed)
            line = json.dumps({"clients": members, "seed": seed, "metrics": found}) + "\n"
            with self._lock, self.path.open("a") as file:
                file.write(line)
                self._known[members, seed] = found
        return self._known[members, seed]


def _part(rows: object, size: int, client: str) -> object:
    index = np.random.default_rng([len(client), *client.encode()]).permutation(len(rows))[:size]  # type: ignore[arg-type]
    return rows.take(np.sort(index))  # type: ignore[attr-defined]


def records(name: str) -> tuple[dict[str, pl.DataFrame], Schema]:
    """Records of each client of a pool, and its schema."""
    return _areas(*AREAS[name]) if name in AREAS else states(name)


def states(name: str) -> tuple[dict[str, pl.DataFrame], Schema]:
    """Records of each state of a task, and its schema."""
    task, file, year = STATES[name]
    loaded = acs.read(task, DATA / file, features="paper", year=year)
    return loaded.clients, loaded.schema


def _areas(state: str, where: tuple[str, ...], target: str) -> tuple[dict[str, pl.DataFrame], Schema]:
    schema = Schema(
        name="areas",
        columns=(
            *(pums.column(name, role=Role.FEATURE) for name in _AREA_FEATURES),
            Column(name="WHITE", role=Role.SENSITIVE, rule="RAC1P == 1"),
            Column(name="LABEL", role=Role.TARGET, rule=target),
        ),
        where=where,
    )
    source = target.split()[0]
    rows = pl.scan_parquet(DATA / _PERSONS).filter(pl.col("ST").cast(pl.String) == state)
    frame = (
        rows.select("PUMA", *dict.fromkeys((*_AREA_FEATURES, "RAC1P", source)))
        .with_columns(pl.col(source).fill_null(-1))
        .collect()
    )
    parts = frame.partition_by("PUMA", as_dict=True, include_key=False)
    clients = {f"{state}-{int(key[0]):05d}": schema.select_rows(part) for key, part in sorted(parts.items())}
    return {name: part for name, part in clients.items() if part.height >= _AREA_ROWS}, schema
