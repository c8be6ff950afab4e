"""Symptoms: what spoilt records do to a client's tables, measured for all clients of a pool.

Each symptom is one statistic of each client with the variance that noise and sampling give it. It is compared with
the median of the clients that look alike, in units of that variance and of their own spread τ²:

    z = (statistic − median) / √(v + τ²)

Honest clients differ, with longer tails than a Gaussian has, in some symptoms more than in others: both parts of the
variance are widened by `SCALES`, and p is that of a Student t with `FREEDOM` degrees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..deferred import Deferred
from ..schema.schema import Schema
from .attenuation import OUTSIDE, Mask, Shares, combined, compare_table, middle_and_spread, weighted_median
from .disparity import disparities

if TYPE_CHECKING:
    from scipy import special
else:
    special = Deferred("scipy.special")

Floats = npt.NDArray[np.float64]

#: Degrees of freedom of the t distribution that honest clients' distances are taken to have, chosen on clean census
#: pools (docs/theory/quality.md). One feature alone is often peculiar to a place: birthplace in Puerto Rico.
FREEDOM = {
    "label_noise": 30.0,
    "label_bias": 12.0,
    "feature_noise": 8.0,
    "one_feature": 4.0,
    "repeated": 12.0,
}
#: How much wider than √v and τ honest clients spread on the side of the accusation; from clean pools
#: (docs/theory/quality.md). τ is that of the clients near the middle.
SCALES = {
    "label_noise": (1.2, 1.6),
    "label_bias": (1.0, 1.15),
    "feature_noise": (1.1, 1.1),
    "one_feature": (1.0, 1.0),
    "repeated": (1.2, 1.8),
}
#: Honest clients vary at least this much, however alike a few of them look.
_LEAST_SPREAD = 0.04
_ROUNDS = 4
_MORE_ROUNDS = 3
#: Half of the clients this close, in units in which one group has 1, may be a group of their own.
_CLUSTER = 0.8

#: The effects whose power is stated: random labels, shuffled features, points of rate, copies of each record.
EFFECTS = {"label_noise": 0.3, "feature_noise": 0.3, "label_bias": 0.15, "repeated": 50.0}


@dataclass(frozen=True)
class Symptom:
    """One entry of every client's card.

    Parameters
    ----------
    kind, about
        ``label_noise``, ``label_bias``, ``feature_noise`` or ``repeated``; the attribute, or empty.
    value, error
        Shape (clients,): the estimate and its standard error, honest differences included.
    z, p
        Shape (clients,): distance from the pool and the chance of one as large.
    reach
        Shape (clients,): the z that the stated effect of `EFFECTS` would have on average.
    noisy
        Shape (clients,): whether noise and sampling, not honest differences, limit what can be seen.
    details
        What in particular, for each client: features, or the group.
    plain
        Shape (clients,): the distance without `SCALES`, which tells who is near the middle.
    narrows
        Shape (clients,): of a bias, whether it makes the difference between the groups smaller than the pool's.
    tests
        Questions that p is corrected for.
    """

    kind: str
    about: str
    value: Floats
    error: Floats
    z: Floats
    p: Floats
    reach: Floats
    noisy: Mask
    details: tuple[tuple[str, ...], ...]
    plain: Floats
    narrows: Mask
    tests: int = 1


@dataclass(frozen=True)
class _Measured:
    """Slopes and dispersions of all tables, against one choice of clients to compare with."""

    slopes: Floats
    slope_noise: Floats
    kappa: Floats
    kappa_noise: Floats


@dataclass(frozen=True)
class _Distance:
    statistic: Floats
    noise: Floats
    middle: float
    spread: float
    scale: tuple[float, float]

    @classmethod
    def of(
        cls, statistic: Floats, noise: Floats, inside: Mask, *, scale: tuple[float, float],
        least: float = _LEAST_SPREAD, sizes: Floats | None = None,
    ) -> _Distance:  # fmt: skip
        if not np.isfinite(noise).all():
            return cls(statistic, noise, 1.0, least**2, scale)
        if sizes is not None:
            statistic = statistic - trend(statistic, np.log(sizes), inside)
        middle, spread = middle_and_spread(statistic[:, None], noise[:, None], inside)
        return cls(statistic, noise, float(middle[0]), max(float(spread[0]), least**2), scale)

    @property
    def error(self) -> Floats:
        wide = self.scale[0] ** 2 * self.noise + self.scale[1] ** 2 * self.spread
        return np.asarray(np.sqrt(wide), dtype=np.float64)

    @property
    def z(self) -> Floats:
        return np.asarray((self.statistic - self.middle) / self.error, dtype=np.float64)

    @property
    def plain(self) -> Floats:
        away = (self.statistic - self.middle) / np.sqrt(self.noise + self.spread)
        return np.asarray(away, dtype=np.float64)

    @property
    def noisy(self) -> Mask:
        return np.asarray(self.noise > self.spread, dtype=np.bool_)


def trend(statistic: Floats, place: Floats, inside: Mask) -> Floats:
    """What honest clients of a place have more than those in the middle: the median slope of all pairs (Theil, Sen)."""
    x, y = place[inside], statistic[inside]
    one, other = np.triu_indices(len(x), 1)
    apart = x[other] - x[one]
    far = np.abs(apart) > 1e-9
    slope = float(np.median((y[other] - y[one])[far] / apart[far])) if far.any() else 0.0
    return np.asarray(slope * (place - np.median(x)), dtype=np.float64)


def tail(kind: str, z: Floats) -> Floats:
    """Chance that an honest client is as far above the pool."""
    return np.asarray(special.stdtr(FREEDOM[kind], -z), dtype=np.float64)


def symptoms(shares: Shares, schema: Schema) -> list[Symptom]:
    """All symptoms of all clients. At least two clients must have a known size."""
    inside = shares.known.copy()
    rounds, step = _ROUNDS, 0
    while True:
        found = _symptoms(shares, schema, _measure(shares, inside), inside)
        step += 1
        if step == rounds:
            return found
        distances = [symptom.plain for symptom in found]
        if step == 1:
            closer = [_from_cluster(plain, shares.known) for plain in distances]
            # The closest half is narrower than honest clients are; a few more rounds let them in again.
            rounds += _MORE_ROUNDS * any(new is not old for new, old in zip(closer, distances, strict=True))
            distances = closer
        inside = _inside(shares, distances)


def _inside(shares: Shares, distances: list[Floats]) -> Mask:
    """Clients near the middle in every symptom; never fewer than half of those whose size is known."""
    furthest = np.max([np.abs(plain) for plain in distances], axis=0)
    furthest[~shares.known] = np.inf
    return np.asarray(furthest <= max(OUTSIDE, float(np.median(furthest[shares.known]))), dtype=np.bool_)


def _from_cluster(plain: Floats, known: Mask) -> Floats:
    """Distances anew from the closest half of the clients, where that is far closer than one group would be.

    Many clients spoilt alike widen the spread until nobody is outside; the honest ones then lie close together.
    """
    ordered = np.sort(plain[known])
    half = len(ordered) // 2
    first = int(np.argmin(ordered[half:] - ordered[: len(ordered) - half]))
    # Half of a Gaussian lies within 0.6745 standard deviations of its middle.
    deviation = float(ordered[first + half] - ordered[first]) / (2 * 0.6745)
    if deviation >= _CLUSTER:
        return plain
    middle = float(np.median(ordered[first : first + half + 1]))
    return np.asarray((plain - middle) / max(deviation, _CLUSTER / 2), dtype=np.float64)


def _measure(shares: Shares, inside: Mask) -> _Measured:
    layout = shares.layout
    shape = (len(shares.sizes), layout.tables)
    slopes, slope_noise = np.zeros(shape), np.full(shape, np.inf)
    kappa, kappa_noise = np.full(shape, np.nan), np.full(shape, np.inf)
    for j, (a, b) in enumerate(layout.shapes):
        table = compare_table(shares, j, inside)
        slopes[:, j], slope_noise[:, j] = table.slopes()
        if (a - 1) * (b - 1) > 1:
            kappa[:, j], kappa_noise[:, j] = table.dispersion(slopes[:, j])
    return _Measured(slopes, slope_noise, kappa, kappa_noise)


def _symptoms(shares: Shares, schema: Schema, measured: _Measured, inside: Mask) -> list[Symptom]:
    label = _slopes(measured, shares.sizes, inside, _with_label(shares, schema), "label_noise")
    found = [_attenuated("label_noise", label, tail("label_noise", -label.z), ((),) * len(inside))]
    found.append(_features(shares, schema, measured, inside))
    for attribute in schema.sensitive:
        found += _bias(shares, schema, attribute, label, inside)
    repeated = _repeated(shares, measured, inside)
    return found if repeated is None else [*found, repeated]


def _with_label(shares: Shares, schema: Schema) -> list[int]:
    """Tables of the label and a feature; the label and a sensitive attribute are looked at on their own."""
    apart = {*schema.sensitive} if schema.features else set()
    return [
        j for j, (x, y) in enumerate(shares.layout.pairs) if schema.target in (x, y) and not {x, y} & apart
    ]


def _slopes(
    measured: _Measured, sizes: Floats, inside: Mask, tables: list[int], kind: str, *, median: bool = False
) -> _Distance:
    scale = SCALES[kind]
    if not tables:
        return _Distance.of(np.ones(len(inside)), np.full(len(inside), np.inf), inside, scale=scale)
    slope, noise = combined(
        measured.slopes[:, tables], measured.slope_noise[:, tables], inside, median=median
    )
    return _Distance.of(slope, noise, inside, scale=scale, sizes=sizes)


def _attenuated(
    kind: str, distance: _Distance, p: Floats, details: tuple[tuple[str, ...], ...], tests: int = 1
) -> Symptom:
    """A slope below the pool's as the share of random values that explains it."""
    return Symptom(
        kind,
        "",
        1.0 - distance.statistic / distance.middle,
        distance.error / abs(distance.middle),
        -distance.z,
        p,
        EFFECTS[kind] * distance.middle / distance.error,
        distance.noisy,
        details,
        distance.plain,
        np.zeros(len(distance.plain), dtype=np.bool_),
        tests,
    )


def _features(shares: Shares, schema: Schema, measured: _Measured, inside: Mask) -> Symptom:
    """All features together, and each one; p is that of the clearest of the two questions."""
    pairs = list(enumerate(shares.layout.pairs))
    rest = [j for j, pair in pairs if schema.target not in pair]
    every = _slopes(measured, shares.sizes, inside, rest, "feature_noise", median=True)
    alone = {}
    for feature in schema.features:
        tables = [j for j, pair in pairs if feature in pair and schema.target not in pair]
        if tables:
            one = _slopes(measured, shares.sizes, inside, tables, "one_feature", median=True)
            alone[schema.names[feature]] = tail("one_feature", -one.z) * len(schema.features)
    p = tail("feature_noise", -every.z)
    if alone:
        p = np.minimum(1.0, 2.0 * np.minimum(p, np.min(list(alone.values()), axis=0)))
    details = tuple(tuple(name for name, own in alone.items() if own[i] < 0.05) for i in range(len(inside)))
    return _attenuated("feature_noise", every, p, details, tests=2 if alone else 1)


def _bias(shares: Shares, schema: Schema, attribute: int, label: _Distance, inside: Mask) -> list[Symptom]:
    """The group and label level furthest from the pool; p counts all of them."""
    looked = disparities(shares, schema, attribute, inside)
    if not looked:
        return []
    # A client whose labels are noisy has smaller differences of rates; that is no bias.
    trust = label.spread / (label.spread + label.noise)
    slope = 1.0 + trust * (label.statistic / label.middle - 1.0)
    distances = [
        _Distance.of(
            one.found - slope * one.expected,
            one.variance + np.where(trust > 0, label.noise, 0.0) * (trust * one.expected) ** 2,
            inside,
            scale=SCALES["label_bias"],
            least=_LEAST_SPREAD / 4,
        )
        for one in looked
    ]
    worst = np.argmax([np.abs(distance.z) for distance in distances], axis=0)

    def pick(values: list[Floats]) -> Floats:
        return np.asarray(np.stack(values)[worst, np.arange(len(worst))])

    z, error = pick([distance.z for distance in distances]), pick([distance.error for distance in distances])
    labels = schema.columns[attribute].labels
    return [
        Symptom(
            "label_bias",
            schema.names[attribute],
            z * error,
            error,
            z,
            np.minimum(1.0, 2.0 * len(looked) * tail("label_bias", np.abs(z))),
            EFFECTS["label_bias"] / error,
            pick([distance.noise for distance in distances])
            > pick([0 * d.noise + d.spread for d in distances]),
            tuple((labels[looked[k].group],) for k in worst),
            pick([distance.plain for distance in distances]),
            z * pick([0 * one.found + np.median(one.found[inside]) for one in looked]) < 0,
            2 * len(looked),
        )
    ]


def _repeated(shares: Shares, measured: _Measured, inside: Mask) -> Symptom | None:
    """Dispersion against 1/n plus what honest clients have, as the median over tables."""
    usable = np.isfinite(measured.kappa_noise).all(axis=0)
    if not usable.any():
        return None
    kappa, noise = measured.kappa[:, usable], measured.kappa_noise[:, usable]
    one = 1.0 / shares.sizes[:, None]
    excess = (kappa - one)[inside]
    middle = np.median(excess, axis=0)
    # One standard error is added: too small an honest dispersion would accuse the largest clients first.
    deviation = 1.4826 * np.median(np.abs(excess - middle), axis=0)
    honest = np.maximum(middle, 0.0) + np.sqrt(np.pi / 2 / inside.sum()) * deviation
    times = kappa / (one + honest)
    relative = noise / (one + honest) ** 2
    # Tables count by their noise and by how much honest clients differ in them. The median of tables is about as exact
    # as their mean with π/2 of its variance.
    weight = 1.0 / (relative + 1.0)
    weight /= weight.sum(axis=1, keepdims=True)
    ratio = np.maximum(weighted_median(times, weight), 0.0)
    variance = np.pi / 2 * np.sum(weight**2 * relative, axis=1)
    log, noise_of_log = np.log1p(ratio), variance / (1 + ratio) ** 2
    distance = _Distance.of(log, noise_of_log, inside, scale=SCALES["repeated"], least=0.15)
    copies = np.maximum(weighted_median((kappa - honest) / one, weight), 1.0)
    stated = np.log1p(np.median((EFFECTS["repeated"] * one + honest) / (one + honest), axis=1))
    value = shares.sizes / copies
    return Symptom(
        "repeated",
        "",
        value,
        value * np.sqrt(variance) / copies,
        distance.z,
        tail("repeated", distance.z),
        (stated - distance.middle) / distance.error,
        distance.noisy,
        ((),) * len(inside),
        distance.plain,
        np.zeros(len(inside), dtype=np.bool_),
    )
