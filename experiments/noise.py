"""Noise studies: what the privacy noise does to mutual information and to the choice of a federation.

    python experiments/noise.py            # on ACSIncome 2018 where the records are, else synthetic states
    python experiments/noise.py --quick

a. Error of mutual information against the signal-to-noise ratio, with the delta method's prediction by the
   corrected gradient (PMI − I)/n and by the one the paper prints, −(PMI + I)/n.
b. How often a federation and a swap neighbour change places, against exp(−kΔ²/(4σ²)).
c. How often the noisy minimiser is not within μ of the best, against 2·exp(−(μ/2 − E‖ξ‖∞)²/(2σ²)).
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

sys.path.insert(0, str(Path(__file__).parent))

import census
from census import Tabled
from store import RESULTS, write_table

from fedwise.bounds import global_bound, local_bound
from fedwise.objective.information import gradient, information, pointwise
from fedwise.planning import plan

Floats = npt.NDArray[np.float64]
#: Signal-to-noise ratios: mean count of a cell over the standard deviation of its noise.
RATIOS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
PAIRS = (("SEX", "PINCP_gt50k"), ("SCHL", "PINCP_gt50k"), ("OCCP", "RELP"), ("AGEP", "MAR"))


def printed_gradient(table: Floats) -> Floats:
    """The gradient as the paper prints it, −(PMI + I)/n: kept to show that it is not the gradient."""
    n = float(table.sum())
    return np.asarray(np.where(table > 0, -(pointwise(table) + information(table)) / n, 0.0))


def spread_by(slope: Floats, sigma: float) -> float:
    """Delta method: standard deviation of I under independent noise `sigma` on every cell."""
    return sigma * math.sqrt(float(np.sum(slope**2)))


def mi_errors(table: Floats, ratio: float, draws: int, rng: np.random.Generator) -> Floats:
    """I(noisy) − I(exact) for `draws` independent noises at one signal-to-noise ratio."""
    sigma = float(table.mean()) / ratio
    exact = information(table)
    return np.array([information(table + rng.normal(0, sigma, table.shape)) - exact for _ in range(draws)])


def study_information(tabled: Tabled, members: Sequence[int], draws: int) -> pl.DataFrame:
    """Table (a): bias, spread and both predictions of the spread, for some tables of a federation."""
    layout = plan(tabled.schema, float("inf")).layout
    summed = tabled.matrix[list(members)].sum(axis=0).astype(np.float64)
    rng = np.random.default_rng(20)
    lines = []
    for j, (x, y) in enumerate(layout.pairs):
        names = (layout.names[x], layout.names[y])
        if names not in PAIRS and names[::-1] not in PAIRS:
            continue
        table = summed[layout.slice(j)].reshape(layout.shapes[j])
        for ratio in RATIOS:
            errors = mi_errors(table, ratio, draws, rng)
            sigma = float(table.mean()) / ratio
            lines.append(
                {
                    "pair": " × ".join(names),
                    "cells": table.size,
                    "empty": int(np.sum(table == 0)),
                    "snr": float(ratio),
                    "information": information(table),
                    "bias": float(errors.mean()),
                    "spread": float(errors.std(ddof=1)),
                    "spread_error": float(errors.std(ddof=1)) / math.sqrt(2 * (draws - 1)),
                    "delta_corrected": spread_by(gradient(table), sigma),
                    "delta_printed": spread_by(printed_gradient(table), sigma),
                    "low": float(np.quantile(errors, 0.05)),
                    "high": float(np.quantile(errors, 0.95)),
                }
            )
    return pl.DataFrame(lines)


class Losses:
    """True and noisy losses of listed federations, many draws at once, by the paper's plug-in estimate."""

    def __init__(self, tabled: Tabled, federations: npt.NDArray[np.int64], epsilon: float) -> None:
        self.tabled = tabled
        self.federations = federations
        made = plan(tabled.schema, epsilon, calibration="rdp", allocation="uniform")
        self.layout, self.sigmas = made.layout, made.sigmas
        self.signed = tabled.signed_weights()
        self.member = np.zeros((len(federations), len(tabled.clients)))
        for row, members in enumerate(federations):
            self.member[row, members] = 1.0
        self.true = self._losses(tabled.matrix.astype(np.float64))

    def _losses(self, cells: Floats) -> Floats:
        summed = np.maximum(self.member @ cells, 0.0)
        total = np.zeros(len(summed))
        for j, weight in enumerate(self.signed):
            if weight:
                table = summed[:, self.layout.slice(j)].reshape(-1, *self.layout.shapes[j])
                total += weight * _information(table)
        return total

    def draw(self, rng: np.random.Generator) -> Floats:
        """Losses under one fresh noise on every client's tables."""
        noise = rng.normal(size=self.tabled.matrix.shape) * self.layout.per_cell(self.sigmas)
        return self._losses(self.tabled.matrix + noise)


def _information(tables: Floats) -> Floats:
    """Mutual information of a stack of tables, shape (federations, rows, columns)."""

    def f(counts: Floats, axes: tuple[int, ...]) -> Floats:
        return np.asarray((counts * np.log2(np.where(counts > 0, counts, 1.0))).sum(axis=axes))

    n = tables.sum(axis=(1, 2))
    return np.asarray(
        np.log2(n) + (f(tables, (1, 2)) - f(tables.sum(axis=2), (1,)) - f(tables.sum(axis=1), (1,))) / n
    )


def study_orders(
    tabled: Tabled, *, k: int, epsilons: Sequence[float], pairs: int, draws: int
) -> pl.DataFrame:
    """Table (b): for random federations and a random swap of each, how often noise reverses their order.

    Two columns: by the plain sign of the noisy difference, and with the estimator's own bias taken out (the
    bound speaks of unbiased noise; sparse tables bias the plug-in estimate).
    """
    rng = np.random.default_rng(21)
    drawn = []
    for _ in range(pairs):
        order = rng.permutation(len(tabled.clients))
        first = np.sort(order[:k])
        drawn += [first, np.sort(np.r_[order[1:k], order[k]])]
    lines = []
    for epsilon in epsilons:
        losses = Losses(tabled, np.array(drawn), epsilon)
        noisy = np.stack([losses.draw(rng) for _ in range(draws)])
        gap = losses.true[1::2] - losses.true[::2]
        differences = noisy[:, 1::2] - noisy[:, ::2]
        centred = differences - differences.mean(axis=0) + gap
        sigma = noisy.std(axis=0, ddof=1).reshape(-1, 2).mean(axis=1)
        for i in range(pairs):
            sign = math.copysign(1.0, gap[i])
            lines.append(
                {
                    "epsilon": epsilon,
                    "pair": i,
                    "gap": abs(float(gap[i])),
                    "sigma": float(sigma[i]),
                    "bound": local_bound(k, float(gap[i]), float(sigma[i])),
                    "misordered": float(np.mean(differences[:, i] * sign < 0)),
                    "misordered_unbiased": float(np.mean(centred[:, i] * sign < 0)),
                    "difference_ratio": float(differences[:, i].var(ddof=1) / (2 / k * sigma[i] ** 2)),
                    "draws": draws,
                }
            )
    return pl.DataFrame(lines)


def study_optimality(
    tabled: Tabled, *, k: int, epsilons: Sequence[float], sample: int, draws: int
) -> pl.DataFrame:
    """Table (c): among listed federations, how far the noisy minimiser is from the best, against its bound."""
    rng = np.random.default_rng(22)
    listed = np.array([np.sort(rng.permutation(len(tabled.clients))[:k]) for _ in range(sample)])
    lines = []
    for epsilon in epsilons:
        losses = Losses(tabled, listed, epsilon)
        noisy = np.stack([losses.draw(rng) for _ in range(draws)])
        xi = noisy - losses.true
        centred = xi - xi.mean(axis=0)
        best = float(losses.true.min())
        regret = losses.true[noisy.argmin(axis=1)] - best
        unbiased = losses.true[(losses.true + centred).argmin(axis=1)] - best
        supremum = float(np.abs(centred).max(axis=1).mean())
        sigma = float(centred.std(axis=0, ddof=1).max())
        for multiple in (1.0, 2.2, 2.5, 3.0, 4.0, 6.0):
            mu = multiple * supremum
            lines.append(
                {
                    "epsilon": epsilon,
                    "mu": mu,
                    "expected_sup": supremum,
                    "sigma": sigma,
                    "bias": float(xi.mean()),
                    "bound": global_bound(mu, supremum, sigma),
                    "missed": float(np.mean(regret > mu)),
                    "missed_unbiased": float(np.mean(unbiased > mu)),
                    "mean_regret": float(regret.mean()),
                    "range_of_losses": float(np.ptp(losses.true)),
                    "federations": sample,
                    "draws": draws,
                }
            )
    return pl.DataFrame(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--task", default=None)
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    name = options.task or ("income2018" if census.available("income2018", options.data) else "synthetic")
    tabled = census.load(name, records=options.data, mean_rows=100, test_rows=1000).sex
    draws = 100 if options.quick else 1000
    print(f"[noise] {name}", flush=True)
    members = [tabled.clients.index(c) for c in ("AK", "CA", "CT", "MD", "RI")]
    tables = {
        "noise_information.csv": study_information(tabled, members, draws),
        "noise_orders.csv": study_orders(
            tabled, k=5, epsilons=(1.0, 10.0), pairs=20 if options.quick else 100, draws=draws
        ),
        "noise_optimality.csv": study_optimality(
            tabled, k=5, epsilons=(0.5, 1.0, 5.0), sample=50 if options.quick else 300, draws=draws // 2
        ),
    }
    for file, table in tables.items():
        write_table(table.with_columns(pl.lit(name).alias("data")), options.out / file)
        print(f"[noise] {file}: {table.height} lines", flush=True)


if __name__ == "__main__":
    main()
