"""Seats: none for tables that hold only noise, none for suspects where asked; else nothing changes."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import fedwise as fw
from fedwise.estimation import estimate
from fedwise.owner.noise import add_simulated_noise
from fedwise.owner.tables import count
from fedwise.pool.attenuation import least_records
from fedwise.pool.pool import Pool
from fedwise.search.constraints import Constraints
from fedwise.search.frontiers import frontier
from fedwise.search.seats import empty_clients, seat

SCHEMA = fw.Schema.parse(
    '[columns.A]\nrole = "feature"\nlevels = [0, 1, 2]\n[columns.B]\nrole = "feature"\nlevels = [0, 1]\n'
    '[columns.S]\nrole = "sensitive"\nlevels = [0, 1]\n[columns.T]\nrole = "target"\nlevels = [0, 1]\n'
)
PLAN = fw.plan(SCHEMA, 1.0)
EMPTY, SPOILT = ("c04", "c09"), "c02"


def _codes(rows: int, rng: np.random.Generator, *, spoilt: bool = False) -> np.ndarray:
    hidden = rng.standard_normal(rows)
    cuts = ([-0.5, 0.5], [0.0], [0.0], [0.2])
    codes = np.stack([np.digitize(hidden + rng.standard_normal(rows), cut) for cut in cuts]).astype(np.int16)
    if spoilt:
        codes[3] = rng.permutation(codes[3])
    return codes


def make_pool(plan: fw.Plan = PLAN, *, empty: tuple[str, ...] = EMPTY, spoilt: str = SPOILT) -> Pool:
    rows, names = [], [f"c{i:02}" for i in range(14)]
    for i, name in enumerate(names):
        rng = np.random.default_rng([7, i])
        codes = _codes(4 if name in empty else 9000, rng, spoilt=name == spoilt)
        tables = count(codes, plan.layout)
        rows.append(
            np.asarray(add_simulated_noise(tables, plan.sigmas, rng)) if plan.private else tables.exact
        )
    return Pool(tuple(names), plan, np.stack(rows), simulated=plan.private)


def test_tables_that_hold_only_noise_take_no_seat() -> None:
    pool = make_pool(spoilt="")
    assert empty_clients(pool) == list(EMPTY)
    chosen = fw.select(pool, 3, method="exact")
    assert not set(EMPTY) & set(chosen.clients)
    said = "no seat for c04, c09: the tables hold no more than noise; include a client by name to seat it"
    assert said in chosen.alerts
    assert any(said in text for label, text in chosen.rows() if label == "alert")
    assert chosen.constraints["exclude"] == list(EMPTY)
    asked = fw.select(pool, 3, method="exact", include=["c04"])
    assert "c04" in asked.clients
    assert not any("c04" in alert for alert in asked.alerts)


def test_a_size_that_needs_everybody_gets_everybody_and_says_so() -> None:
    pool = make_pool(spoilt="")
    chosen = fw.select(pool, 14)
    assert set(EMPTY) < set(chosen.clients)
    assert "the tables of c04, c09 hold no more than noise, but the size leaves no others" in chosen.alerts


def test_pools_without_such_clients_are_searched_as_ever() -> None:
    pool = make_pool(empty=(), spoilt="")
    rules, notes = seat(Constraints(include=("c01",)), pool, 5)
    assert rules == Constraints(include=("c01",))
    assert notes == ()
    chosen, plain = fw.select(pool, 4, seed=3), fw.select(estimate(pool), 4, seed=3)
    assert (chosen.clients, chosen.loss) == (plain.clients, plain.loss)
    assert chosen.constraints == {}


def test_exact_pools_have_no_empty_clients() -> None:
    assert empty_clients(make_pool(fw.plan(SCHEMA, float("inf")))) == []
    assert (least_records(PLAN.layout, make_pool().sigmas) > 3).all()


def test_suspects_always_and_doubtful_ones_while_enough_are_left() -> None:
    pool = make_pool(empty=())
    cards = fw.quality(pool)
    suspects = {name for name, card in cards.items() if card.suspect}
    assert suspects == {SPOILT}
    doubtful = {name for name, card in cards.items() if card.doubtful}
    rules, (note,) = seat(Constraints(exclude_suspect=True), pool, 5)
    assert set(rules.exclude) == doubtful
    assert not rules.exclude_suspect
    assert note.startswith(f"quality: left out 1 suspect ({SPOILT})")
    rules, _ = seat(Constraints(exclude_suspect=True), pool, 13)
    assert rules.exclude == (SPOILT,)
    with pytest.raises(fw.FedwiseError, match=f"client '{SPOILT}' must be included but is a suspect"):
        seat(Constraints(exclude_suspect=True, include=(SPOILT,)), pool, 3)
    clean = make_pool(fw.plan(SCHEMA, 50.0), empty=(), spoilt="")
    if not any(card.doubtful for card in fw.quality(clean).values()):
        assert seat(Constraints(exclude_suspect=True), clean, 3)[1] == (
            "quality: none of 14 clients is suspect or doubtful",
        )


def test_the_size_of_a_federation_is_shown() -> None:
    pool = make_pool(empty=(), spoilt="")
    chosen = fw.select(pool, 3)
    assert chosen.records == pytest.approx(27_000, rel=0.02)
    assert ("records", f"about {chosen.records:,.0f}") in chosen.rows()


def _by_class(rng: np.random.Generator, lacks: int | None) -> np.ndarray:
    """A target of four classes, each told by a feature; one class may be missing."""
    share = np.full(4, 0.25)
    if lacks is not None:
        share[lacks] = 0.0
    label = rng.choice(4, 3000, p=share / share.sum())
    feature = np.where(rng.random(3000) < 0.7, label, rng.integers(0, 4, 3000))
    return np.stack([feature, label]).astype(np.int16)


def test_a_client_that_lacks_a_class_is_named_and_left_out_while_others_are_left() -> None:
    schema = fw.Schema.parse(
        '[columns.A]\nrole = "feature"\nlevels = [0, 1, 2, 3]\n'
        '[columns.T]\nrole = "target"\nlevels = ["a", "b", "c", "d"]\n'
    )
    plan = fw.plan(schema, 1.0)
    names, rows = [f"c{i:02}" for i in range(12)], []
    for i in range(12):
        rng = np.random.default_rng([17, i])
        tables = count(_by_class(rng, {3: 1, 7: 2}.get(i)), plan.layout)
        rows.append(np.asarray(add_simulated_noise(tables, plan.sigmas, rng)))
    pool = Pool(tuple(names), plan, np.stack(rows), simulated=True)
    cards = fw.quality(pool)
    assert {name: entry.details for name, card in cards.items() for entry in card.lacks} == {
        "c03": ("b",),
        "c07": ("c",),
    }
    assert not cards["c03"].suspect
    assert "no more records of class b of T than noise" in cards["c03"].verdict
    rules, notes = seat(Constraints(exclude_suspect=True), pool, 4)
    assert {"c03", "c07"} <= set(rules.exclude)
    assert any(
        "2 lacking a class (c07, c03)" in note or "2 lacking a class (c03, c07)" in note for note in notes
    )
    everybody, _ = seat(Constraints(exclude_suspect=True), pool, 12)
    assert everybody.exclude == ()
    unasked, _ = seat(Constraints(), pool, 4)
    assert unasked.exclude == ()
    included, _ = seat(Constraints(exclude_suspect=True, include=("c03",)), pool, 4)
    assert "c03" not in included.exclude


def staged(*, answered: str) -> Pool:
    """Ten clients of a plan of two stages; some of them answered the second."""
    plan = fw.plan(SCHEMA, stages=[0.05, 3.0], epsilon=3.0)
    made = []
    for stage, names in ((1, "abcdefghij"), (2, answered)):
        for name in names:
            codes = _codes(700, np.random.default_rng([3, ord(name)]))
            rows = pl.DataFrame(dict(zip("ABST", codes.tolist(), strict=True)))
            made.append(fw.release(plan, rows, client=name, simulated=True, seed=5, stage=stage))
    return Pool.of(made)


def test_answered_leaves_out_who_has_not_answered_the_last_stage() -> None:
    pool = staged(answered="abcdef")
    chosen = fw.select(pool, 4, method="exact", evidence="none", threads=1, answered=True)
    assert set(chosen.clients) <= set("abcdef")
    assert chosen.constraints == {"exclude": list("ghij"), "answered": True}
    assert "4 of 10 clients have not answered the last stage and take no seat" in chosen.alerts
    estimates = estimate(pool)
    among = fw.select(estimates, 4, method="exact", evidence="none", threads=1, exclude=list("ghij"))
    assert (chosen.clients, chosen.loss) == (among.clients, among.loss)
    front = frontier(pool, (2, 6), constraints=Constraints(answered=True), threads=1)
    assert all(set(point.clients) <= set("abcdef") for point in front.points)


@pytest.mark.parametrize(
    ("answered", "size", "rules", "said"),
    [
        ("abcdef", 7, {}, "size must be at most 6, as many clients as have answered stage 2"),
        ("abcdef", 6, {"exclude": ["a"]}, "size must be at most 5"),
        ("abcdef", 3, {"include": ["g"]}, "client 'g' must be included but has not answered stage 2"),
        ("", 3, {}, "answered needs releases of a second stage, got none"),
    ],
)
def test_answered_that_cannot_be_is_refused_in_a_sentence(
    answered: str, size: int, rules: dict[str, list[str]], said: str
) -> None:
    with pytest.raises(fw.FedwiseError, match=said):
        fw.select(staged(answered=answered), size, evidence="none", threads=1, answered=True, **rules)  # type: ignore[arg-type]


def test_answered_needs_the_releases() -> None:
    with pytest.raises(fw.FedwiseError, match="answered needs the pool of releases"):
        fw.select(estimate(staged(answered="abc")), 2, answered=True)
