"""Synthetic: artificial ACS-like clients that ship inside the package. No record here is a person.

Fifty states with natural sizes and the ten ACSIncome columns in original PUMS codes plus the label
``PINCP_gt50k``, so that the shipped schema ``income`` encodes them directly. Rows are drawn from a Bayesian
network (`fedwise.data.network`) whose structure all states share, with the label and SEX among the parents of
every feature. It was learnt by ``tools/fit_synthetic.py`` from aggregate statistics of the public 2018
census microdata and reproduces the mutual information between pairs of columns, state by state.

It is for demonstrations, tests and benchmarks. No privacy is claimed for the network: it is derived
without noise from public-domain records, and conclusions about real people must not be drawn from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import resources

import numpy as np
import polars as pl

from ..errors import DataError
from ..schema.schema import Schema
from . import schema as shipped_schema
from . import states as places
from .network import Network

#: Said wherever synthetic rows are shown or written.
NOTICE = (
    "SYNTHETIC data: artificial records drawn from a model of public 2018 ACS aggregates; "
    "no row describes a person"
)
#: Metadata of every Parquet file with synthetic rows.
METADATA = {"fedwise.synthetic": "true", "fedwise.notice": NOTICE}
COLUMNS = ("AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P", "PINCP_gt50k")
LABEL = "PINCP_gt50k"
_RESOURCE = "income2018.npz"


def schema() -> Schema:
    """The schema of the synthetic rows: the shipped ``income``."""
    return shipped_schema("income")


def sizes(scale: float = 1.0) -> dict[str, int]:
    """Rows of each synthetic state: the size of its ACSIncome 2018 sample times `scale`, at least 1."""
    if not 0 < scale <= 100:
        raise DataError(f"scale must be above 0 and at most 100, got {scale}")
    model = _network()
    return {name: max(1, round(rows * scale)) for name, rows in zip(model.states, model.rows, strict=True)}


def state(name: str, *, rows: int | None = None, seed: int = 0) -> pl.DataFrame:
    """Synthetic records of one state.

    Parameters
    ----------
    name
        USPS code, FIPS code or name of one of the 50 states.
    rows
        How many; default: the state's natural size.
    seed
        Equal seeds give equal rows; states draw from streams of their own.

    Raises
    ------
    DataError
        Unknown state, fewer than one row, or a negative seed.
    """
    model = _network()
    place = places.find(name)
    if place.usps not in model.states:
        raise DataError(f"state must be one of the 50 states, got '{place.name}'; DC and PR are not modelled")
    at = model.states.index(place.usps)
    rows = model.rows[at] if rows is None else rows
    if rows < 1:
        raise DataError(f"rows must be at least 1, got {rows}")
    if seed < 0:
        raise DataError(f"seed must be at least 0, got {seed}")
    generator = np.random.default_rng([seed, place.fips])
    drawn = model.draw(at, rows, generator)
    group = drawn["label"] * 2 + drawn["SEX"]
    columns: dict[str, np.ndarray[tuple[int], np.dtype[np.int16]]] = {}
    for name_ in COLUMNS:
        if name_ == LABEL:
            columns[name_] = drawn["label"]
        elif name_ in model.values:
            columns[name_] = model.values[name_].draw(drawn[name_], group, generator.random(rows))
        else:
            levels = _levels(name_)
            columns[name_] = levels[drawn[name_]]
    # Born in a state of the US: mostly in this one.
    born_here = (drawn["POBP"] == 0) & (generator.random(rows) < model.home[at] / 255)
    columns["POBP"] = np.where(born_here, np.int16(place.fips), columns["POBP"])
    return pl.DataFrame(columns)


def states(
    *, seed: int = 0, scale: float = 1.0, names: Iterable[str] | None = None
) -> dict[str, pl.DataFrame]:
    """Synthetic records of many states, by USPS code in alphabetical order.

    Parameters
    ----------
    seed
        As in `state`: ``states(seed=3)["CA"]`` equals ``state("CA", seed=3)``.
    scale
        Factor on the natural sizes. At 1.0 the 50 states hold 1.65 million rows together.
    names
        The states wanted; default: all 50.
    """
    rows = sizes(scale)
    wanted = sorted(rows) if names is None else sorted({places.find(name).usps for name in names})
    return {name: state(name, rows=rows.get(name), seed=seed) for name in wanted}


@cache
def _network() -> Network:
    return Network.parse((resources.files(__package__) / _RESOURCE).read_bytes())


@cache
def _levels(name: str) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    levels = schema().column(name).levels
    assert levels is not None
    return np.array([int(level) for level in levels], dtype=np.int16)
