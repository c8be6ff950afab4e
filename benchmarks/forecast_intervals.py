"""Benchmark of the forecast's 90% intervals: do they hold what training gives?

    python benchmarks/forecast_intervals.py [--pools ...] [--eps 1 inf 0.3 0.1] [--sizes 5 10] [--number 40] [--draws 2]

Pools, random federations and trainings are those of benchmarks/rehearsal.py (the same folder may be given, and what was
trained there is not trained again), and `FURTHER` ones. The gap between the forecast's model and the trained one is
calibrated on `CALIBRATED` and `FURTHER` at ε = 1, and printed; the other pools check it. A gap is mostly a
level that a pool's federations share, so the number of pools counts: three of them said too little. `FURTHER` was fixed
before any of its figures was seen, with other labels than those of the pools that check.

Parts are kept as they finish. Writes docs/results/forecast_intervals.csv and forecast_intervals.md. Needs the census
records in ../shared/data.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np
import polars as pl
from rehearsal_pools import AREAS, CALIBRATED, DATA, STATES, Real, Trained, federations, load
from rehearsal_tables import METRICS, table
from scipy import special

from fedwise.data import pums
from fedwise.data.split import split_all
from fedwise.estimation import estimate
from fedwise.forecasting import Forecaster, Settings
from fedwise.forecasting.gap import gap_of
from fedwise.objective.interval import Z, interval
from fedwise.objective.metric import parse
from fedwise.owner.tables import count
from fedwise.planning import plan
from fedwise.schema.schema import Column, Role, Schema
from fedwise.training.encoding import Encoder
from fedwise.training.federation import Prepared

POOLS = (*STATES, *AREAS)
#: Further pools to calibrate on: state whose areas are the clients or "" for states, rows, target, columns it is not
#: told from.
FURTHER = {
    "degree": ("", ("AGEP > 24",), "SCHL >= 21", ("SCHL",)),
    "married": ("", ("AGEP > 17",), "MAR == 1", ("MAR",)),
    "disabled": ("", ("AGEP > 17",), "DIS == 1", ("DIS",)),
    "income_oh": ("OH", ("AGEP > 16", "PINCP > -30000"), "PINCP > 40000", ()),
    "coverage_il": ("IL", ("AGEP > 17",), "PUBCOV == 1", ()),
    "veteran_va": ("VA", ("AGEP > 17", "MIL > 0"), "MIL == 2", ()),
}
# Pools of areas train with the learning rate of areas.
AREAS.update({name: (state, where, target) for name, (state, where, target, _) in FURTHER.items() if state})
_FEATURES = ("AGEP", "SCHL", "MAR", "DIS", "CIT", "SEX", "NATIVITY")
#: Least rows of a client.
_LEAST = 600
OUT = Path(__file__).parents[1] / "docs" / "results"
#: Share of trained values that intervals must hold on pools they were not calibrated on.
ASKED = 0.85
#: Seed of the trainings.
SEED = 0
#: Rows of a client that train, and rows of all clients that test.
_SAMPLE, _TESTED = 3_000, 40_000


def further(name: str, *, sample: int | None = _SAMPLE, tested: int = _TESTED) -> Real:
    """One of the further pools, with tables, rows to train and rows to test as in benchmarks/rehearsal_pools.py."""
    state, where, target, untold = FURTHER[name]
    source = target.split()[0]
    schema = Schema(
        name=name,
        columns=(
            *(pums.column(c, role=Role.FEATURE) for c in _FEATURES if c not in untold),
            Column(name="WHITE", role=Role.SENSITIVE, rule="RAC1P == 1"),
            Column(name="LABEL", role=Role.TARGET, rule=target),
        ),
        where=where,
    )
    rows = pl.scan_parquet(DATA / "acs2024_person.parquet").with_columns(pl.col("ST").cast(pl.String))
    rows = rows.filter(pl.col("ST") == state) if state else rows
    by = "PUMA" if state else "ST"
    wanted = dict.fromkeys((by, *_FEATURES, "RAC1P", source))
    frame = rows.select(*wanted).with_columns(pl.col(source).fill_null(-1)).collect()
    parts = frame.partition_by(by, as_dict=True, include_key=False)
    clients = {f"{state}{key[0]}": schema.select_rows(part) for key, part in sorted(parts.items())}
    clients = {client: part for client, part in clients.items() if part.height >= _LEAST}
    train, test = split_all(clients, 0.2, seed=0)
    asked = plan(schema, math.inf, joint=True)
    exact = [count(asked.schema.encode(part), asked.layout).exact for part in train.values()]
    share = min(1.0, tested / sum(part.height for part in test.values()))
    encoder = Encoder(schema)
    most = math.inf if sample is None else sample
    prepared = Prepared(
        encoder,
        {c: encoder.encode(part.sample(int(min(most, part.height)), seed=1)) for c, part in train.items()},
        {c: encoder.encode(part.sample(fraction=share, seed=1)) for c, part in test.items()},
    )
    return Real(name, schema, tuple(train), np.stack(exact), prepared)


def measure(name: str, options: argparse.Namespace) -> list[dict[str, object]]:
    """What is forecast, with standard errors, beside what training gives: a row for each federation and metric."""
    rows: list[dict[str, object]] = []
    parts = {
        (size, epsilon, draw): options.out
        / f"{name}.{epsilon:g}.{draw}.{size}.{options.number}.predicted.json"
        for size in options.sizes
        for epsilon in options.eps
        for draw in range(1 if math.isinf(epsilon) else options.draws)
    }
    real = (
        None
        if all(path.exists() for path in parts.values())
        else (further(name) if name in FURTHER else load(name, cap=None, sample=_SAMPLE, tested=_TESTED))
    )
    for (size, epsilon, draw), path in parts.items():
        if not path.exists():
            assert real is not None
            trained = Trained.of(real, options.out)
            made = Forecaster(
                estimate(real.pool(epsilon, options.noise + draw)), settings=Settings.for_model("mlp")
            )
            attribute = real.schema.names[real.schema.sensitive[0]]
            lines = []
            for members in federations(real.clients, size, options.number):
                found, truth = made.predict(members, draws=16), trained(members, SEED)
                for metric in METRICS:
                    known = parse(metric)
                    full = str(known._replace(attribute=attribute) if known.compares_groups else known)
                    lines.append(
                        {
                            "pool": name, "k": size, "epsilon": epsilon, "draw": draw, "clients": " ".join(members),
                            "metric": metric, "trained": truth[full], "forecast": found.metrics.value(metric),
                            "error": found.std_errors[metric],
                        }
                    )  # fmt: skip
            path.write_text(json.dumps(lines))
            print(f"{name} k={size} ε={epsilon:g} draw {draw}", file=sys.stderr, flush=True)
        rows += json.loads(path.read_text())
    return rows


def calibrate(rows: pl.DataFrame) -> dict[str, float]:
    """The gap of each metric: root mean square of what trained − forecast leaves beyond noise."""
    some = rows.filter(pl.col("pool").is_in([*CALIBRATED, *FURTHER]) & (pl.col("epsilon") == 1))
    off = (pl.col("trained") - pl.col("forecast")) ** 2 - pl.col("error") ** 2
    by_pool = some.group_by("metric", "pool").agg(off=off.mean().clip(0.0))
    return dict(by_pool.group_by("metric").agg(pl.col("off").mean().sqrt()).sort("metric").iter_rows())


def left_out(rows: pl.DataFrame) -> dict[str, float]:
    """Share of each calibration pool's trained values within intervals of the gap of the others, mean over pools."""
    pools = [*CALIBRATED, *FURTHER]
    some = rows.filter(pl.col("pool").is_in(pools) & (pl.col("epsilon") == 1))
    found: dict[str, list[float]] = {}
    for pool in some["pool"].unique().sort():
        gaps = calibrate(some.filter(pl.col("pool") != pool))
        quantile = float(special.stdtrit(some["pool"].n_unique() - 1, 0.95))
        for metric, part in some.filter(pl.col("pool") == pool).group_by("metric"):
            name = str(metric[0])
            reach = ((Z * part["error"]) ** 2 + (quantile * gaps[name]) ** 2).sqrt()
            found.setdefault(name, []).append(
                float(((part["trained"] - part["forecast"]).abs() <= reach).mean() or 0.0)
            )
    return {metric: float(np.mean(shares)) for metric, shares in sorted(found.items())}


def judged(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with the intervals that fedwise gives, and whether they hold the trained value."""
    bounds = [
        interval(metric, value, noise=error**2, gap=gap_of(metric))
        for metric, value, error in rows.select("metric", "forecast", "error").iter_rows()
    ]
    return rows.with_columns(
        low=pl.Series([b.low for b in bounds]), high=pl.Series([b.high for b in bounds]),
        known=pl.Series([b.known for b in bounds]), checks=~pl.col("pool").is_in([*CALIBRATED, *FURTHER]),
    ).with_columns(covered=pl.col("trained").is_between("low", "high"))  # fmt: skip


def write(rows: pl.DataFrame) -> None:
    """The table for machines and the page for people."""
    cells = ["checks", "pool", "k", "epsilon", "metric"]
    by_pool = rows.group_by(cells).agg(
        federations=pl.len(), covered=pl.col("covered").mean(), known=pl.col("known").mean(),
        bias=(pl.col("forecast") - pl.col("trained")).mean(), noise=pl.col("error").mean(),
        width=(pl.col("high") - pl.col("low")).mean(),
    ).sort(cells)  # fmt: skip
    by_pool.write_csv(OUT / "forecast_intervals.csv", float_precision=5)
    checks = by_pool.filter("checks")
    names = ", ".join(checks["pool"].unique().sort())
    parts = [
        "# Intervals of the forecast",
        "",
        "Made by `python benchmarks/forecast_intervals.py`. 90% intervals of the forecast beside networks trained on "
        f"rows (benchmarks/rehearsal_pools.py says how). The gap in them was calibrated on {', '.join(CALIBRATED)} and "
        f"on six further pools ({', '.join(FURTHER)}), fixed before any figure of theirs was seen; {names} check it. "
        "The six were added after the three alone had covered the checking pools badly (below), so these are no longer "
        "untouched. Clients train on a sample of at most 3,000 of the rows that their tables count. "
        f"{rows['draw'].max() + 1} draw(s) of the noise.",  # type: ignore[operator]
        "",
        "Calibrated on the first three pools alone, the intervals held the trained AUC of the pools that check in 54% "
        "of cases and the log loss in 49%: the forecast is too high where training stops early (TravelTime) and too "
        "low where a network finds more than pairs show (Employment), and none of the three pools is of either kind.",
        "",
        "Left out in turn, each of the nine calibration pools is covered by what the other eight say in the share "
        f"given here (mean over pools): {', '.join(f'{m} {c:.2f}' for m, c in left_out(rows).items())}. "
        "Where a pool that checks is covered less, it is unlike the nine: nothing in these asks for wider intervals.",
        "",
        "## Pools that were not used to calibrate, all of them together (asked: at least .85)",
        "",
        '*Known*: share of figures that are not replaced by "not known at this epsilon". *Noise*: the standard error '
        "that the privacy noise leaves, the rest of the width is the gap.",
        "",
    ]
    for k, epsilon in (
        checks.select("k", "epsilon").unique().sort("k", "epsilon", descending=[False, True]).iter_rows()
    ):
        some = checks.filter((pl.col("k") == k) & (pl.col("epsilon") == epsilon)).group_by("metric")
        means = some.agg(pl.col("covered", "known", "noise", "width").mean(), lowest=pl.col("covered").min())
        missed = means.filter(pl.col("covered") < ASKED).sort("metric")["metric"].to_list()
        parts += [f"k = {k}, ε = {epsilon:g}:", "", table(means.sort("metric")), ""]
        parts += [f"Below {ASKED}: {', '.join(missed) or 'none'}.", ""]
    parts += [
        "## Bias by pool, ε = 1: forecast minus trained",
        "",
        table(
            by_pool.filter((pl.col("epsilon") == 1) & (pl.col("k") == 5))
            .pivot(on="metric", index=["pool", "checks"], values="bias")
            .sort("checks", "pool")
        ),
        "",
    ]
    (OUT / "forecast_intervals.md").write_text("\n".join(parts))


def main() -> int:
    """Measure what is missing, calibrate, check, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pools", nargs="+", choices=[*POOLS, *FURTHER], default=[*POOLS, *FURTHER])
    parser.add_argument("--sizes", nargs="+", type=int, default=[5, 10])
    parser.add_argument("--eps", nargs="+", type=float, default=[1.0, math.inf, 0.3, 0.1])
    parser.add_argument("--number", type=int, default=40, help="random federations of each size")
    parser.add_argument("--draws", type=int, default=2, help="of the noise")
    parser.add_argument("--noise", type=int, default=0, help="seed of the first draw")
    parser.add_argument("--out", type=Path, default=Path("rehearsal-parts"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = pl.DataFrame([row for name in options.pools for row in measure(name, options)])
    print("gaps:", {m: round(g, 4) for m, g in calibrate(rows).items()})
    write(judged(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
