"""Small pools with known truth for the tests of the estimates."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedwise.estimation.estimates import Estimates
from fedwise.estimation.shrinkage import shrink
from fedwise.owner.tables import count
from fedwise.schema.layout import Layout
from fedwise.schema.schema import Column, Role, Schema

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Truth:
    """Exact counts of clients that differ in size, in marginals and in how variables hang together."""

    schema: Schema
    layout: Layout
    codes: tuple[npt.NDArray[np.int16], ...]
    exact: npt.NDArray[np.int64]

    def noisy(self, sigmas: Floats, seed: int) -> Floats:
        """Counts with rounded normal noise."""
        noise = np.random.default_rng(seed).standard_normal(self.exact.shape)
        return np.rint(self.exact + noise * self.layout.per_cell(sigmas))

    def estimates(self, matrix: Floats, sigmas: Floats) -> Estimates:
        """Shrunk estimates of counts."""
        found = shrink(matrix, self.layout, sigmas)
        names = tuple(f"c{i}" for i in range(len(matrix)))
        return Estimates(
            names, self.schema, self.layout, found.cells, found.totals, found.marginals, "shrinkage",
            np.asarray(sigmas, dtype=np.float64), found.posterior,
        )  # fmt: skip

    def true_estimates(self) -> Estimates:
        """The truth in the form of estimates."""
        return self.estimates(self.exact.astype(np.float64), np.zeros(self.layout.tables))


def truth(clients: int = 12, *, rows: int = 4000, sizes: tuple[int, ...] = (4, 3, 5), seed: int = 0) -> Truth:
    """Clients drawn from a common law with their own shifts; the last level of the first feature is rare."""
    rng = np.random.default_rng(seed)
    columns = [Column(f"N{i}", Role.FEATURE, levels=tuple(range(s))) for i, s in enumerate(sizes)]
    columns += [Column("S", Role.SENSITIVE, levels=(0, 1)), Column("T", Role.TARGET, levels=(0, 1))]
    schema = Schema(tuple(columns))
    layout = Layout.of(schema, tuple(itertools.combinations(schema.names, 2)))
    pull = rng.normal(0.9, 0.4, len(schema.sizes))
    codes = []
    for _ in range(clients):
        n = int(rng.integers(rows // 4, rows))
        hidden = rng.normal(size=n)
        own = pull + rng.normal(0, 0.25, len(pull))
        shift = rng.normal(0, 0.3, len(pull))
        lines = [
            np.digitize(
                own[v] * hidden + shift[v] + rng.normal(size=n), np.linspace(-1.2, 1.8, size + 1)[1:-1]
            )
            for v, size in enumerate(schema.sizes)
        ]
        codes.append(np.stack(lines).astype(np.int16))
    return Truth(schema, layout, tuple(codes), np.stack([count(c, layout).exact for c in codes]))
