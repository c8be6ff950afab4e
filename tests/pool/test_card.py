"""Cards: spoilt clients are found, honest ones are not accused, and what cannot be seen is said."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import fedwise as fw
from fedwise.data import synthetic
from fedwise.owner.noise import add_simulated_noise
from fedwise.owner.tables import count
from fedwise.pool.attenuation import Shares, compare_table, weighted_median
from fedwise.pool.card import CLIENT_FALSE_DOUBT, ENOUGH_POWER, holm, quality
from fedwise.pool.disparity import disparities
from fedwise.pool.pool import Pool
from fedwise.pool.symptoms import _from_cluster

SCHEMA = synthetic.schema()
LABEL, SEX = SCHEMA.target, SCHEMA.sensitive[0]
PLAN = fw.plan(SCHEMA, 1.0)


@cache
def people(scale: float, seed: int = 0) -> dict[str, np.ndarray]:
    return {name: SCHEMA.encode(rows) for name, rows in synthetic.states(seed=seed, scale=scale).items()}


def noisy(codes: dict[str, np.ndarray], seed: int, made: fw.Plan = PLAN) -> Pool:
    rows = []
    for i, one in enumerate(codes.values()):
        tables, rng = count(one, made.layout), np.random.default_rng([seed, i])
        rows.append(np.asarray(add_simulated_noise(tables, made.sigmas, rng)))
    return Pool(tuple(codes), made, np.stack(rows), simulated=True)


def random_labels(codes: np.ndarray, rng: np.random.Generator, share: float = 0.4) -> np.ndarray:
    hit = rng.random(codes.shape[1]) < share
    codes[LABEL, hit] = rng.permutation(codes[LABEL, hit])
    return codes


def mostly_random_labels(codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return random_labels(codes, rng, 0.7)


def biased_labels(codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    hit = (codes[SEX] == 1) & (codes[LABEL] == 1) & (rng.random(codes.shape[1]) < 0.8)
    codes[LABEL, hit] = 0
    return codes


def shuffled_features(codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    half = np.flatnonzero(rng.random(codes.shape[1]) < 0.5)
    for feature in SCHEMA.features:
        codes[feature, half] = codes[feature, rng.permutation(half)]
    return codes


def repeated_rows(codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.ascontiguousarray(codes[:, rng.integers(0, 200, codes.shape[1])])


def spoil(codes: dict[str, np.ndarray], how: object, seed: int = 3) -> tuple[dict[str, np.ndarray], set[str]]:
    """30% of the clients, drawn by the seed, are spoilt."""
    rng = np.random.default_rng(seed)
    chosen = set(rng.permutation(list(codes))[: round(0.3 * len(codes))].tolist())
    made = {n: how(c.copy(), rng) if n in chosen else c for n, c in codes.items()}  # type: ignore[operator]
    return made, chosen


def entry(card: fw.Card, kind: str) -> object:
    return next(one for one in card.entries if one.kind == kind)


@pytest.mark.parametrize(
    ("how", "kind", "found", "doubted", "auc"),
    [
        (random_labels, "label_noise", 0.0, 0.95, 0.99),
        (mostly_random_labels, "label_noise", 0.9, 1.0, 1.0),
        (biased_labels, "label_bias", 0.3, 0.9, 0.97),
        (shuffled_features, "feature_noise", 0.7, 0.95, 0.99),
        (repeated_rows, "repeated", 0.0, 0.3, 0.8),
    ],
)
def test_spoilt_clients_are_found(how: object, kind: str, found: float, doubted: float, auc: float) -> None:
    codes, dirty = spoil(people(0.2), how)
    cards = quality(noisy(codes, 1))
    suspects = {name for name, card in cards.items() if card.suspect}
    assert len(suspects & dirty) >= found * len(dirty)
    doubtful = {name for name, card in cards.items() if card.doubtful}
    assert suspects <= doubtful
    assert len(doubtful & dirty) >= doubted * len(dirty)
    # Nominally 15%: of 35 honest clients, 13 or more in doubt come once in 1,000 pools.
    assert len(doubtful - dirty) <= 12
    # All of these are worse than the effect whose power is stated, but for 200 rows repeated.
    promised = {name for name in dirty if entry(cards[name], kind).telling}  # type: ignore[attr-defined]
    assert len(promised & suspects) >= 0.8 * len(promised) or kind == "repeated"
    assert len(suspects - dirty) <= 1
    above = [cards[a].score > cards[b].score for a in dirty for b in cards if b not in dirty]
    assert np.mean(above) >= auc


def test_the_share_of_random_labels_is_estimated() -> None:
    codes, dirty = spoil(people(0.2), random_labels)
    cards = quality(noisy(codes, 1))
    large = [name for name in dirty if codes[name].shape[1] > 2000]
    found = [entry(cards[name], "label_noise") for name in large]
    assert np.median([one.value for one in found]) == pytest.approx(0.4, abs=0.06)  # type: ignore[attr-defined]
    assert all(abs(one.value - 0.4) < 4 * one.error for one in found)  # type: ignore[attr-defined]
    codes, dirty = spoil(people(0.2), mostly_random_labels)
    cards = quality(noisy(codes, 1))
    worst = [cards[name] for name in dirty if entry(cards[name], "label_noise").suspect]  # type: ignore[attr-defined]
    assert worst
    assert all("of the labels look random; z = " in card.verdict for card in worst)


def test_repeated_rows_are_found_and_counted_with_little_noise() -> None:
    codes, dirty = spoil(people(0.2), repeated_rows)
    cards = quality(noisy(codes, 1, fw.plan(SCHEMA, 5.0)))
    large = [name for name in dirty if codes[name].shape[1] > 3000]
    counted = [entry(cards[name], "repeated").value for name in large]  # type: ignore[attr-defined]
    assert 100 < np.median(counted) < 400
    assert sum(cards[name].suspect for name in large) >= 0.6 * len(large)


def test_honest_pools_have_no_suspects_and_few_doubtful_clients() -> None:
    """Six pools at the nominal rates: two with a suspect come once in 700, 75 of 300 in doubt never."""
    pools = [quality(noisy(people(0.1, data), seed)) for data in range(2) for seed in range(3)]
    assert sum(any(card.suspect for card in cards.values()) for cards in pools) <= 1
    doubtful = [card.doubtful for cards in pools for card in cards.values()]
    assert len(doubtful) == 300
    assert 3 <= sum(doubtful) <= 75


def test_score_is_one_number_for_all_entries() -> None:
    for card in quality(noisy(people(0.1), 0)).values():
        judged = [one.p for one in card.entries if one.accuses]
        assert len(judged) == 4
        assert card.p == pytest.approx(min(1.0, 4 * min(judged)))
        assert card.score == pytest.approx(-np.log10(card.p))
        assert card.doubt >= card.p
        assert card.doubtful == (card.suspect or card.doubt <= CLIENT_FALSE_DOUBT)


def test_facts_accuse_nobody() -> None:
    """A place with another population and honest labels is unlike the others, and no suspect for it."""
    codes = {name: c.copy() for name, c in people(0.2).items()}
    ages = SCHEMA.names.index("AGEP")
    old = codes["OH"][:, codes["OH"][ages] >= 3]
    codes["OH"] = np.ascontiguousarray(np.tile(old, 3)[:, : codes["OH"].shape[1]])
    cards = quality(noisy(codes, 1))
    found = entry(cards["OH"], "shifted")
    assert found.details[0] == "AGEP"  # type: ignore[attr-defined]
    assert found.z > entry(quality(noisy(people(0.2), 1))["OH"], "shifted").z + 2  # type: ignore[attr-defined]
    assert not found.suspect  # type: ignore[attr-defined]
    assert not found.accuses  # type: ignore[attr-defined]
    unlike = [card for card in cards.values() if entry(card, "shifted").z > 4 and not card.suspect]  # type: ignore[attr-defined]
    assert unlike
    assert all("; the population differs from the others', most in " in card.verdict for card in unlike)
    size = entry(cards["CA"], "size")
    assert size.value == pytest.approx(codes["CA"].shape[1], abs=5 * size.error)  # type: ignore[attr-defined]
    assert size.z == pytest.approx(size.value / size.error)  # type: ignore[attr-defined]
    assert "records, " in str(size)
    assert all(card.known for card in cards.values())


def test_small_clients_cannot_be_told() -> None:
    """Spoilt or not: nobody with a few hundred records at a small epsilon is called in order."""
    codes, _ = spoil(people(0.02), random_labels)
    cards = quality(noisy(codes, 0, fw.plan(SCHEMA, 0.3)))
    small = [card for name, card in cards.items() if codes[name].shape[1] < 400]
    assert len(small) > 20
    for card in small:
        assert card.verdict.startswith("cannot tell at this ε: 30% random labels")
        assert all(one.power < ENOUGH_POWER for one in card.entries if one.accuses)
        assert not card.suspect


def test_no_card_says_more_than_its_power() -> None:
    for card in quality(noisy(people(0.2), 2)).values():
        if not card.suspect:
            blind = [one.stated for one in card.entries if not one.telling]
            assert ("cannot tell" in card.verdict) == bool(blind)
            assert all(text in card.verdict.split("cannot tell")[1] for text in blind)


def test_pools_too_small_to_compare() -> None:
    codes = dict(list(people(0.02).items())[:5])
    cards = quality(noisy(codes, 0))
    assert {card.verdict for card in cards.values()} == {
        "cannot tell: fewer than 8 clients of known size to compare with"
    }
    with pytest.raises(fw.FedwiseError, match="pool must hold at least one release"):
        quality(Pool((), PLAN, np.zeros((0, PLAN.layout.cells), dtype=np.int64)))


def test_exact_pools_and_several_groups() -> None:
    """Without noise, a ternary attribute and label: the group whose labels were changed is named."""
    text = """
[columns.A]
role = "feature"
levels = [0, 1, 2]
[columns.B]
role = "feature"
levels = [0, 1]
[columns.G]
role = "sensitive"
levels = ["u", "v", "w"]
[columns.T]
role = "target"
levels = [0, 1, 2]
"""
    schema = fw.Schema.parse(text)
    made = fw.plan(schema, float("inf"))
    rng = np.random.default_rng(0)
    matrix = []
    for client in range(20):
        hidden = rng.standard_normal(8000)
        cuts = (np.array([-0.5, 0.5]), np.array([0.0]), np.array([-0.5, 0.5]), np.array([-0.4, 0.4]))
        codes = np.stack([np.digitize(hidden + rng.standard_normal(8000), cut) for cut in cuts]).astype(
            np.int16
        )
        if client == 7:
            codes[3, (codes[2] == 2) & (codes[3] == 2) & (rng.random(8000) < 0.6)] = 0
        matrix.append(count(codes, made.layout).exact)
    cards = quality(Pool([f"c{i:02}" for i in range(20)], made, np.stack(matrix)))
    assert [name for name, card in cards.items() if card.suspect] == ["c07"]
    assert entry(cards["c07"], "label_bias").details == ("w",)  # type: ignore[attr-defined]
    assert "label rate of G=w is" in cards["c07"].verdict


def test_slopes_of_mixed_tables_are_exact() -> None:
    """A table mixed with independence by s has the slope 1 − s, whatever the marginals' odds."""
    codes = people(0.2)["CA"]
    exact = count(codes, PLAN.layout).exact.astype(np.float64)
    sigmas = np.zeros(PLAN.layout.tables)
    shares = Shares.of(np.stack([exact] * 3), PLAN.layout, sigmas)
    mixed = exact.copy()
    for j in range(PLAN.layout.tables):
        p, q = (shares.marginals[0, side] for side in PLAN.layout.sides(j))
        here = PLAN.layout.slice(j)
        mixed[here] = 0.7 * exact[here] + 0.3 * np.outer(p, q).ravel() * exact[here].sum()
    shares = Shares.of(np.stack([exact, exact, mixed]), PLAN.layout, sigmas)
    inside = np.array([True, True, False])
    for j in range(PLAN.layout.tables):
        slopes, _ = compare_table(shares, j, inside).slopes()
        assert slopes[:2] == pytest.approx(1.0, abs=0.02)
        assert slopes[2] == pytest.approx(0.7, abs=0.02)


def test_disparities_ignore_what_features_explain() -> None:
    """Hours explain the label alone and differ by sex in one place only: its gap is expected there."""
    schema = fw.Schema.parse(
        '[columns.H]\nrole = "feature"\nlevels = [0, 1]\n[columns.S]\nrole = "sensitive"\nlevels = [0, 1]\n'
        '[columns.T]\nrole = "target"\nlevels = [0, 1]\n'
    )
    layout = fw.plan(schema, float("inf")).layout
    rng = np.random.default_rng(1)
    matrix = []
    for client in range(9):
        sex = rng.integers(0, 2, 50_000)
        hours = rng.random(50_000) < (0.5 if client else 0.7 - 0.4 * sex)
        label = rng.random(50_000) < 0.2 + 0.5 * hours
        matrix.append(count(np.stack([hours, sex, label]).astype(np.int16), layout).exact)
    shares = Shares.of(np.stack(matrix), layout, np.zeros(layout.tables))
    inside = np.arange(9) > 0
    (one,) = disparities(shares, schema, 1, inside)
    assert one.found[0] == pytest.approx(-0.2, abs=0.02)
    # The ridge keeps a little of it back.
    assert one.found[0] - one.expected[0] == pytest.approx(0.0, abs=0.03)
    assert np.abs(one.found[1:] - one.expected[1:]).max() < 0.02


def test_one_random_feature_is_named() -> None:
    codes = {name: c.copy() for name, c in people(0.2).items()}
    hours = SCHEMA.names.index("WKHP")
    codes["OH"][hours] = np.random.default_rng(0).permutation(codes["OH"][hours])
    found = entry(quality(noisy(codes, 1, fw.plan(SCHEMA, 10.0)))["OH"], "feature_noise")
    assert found.details == ("WKHP",)  # type: ignore[attr-defined]


def test_weighted_medians() -> None:
    values = np.array([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]])
    weights = np.array([[1 / 3, 1 / 3, 1 / 3], [0.8, 0.1, 0.1]])
    assert weighted_median(values, weights).tolist() == [2.0, 3.0]


def test_holm_against_its_definition() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = rng.random((3, 7)) ** 4
        passed: set[float] = set()
        for rank, value in enumerate(sorted(p.ravel())):
            if value > 0.05 / (p.size - rank):
                break
            passed.add(value)
        assert np.array_equal(holm(p, 0.05), np.isin(p, list(passed)))
    assert holm(np.array([0.01, 0.5]), 0.05).tolist() == [True, False]


def test_many_clients_spoilt_alike_do_not_hide_one_another() -> None:
    """Fifteen of fifty in one place widen the spread until nobody is outside; the closest half tells."""
    rng = np.random.default_rng(0)
    plain = np.concatenate([rng.normal(0.4, 0.3, 35), rng.normal(-1.6, 0.2, 15)])
    known = np.ones(50, dtype=np.bool_)
    found = _from_cluster(plain, known)
    assert np.abs(plain).max() < 2.5
    assert np.abs(found[35:]).min() > 3
    wide = rng.normal(0.0, 1.5, 50)
    assert _from_cluster(wide, known) is wide
