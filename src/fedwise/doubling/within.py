"""Within: where in its bin a number lies, read off the neighbouring bins.

A schema's bins say how many records lie between two edges, not where, nor how the rest of a record changes within one.
Spread evenly, the numbers of a double would jump at every edge, and a model that reads the number itself
(``model = "scaled"``) would learn worse from it than from real rows. So

- the density is the mean of an even one and that of the cumulative distribution interpolated smoothly between the
  edges (monotone cubic); in the first and last bin, often wide and empty towards the outside, it falls from that of
  the next bin as fast as the bin's own count says: incomes below zero are mostly zero. It falls exponentially where
  that has died down before the outer edge, which is set where nobody is expected, and else as a normal one: there are
  many people of 66 where all adults are asked, and few of 95;
- the factors of the log-linear model, one for each bin, are taken for values at the middle of the bins and their
  logarithms interpolated in a line between: within a bin too, an employed person is rather of the age at which
  more are employed.

A number is then drawn given the rest of its record: P(v | record) ∝ density(v) · Π_u f_u(v, code_u).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.interpolate import PchipInterpolator
from scipy.optimize import brentq
from scipy.special import erf

from .model import Model
from .values import Group, Values

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Records = npt.NDArray[np.int16]

#: How far numbers reach into a wide first or last bin, as a share of the unit in which the model reads the column.
_REACH = 0.25
#: Density at the outer edge, beside that at the inner one, below which an exponential has died down.
_DIED = 0.01
#: Rounds of fitting the density within bins.
_ROUNDS = 8
#: Most that the rest of a record may say about a bin, in log-odds.
_MOST = 6.0


@dataclass(frozen=True, eq=False)
class Scaled:
    """One column that the model reads as a number.

    Parameters
    ----------
    variable
        Its position.
    numbers, codes
        Its possible values in increasing order, and the bin of each.
    density
        Shape (possible values,): how common each is within its bin.
    offset
        Shape (possible values,): how far each lies from the middle of its bin, in steps to the middle of the next bin
        on that side.
    logs
        By other variable, shape (its levels, bins): logarithms of the factors, less their mean over its records.
    places
        Where each possible value is among those of the group.
    """

    variable: int
    numbers: Floats
    codes: Ints
    density: Floats
    offset: Floats
    logs: dict[int, Floats]
    places: Ints

    def draw(self, rows: Records, rng: np.random.Generator) -> Ints:
        """For each record one of the group's possible values with the record's code."""
        u = rng.random(len(rows))
        out = np.zeros(len(rows), np.int64)
        for at, values, weight in self._weights(rows):
            running = np.cumsum(weight, axis=1)
            marks = u[at] * running[:, -1]
            out[at] = self.places[values[np.minimum((running < marks[:, None]).sum(axis=1), len(values) - 1)]]
        return out

    def likelihood(self, rows: Records, numbers: Floats) -> Floats:
        """How likely each record's number is among those of its bin, given the rest of the record."""
        out = np.ones(len(rows))
        place = np.minimum(np.searchsorted(self.numbers, numbers), len(self.numbers) - 1)
        for at, values, weight in self._weights(rows):
            here = np.clip(place[at] - values[0], 0, len(values) - 1)
            out[at] = weight[np.arange(len(at)), here] / weight.sum(axis=1)
        return out

    def fitted(self, rows: Records) -> Scaled:
        """The same with densities that these records, each drawing by itself, keep together."""
        density = self.density.copy()
        for _ in range(_ROUNDS):
            made = dataclasses.replace(self, density=density)
            drawn = np.zeros(len(density))
            for _, values, weight in made._weights(rows):
                drawn[values] = (weight / weight.sum(axis=1, keepdims=True)).mean(axis=0)
            density = density * np.where(drawn > 0, self.density / np.maximum(drawn, 1e-12), 1.0)
        return dataclasses.replace(self, density=density)

    def _weights(self, rows: Records) -> Iterator[tuple[Ints, Ints, Floats]]:
        """For every bin: its records, its values, and the weight of each value in each record."""
        says = np.zeros((len(rows), next(iter(self.logs.values())).shape[1]))
        for other, logs in self.logs.items():
            says += logs[rows[:, other]]
        says = np.clip(says, -_MOST, _MOST)
        here = rows[:, self.variable].astype(np.int64)
        last = says.shape[1] - 1
        for level in np.unique(here):
            at, values = np.flatnonzero(here == level), np.flatnonzero(self.codes == level)
            if not len(values):
                continue
            # Slopes towards either side; beyond the outermost middles the line goes on.
            low, high = max(level, 1), min(level + 1, last)
            slopes = np.stack(
                [says[at, low] - says[at, low - 1], says[at, high] - says[at, high - 1]], axis=1
            )
            far = self.offset[values]
            tilt = np.where(far < 0, slopes[:, :1], slopes[:, 1:]) * far
            yield at, values, self.density[values] * np.exp(tilt)


def scaled_columns(values: Values, model: Model, shares: Floats) -> dict[int, Scaled]:
    """The columns that can be drawn so, by the number of their group: those that share no source with another.

    Parameters
    ----------
    model, shares
        The log-linear model of a population, and its tables as shares.
    """
    schema, found = values.schema, {}
    for number, group in enumerate(values.groups):
        if len(group.variables) != 1 or group.rows.width != 1:
            continue
        column = schema.columns[group.variables[0]]
        if column.bins is None or column.model != "scaled" or len(column.bins) < 3:
            continue
        bins = np.asarray(column.bins, dtype=np.float64)
        half = column.scale[1] if column.scale is not None else (bins[-1] - bins[0]) / 2
        found[number] = _scaled(group, bins, model, shares, reach=_REACH * float(half))
    return found


def _scaled(group: Group, bins: Floats, model: Model, shares: Floats, *, reach: float) -> Scaled:
    variable, layout, grid = group.variables[0], model.grid.layout, model.grid
    numbers = group.rows.to_series().cast(float).to_numpy()
    codes = group.codes[:, 0].astype(np.int64)
    count = len(bins) - 1
    places = np.flatnonzero(np.isfinite(numbers) & (codes < count))
    places = places[np.argsort(numbers[places], kind="stable")]
    numbers, codes = numbers[places], codes[places]
    others, mass = {}, np.ones(count)
    for j, pair in enumerate(layout.pairs):
        if variable not in pair:
            continue
        other = pair[0] if pair[1] == variable else pair[1]
        table = shares[layout.slice(j)].reshape(layout.shapes[j])
        table = table if pair[1] == variable else table.T
        mass = table.sum(axis=0)[:count]
        first, size = int(grid.place[variable, other]), int(grid.sizes[variable])
        factors = model.factors[first : first + size * len(table)].reshape(len(table), size)
        logs = np.log(factors[:, :count])
        weight = table[:, :count] / np.maximum(table[:, :count].sum(axis=0), 1e-12)
        others[other] = logs - (weight * logs).sum(axis=0)
    edges = _edges(bins, numbers, codes)
    density = _density(Cumulative(edges, mass, reach), numbers, codes)
    middles = np.array([
        np.average(numbers[codes == b], weights=density[codes == b] + 1e-12) if (codes == b).any() else math.nan
        for b in range(count)
    ])  # fmt: skip
    offset = np.zeros(len(numbers))
    for b in range(count):
        at = codes == b
        gaps = [middles[b] - middles[b - 1]] if b else []
        gaps += [middles[b + 1] - middles[b]] if b < count - 1 else []
        away = numbers[at] - middles[b]
        step = np.where(away < 0, gaps[0], gaps[-1])
        offset[at] = np.where(np.isfinite(step) & (step > 0), away / step, 0.0)
    made = Scaled(variable, numbers, codes, density, np.clip(offset, -1.0, 1.0), others, places)
    return made.fitted(model.rows)


def _edges(bins: Floats, numbers: Floats, codes: Ints) -> Floats:
    """Edges of the bins; a filter may leave only part of the first or the last one."""
    edges = bins.copy()
    if len(numbers):
        edges[codes[0]] = max(edges[codes[0]], numbers[0])
        step = numbers[-1] - numbers[-2] if len(numbers) > 1 else 1.0
        edges[codes[-1] + 1] = min(edges[codes[-1] + 1], numbers[-1] + step)
    return edges


def _density(cumulative: Cumulative, numbers: Floats, codes: Ints) -> Floats:
    """Share of each value in its bin. Bins hold their lower edge, so a value stands for all up to the next one."""
    out = np.ones(len(numbers))
    edges, mass = cumulative.edges, cumulative.mass
    for level in np.unique(codes):
        at = np.flatnonzero(codes == level)
        if len(at) > 1 and mass[level] > 0:
            marks = np.concatenate([numbers[at], [edges[level + 1]]])
            out[at] = np.maximum(np.diff(cumulative(marks, int(level))), 0.0)
        out[at] /= max(out[at].sum(), 1e-300)
    return out


class Cumulative:
    """A smooth cumulative distribution through the shares of bins.

    Parameters
    ----------
    edges, mass
        Edges of the bins, shape (bins + 1,), and what lies in each.
    reach
        Largest scale of the fall in a first or last bin that is wider than four times as much.
    """

    def __init__(self, edges: Floats, mass: Floats, reach: float = math.inf) -> None:
        self.edges, self.mass, self.reach = edges, mass, reach
        self._smooth = PchipInterpolator(edges, np.concatenate([[0.0], np.cumsum(mass)]))

    def __call__(self, marks: Floats, level: int) -> Floats:
        """Cumulative share at numbers inside one bin, up to a constant and a factor."""
        last = len(self.mass) - 1
        if level in (0, last):
            return self._outer(marks, level, 1 if level == 0 else last - 1)
        low, high = self.edges[level], self.edges[level + 1]
        even = self.mass[level] * (marks - low) / (high - low)
        return np.asarray((self._smooth(marks) + even) / 2, dtype=np.float64)

    def _outer(self, marks: Floats, level: int, beside: int) -> Floats:
        """Falls from the density of the next bin, where that one is denser."""
        width = float(self.edges[level + 1] - self.edges[level])
        density = float(self.mass[beside] / (self.edges[beside + 1] - self.edges[beside]))
        mass = float(self.mass[level])
        scale = _scale(mass, density, width)
        if math.isinf(scale) and width * _REACH > self.reach:
            scale = self.reach
        away = self.edges[level + 1] - marks if level < beside else marks - self.edges[level]
        if math.isinf(scale):
            reached = away / width
        elif math.exp(-width / scale) < _DIED or mass >= density * width:
            reached = np.expm1(-away / scale) / np.expm1(-width / scale)
        else:
            deviation = _deviation(mass, density, width) * math.sqrt(2.0)
            reached = erf(away / deviation) / erf(width / deviation)
        return np.asarray(-reached if level < beside else reached, dtype=np.float64)


def _scale(mass: float, density: float, width: float) -> float:
    """Scale s of an exponential cut at `width` with `density` at 0: mass = density·s·(1 − e^(−width/s))."""
    if mass <= 0 or mass >= density * width:
        return math.inf
    scale = mass / density
    for _ in range(50):
        scale = mass / (density * -math.expm1(-width / scale))
    return scale if scale < 50 * width else math.inf


def _deviation(mass: float, density: float, width: float) -> float:
    """Deviation σ of a normal fall cut at `width` with `density` at 0: mass = density·σ·√(π/2)·erf(width/σ√2)."""

    def excess(deviation: float) -> float:
        reached = math.erf(width / deviation / math.sqrt(2.0))
        return density * deviation * math.sqrt(math.pi / 2.0) * reached - mass

    # A deviation of a hundred widths is as good as no fall at all.
    widest = 100.0 * width
    return widest if excess(widest) <= 0 else float(brentq(excess, 1e-6 * width, widest))
