"""Network: a Bayesian network over integer codes, shared by all states and tilted for each of them.

    P_s(x | parents) ∝ P(x | parents) · Π_m exp(t_s,m(x, m))

P is one table pooled over all states; the tilts t of state s act on three-way margins only: (label, SEX, x)
and, for each further parent p, (label, p, x) and (SEX, p, x). A state is thereby described by
low-order aggregate statistics, never by a table fine enough to show single records.

Numbers are stored in eight bits: pooled probabilities as 255 + 16·log2 P (0 is "never"), tilts in steps
of 1/20 in the logarithm.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import DataError
from ..machine_code import compiled

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int16]

POOL_STEP = 16.0
TILT_STEP = 1 / 20
FORMAT = "fedwise-network-1"


@dataclass(frozen=True)
class Family:
    """One feature and what it depends on.

    Parameters
    ----------
    name
        The feature.
    parents
        Its further parents beside the label and SEX: features drawn before it.
    shape
        Sizes of (label, SEX, *parents, feature).
    pool
        Pooled conditional table, quantised. Shape `shape`, uint8.
    tilts
        Quantised tilts, a row for each state: the margins of `margins` one after the other, int8.
    """

    name: str
    parents: tuple[str, ...]
    shape: tuple[int, ...]
    pool: npt.NDArray[np.uint8]
    tilts: npt.NDArray[np.int8]

    def table(self, state: int) -> Floats:
        """P_s(x | parents) of one state. Shape (parent configurations, levels of the feature)."""
        logarithm = (self.pool.astype(np.float64) - 255.0) * (math.log(2) / POOL_STEP)
        logarithm[self.pool == 0] = -np.inf
        start = 0
        for margin in margins(len(self.shape)):
            kept = margin_shape(self.shape, margin)
            stop = start + math.prod(kept)
            logarithm += self.tilts[state, start:stop].reshape(kept) * TILT_STEP
            start = stop
        table = np.exp(logarithm).reshape(-1, self.shape[-1])
        total: Floats = table.sum(axis=1, keepdims=True)
        return table / total


@dataclass(frozen=True)
class Values:
    """Original codes within the bins of a binned feature.

    `codes` in increasing order, `bins` the bin of each, `weights` how often each occurs given
    (label, SEX): shape (4, codes), pooled over states.
    """

    codes: npt.NDArray[np.int16]
    bins: npt.NDArray[np.uint8]
    weights: npt.NDArray[np.uint16]

    def draw(self, bins: Codes, group: Codes, uniform: Floats) -> npt.NDArray[np.int16]:
        """An original code inside each bin, by inverting the distribution within bin and group."""
        cumulative = np.cumsum(self.weights, axis=1, dtype=np.float64)
        first = np.searchsorted(self.bins, np.arange(int(self.bins.max()) + 2))
        padded = np.hstack([np.zeros((4, 1)), cumulative])
        low, high = padded[:, first[:-1]], padded[:, first[1:]]
        at = low[group, bins] + uniform * (high - low)[group, bins]
        # One ascending line for all four groups, so that a single search finds the code.
        step = cumulative[:, -1].max() + 1.0
        line = (cumulative + step * np.arange(4)[:, None]).ravel()
        found = np.searchsorted(line, at + step * group, side="right") - group.astype(np.int64) * len(
            self.codes
        )
        # Rounding must not carry a draw over the edge of its bin.
        found = np.clip(found, first[:-1][bins], first[1:][bins] - 1)
        drawn: npt.NDArray[np.int16] = self.codes[found]
        return drawn


@dataclass(frozen=True)
class Network:
    """Everything the generator knows: aggregate statistics only.

    `states` and `rows` name the states and their natural sizes; `groups` is the share of each
    (label, SEX) in each state; `home` the share of people born in their own state among all born in a state.
    """

    states: tuple[str, ...]
    rows: tuple[int, ...]
    groups: npt.NDArray[np.uint16]
    families: tuple[Family, ...]
    values: dict[str, Values]
    home: npt.NDArray[np.uint8]

    def draw(self, state: int, rows: int, generator: np.random.Generator) -> dict[str, Codes]:
        """Draw `rows` records of bin codes: ``label``, ``SEX`` and every family's feature."""
        share = self.groups[state].astype(np.float64)[None, :]
        drawn: dict[str, Codes] = {}
        group = _draw(
            np.zeros(rows, np.int64), np.cumsum(share / share.sum(), axis=1), generator.random(rows)
        )
        drawn["label"], drawn["SEX"] = group // 2, group % 2
        for family in self.families:
            at = group.astype(np.int64)
            for parent, size in zip(family.parents, family.shape[2:-1], strict=True):
                at = at * size + drawn[parent]
            cumulative = np.cumsum(family.table(state), axis=1)
            drawn[family.name] = _draw(at, cumulative, generator.random(rows))
        return drawn

    def dump(self) -> bytes:
        """The network as an .npz archive (no pickles). Equal networks give equal bytes."""
        meta = {
            "format": FORMAT,
            "states": self.states,
            "rows": self.rows,
            "families": [{"name": f.name, "parents": f.parents, "shape": f.shape} for f in self.families],
            "values": list(self.values),
        }
        arrays: dict[str, Any] = {
            "meta": np.frombuffer(msgspec.json.encode(meta), dtype=np.uint8),
            "groups": self.groups,
            "home": self.home,
        }
        for family in self.families:
            arrays[f"pool_{family.name}"] = family.pool
            arrays[f"tilts_{family.name}"] = family.tilts
        for name, values in self.values.items():
            arrays[f"codes_{name}"] = values.codes
            arrays[f"bins_{name}"] = values.bins
            arrays[f"weights_{name}"] = values.weights
        file = io.BytesIO()
        np.savez_compressed(file, **arrays)
        return file.getvalue()

    @classmethod
    def parse(cls, data: bytes) -> Network:
        """Read what `dump` wrote."""
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            meta = msgspec.json.decode(archive["meta"].tobytes())
            if meta.get("format") != FORMAT:
                raise DataError(f"network must have format {FORMAT}, got {meta.get('format')}; refit it")
            families = tuple(
                Family(
                    name=entry["name"],
                    parents=tuple(entry["parents"]),
                    shape=tuple(entry["shape"]),
                    pool=archive[f"pool_{entry['name']}"],
                    tilts=archive[f"tilts_{entry['name']}"],
                )
                for entry in meta["families"]
            )
            values = {
                name: Values(archive[f"codes_{name}"], archive[f"bins_{name}"], archive[f"weights_{name}"])
                for name in meta["values"]
            }
            return cls(
                states=tuple(meta["states"]),
                rows=tuple(meta["rows"]),
                groups=archive["groups"],
                families=families,
                values=values,
                home=archive["home"],
            )


def margins(axes: int) -> list[tuple[int, int, int]]:
    """Axes of the tilted margins of a family table with `axes` axes: (label, SEX, x), (label, p, x), …"""
    last = axes - 1
    return [(0, 1, last)] + [(group, parent, last) for parent in range(2, last) for group in (0, 1)]


def margin_shape(shape: tuple[int, ...], margin: tuple[int, ...]) -> tuple[int, ...]:
    """`shape` with 1 on every axis outside the margin, ready to broadcast."""
    return tuple(size if axis in margin else 1 for axis, size in enumerate(shape))


def quantise_pool(table: Floats) -> npt.NDArray[np.uint8]:
    """Probabilities as bytes; anything below 2^-15.9 becomes "never"."""
    with np.errstate(divide="ignore"):
        levels = np.round(255.0 + POOL_STEP * np.log2(table))
    return np.clip(levels, 0, 255).astype(np.uint8)


def quantise_tilts(logarithm: Floats) -> npt.NDArray[np.int8]:
    """Log ratios as signed bytes, at most 6.35 either way."""
    return np.clip(np.round(logarithm / TILT_STEP), -127, 127).astype(np.int8)


@compiled()
def _draw(
    at: npt.NDArray[np.int64], cumulative: npt.NDArray[np.float64], uniform: npt.NDArray[np.float64]
) -> npt.NDArray[np.int16]:
    """Level of each row: the first whose cumulative probability in line `at` exceeds the uniform draw."""
    out = np.empty(at.shape[0], np.int16)
    levels = cumulative.shape[1]
    for r in range(at.shape[0]):
        line = cumulative[at[r]]
        # Scaled by the last entry: rounding there must not select a level of probability zero.
        u = uniform[r] * line[levels - 1]
        j = 0
        while j < levels - 1 and u >= line[j]:
            j += 1
        out[r] = j
    return out
