"""Performance: what a rehearsed training came to, with intervals, and how it stands beside others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from scipy import special

from ..errors import FedwiseError, nearest
from ..files import decode, read_bytes, write_new
from ..notebook import html_table, plot
from ..objective.interval import UNKNOWN, interval
from ..objective.metric import parse
from .gap import gap_of
from .judging import GroupRates

FORMAT = "fedwise/rehearsal/1"
#: Metrics that sentences are about, where they were computed; gaps of every attribute are added.
HEADLINE = ("auc", "loss", "balanced_accuracy@rate", "eod@rate", "spd@rate")
#: The same for more than two classes, and for a number.
OTHER_HEADLINE = ("macro_auc", "macro_f1", "rmse", "mae", "loss", "eod", "spd", "error_gap")
#: What the intervals are.
INTERVAL = (
    "90% intervals: privacy noise, drawing, seeds, and what doubles lack (calibrated on three census pools)"
)


class Figure(msgspec.Struct, frozen=True):
    """A metric of a rehearsed training: what to expect of the real one, and a 90% interval for it.

    `spread` is the standard deviation over stages: privacy noise and drawing. Where the noise drowns the
    answer, `known` is false, and people read "not known at this epsilon" instead of the value.
    """

    metric: str
    value: float
    low: float
    high: float
    spread: float
    known: bool = True


class Performance(msgspec.Struct, frozen=True, kw_only=True):
    """One federation's rehearsal.

    Parameters
    ----------
    role
        ``federation`` (asked for), ``random``, ``all`` or ``alone``.
    clients
        Its members.
    stages
        In how many stages it was trained.
    values
        Metrics of each stage, by name.
    figures
        Metrics with intervals.
    curve
        Rounds tested, and the mean over stages of some metrics at each: ``{"round": […], "auc": […]}``.
    groups
        Rates of every group of every sensitive attribute, at ½ and at the rate-matched threshold, means over stages.
    """

    role: str
    clients: tuple[str, ...]
    stages: tuple[int, ...]
    values: dict[str, tuple[float, ...]]
    figures: tuple[Figure, ...] = ()
    curve: dict[str, tuple[float, ...]] = {}
    groups: tuple[GroupRates, ...] = ()

    def value(self, metric: str) -> float:
        """Expected value of a metric; a gap's attribute may be left out where there is only one."""
        return self.figure(metric).value

    def figure(self, metric: str) -> Figure:
        """A metric with its interval."""
        name = self.known(metric)
        return next(figure for figure in self.figures if figure.metric == name)

    def known(self, metric: str) -> str:
        """The full name under which a metric is kept, or an error with the nearest one."""
        if metric in self.values:
            return metric
        wanted = parse(metric)
        same = [n for n in self.values if parse(n)._replace(attribute="") == wanted]
        if same and not wanted.attribute:
            return same[0]
        raise FedwiseError(f"metric '{metric}' was not rehearsed{nearest(metric, tuple(self.values))}")


class Rehearsed(msgspec.Struct, frozen=True, kw_only=True):
    """All that `fedwise.rehearse` found.

    The first of `performances` is the federation asked for; others follow, then those it is compared with. Where
    doubles were `shortened` to fewer records than their clients have, levels are not those of the real training.
    """

    performances: tuple[Performance, ...]
    settings: dict[str, Any]
    label: str = ""
    epsilon: float | None = None
    seed: int = 0
    shortened: bool = False
    format: str = FORMAT

    @property
    def federation(self) -> Performance:
        """The federation asked for, the first of them."""
        return self.performances[0]

    def those(self, role: str) -> list[Performance]:
        """The performances in one role."""
        return [one for one in self.performances if one.role == role]

    def value(self, metric: str) -> float:
        """Expected value of a metric of the first federation."""
        return self.federation.value(metric)

    def comparison(self, metric: str) -> Comparison:
        """The first federation beside random ones of its size, stage by stage.

        The words about all headline metrics together are wrong with a chance of 10% at most.
        """
        level = 0.1 / max(len(self.headline()), 1)
        return compare(self.federation, self.those("random"), metric, level=level)

    def headline(self) -> list[str]:
        """Names of the metrics that sentences are about, gaps for every attribute."""
        names = list(self.federation.values)
        shown = HEADLINE if "auc" in names else OTHER_HEADLINE
        return [
            name for short in shown for name in names if parse(name)._replace(attribute="") == parse(short)
        ]  # fmt: skip

    def verdict(self) -> str:
        """One sentence: better, worse or not distinguishable from random federations, in which metric."""
        others = self.those("random")
        if not others:
            return "Nothing was rehearsed beside it, so nothing can be said about how it compares."
        found = [self.comparison(name) for name in self.headline()]
        parts = []
        for word in ("better", "worse", "not distinguishable"):
            those = [_phrase(c.metric) for c in found if c.word == word]
            if those:
                parts.append(f"{word} in {', '.join(those)}")
        sizes = sorted({len(one.clients) for one in others})
        size = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        many = "federations" if len(others) > 1 else "federation"
        short = (
            " Doubles were cut short, so levels are not those of the real training." if self.shortened else ""
        )
        return f"Rehearsed beside {len(others)} random {many} of {size}: {'; '.join(parts)}.{short}"

    def to_frame(self) -> pl.DataFrame:
        """A row for each federation and metric."""
        lines = [
            {
                "role": one.role, "clients": " ".join(one.clients), "metric": figure.metric, "value": figure.value,
                "low": figure.low, "high": figure.high, "spread": figure.spread, "known": figure.known,
                "stages": len(one.stages),
            }
            for one in self.performances
            for figure in one.figures
        ]  # fmt: skip
        return pl.DataFrame(lines)

    def groups_to_frame(self) -> pl.DataFrame:
        """A row for each federation, sensitive attribute, group and threshold."""
        return pl.DataFrame(
            [
                {"role": one.role, "clients": " ".join(one.clients), **msgspec.structs.asdict(group)}
                for one in self.performances
                for group in one.groups
            ]
        )

    def curves_to_frame(self) -> pl.DataFrame:
        """Learning curves: a row for each federation and round tested."""
        return pl.DataFrame(
            [
                {
                    "role": one.role,
                    "clients": " ".join(one.clients),
                    **dict(zip(one.curve, point, strict=True)),
                }
                for one in self.performances
                for point in zip(*one.curve.values(), strict=True)
            ]
        )

    def plot(self) -> Any:
        """The federation beside those it is compared with, as an `altair.Chart`."""
        return plot(self)

    def __repr__(self) -> str:
        return f"Rehearsed({', '.join(self.federation.clients)}; {len(self.performances)} federations)"

    def _repr_html_(self) -> str:
        rows = []
        for name in self.headline():
            figure = self.federation.figure(name)
            known = UNKNOWN if math.isnan(figure.value) else f"{figure.value:.4f}"
            rows.append((parse(name).label, known, f"{figure.low:.4f} to {figure.high:.4f}"))
        return html_table(rows, head=("metric", "expected", "interval"), title=self.verdict())

    def __str__(self) -> str:
        lines = [f"federation   {', '.join(self.federation.clients)}", f"values with {INTERVAL}"]
        for name in self.headline():
            figure = self.federation.figure(name)
            beside = self.comparison(name) if self.those("random") else None
            told = "" if beside is None else f"; random {beside.others:.4f}: {beside.word}"
            value = f"{figure.value:.4f}  ({figure.low:.4f} to {figure.high:.4f}){told}"
            lines.append(
                f"{parse(name).label:<32} {UNKNOWN if math.isnan(figure.value) or not figure.known else value}"
            )
        return "\n".join([*lines, self.verdict()])

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write it as JSON."""
        data = msgspec.json.format(msgspec.json.encode(self), indent=1)
        write_new(Path(path), data + b"\n", force=force)

    @classmethod
    def load(cls, path: str | Path) -> Rehearsed:
        """Read what `save` wrote."""
        path = Path(path)
        data = read_bytes(path, what="rehearsal file", error=FedwiseError)
        return decode(data, cls, what=f"rehearsal file '{path}'", error=FedwiseError)


def _phrase(metric: str) -> str:
    """A metric's label as part of a list, where a comma would divide it."""
    what, comma, threshold = parse(metric).label.partition(", ")
    return f"{what} ({threshold})" if comma else what


class Comparison(msgspec.Struct, frozen=True):
    """A federation beside others in one metric.

    Parameters
    ----------
    difference, error
        Its value minus the others' mean, and the standard error of that difference under noise and drawing. Part
        of it is the released noise, which no number of stages averages away.
    others
        Mean of the others.
    beaten
        Share of the others that it beats.
    word
        ``better``, ``worse`` or ``not distinguishable``: whether the difference is beyond the error at the level asked.
    """

    metric: str
    difference: float
    error: float
    others: float
    beaten: float
    word: str


def compare(
    one: Performance, others: Sequence[Performance], metric: str, *, level: float = 0.1
) -> Comparison:
    """A federation beside others, paired by stage: what a stage does to all of them cancels.

    `level` is the chance that equal federations are called different, by Student's t over the residuals.
    """
    if not others:
        raise FedwiseError("comparison needs at least one other federation; rehearse some")
    name = one.known(metric)
    mine = dict(zip(one.stages, one.values[name], strict=True))
    by_stage: dict[int, list[float]] = {}
    for other in others:
        for stage, value in zip(other.stages, other.values[name], strict=True):
            by_stage.setdefault(stage, []).append(value)
    gaps = np.array([mine[stage] - np.mean(values) for stage, values in by_stage.items() if stage in mine])
    means = np.array([np.mean(other.values[name]) for other in others])
    if not len(gaps) or np.isnan(gaps).any():
        return Comparison(name, math.nan, math.nan, float(np.mean(means)), math.nan, "not distinguishable")
    # The stages' own noise averages out over them; that of the release, about as large, does not.
    spread = paired_spread([one, *others], name)
    if math.isnan(spread):
        # A single stage of its own says nothing of the spread; several of the others do.
        spread = paired_spread(others, name)
    error = spread * math.sqrt((1 + 1 / len(others)) * (1 + 1 / len(gaps)))
    difference = float(gaps.mean())
    sign = 1.0 if parse(name).larger_is_better else -1.0
    mean = float(np.mean(one.values[name]))
    beaten = float(np.mean(sign * (mean - means) > 0) + np.mean(mean == means) / 2)
    freedom = max(len(others) * (len(gaps) - 1), 1)
    # Never clear where the error is not known.
    clear = abs(difference) > float(special.stdtrit(freedom, 1 - level / 2)) * error
    word = "not distinguishable" if not clear else "better" if sign * difference > 0 else "worse"
    return Comparison(name, difference, error, float(means.mean()), beaten, word)


def paired_spread(performances: Sequence[Performance], metric: str) -> float:
    """Standard deviation of one training within its stage, what the stage does to all federations taken out.

    Residuals of a table of federations by stages after both means; NaN for fewer than two of either. Few stages make a
    poor estimate of one federation's spread, so it is that of all together.
    """
    shared = sorted(set.intersection(*(set(one.stages) for one in performances)))
    table = np.array([[one.values[metric][one.stages.index(s)] for s in shared] for one in performances])
    freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
    if freedom < 1:
        return math.nan
    rest = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    return math.sqrt(float((rest**2).sum()) / freedom)


def pooled_spread(performances: Iterable[Performance], metric: str) -> float:
    """Standard deviation over stages within a federation, from all that were trained in more than one."""
    squares, freedom = 0.0, 0
    for one in performances:
        values = np.asarray(one.values.get(metric, ()))
        if len(values) > 1:
            squares += float(((values - values.mean()) ** 2).sum())
            freedom += len(values) - 1
    return math.sqrt(squares / freedom) if freedom else math.nan


def with_figures(performances: Sequence[Performance]) -> tuple[Performance, ...]:
    """The performances with expected values and 90% intervals for the trained model.

    The interval holds the error of the mean over stages, the released noise that all stages share, the spread of one
    more training, and the gap between real rows and doubles: √(s²/n + 2s² + g²). Without a spread there is none.
    """
    names = list(dict.fromkeys(name for one in performances for name in one.values))
    spreads = {name: pooled_spread(performances, name) for name in names}
    out = []
    for one in performances:
        figures = []
        for name, values in one.values.items():
            spread, mean = spreads[name], float(np.mean(values))
            found = interval(name, mean, noise=spread**2 * (2 + 1 / len(values)), gap=gap_of(name))
            figures.append(Figure(name, mean, found.low, found.high, spread, found.known))
        out.append(msgspec.structs.replace(one, figures=tuple(figures)))
    return tuple(out)
