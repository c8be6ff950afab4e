"""Comparisons: chosen federations against random ones and against models of all clients, from the trained evidence.

``docs/results/evidence.parquet`` has a row for every trained model: task, split, k, model, kind (how its clients were
chosen), draw of the noise, federation, and metrics on the held-out rows of *all* clients; ``evidence_federations.csv``
has the members of each federation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl
from intervals import Floats, Interval, gap
from ranks import Rank, holm, rank
from results import Results

TITLES = {
    "income2018": "Income 2018",
    "income2024": "Income 2024",
    "employment2024": "Employment 2024",
    "coverage2024": "PublicCoverage 2024",
    "travel2024": "TravelTime 2024",
    "mobility2024areas": "Mobility 2024, areas",
    "employment2018five": "Employment 2014–2018",
}
#: Registered in experiments/HELD_OUT.md before any number of theirs was seen.
HELD_OUT = ("mobility2024areas", "employment2018five")
KINDS = {
    "pfl": "least loss (PFL)",
    "pfl_exact": "least loss, exact tables",
    "forecast_balanced": "forecast: balanced accuracy",
    "forecast_auc": "forecast: AUC",
    "forecast_rate": "forecast: matched balanced accuracy",
    "forecast_fair": "forecast: matched balanced accuracy − EOD",
    "rehearsal": "rehearsal",
    "label_rate": "largest label rate",
    "label_rate_pool": "label rate nearest the pool's",
    "size": "most rows",
    "distance": "nearest the pool",
    "random": "random",
    "row_matched": "random, as many rows",
    "all": "all clients",
    "all_reweighed": "all clients, reweighed",
    "all_threshold_optimizer_tpr": "all clients, TPR equalised",
    "all_threshold_optimizer_eo": "all clients, odds equalised",
    "all_threshold_optimizer_dp": "all clients, rates equalised",
    **{f"all_shifted_{percent}": f"all clients, scores shifted {percent}%" for percent in (25, 50, 75, 100)},
    **{f"pfl_shifted_{percent}": f"least loss, scores shifted {percent}%" for percent in (25, 50, 75, 100)},
    "pfl_threshold_optimizer_tpr": "least loss, TPR equalised",
    "pfl_threshold_optimizer_eo": "least loss, odds equalised",
    "pfl_threshold_optimizer_dp": "least loss, rates equalised",
}
#: What needs no threshold, or one that makes predicted positives as many as real ones.
FREE = {
    "auc": "AUC",
    "loss": "log loss",
    "balanced_accuracy@rate": "balanced accuracy",
    "eod@rate": "EOD",
    "spd@rate": "SPD",
}
#: Random federations that make five comparisons testable: 5 · 2/(1 + n) ≤ .05.
ENOUGH = 199


@dataclass(frozen=True)
class Comparison:
    """Chosen against random federations by one metric of one task."""

    task: str
    metric: str
    value: float
    random: float
    rank: Rank
    splits: int
    draws: int
    #: The difference, with its interval; drawn when it is asked for.
    make: Callable[[], Interval] = field(repr=False)

    @cached_property
    def interval(self) -> Interval:
        """Chosen minus random, over splits, draws and clients."""
        return self.make()


@dataclass(frozen=True)
class Evidence:
    """The trained evidence of one model at one size."""

    table: pl.DataFrame
    model: str
    k: int
    #: Columns ``task, federation, members``; without it, federations are resampled and not clients.
    federations: pl.DataFrame | None = None
    _grids: dict[tuple[str, str, str], tuple[list[int], list[str], Floats]] = field(
        default_factory=dict, repr=False, compare=False
    )
    _kinds: dict[str, pl.DataFrame] = field(default_factory=dict, repr=False, compare=False)
    _tasks: dict[tuple[str, str], pl.DataFrame] = field(default_factory=dict, repr=False, compare=False)
    _members: dict[tuple[str, str], npt.NDArray[np.bool_] | None] = field(
        default_factory=dict, repr=False, compare=False
    )

    @cached_property
    def tasks(self) -> list[str]:
        """Tasks with random federations, in the order of the titles."""
        there = set(self.of_kind("random")["task"])
        return [task for task in TITLES if task in there] + sorted(there - set(TITLES))

    def design(self) -> list[str]:
        """Tasks that were used to design the product."""
        return [task for task in self.tasks if task not in HELD_OUT]

    def held_out(self) -> list[str]:
        """Tasks that were not."""
        return [task for task in self.tasks if task in HELD_OUT]

    def of_kind(self, kind: str) -> pl.DataFrame:
        """Rows of one kind; models of all clients have a size of their own."""
        if kind not in self._kinds:
            here = self.table.filter((pl.col("model") == self.model) & (pl.col("kind") == kind))
            self._kinds[kind] = here if kind.startswith("all") else here.filter(pl.col("k") == self.k)
        return self._kinds[kind]

    def _of_task(self, task: str, kind: str) -> pl.DataFrame:
        if (task, kind) not in self._tasks:
            self._tasks[task, kind] = self.of_kind(kind).filter(pl.col("task") == task)
        return self._tasks[task, kind]

    def grid(self, task: str, kind: str, metric: str) -> tuple[list[int], list[str], Floats]:
        """Splits, columns (draws or federations) and values of one kind, where every column has every split.

        Random federations are columns by their name, chosen ones by the draw of the noise that chose them.
        """
        key = (task, kind, metric)
        if key not in self._grids:
            self._grids[key] = self._grid(*key)
        return self._grids[key]

    def _grid(self, task: str, kind: str, metric: str) -> tuple[list[int], list[str], Floats]:
        by = "federation" if kind in ("random", "row_matched") else "draw"
        here = self._of_task(task, kind).filter(pl.col(metric).is_not_null())
        if here.is_empty():
            return [], [], np.empty((0, 0))
        counts = here.group_by("split").len().sort("split")
        full = counts.filter(pl.col("len") == pl.col("len").max())["split"].to_list()
        wide = (
            here.filter(pl.col("split").is_in(full)).group_by("split", by).agg(pl.col(metric).mean())
            .pivot("split", index=by, values=metric).drop_nulls().sort(by)
        )  # fmt: skip
        values = wide.select(str(split) for split in full).to_numpy().T.astype(np.float64)
        return full, [str(name) for name in wide[by].to_list()], values

    def paired(self, task: str, first: str, second: str, metric: str) -> tuple[Floats, Floats] | None:
        """Values of two kinds on the splits that both have."""
        splits, _, a = self.grid(task, first, metric)
        others, _, b = self.grid(task, second, metric)
        common = [split for split in splits if split in others]
        if not common or not a.size or not b.size:
            return None
        return a[[splits.index(s) for s in common]], b[[others.index(s) for s in common]]

    def compare(self, task: str, kind: str, metric: str, against: str = "random") -> Comparison | None:
        """A kind's mean over splits and draws, ranked among the random federations' means over the same splits."""
        pair = self.paired(task, kind, against, metric)
        if pair is None or pair[1].shape[1] < 2:
            return None
        chosen, others = pair
        means = others.mean(axis=0)
        return Comparison(
            task, metric, float(chosen.mean()), float(means.mean()), rank(float(chosen.mean()), means, metric),
            len(chosen), chosen.shape[1], lambda: gap(chosen, others, members=self.members(task, against)),
        )  # fmt: skip

    def members(self, task: str, kind: str) -> npt.NDArray[np.bool_] | None:
        """Which clients are in which random federation, in the order of `grid`."""
        if (task, kind) not in self._members:
            self._members[task, kind] = self._membership(task, kind)
        return self._members[task, kind]

    def _membership(self, task: str, kind: str) -> npt.NDArray[np.bool_] | None:
        if self.federations is None:
            return None
        here = self.federations.filter(pl.col("task") == task)
        known = dict(here.select("federation", "members").iter_rows())
        lists = [known[name].split() for name in self.grid(task, kind, "auc")[1]]
        clients = sorted({client for members in lists for client in members})
        return np.array([[client in members for client in clients] for members in lists])

    def claim(
        self, kind: str, metric: str, tasks: Sequence[str], against: str = "random"
    ) -> list[Comparison]:
        """The comparisons of a claim, one a task."""
        found = [self.compare(task, kind, metric, against) for task in tasks]
        return [one for one in found if one is not None]

    def minus(self, task: str, kind: str, other: str, metric: str) -> Interval | None:
        """One kind minus another, paired by split, with an interval over splits and draws."""
        pair = self.paired(task, kind, other, metric)
        return None if pair is None else gap(*pair)

    def mean(self, task: str, kind: str, metric: str) -> float | None:
        """Mean over splits and draws, or federations."""
        if metric not in self.table.columns:
            return None
        _, _, values = self.grid(task, kind, metric)
        return float(values.mean()) if values.size else None

    def random_count(self, task: str) -> int:
        """Random federations of a task."""
        return len(self.grid(task, "random", "auc")[1])

    def clients(self, task: str) -> int:
        """Clients of a task."""
        everyone = self.of_kind("all").filter(pl.col("task") == task)
        return int(everyone["k"].max()) if everyone.height else 0  # type: ignore[arg-type]


def load(results: Results, *, model: str | None = None) -> Evidence | None:
    """The evidence of a model at the size with most random federations.

    Without a name: the network where it has enough random federations on every task, else logistic regression.
    """
    table = results.tables.get("evidence")
    if table is None or table.is_empty():
        return None
    random = table.filter(pl.col("kind") == "random")
    if model is None:
        counts = random.group_by("model", "task").agg(pl.col("federation").n_unique())
        ready = {
            name: (part["task"].n_unique(), part["federation"].min() >= ENOUGH)  # type: ignore[operator]
            for (name,), part in counts.group_by("model")
        }
        most = max((tasks for tasks, _ in ready.values()), default=0)
        model = "mlp" if ready.get("mlp") == (most, True) else "logistic"
        model = model if model in ready else next(iter(ready), model)
    here = random.filter(pl.col("model") == model)
    if here.is_empty():
        return None
    sizes = here.group_by("k").len().sort("len", "k", descending=[True, False])
    return Evidence(table, model, int(sizes["k"][0]), results.tables.get("evidence_federations"))


def adjusted(found: Sequence[Comparison]) -> list[float]:
    """Holm's adjusted p-values of the comparisons of one claim."""
    return [float(p) for p in holm([one.rank.p for one in found])]
