"""Benchmark of levels: where do gaps between groups go astray, in the doubles, in the training or with who judges?

    python benchmarks/levels.py [--pools travel2024 ...] [--draws 1 2 3 4] [--number 6]

Random federations of five train a network on rows with two seeds, and on doubles of exact tables, of estimates at
ε = 1, and of estimates lengthened as the library draws them (`fedwise.estimation.variation`); always whole releases
with joint tables. Each model is judged on real held-out rows and, where it was trained on doubles, by people of the
same tables; as it stands after the last round, and settled (`fedwise.rehearsal.settling`). Printed and kept, mean over
federations: SPD, EOD and the share of predicted positives at ½; how far the mean chance is off the label rate of the
records that trained (`off`), its size, and how much SPD goes with it (`per_off`, the median).

Federations and noise are others than those of benchmarks/rehearsal.py (seed 1, draws from 1). Writes
docs/results/levels.csv. Needs the census records in ../shared/data.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import numpy as np
import polars as pl
from rehearsal_pools import AREAS, STATES, Real, config_of, federations, load, measured, scorer, settings

from fedwise.rehearsal.judging import Judges
from fedwise.rehearsal.settling import offset
from fedwise.rehearsal.stage import Stage
from fedwise.training.encoding import Rows
from fedwise.training.federation import Prepared
from fedwise.training.model import Vector
from fedwise.training.ranking import probability

SIZE, SEED = 5, 1
#: What doubles are drawn from.
TABLES = ("exact", "estimated", "lengthened")
METRICS = ("spd", "eod", "positives", "off", "off_size", "per_off")
OUT = Path(__file__).parents[1] / "docs" / "results" / "levels.csv"

Line = dict[str, object]


class Bench:
    """One pool: trainings on rows or doubles, and what rows and people say of them."""

    def __init__(self, real: Real, number: int) -> None:
        self.real, self.encoder = real, real.prepared.encoder
        self.federations = federations(real.clients, SIZE, number, seed=SEED)

    def lines(self, draws: list[int]) -> Iterator[Line]:
        """One line for each training, judge, and model settled or not."""
        for seed in (0, 1):
            for members in self.federations:
                yield from self._one(self.real.prepared, members, seed, {"tables": "rows", "draw": seed})
        for draw in draws:
            for tables in TABLES:
                pool = self.real.pool(math.inf if tables == "exact" else 1.0, draw, joint=True)
                # The library always lengthens; estimates as they are have to be asked for.
                plain = patch("fedwise.doubling.drawer.varied", lambda estimates: estimates)
                with plain if tables == "estimated" else nullcontext():
                    stage = Stage(pool, self.encoder, seed=draw)
                    judges = stage.judges if stage.gap_judges is None else stage.gap_judges
                    assert isinstance(judges, Judges)
                    for members in self.federations:
                        doubles = stage.prepared(members, whole=stage.gap_judges is not None)
                        yield from self._one(doubles, members, 0, {"tables": tables, "draw": draw}, judges)

    def _one(
        self,
        prepared: Prepared,
        members: tuple[str, ...],
        seed: int,
        told: Line,
        judges: Judges | None = None,
    ) -> Iterator[Line]:
        scores = scorer(prepared, members, config_of(settings(self.real.name), seed))
        own = Rows.concat([prepared.train[client] for client in members])
        of_own = scores(own)
        move, off = offset(of_own, own.y), float(probability(of_own).mean() - own.y.mean())
        told = {
            "pool": self.real.name,
            **told,
            "federation": " ".join(members),
            "off": off,
            "off_size": abs(off),
        }
        held = self.real.prepared.held_out

        def of_rows(found: Vector) -> dict[str, float]:
            return self._named(measured(found, held, self.encoder), found)

        def of_people(found: Vector) -> dict[str, float]:
            assert judges is not None
            return self._named(judges.measure(found)[0], found)

        looks = {"rows": (scores(held), of_rows)}
        if judges is not None:
            looks["people"] = (scores(judges.rows), of_people)
        for name, (as_it_is, look) in looks.items():
            found, settled = look(as_it_is), look(np.asarray(as_it_is + np.float32(move)))
            per_off = (found["spd"] - settled["spd"]) / off
            yield {**told, "judges": name, "settled": False, **found, "per_off": per_off}
            yield {**told, "judges": name, "settled": True, **settled, "per_off": per_off}

    def _named(self, found: dict[str, float], scores: Vector) -> dict[str, float]:
        attribute = self.encoder.attributes[0]
        gaps = {name: float(found[f"{name}:{attribute}"]) for name in ("spd", "eod")}
        return {**gaps, "positives": float((scores > 0).mean())}


def main() -> None:
    """Train, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pools", nargs="+", choices=(*STATES, *AREAS), default=["travel2024"])
    parser.add_argument("--draws", nargs="+", type=int, default=[1, 2, 3, 4])
    parser.add_argument("--number", type=int, default=6)
    args = parser.parse_args()
    found = [line for name in args.pools for line in Bench(load(name), args.number).lines(args.draws)]
    table = pl.DataFrame(found).group_by("pool", "tables", "judges", "settled", "draw", maintain_order=True).agg(
        pl.col(METRICS[:-1]).mean(), pl.col("per_off").median()
    )  # fmt: skip
    table.write_csv(OUT, float_precision=5)
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=160):
        print(table.group_by("pool", "tables", "judges", "settled", maintain_order=True).agg(
            pl.col(METRICS).mean().round(4), draws=pl.col("spd").round(3)
        ))  # fmt: skip


if __name__ == "__main__":
    main()
