"""Spoilt: a task's clients as codes, some of them spoilt; their releases, and rows to train and to judge on.

Tables, training rows and held-out rows come from the same coded columns: what is wrong with a client's tables is also
wrong with what it trains on. Models see one-hot codes of all features and of the sensitive attribute.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parent))

import census
import quality as cards
from dirt import Codes, Severity, draw_dirty, spoil

from fedwise.owner.tables import count
from fedwise.planning import Plan, plan
from fedwise.pool.pool import Pool
from fedwise.schema.schema import Schema
from fedwise.training.encoding import Rows

Ints = npt.NDArray[np.int64]

#: Areas of large and of small states, about 1,500 records each.
AREAS = census.Source(
    "coverage2024areas", "ACSPublicCoverage 2024, areas", "public_coverage", "acs2024_person.parquet", 2024, None,
    ("NY", "NJ", "MA", "MI", "VA", "WA"),
)  # fmt: skip
#: Tasks of the benchmark.
TASKS = ("income2018", "income2024", "employment2024", "coverage2024", "travel2024")
#: Clean pools on which false alarms are counted. The first four chose the rates; the held-out two were never looked at.
CLEAN = (
    "income2018", "coverage2024", "employment2024", "synthetic",
    "income2024", "travel2024", "nearfull", "coverage2024areas", "mobility2024areas", "employment2018five",
)  # fmt: skip
TUNED = CLEAN[:4]
HELD_OUT = ("mobility2024areas", "employment2018five")
TITLES = {
    **{name: source.title.removeprefix("ACS") for name, source in census.SOURCES.items()},
    "nearfull": "Income 2018, natural sizes, with PR",
    "coverage2024areas": "PublicCoverage 2024, areas",
}
#: Share of every client's rows that no table and no training sees.
_TEST = 0.2


@dataclass(frozen=True, eq=False)
class World:
    """Coded records of every client: those it has, and those held out to judge models."""

    schema: Schema
    codes: Mapping[str, Codes]
    held_out: Mapping[str, Codes]

    @classmethod
    def read(cls, name: str, *, split: int = 0, whole: bool = False) -> World:
        """Read a task; `whole` holds nothing out."""
        if (name in census.SOURCES and census.SOURCES[name].areas) or name == AREAS.name:
            source = AREAS if name == AREAS.name else census.SOURCES[name]
            frames, schema, _ = census._read(source, census.RECORDS, None)
            codes = {client: schema.encode(frame) for client, frame in frames.items()}
        else:
            schema, codes = cards.read(name)
        if whole:
            return cls(schema, codes, {})
        train, held = {}, {}
        for i, (client, rows) in enumerate(codes.items()):
            order = np.random.default_rng([split, i, 0x57]).permutation(rows.shape[1])
            cut = round(_TEST * len(order))
            held[client], train[client] = rows[:, order[:cut]], rows[:, order[cut:]]
        return cls(schema, train, held)

    @property
    def clients(self) -> tuple[str, ...]:
        """Names."""
        return tuple(self.codes)

    @cached_property
    def exact(self) -> dict[str, Ints]:
        """Exact tables of every client; the layout does not depend on ε."""
        layout = plan(self.schema, 1.0).layout
        return {client: count(rows, layout).exact for client, rows in self.codes.items()}

    def release(self, made: Plan, seed: int) -> Pool:
        """Releases with simulated noise."""
        return cards.pool_of(made, self.exact, seed)


@dataclass(frozen=True, eq=False)
class Case:
    """A world in which some clients are spoilt."""

    world: World
    dirty: tuple[str, ...]

    @classmethod
    def make(cls, clean: World, *, kind: str, severity: Severity, share: float, seed: int) -> Case:
        """Spoil a share of the clients; only their tables are counted again."""
        dirty = draw_dirty(clean.clients, share, seed)
        codes = spoil(clean.codes, dirty, clean.schema, kind=kind, severity=severity, seed=seed)
        made = replace(clean, codes=codes)
        layout = plan(clean.schema, 1.0).layout
        exact = {**clean.exact, **{client: count(codes[client], layout).exact for client in dirty}}
        made.__dict__["exact"] = {client: exact[client] for client in clean.clients}
        return cls(made, tuple(dirty))

    def is_dirty(self, members: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Which of the members are spoilt."""
        return np.isin(list(members), list(self.dirty))


def rows_of(codes: Codes, schema: Schema) -> Rows:
    """One-hot codes of features and sensitive attributes, as a model reads them."""
    inputs = [*schema.features, *schema.sensitive]
    offsets = np.cumsum([0, *(schema.sizes[v] for v in inputs)])
    hot = np.stack(
        [codes[v].astype(np.int32) + at for v, at in zip(inputs, offsets[:-1], strict=True)], axis=1
    )
    return Rows(
        int(offsets[-1]), np.ascontiguousarray(hot, dtype=np.int32), np.zeros((len(hot), 0), dtype=np.float32),
        np.zeros(0, dtype=np.int64), codes[schema.target].astype(np.float32),
        np.stack([codes[v] for v in schema.sensitive]),
    )  # fmt: skip


def thinned(codes: Mapping[str, Codes], mean: int, salt: int) -> dict[str, Codes]:
    """The same share of every client's rows, `mean` on average."""
    share = min(1.0, mean * len(codes) / sum(rows.shape[1] for rows in codes.values()))
    out = {}
    for i, (client, rows) in enumerate(codes.items()):
        size = max(1, round(share * rows.shape[1]))
        kept = np.sort(np.random.default_rng([salt, i]).permutation(rows.shape[1])[:size])
        out[client] = rows[:, kept]
    return out
