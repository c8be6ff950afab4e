"""Comparison: strategies × samplers × federations × seeds, all tested on the same held-out rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from ..errors import FedwiseError, nearest
from ..files import write_table
from ..objective.metric import parse
from ..schema.frame import FrameLike
from ..schema.schema import Schema
from ..search.point import undominated
from .cached import Cache, Job, train_all
from .federation import Prepared, prepare, read_frames
from .model import check_extra
from .records import final
from .samplers import SAMPLERS
from .settings import Training
from .simulate import Config
from .strategies import STRATEGIES

#: Columns that name a method.
METHOD = ("federation", "strategy", "sampler")
#: Metrics a comparison prints: gains at ½ alone may be those of a model that says yes more often.
SHOWN = (
    "auc", "macro_auc", "macro_f1", "mae", "rmse", "loss", "balanced_accuracy", "balanced_accuracy@rate", "eod",
    "eod@rate", "spd", "spd@rate", "error_gap",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Comparison:
    """Trainings side by side.

    Parameters
    ----------
    table
        Tidy: the columns of `METHOD`, ``seed``, ``privacy`` (what protects the training), and those of `Record`.
    runs
        How many trainings it holds.
    attributes
        Sensitive attributes of the fairness gaps.
    notes
        Sentences about clients whose data is unusual but usable.
    """

    table: pl.DataFrame
    runs: int
    attributes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_frame(self) -> pl.DataFrame:
        """The table."""
        return self.table

    def summary(
        self,
        *,
        rows: str = "all",
        metric: str | None = None,
        target: float | None = None,
        metrics: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """As `summarise`; `metrics` keeps these lines only, such as ``["auc", "eod:SEX@rate"]``."""
        found = summarise(self.table, rows=rows, metric=metric, target=target)
        if metrics is None:
            return found
        asked = [parse(name, what="metrics", attributes=self.attributes) for name in metrics]
        keep = [
            (pl.col("metric") == one.column)
            & (pl.col("attribute") == one.attribute if one.attribute else pl.lit(True))
            for one in asked
        ]
        return found.filter(pl.any_horizontal(keep)) if keep else found.clear()

    def front(self, maximise: str = "auc", minimise: str = "eod@rate", *, rows: str = "all") -> pl.DataFrame:
        """The methods with both metrics, and whether another one is at least as good in both.

        Parameters
        ----------
        maximise, minimise
            Metrics by name; a gap without an attribute is that of the first.

        Returns
        -------
        front
            Columns of `METHOD`, the two metrics (means over seeds), and ``undominated``; best of `maximise` first.
        """
        summary = summarise(self.table, rows=rows)
        columns = []
        for what, name in (("maximise", maximise), ("minimise", minimise)):
            one = parse(name, what=what, attributes=self.attributes)
            attribute = one.attribute or (self.attributes[0] if one.compares_groups else "")
            found = summary.filter((pl.col("metric") == one.column) & (pl.col("attribute") == attribute))
            columns.append(found.select(*METHOD, pl.col("mean").alias(name)))
        both = columns[0].join(columns[1], on=list(METHOD), maintain_order="left")
        kept = undominated(
            range(both.height),
            cost=lambda i: float(both[minimise][i]),
            gain=lambda i: float(both[maximise][i]),
        )
        flags = pl.Series("undominated", [i in kept for i in range(both.height)], dtype=pl.Boolean)
        return both.with_columns(flags).sort(maximise, descending=True, maintain_order=True)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the table as Parquet, or as CSV where the name ends so."""
        write_table(Path(path), self.table, force=force)

    def __str__(self) -> str:
        return str(self.summary(metrics=SHOWN))


def compare(
    frames: Mapping[str, FrameLike] | str | Path,
    schema: Schema,
    federations: Mapping[str, Sequence[str]] | None = None,
    settings: Training | None = None,
    *,
    strategies: Sequence[str] | None = None,
    samplers: Sequence[str] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    workers: int = 1,
    cache: str | Path | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> Comparison:
    """Train every federation with every strategy and sampler, and test all on the same held-out rows.

    Parameters
    ----------
    frames
        Rows of every client by name (frames or files), or a directory with one file for each.
    federations
        Members by the name of the federation. Default: every client.
    settings
        How to train; its strategy, sampler and seed are replaced by those compared.
    strategies, samplers
        Default: those of `settings`. ``["all"]`` is every one there is.
    seeds
        Of the runs of each method. Private trainings are therefore simulated ones.
    workers, cache
        Processes, and a directory of finished trainings: after a stop only the rest is trained.
    progress
        Called with trainings done, trainings asked for, and the best accuracy (RMSE of a number) so far.
    """
    check_extra()
    settings = settings or Training()
    _, found = read_frames(frames)
    work = jobs(
        federations or {"everyone": list(found)},
        strategies=_every(strategies or [settings.strategy], STRATEGIES),
        samplers=_every(samplers or [settings.sampler], SAMPLERS),
        seeds=seeds,
        config=settings.config(),
    )
    prepared = prepare(
        found, schema, test=settings.test, seed=settings.split_seed, use_sensitive=settings.use_sensitive
    )
    done, best = 0, -math.inf
    choose = min if prepared.encoder.task.kind == "number" else max

    def after(_: Job, table: pl.DataFrame) -> None:
        nonlocal done, best
        value = final(table, usual_metric(table))
        done, best = done + 1, value if math.isinf(best) else choose(best, value)
        if progress:
            progress(done, len(work), best)

    table = train_jobs(prepared, work, workers=workers, cache=cache, on_done=after)
    return Comparison(table, len(work), prepared.encoder.attributes, prepared.notes)


def random_federations(clients: Sequence[str], count: int, k: int, *, seed: int = 0) -> dict[str, list[str]]:
    """`count` federations of `k` clients, drawn evenly and by name: ``random 1``, ``random 2``, …"""
    if count and not 1 <= k <= len(clients):
        raise FedwiseError(f"k must be between 1 and {len(clients)}, got {k}")
    found = {}
    for number in range(count):
        rng = np.random.default_rng((seed, number, 0xFEDE))
        drawn = rng.choice(np.array(clients), size=k, replace=False)
        found[f"random {number + 1}"] = sorted(drawn.tolist())
    return found


def _every(asked: Sequence[str], known: Mapping[str, object]) -> list[str]:
    return list(known) if list(asked) == ["all"] else list(asked)


def jobs(
    federations: Mapping[str, Sequence[str]],
    *,
    strategies: Sequence[str],
    samplers: Sequence[str],
    seeds: Sequence[int],
    config: Config,
) -> list[Job]:
    """Every combination, in a fixed order. Unknown names are refused before anything runs."""
    if not (federations and strategies and samplers and seeds):
        raise FedwiseError("compare needs at least one federation, strategy, sampler and seed")
    return [
        Job(
            tuple(members),
            msgspec.structs.replace(
                config, strategy=strategy, sampler=sampler, seed=seed, simulated=config.privacy is not None
            ),
            name,
        )
        for name, members in federations.items()
        for strategy in strategies
        for sampler in samplers
        for seed in seeds
    ]


def train_jobs(
    prepared: Prepared,
    work: Sequence[Job],
    *,
    workers: int = 1,
    cache: str | Path | None = None,
    on_done: Callable[[Job, pl.DataFrame], None] | None = None,
) -> pl.DataFrame:
    """Run the jobs, in processes of their own where `workers` is above 1.

    Parameters
    ----------
    cache
        Directory of finished trainings: run again after a stop, and only the rest is trained.
    on_done
        Called with each job and its lines.

    Returns
    -------
    table
        Tidy: the columns of `METHOD`, ``seed``, ``privacy``, and those of `Record`. The order and the numbers do not
        depend on `workers`.
    """
    for job in work:
        prepared.check(job.members)

    def finished(place: int, records: pl.DataFrame, _: bool) -> None:
        if on_done:
            on_done(work[place], _label(work[place], records))

    tables = train_all(
        prepared,
        work,
        cache=None if cache is None else Cache(cache, prepared),
        workers=workers,
        on_done=finished,
    )
    return pl.concat([_label(job, records) for job, records in zip(work, tables, strict=True)])


def _label(job: Job, records: pl.DataFrame) -> pl.DataFrame:
    return records.select(
        pl.lit(job.federation).alias("federation"),
        pl.lit(job.config.strategy).alias("strategy"),
        pl.lit(job.config.sampler).alias("sampler"),
        pl.lit(job.config.seed, dtype=pl.Int64).alias("seed"),
        pl.lit(_privacy(job.config)).alias("privacy"),
        pl.all(),
    )


def _privacy(config: Config) -> str:
    """What protects a training of a comparison, in the labels of `fedwise.view.labels`: its noise has a seed."""
    return "not private" if config.privacy is None else "simulated"


def summarise(
    table: pl.DataFrame, *, rows: str = "all", metric: str | None = None, target: float | None = None
) -> pl.DataFrame:
    """One line for each method and metric: final mean, 95% interval, and rounds to the target.

    Parameters
    ----------
    table
        As `compare` returns it.
    rows
        ``all`` (held-out rows of every client) or ``own`` (of the federation).
    metric, target
        The metric whose first round at the target is looked for; default accuracy, or the RMSE of a number.
        Default target: 98% of the way from the
        untrained to the best method's final mean.

    Returns
    -------
    summary
        Columns of `METHOD`, ``metric``, ``attribute``, ``mean``, ``low``, ``high``, ``seeds``, and
        ``rounds_to_target``: the median over seeds, null where a majority of them never gets there. The
        interval is Student's over seeds; with a single seed, the bootstrap over test rows.
    """
    tested = table.filter((pl.col("rows") == rows) & pl.col("value").is_not_nan())
    last = tested.filter(pl.col("round") == pl.col("round").max())
    keys = [*METHOD, "metric", "attribute"]
    grouped = last.group_by(keys, maintain_order=True).agg(
        pl.col("value").mean().alias("mean"),
        pl.col("value").std().alias("spread"),
        pl.col("value").count().cast(pl.Int64).alias("seeds"),
        pl.col("low").first().alias("low"),
        pl.col("high").first().alias("high"),
    )
    lines = []
    for line in grouped.iter_rows(named=True):
        spread, seeds = line.pop("spread"), line["seeds"]
        if seeds > 1:
            from scipy.stats import t

            reach = float(t.ppf(0.975, seeds - 1)) * (spread or 0.0) / math.sqrt(seeds)
            line["low"], line["high"] = line["mean"] - reach, line["mean"] + reach
        lines.append(line)
    summary = pl.DataFrame(lines, schema_overrides={"low": pl.Float64, "high": pl.Float64})
    return summary.join(
        _reached(tested, metric, target), on=list(METHOD), how="left", maintain_order="left"
    ).select(*keys, "mean", "low", "high", "seeds", "rounds_to_target")


def usual_metric(table: pl.DataFrame) -> str:
    """The metric people ask for first: accuracy of classes, the root of the mean squared error of a number."""
    return "accuracy" if "accuracy" in table.get_column("metric") else "rmse"


def _reached(tested: pl.DataFrame, metric: str | None, target: float | None) -> pl.DataFrame:
    metric = metric or usual_metric(tested)
    path = tested.filter((pl.col("metric") == metric) & (pl.col("attribute") == ""))
    if path.is_empty():
        known = sorted(tested.get_column("metric").unique().to_list())
        raise FedwiseError(
            f"metric must be one of {', '.join(known)}, got '{metric}'{nearest(metric, known)}"
        )
    if path.get_column("round").n_unique() < tested.get_column("round").n_unique():
        raise FedwiseError(
            f"metric must be one of every round, such as accuracy, got '{metric}', which only the last round has; "
            "rounds to a target need every round"
        )
    larger = parse(metric).larger_is_better
    if target is None:
        final = (
            path.filter(pl.col("round") == pl.col("round").max())
            .group_by(list(METHOD))
            .agg(pl.col("value").mean())
        )
        best = final.get_column("value").max() if larger else final.get_column("value").min()
        start = path.filter(pl.col("round") == pl.col("round").min()).get_column("value").mean()
        assert isinstance(best, float)
        assert isinstance(start, float)
        target = start + 0.98 * (best - start)
    there = pl.col("value") >= target if larger else pl.col("value") <= target
    rounds = path.group_by([*METHOD, "seed"], maintain_order=True).agg(
        pl.col("round").filter(there).min().cast(pl.Float64).fill_null(np.inf)
    )
    return rounds.group_by(list(METHOD), maintain_order=True).agg(
        pl.col("round").median().replace(np.inf, None).alias("rounds_to_target")
    )
