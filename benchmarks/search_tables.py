"""Exact estimates of census clients for the search benchmark: the paper's ACSIncome tables.

Public data, so exact counts may be used here; a real coordinator only ever sees releases.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedwise.estimation.estimates import Estimates
from fedwise.owner.tables import count
from fedwise.schema.layout import Layout
from fedwise.schema.schema import Column, Role, Schema

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def _feature(name: str, **domain: Any) -> Column:
    return Column(name, Role.FEATURE, **domain)


#: The discretisation of the paper's code.
INCOME = Schema(
    name="acs-income",
    columns=(
        _feature("AGEP", bins=(0, 18, 30, 45, 65, 100)),
        _feature("COW", levels=tuple(range(1, 10))),
        _feature("SCHL", bins=(0, 16, 17, 21, 22, 23, 25)),
        _feature("MAR", levels=(1, 2, 3, 4, 5)),
        _feature("OCCP", bins=tuple(float(x) for x in range(0, 10001, 1000))),
        _feature("POBP", bins=(0, 60, 100, 200, 300, 310, 400, 500, 555)),
        _feature("RELP", levels=tuple(range(18))),
        _feature("WKHP", bins=(-1, 0, 10, 20, 30, 39, 41, 50, 100)),
        _feature("RAC1P", levels=tuple(range(1, 10))),
        Column("SEX", Role.SENSITIVE, levels=(1, 2)),
        Column("label", Role.TARGET, rule="PINCP_gt50k > 0"),
    ),
)

#: Tables of the 2024 person file: no RELP and POBP there; the label is near 2018's positive rate.
PERSON_2024 = Schema(
    name="acs-2024",
    where=("AGEP > 16", "PINCP > 100", "WKHP > 0"),
    columns=(
        *(c for c in INCOME.columns if c.name not in ("RELP", "POBP", "label")),
        _feature("CIT", levels=(1, 2, 3, 4, 5)),
        _feature("JWMNP", bins=(-1, 0, 10, 20, 30, 45, 60, 90, 200), missing="other"),
        Column("label", Role.TARGET, rule="PINCP > 70000"),
    ),
)


def all_pairs(schema: Schema) -> Layout:
    """Every pair of variables, as the paper asks."""
    return Layout.of(schema, tuple(itertools.combinations(schema.names, 2)))


def exact_estimates(schema: Schema, parts: dict[str, pl.DataFrame], *, plain: bool = False) -> Estimates:
    """Estimates without noise of named row sets."""
    layout = all_pairs(schema)
    names = tuple(sorted(parts))
    cells = np.zeros((len(names), layout.cells))
    marginals = np.zeros((len(names), layout.levels))
    totals = np.zeros(len(names))
    for i, name in enumerate(names):
        codes = schema.encode(parts[name])
        cells[i] = count(codes, layout).exact
        marginals[i] = np.concatenate(
            [np.bincount(codes[v], minlength=size) for v, size in enumerate(layout.sizes)]
        )
        totals[i] = codes.shape[1]
    return Estimates(
        names, schema, layout, cells, totals, marginals, "plain" if plain else "exact",
        np.zeros(layout.tables),
    )  # fmt: skip


def income_states(*, plain: bool = False) -> Estimates:
    """50 states of 2018."""
    frame = pl.read_parquet(DATA / "acs2018_income.parquet").with_columns(pl.col("PINCP_gt50k").cast(pl.Int8))
    parts = {f"{state[0]}": part for state, part in frame.group_by("ST")}
    return exact_estimates(INCOME, parts, plain=plain)


def pumas_2024() -> dict[str, pl.DataFrame]:
    """Rows of each PUMA of the 2024 file, by state and code."""
    frame = pl.read_parquet(DATA / "acs2024_person.parquet")
    return {f"{st}-{puma}": part for (st, puma), part in frame.group_by("ST", "PUMA")}


def wide_estimates(clients: int, *, features: int, levels: int, extra: int = 2, seed: int = 0) -> Estimates:
    """Synthetic clients of any width: products of random marginals with a random tilt, consistent."""
    rng = np.random.default_rng(seed)
    columns = [Column(f"N{i}", Role.FEATURE, levels=tuple(range(levels))) for i in range(features)]
    columns += [Column(f"M{i}", Role.FEATURE, levels=tuple(range(2))) for i in range(extra)]
    columns.append(Column("S", Role.SENSITIVE, levels=(0, 1)))
    columns.append(Column("T", Role.TARGET, levels=(0, 1)))
    schema = Schema(tuple(columns))
    layout = all_pairs(schema)
    totals = rng.integers(500, 20_000, clients).astype(np.float64)
    cells = np.zeros((clients, layout.cells))
    marginals = np.concatenate([rng.dirichlet(np.full(size, 3.0), clients) for size in layout.sizes], axis=1)
    marginals *= totals[:, None]
    # A doubly centred pattern, the same in every client, leaves the marginals as they are.
    strength = rng.uniform(0.0, 0.4, clients)
    for j, (a, b) in enumerate(layout.shapes):
        left, right = (marginals[:, side] for side in layout.sides(j))
        u, v = rng.normal(size=(1, a)), rng.normal(size=(1, b))
        u = u - (left * u).sum(axis=1, keepdims=True) / totals[:, None]
        v = v - (right * v).sum(axis=1, keepdims=True) / totals[:, None]
        tilt = strength / np.maximum(np.abs(u).max(axis=1) * np.abs(v).max(axis=1), 1e-9)
        table = left[:, :, None] * right[:, None, :] / totals[:, None, None]
        table *= 1.0 + tilt[:, None, None] * u[:, :, None] * v[:, None, :]
        cells[:, layout.slice(j)] = table.reshape(clients, -1)
    names = tuple(f"client-{i:05d}" for i in range(clients))
    return Estimates(names, schema, layout, cells, totals, marginals, "exact", np.zeros(layout.tables))
