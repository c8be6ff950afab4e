"""Halving: references that stand for all random federations, and limits that a search aims within."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from msgspec.structs import replace as replace_struct

import fedwise as fw
from fedwise.rehearsal.foreseen import Foreseen
from fedwise.rehearsal.goal import Goal
from fedwise.rehearsal.halving import SHORT, Asked, Halving
from fedwise.rehearsal.makeup import Clients
from fedwise.rehearsal.trained import Gaps, Trained
from fedwise.rehearsal.trainings import Task
from fedwise.search.constraints import Limits
from fedwise.search.control import Control

CLIENTS = 30
NONE = np.zeros(0, np.int64)
FREE = Limits(NONE, np.arange(CLIENTS), np.zeros((0, CLIENTS)), np.zeros(0), np.full(CLIENTS, -1), NONE)


class Means:
    """Forecasts that are sums over clients."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows

    def values(self, sums: np.ndarray, names: Sequence[str] | None = None) -> np.ndarray:
        return sums


def asked(**options: object) -> Asked:
    made = Asked(
        clients=tuple(f"c{i}" for i in range(CLIENTS)), known=Clients(np.full(CLIENTS, 500.0)), feasible={5: FREE},
        goal=Goal.of("auc", {"spd:SEX": "random", "f1": 0.5}), settings=fw.Training(), most_records=None, trials=100,
        stages=2, margin=1.0, seed=3,
    )  # fmt: skip
    return replace(made, **options)  # type: ignore[arg-type]


def halving(of: Asked) -> Halving:
    return Halving(of, None, Control(threads=1))  # type: ignore[arg-type]


def test_references_are_together_as_all_random_federations_are() -> None:
    effects = np.random.default_rng(0).normal(size=(CLIENTS, 2))
    foreseen = Foreseen(Means(effects / 5), ("auc", "f1"))
    whole = effects.mean(axis=0)
    spread = effects.std(axis=0) / np.sqrt(5 * 6)
    away = [
        np.abs(
            (foreseen.of(halving(asked(seed=seed, foreseen=given))._typical(6)).mean(axis=0) - whole) / spread
        )
        for given in (foreseen, None)
        for seed in range(10)
    ]
    typical, plain = np.mean(away[:10]), np.mean(away[10:])
    assert typical < 0.3 * plain


def test_without_a_forecast_references_are_the_first_drawn() -> None:
    made = halving(asked())
    assert made._typical(6) == made._random(6, salt=0)
    assert len(made._typical(6)) == 6


@pytest.mark.parametrize(("trials", "references"), [(40, 4), (100, 6), (160, 8), (1000, 8)])
def test_a_small_budget_has_fewer_references(trials, references) -> None:
    assert asked(trials=trials).references == references


@pytest.mark.parametrize(("trials", "stages"), [(40, 2), (100, 2), (120, 3), (160, 4), (1000, 4)])
def test_a_small_budget_has_fewer_short_stages(trials, stages) -> None:
    assert asked(trials=trials).short_stages == range(100, 100 + stages)


def test_short_rehearsals_are_never_longer_than_full_ones() -> None:
    assert asked().short_records == SHORT
    assert asked(most_records=150).short_records == 150
    assert asked(most_records=150).short_settings.lr == fw.Training().lr


def searched(of: Asked) -> Halving:
    """Four references, rehearsed short and in two full stages: short ones have other levels."""
    made = halving(of)
    made.references = made._random(4, salt=0)
    rng = np.random.default_rng(1)
    for at, members in enumerate(made.references):
        made.short[members] = (100, Trained({"auc": 0.7, "spd:SEX": 0.20 + 0.01 * at, "f1": 0.6}, {}))
        made.full[members] = {
            stage: Trained({"auc": 0.7, "spd:SEX": 0.30 + 0.02 * rng.normal(), "f1": 0.8}, {"round": (1.0,)})
            for stage in (0, 1)
        }
    return made


def test_the_search_aims_within_the_tightened_limits() -> None:
    """What full rehearsals will ask with a margin, proposals keep already."""
    made, loose = searched(asked()), searched(asked(margin=0.0))
    margins, bounds = made.margins(made.references[0]), made.bounds()
    assert margins["spd:SEX"] > 0.005
    full = np.mean([t.final["spd:SEX"] for m in made.references for t in made.full[m].values()])
    assert bounds == {"spd:SEX": pytest.approx(full, abs=0.002), "f1": 0.5}
    assert made.aim().bounds["spd:SEX"] == pytest.approx(bounds["spd:SEX"] - margins["spd:SEX"])
    assert made.aim().bounds["f1"] == pytest.approx(0.5 + margins["f1"])
    assert loose.aim().bounds == loose.bounds()


def test_a_random_limit_is_that_of_all_random_federations_not_of_the_references() -> None:
    """References whose clients have the widest gaps; what others were rehearsed at tells how far off they are."""
    effects = np.random.default_rng(2).normal(size=CLIENTS)
    made = halving(asked())
    drawn = made._random(60, salt=0)
    gap = {m: 0.3 + 0.05 * float(effects[list(m)].mean()) for m in drawn}
    made.references = sorted(drawn, key=lambda m: -gap[m])[:4]
    for members in drawn:
        made.short[members] = (100, told(0.7, gap[members]))
    for members in made.references:
        made.full[members] = {stage: told(0.7, gap[members]) for stage in (0, 1)}
    wanted = 0.3 + 0.05 * float(effects.mean())
    of_references = float(np.mean([gap[m] for m in made.references]))
    assert of_references - wanted > 0.03
    assert made.bounds()["spd:SEX"] == pytest.approx(wanted, abs=0.005)


def test_gaps_are_those_of_models_of_the_whole_release() -> None:
    made = searched(asked())
    for members in made.references:
        for stage, trained in made.full[members].items():
            made.full[members][stage] = replace_struct(trained, whole=Gaps({"spd:SEX": 0.4}, ()))
    assert made.bounds()["spd:SEX"] == pytest.approx(0.4, abs=0.01)
    assert made.values(made.references[0])["auc"] == pytest.approx(0.7)


def test_an_estimate_is_kept_until_something_new_is_known() -> None:
    made = searched(asked())
    first = made.surrogate()
    assert made.surrogate() is first
    made.full[made.references[0]][2] = made.full[made.references[0]][1]
    assert made.surrogate() is not first


def told(auc: float, spd: float) -> Trained:
    return Trained({"auc": auc, "spd:SEX": spd, "f1": 0.8}, {"round": (1.0,)})


@pytest.mark.parametrize("weight", [1.0, 1000.0])
def test_who_keeps_the_limits_comes_first_whatever_the_weight(weight) -> None:
    goal = Goal.of({"auc": weight}, {"spd:SEX": 0.2})
    made = halving(asked(goal=goal))
    members = made._random(12, salt=0)
    made.references = members[:4]
    for at, one in enumerate(members):
        made.full[one] = {stage: told(0.7 + 0.02 * (at == 5), 0.15 + 0.2 * (at == 5)) for stage in (0, 1)}
    assert made.breaks(members[5])
    assert made.ranked()[-1][1] == members[5]
    assert made.aim().loss(members[5]) > made.aim().loss(members[6])


def test_a_search_stopped_early_takes_a_candidate_though_references_were_rehearsed_more_often() -> None:
    made = halving(asked(goal=Goal.of("auc")))
    members = made._random(12, salt=0)
    made.references = members[:4]
    for one in made.references:
        made.full[one] = {stage: told(0.7, 0.1) for stage in (0, 1)}
    for at, one in enumerate(members[4:]):
        made.full[one] = {0: told(0.71 + 0.01 * at, 0.1)}
    assert made.ranked()[0][1] not in made.references
    made.full[members[4]][1] = made.full[members[4]][2] = told(0.71, 0.1)
    assert made.ranked()[0][1] == members[4]


def test_what_nobody_knows_keeps_no_limit() -> None:
    goal = Goal.of("auc", {"eod:SEX": 0.1})
    assert goal.misses({"auc": 0.8, "eod:SEX": np.nan}, {"eod:SEX": 0.1}, {}) == {"eod:SEX": np.inf}
    assert goal.loss({"auc": 0.8, "eod:SEX": 0.05}, {"eod:SEX": np.nan}, {}) == np.inf
    assert goal.loss({"auc": 0.8, "eod:SEX": 0.05}, {"eod:SEX": 0.1}, {}) == -0.8


class Hollows:
    """A wide hollow that most descents end in (clients 10 to 29), and a narrow, deeper one (clients 0 to 4)."""

    name = "hollows"

    def rows(self) -> np.ndarray:
        wide, narrow = np.arange(CLIENTS) >= 10, np.arange(CLIENTS) < 5
        return np.stack([wide, narrow], axis=1).astype(float)

    def evaluate(self, sums: np.ndarray) -> np.ndarray:
        return -np.maximum(0.8 * sums[:, 0], sums[:, 1])


def test_a_search_descends_from_the_best_federation_rehearsed_and_from_random_ones() -> None:
    deep = (0, 1, 2, 3, 4)
    ends = [halving(asked(seed=seed))._search(Hollows(), 5, 1)[0] for seed in range(10)]  # type: ignore[arg-type]
    assert deep not in ends
    known = halving(asked())
    known.short[(0, 1, 2, 3, 20)] = (100, told(0.7, 0.1))
    assert known._search(Hollows(), 5, 1)[0] == deep  # type: ignore[arg-type]
    again = halving(asked())
    assert again._search(Hollows(), 5, 2) != again._search(Hollows(), 5, 2)  # type: ignore[arg-type]


def test_short_rehearsals_take_turns_in_the_stages() -> None:
    class Kept:
        def __init__(self) -> None:
            self.tasks: list[Task] = []

        def train(self, tasks: Sequence[Task], done: object) -> list[Trained]:
            self.tasks += tasks
            return [told(0.7, 0.1) for _ in tasks]

    kept = Kept()
    made = Halving(asked(trials=160), kept, Control(threads=1))  # type: ignore[arg-type]
    some = made._random(10, salt=0)
    made._train_short(some)
    made._train_short(some)
    assert len(kept.tasks) == 10
    counts = np.bincount([task.stage - 100 for task in kept.tasks])
    assert counts.tolist() == [3, 3, 2, 2]
    assert {members: stage for members, (stage, _) in made.short.items()} == {
        members: 100 + at % 4 for at, members in enumerate(some)
    }
