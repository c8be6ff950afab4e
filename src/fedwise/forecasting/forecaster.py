"""Forecaster: fitted once to a pool, it predicts the trained metrics of any federation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt

from ..cache import Cache
from ..errors import FedwiseError
from ..estimation.estimates import Estimates
from ..estimation.redraw import redraw_each
from ..objective.metric import Metric
from ..objective.sample import Sample, draw
from ..schema.frame import FrameLike
from . import kernels
from .anchor import Anchor
from .class_anchor import ClassAnchor
from .class_metrics import NamedMetrics, check_metrics, names_for
from .class_population import ClassPopulation
from .design import Design
from .halves import covariance, mean_metrics, only, signal, split
from .members import Federation, positions
from .metrics import NAMES, SCORES, Metrics, check_name, from_rates
from .moments import (
    Moments,
    consistent_counts,
    marginal_errors,
    moments,
    noise_norm,
    noisiness,
    summed,
    table_sigmas,
)
from .people import estimated_shares, people_shares
from .population import Population, label_chance
from .ranking import MOST_LOSS, batch_ranks, make_bins
from .redraws import RedrawCache
from .settings import Prediction, Settings
from .thinning import check_joined

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
People = Population | ClassPopulation

#: Records drawn before raking, for each record the search scores.
_DRAWN = 8
#: Least ridge, in records, that a logistic model pays: trained models stop early, or decay weights.
_RIDGE = 1e-3
#: Federations and redraws of the noise behind a typical standard error.
_TYPICAL, _TYPICAL_DRAWS = 16, 12
#: Half width of the smoothed threshold, in units of the score.
RAMP = {"logistic": 0.1, "linear": 0.025}


class Forecaster:
    """A pool's anchor, the target population's sample, and the rows federations are sums of.

    For a target of several classes, or a number, the instance is a `ClassForecaster` or `NumberForecaster`.

    Parameters
    ----------
    estimates
        The pool.
    target
        Whose predictions count: ``None`` for the whole pool, names of clients, other `Estimates` of
        the same schema (a public reference), or public rows (anything `Schema.encode` reads).
    settings
        How the model is made.

    Raises
    ------
    FedwiseError
        The plan lacks a table the forecast needs, or the target names no client of the pool.
    """

    #: Metrics that come all at once, at the least cost.
    quick: tuple[str, ...] = NAMES

    def __new__(cls, estimates: Estimates | None = None, *args: Any, **kwargs: Any) -> Self:
        """An instance of the class for the kind of the schema's target."""
        if cls is not Forecaster or estimates is None:
            return object.__new__(cls)
        from .class_forecaster import for_target

        return cast(Self, object.__new__(for_target(estimates.schema)))

    def __init__(
        self,
        estimates: Estimates,
        target: Sequence[str] | Estimates | FrameLike | None = None,
        *,
        settings: Settings | None = None,
    ) -> None:
        self._build(estimates, target, settings or Settings())
        self._halves = self._split(target)

    _halves: tuple[Forecaster, ...] = ()

    def _build(
        self,
        estimates: Estimates,
        target: Sequence[str] | Estimates | FrameLike | None,
        settings: Settings,
        design: Design | None = None,
    ) -> None:
        self.estimates = estimates
        self.settings = settings
        self._by_size: Cache[int, tuple[float, tuple[Forecaster, ...]]] = Cache()
        self._redraw_cache = RedrawCache(self._redrawn_rows)
        self._error_cache: Cache[tuple[int, tuple[str, ...]], Floats] = Cache()
        self._views: dict[str, tuple[People, kernels.Scorer]] = {}
        layout = estimates.layout
        cells, marginals, totals = consistent_counts(estimates)
        self._counts = (cells, marginals, totals)
        self.design = design or Design.of(
            estimates.schema,
            marginals.sum(axis=0),
            errors=marginal_errors(estimates),
            use_sensitive=self.settings.use_sensitive,
            attribute=self.settings.attribute,
            coding=self.settings.coding,
        )
        self._moments = moments(self.design, layout, cells, marginals, totals)
        everyone = np.arange(len(estimates.clients))
        pool = summed(self._moments, everyone)
        shares = estimated_shares(estimates, self._counts, everyone)
        whole = self._draw(shares)
        self.anchor = self._fit(whole, pool)
        self.population = self._populate(target, (shares, whole), pool)
        ridge = self.settings.ridge
        noise = noise_norm(self.design, estimates) if ridge is None else 0.0
        self.solver = kernels.Solver(
            self.anchor.beta, self.design.projection, _RIDGE if ridge is None else ridge, noise
        )
        self.scorer = self.population.scorer(self.anchor.beta, self.settings.records)

    @cached_property
    def rows(self) -> Floats:
        """What is summed over a federation: shape (clients, width). See `kernels.Solver`."""
        if self._halves:
            return np.ascontiguousarray(np.concatenate([half.rows for half in self._halves], axis=1))
        return self._rows(self._moments)

    def rates(self, sums: Floats) -> Floats:
        """Positive rates by group and class of each summed row: shape (batch, groups, 2)."""
        if self._halves:
            return self._over_halves(sums, lambda half, part: half.rates(part))
        found = kernels.batch_rates(self.solver, self.scorer, np.ascontiguousarray(sums, dtype=np.float64))
        return np.asarray(found, dtype=np.float64)

    def values(self, sums: Floats, names: Sequence[str] | None = None) -> Floats:
        """Metrics of each summed row in the order of `names`: shape (batch, metrics).

        Parameters
        ----------
        names
            Any of the property `names`, with an attribute or without (``eod:SEX@rate``); default `quick`. Of two
            classes, those that are not at ½ need the order of the target's records, and take longer.
        """
        names = self.quick if names is None else tuple(names)
        if self._halves:
            return self._over_halves(sums, lambda half, part: half.values(part, names))
        if names == NAMES:
            return from_rates(self.rates(sums), self.population.shares)[0]
        sums = np.ascontiguousarray(sums, dtype=np.float64)
        asked = self.check_names(names)
        found = {
            attribute: self._columns(attribute, [m.column for m in asked if m.attribute == attribute], sums)
            for attribute in dict.fromkeys(m.attribute for m in asked)
        }
        return np.stack([found[m.attribute][m.column] for m in asked], axis=1)

    @property
    def names(self) -> tuple[str, ...]:
        """Every metric that this forecast gives, without an attribute."""
        return names_for(self.design.labels)

    def check_names(self, names: Sequence[str]) -> list[Metric]:
        """The metrics of some names; refuses those that this forecast does not give."""
        return check_metrics(names, self.estimates.schema, self.names)

    def reach(self, name: str) -> float:
        """The most that a metric can differ between federations."""
        return MOST_LOSS if check_name(name).base == "loss" else 1.0

    def positions(self, federation: Federation) -> Ints:
        """Client positions of names or positions, each once, sorted."""
        return positions(self.estimates.clients, federation)

    def coefficients(self, federation: Federation) -> Floats:
        """β of the federation's model, one for each input of `design`; the mean over the halves of the noise."""
        members = self.positions(federation)
        if self._halves:
            _, halves = self._of_size(len(members))
            return np.asarray(np.mean([half.coefficients(members) for half in halves], axis=0))
        return self._solve(self.rows[members].sum(axis=0))

    def reliability(self, size: int) -> float:
        """Share of the spread of scores that is signal, for a typical federation of `size` clients; 1 without noise."""
        return self._of_size(size)[0] if self._halves else 1.0

    def predict(self, federation: Federation, *, draws: int = 32, seed: int = 0) -> Prediction:
        """Metrics of the model that `federation` would train, on the target, with standard errors.

        Parameters
        ----------
        draws
            Redraws of the privacy noise behind the standard errors; 0 for none. The first call with a
            number of draws and a seed makes them for all clients, later calls are quick.
        """
        if draws < 0 or draws == 1:
            raise FedwiseError(f"draws must be 0, or at least 2 for a standard error, got {draws}")
        members = self.positions(federation)
        metrics = self._metrics(members)
        errors = dict.fromkeys(self.names, 0.0) if draws else {}
        if draws and table_sigmas(self.estimates).any():
            again = self.values(self._redraw_cache.sums(members, draws=draws, seed=seed), self.names)
            errors = dict(zip(self.names, again.std(axis=0, ddof=1).tolist(), strict=True))
        return Prediction(tuple(self.estimates.clients[i] for i in members), metrics, errors)

    def typical_errors(self, size: int, names: Sequence[str] | None = None) -> Floats:
        """Standard errors of the metrics of a typical federation, in the order of `names`; default `quick`.

        The median over random federations of `size` clients; zeros without noise.
        """
        asked = self.quick if names is None else tuple(names)
        return self._error_cache.get((size, asked), lambda: self._typical_errors(size, asked))

    # -- how it is made -------------------------------------------------------------------------

    def _fit(self, whole: Sample, pool: Moments) -> Anchor | ClassAnchor:
        """The pool's own model and the expansion around it."""
        if self.settings.link == "linear":
            return Anchor.linear(self.design)
        return Anchor.logistic(self.design, whole, pool)

    def _split(self, target: Sequence[str] | Estimates | FrameLike | None) -> tuple[Forecaster, ...]:
        """Forecasters of the two halves of the noise, each judged on people of the other; none without noise."""
        parts = split(self.estimates, self.settings.seed) if self.settings.link == "logistic" else None
        if parts is None:
            return ()
        made = []
        for mine, other in (parts, parts[::-1]):
            judged: Sequence[str] | Estimates | FrameLike | None = target
            if target is None:
                judged = other
            elif isinstance(target, list | tuple) and all(isinstance(name, str) for name in target):
                judged = only(other, self.positions(target))
            half = object.__new__(type(self))
            half._build(mine, judged, self.settings, self.design)
            made.append(half)
        return tuple(made)

    def _over_halves(self, sums: Floats, ask: Callable[[Forecaster, Floats], Floats]) -> Floats:
        """The mean over halves of what each says about its part of summed rows, size by size."""
        width = sums.shape[1] // len(self._halves)
        # The last entry of a row counts its clients.
        sizes, which = np.unique(np.maximum(np.rint(sums[:, -1]), 1).astype(np.int64), return_inverse=True)
        out: Floats | None = None
        for number, size in enumerate(sizes):
            here = np.flatnonzero(which == number)
            _, halves = self._of_size(int(size))
            said = [ask(half, sums[here, i * width : (i + 1) * width]) for i, half in enumerate(halves)]
            found = np.mean(said, axis=0)
            out = np.empty((len(sums), *found.shape[1:])) if out is None else out
            out[here] = found
        return np.zeros((0, 0)) if out is None else out

    def _of_size(self, size: int) -> tuple[float, tuple[Forecaster, ...]]:
        """λ of a typical federation of so many clients, and the halves with their scores drawn together by it."""
        return self._by_size.get(size, lambda: self._corrected(size))

    def _corrected(self, size: int) -> tuple[float, tuple[Forecaster, ...]]:
        rng = np.random.default_rng([0x51, size])
        clients = len(self.estimates.clients)
        first, second = self._halves
        mean, spread = covariance(self.design, [half._moments for half in self._halves])
        found = []
        for _ in range(_TYPICAL):
            members = rng.choice(clients, min(size, clients), replace=False)
            found.append(signal(first.coefficients(members), second.coefficients(members), spread))
        typical = float(np.median(found))
        made = []
        for half in self._halves:
            view = copy.copy(half)
            view.solver = half.solver._replace(spread=typical, mean=mean)
            view._views = {}
            made.append(view)
        return typical, tuple(made)

    def _metrics(self, members: Ints) -> Metrics | NamedMetrics:
        if self._halves:
            _, halves = self._of_size(len(members))
            return mean_metrics([half._metrics(members) for half in halves])
        return self._measure(self.rows[members].sum(axis=0))

    def _measure(self, row: Floats) -> Metrics | NamedMetrics:
        """All metrics of one summed row on all records."""
        assert isinstance(self.population, Population)
        return self.population.metrics(self._solve(row))

    def _columns(self, attribute: str, columns: Sequence[str], sums: Floats) -> dict[str, Floats]:
        """Metrics between the groups of one attribute, each of shape (batch,)."""
        population, scorer = self._view(attribute)
        assert isinstance(population, Population)
        half = bool(set(columns) & set(NAMES))
        if set(columns) <= set(NAMES):
            rates, shares = kernels.batch_rates(self.solver, scorer, sums), population.shares
            return dict(zip(NAMES, from_rates(rates, shares)[0].T, strict=True))
        bins, shares = make_bins(logistic=population.logistic), population.shares
        rates, matched, scores = batch_ranks(self.solver, scorer, bins, shares, sums, half)
        found = dict(zip(SCORES, scores.T, strict=True))
        found |= {f"{n}@rate": v for n, v in zip(NAMES, from_rates(matched, shares)[0].T, strict=True)}
        return found | (dict(zip(NAMES, from_rates(rates, shares)[0].T, strict=True)) if half else {})

    def _view(self, attribute: str) -> tuple[People, kernels.Scorer]:
        """The target's records by the groups of an attribute; empty for that of the settings."""
        design = self.design
        default = "" if design.attribute is None else design.schema.names[design.attribute]
        if attribute in ("", default):
            return self.population, self.scorer
        if attribute not in self._views:
            at = design.schema.names.index(attribute)
            if at not in design.variables:
                raise FedwiseError(
                    f"metric of {attribute} must compare groups the records have, and this forecast drew them "
                    f"with {default} only; set Settings(attribute='{attribute}') or use_sensitive=True"
                )
            other: People = replace(self.population, design=replace(design, attribute=at))
            self._views[attribute] = other, other.scorer(self.anchor.beta, self.settings.records)
        return self._views[attribute]

    def _typical_errors(self, size: int, names: tuple[str, ...]) -> Floats:
        if not table_sigmas(self.estimates).any():
            return np.zeros(len(names))
        rng = np.random.default_rng([0x7E, size])
        clients, errors = len(self.estimates.clients), []
        for _ in range(_TYPICAL):
            members = rng.choice(clients, min(size, clients), replace=False)
            again = self.values(self._redraw_cache.sums(members, draws=_TYPICAL_DRAWS, seed=0), names)
            errors.append(again.std(axis=0, ddof=1))
        return np.asarray(np.median(errors, axis=0), dtype=np.float64)

    def _rows(self, found: Moments) -> Floats:
        triangle, gradient = self.anchor.rows(self.design, found)
        counted = (found.totals[..., None], noisiness(self.estimates)[..., None])
        return np.ascontiguousarray(np.concatenate([triangle, gradient, *counted], axis=-1))

    def _solve(self, sums: Floats) -> Floats:
        p = self.solver.beta.size
        beta = np.empty(p)
        kernels.solve(self.solver, np.ascontiguousarray(sums), np.empty((p, p)), beta)
        return beta

    def _draw(self, shares: Floats) -> Sample:
        """Records of tables."""
        records = _DRAWN * self.settings.records
        check_joined(self.estimates.layout, shares, self._drawn)
        return draw(self.estimates.layout, shares, self._drawn, records=records, seed=self.settings.seed)

    @property
    def _drawn(self) -> list[int]:
        design = self.design
        group = [] if design.attribute is None else [design.attribute]
        return list(dict.fromkeys([design.schema.target, *group, *design.variables]))

    def _populate(
        self,
        target: Sequence[str] | Estimates | FrameLike | None,
        whole: tuple[Floats, Sample],
        pool: Moments,
    ) -> People:
        """The people whose predictions count; `whole` is what the anchor was made from, tables and records."""
        if target is None:
            everyone = np.arange(len(self.estimates.clients))
            shares = people_shares(self.estimates, self._counts, everyone)
            return self._drawn_population(
                whole[1] if (shares == whole[0]).all() else self._draw(shares), pool
            )
        if isinstance(target, Estimates):
            if target.schema != self.estimates.schema:
                raise FedwiseError(
                    "target must be estimates of the pool's schema; release it under the same plan"
                )
            counts = consistent_counts(target)
            shares = people_shares(target, counts, np.arange(len(target.clients)))
            found = moments(self.design, target.layout, *(part.sum(axis=0) for part in counts))
            return self._drawn_population(self._draw(shares), found)
        if isinstance(target, list | tuple) and all(isinstance(name, str) for name in target):
            members = self.positions(target)
            shares = people_shares(self.estimates, self._counts, members)
            return self._drawn_population(self._draw(shares), summed(self._moments, members))
        codes = self.estimates.schema.encode(target)
        if codes.shape[1] == 0:
            raise FedwiseError("target must have at least one row; check the reference data")
        sample = Sample(codes, np.full(codes.shape[1], 1.0 / codes.shape[1]))
        return self._population(sample, self._known(codes[self.design.schema.target]), None)

    def _drawn_population(self, sample: Sample, found: Moments) -> People:
        return self._population(sample, self._chance(sample), found)

    def _known(self, labels: npt.NDArray[np.integer]) -> Floats:
        """The chance of labels that are known."""
        return labels.astype(np.float64)

    def _chance(self, sample: Sample) -> Floats:
        """The chance that drawn records have."""
        return label_chance(self.design, sample, self._counts[1].sum(axis=0))

    def _population(self, sample: Sample, chance: Floats, found: Moments | None) -> People:
        link = self.settings.link
        return Population(self.design, sample, chance, found, link == "logistic", RAMP[link])

    def _redrawn_rows(self, generators: Sequence[np.random.Generator]) -> list[Floats]:
        """Rows of the pool as it might have been released with other draws of the noise."""
        if self._halves:
            halves = [half._redrawn_rows(generators) for half in self._halves]
            return [np.concatenate(rows, axis=1) for rows in zip(*halves, strict=True)]
        return [
            self._rows(moments(self.design, self.estimates.layout, *consistent_counts(again)))
            for again in redraw_each(self.estimates, generators)
        ]
