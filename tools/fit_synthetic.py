"""Fit the network behind fedwise.data.synthetic from the census records, deterministically.

    python tools/fit_synthetic.py --source ../shared/data -o src/fedwise/data/income2018.npz

Prints the structure, the size of the file and how close synthetic states come to the real ones.
"""

from __future__ import annotations

import argparse
import itertools
import time
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl

from fedwise.data import schema
from fedwise.data.network import Family, Network, Values, margin_shape, margins, quantise_pool, quantise_tilts
from fedwise.data.states import BY_USPS, FIFTY
from fedwise.objective.pfl import information

LABEL, SEX = "PINCP_gt50k", "SEX"
BINNED = ("AGEP", "SCHL", "OCCP", "POBP", "WKHP")
#: Published sizes of the ACSIncome 2018 samples that the records at hand hold only in part.
PUBLISHED_ROWS = {"CA": 195_665, "FL": 98_925}

MAX_PARENTS = 4
MAX_CELLS = 20_000
STATE_PRIOR = 20.0  # pseudo-records of the pooled table in each state's margins
POOL_PRIOR = 20.0  # pseudo-records of the low-order model in each line of the pooled table
SWEEPS = 4  # of iterative proportional fitting
RARE = 20  # an original code seen fewer times in all the records is not generated


class Records:
    """Codes of all records with their states, and joint counts of any columns."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.schema = schema("income")
        self.names = self.schema.names
        self.size = dict(zip(self.names, self.schema.sizes, strict=True))
        codes = self.schema.encode(frame)
        assert codes.shape[1] == frame.height, "the filter of the schema must keep every record"
        self.code = dict(zip(self.names, codes.astype(np.int64), strict=True))
        self.state = np.searchsorted(np.array(FIFTY), frame["ST"].cast(pl.String).to_numpy().astype(str))
        self.rows = frame.height

    def count(self, names: tuple[str, ...], *, by_state: bool = False) -> np.ndarray:
        """Joint counts, with a leading axis over states if asked."""
        flat = self.state.copy() if by_state else np.zeros(self.rows, np.int64)
        shape = [len(FIFTY)] if by_state else []
        for name in names:
            flat = flat * self.size[name] + self.code[name]
            shape.append(self.size[name])
        return np.bincount(flat, minlength=int(np.prod(shape))).astype(float).reshape(shape)

    @cache  # noqa: B019 - one instance, which lives as long as the script
    def entropy(self, names: tuple[str, ...]) -> float:
        """Joint entropy of the pooled records in bits."""
        p = self.count(names).ravel() / self.rows
        p = p[p > 0]
        return float(-(p * np.log2(p)).sum())

    def gain(self, name: str, parents: tuple[str, ...]) -> float:
        """I(name; parents | label, SEX) less what chance alone would show (χ² mean)."""
        parents, group = tuple(sorted(parents)), (LABEL, SEX)
        free = 4 * (self.size[name] - 1) * (np.prod([self.size[p] for p in parents]) - 1)
        found = (
            self.entropy((name, *group))
            - self.entropy(group)
            - self.entropy((name, *group, *parents))
            + self.entropy((*group, *parents))
        )
        return found - free / (2 * self.rows * np.log(2))


def grow(records: Records, name: str, earlier: tuple[str, ...]) -> tuple[float, tuple[str, ...]]:
    """Add to `name` the parent that gains most, until none gains or the table is full."""
    parents: tuple[str, ...] = ()
    best = 0.0
    while len(parents) < MAX_PARENTS:
        options = []
        for parent in earlier:
            cells = 4 * records.size[name] * np.prod([records.size[p] for p in (*parents, parent)])
            if parent not in parents and cells <= MAX_CELLS:
                options.append((records.gain(name, (*parents, parent)), (*parents, parent)))
        if not options or max(options)[0] <= best:
            break
        best, parents = max(options)
    return best, parents


def structure(records: Records) -> list[tuple[str, tuple[str, ...]]]:
    """Greedy order and parents: from every possible first feature, keep the network that gains most."""
    features = [records.names[i] for i in records.schema.features]
    best: tuple[float, list[tuple[str, tuple[str, ...]]]] = (-1.0, [])
    for first in features:
        network: list[tuple[str, tuple[str, ...]]] = [(first, ())]
        total = 0.0
        while len(network) < len(features):
            drawn = tuple(name for name, _ in network)
            (gain, parents), name = max((grow(records, x, drawn), x) for x in features if x not in drawn)
            network.append((name, parents))
            total += gain
        best = max(best, (total, network), key=lambda item: item[0])
    return best[1]


def fit_family(records: Records, name: str, parents: tuple[str, ...]) -> Family:
    """Pooled table shrunk to its low-order model, and each state's tilts shrunk to the pooled table."""
    counts = records.count((LABEL, SEX, *parents, name), by_state=True)
    shape = counts.shape[1:]
    kept = margins(len(shape))
    others = [tuple(a for a in range(len(shape)) if a not in margin) for margin in kept]
    pool = counts.sum(axis=0)
    weight = pool.sum(axis=-1, keepdims=True)

    low = np.ones(shape) * (weight + 1e-6)
    for _ in range(10):
        for other in others:
            low *= (pool.sum(axis=other, keepdims=True) + 0.01) / low.sum(axis=other, keepdims=True)
    low /= low.sum(axis=-1, keepdims=True)
    # A level that no record has (hours below zero) is impossible, not rare.
    possible = pool.sum(axis=tuple(range(len(shape) - 1))) > 0
    pooled = np.where(possible, (pool + POOL_PRIOR * low) / (weight + POOL_PRIOR), 0.0)
    quantised = quantise_pool(pooled / pooled.sum(axis=-1, keepdims=True))
    line = np.where(quantised > 0, 2.0 ** ((quantised.astype(float) - 255) / 16), 0.0)
    line /= line.sum(axis=-1, keepdims=True)

    rows = []
    for count in counts:
        joint = (count.sum(axis=-1, keepdims=True) + 1e-3 * (weight + 1) / weight.sum()) * line
        targets = []
        for other in others:
            seen = count.sum(axis=other, keepdims=True)
            prior = joint.sum(axis=other, keepdims=True)
            size = prior.sum(axis=-1, keepdims=True)
            shrunk = (seen + STATE_PRIOR * prior / size) / (seen.sum(axis=-1, keepdims=True) + STATE_PRIOR)
            targets.append(shrunk * size)
        tilts = [np.zeros(margin_shape(shape, margin)) for margin in kept]
        for _ in range(SWEEPS):
            for j, other in enumerate(others):
                ratio = targets[j] / np.maximum(joint.sum(axis=other, keepdims=True), 1e-12)
                joint *= ratio
                tilts[j] += np.log(np.maximum(ratio, 1e-3))
        rows.append(np.concatenate([quantise_tilts(t).ravel() for t in tilts]))
    return Family(name, parents, shape, quantised, np.array(rows))


def fit_values(records: Records, frame: pl.DataFrame, name: str) -> Values:
    """Pooled distribution of the original codes inside each bin, given (label, SEX), smoothed."""
    raw = frame[name].to_numpy().astype(np.int64)
    seen = np.bincount(raw)
    codes = np.flatnonzero(seen >= RARE)
    bins = np.searchsorted(np.array(records.schema.column(name).bins), codes, side="right") - 1
    group = records.code[LABEL] * 2 + records.code[SEX]
    counts = np.array(
        [np.bincount(raw[group == g], minlength=len(seen))[codes] for g in range(4)], dtype=float
    )
    share = seen[codes] / records.rows
    weights = counts / counts.sum(axis=1, keepdims=True) * 0.98 + 0.02 * share
    scaled = np.maximum(1, np.round(65_535 * weights / weights.max())).astype(np.uint16)
    return Values(codes.astype(np.int16), bins.astype(np.uint8), scaled)


def natural_rows(source: Path) -> tuple[int, ...]:
    """Sizes of the states' ACSIncome 2018 samples."""
    lengths = dict(
        pl.scan_parquet(source / "acs2018_income_nearfull.parquet").group_by("ST").len().collect().rows()
    )
    return tuple(PUBLISHED_ROWS.get(name, lengths[name]) for name in FIFTY)


def fit(source: Path) -> tuple[Network, Records]:
    """Learn the whole network from ``acs2018_income.parquet``."""
    frame = pl.read_parquet(source / "acs2018_income.parquet")
    records = Records(frame)
    groups = records.count((LABEL, SEX), by_state=True).reshape(len(FIFTY), 4)
    families = []
    for name, parents in structure(records):
        print(f"{name:6s} <- label, SEX, {', '.join(parents)}")
        families.append(fit_family(records, name, parents))
    fips = np.array([BY_USPS[name].fips for name in FIFTY])
    born = frame["POBP"].to_numpy()
    native = np.bincount(records.state, weights=born == fips[records.state])
    home = native / np.bincount(records.state, weights=records.code["POBP"] == 0)
    # The pooled codes name this state now and then as well: only the rest is drawn on top.
    pooled = np.array([np.mean(born[records.code["POBP"] == 0] == code) for code in fips])
    home = np.clip((home - pooled) / (1 - pooled), 0, 1)
    network = Network(
        states=FIFTY,
        rows=natural_rows(source),
        groups=np.round(65_535 * groups / groups.max(axis=1, keepdims=True)).astype(np.uint16),
        families=tuple(families),
        values={name: fit_values(records, frame, name) for name in BINNED},
        home=np.round(255 * home).astype(np.uint8),
    )
    return network, records


def check(network: Network, records: Records, seed: int = 0) -> None:
    """Print the distance of mutual information between real states and synthetic ones of equal size."""
    names = [LABEL if name == "label" else name for name in records.names]
    pairs = list(itertools.combinations(names, 2))
    real, made = np.empty((2, len(FIFTY), len(pairs)))
    for s in range(len(FIFTY)):
        here = records.state == s
        drawn = network.draw(s, int(here.sum()), np.random.default_rng([seed, s]))
        drawn[LABEL] = drawn.pop("label")
        for j, (x, y) in enumerate(pairs):
            shape = (records.size[x], records.size[y])
            for target, codes in (
                (real, (records.code[x][here], records.code[y][here])),
                (made, (drawn[x], drawn[y])),
            ):
                flat = codes[0].astype(np.int64) * shape[1] + codes[1]
                table = np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape).astype(float)
                target[s, j] = information(table)
    direct = pairs.index((SEX, LABEL))
    signal = [j for j, (x, y) in enumerate(pairs) if y == LABEL and x != SEX]
    error = np.abs(made - real)
    print(f"mean absolute error of MI {error.mean():.5f} bits, largest {error.max():.3f}")
    print(
        f"correlation over states of I(SEX;label) {np.corrcoef(real[:, direct], made[:, direct])[0, 1]:.4f}"
    )
    means = real[:, signal].mean(axis=1), made[:, signal].mean(axis=1)
    print(f"correlation over states of mean I(N;label) {np.corrcoef(*means)[0, 1]:.4f}")


def main() -> None:
    """Fit, check, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", type=Path, required=True, help="directory with the census Parquet files")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the .npz file to write")
    options = parser.parse_args()
    start = time.perf_counter()
    network, records = fit(options.source)
    data = network.dump()
    options.output.write_bytes(data)
    print(f"{options.output}: {len(data):,} bytes, {time.perf_counter() - start:.1f} s")
    check(Network.parse(data), records)


if __name__ == "__main__":
    main()
