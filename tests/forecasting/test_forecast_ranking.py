"""AUC, losses and rate-matched metrics of a forecast, against explicit records and against each other."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import fedwise as fw
from fedwise.errors import FedwiseError
from fedwise.forecasting import ALL, NAMES, Forecast, Forecaster, Settings, effects, front
from fedwise.forecasting.metrics import MATCHED, SCORES
from fedwise.forecasting.ranking import COUNT, make_bins, rank
from fedwise.search.select import select
from fedwise.training.metrics import measure_scores
from forecasting.forecast_pools import codes_of, exact_estimates, noisy_estimates

MORE = (*SCORES, *MATCHED)


@pytest.fixture(scope="module")
def codes() -> list[np.ndarray]:
    return [codes_of(i) for i in range(8)]


@pytest.fixture(scope="module")
def forecaster(codes: list[np.ndarray]) -> Forecaster:
    return Forecaster(exact_estimates(codes))


def _sums(forecaster: Forecaster, federations: list[tuple[int, ...]]) -> np.ndarray:
    return np.stack([forecaster.rows[list(members)].sum(axis=0) for members in federations])


@pytest.mark.parametrize("link", ["logistic", "linear"])
def test_the_metrics_of_public_rows_are_those_of_the_rows(codes: list[np.ndarray], link: str) -> None:
    """The target is rows with labels, so every number can be had from the rows themselves."""
    from forecasting.forecast_pools import frame_of

    rows = codes[7]
    forecaster = Forecaster(
        exact_estimates(codes), frame_of(rows), settings=Settings(link=link, records=100_000)
    )
    design, federation = forecaster.design, [0, 3, 4]
    levels = design.projection @ forecaster.coefficients(federation)
    scores = levels[design.indicators(rows)].sum(axis=1)
    log_odds = scores if link == "logistic" else scores - 0.5  # the same order and the same ½
    truth = measure_scores(log_odds, rows[4], {"SEX": rows[3]})
    exact = forecaster.predict(federation, draws=0).metrics
    quick = dict(zip(MORE, forecaster.values(_sums(forecaster, [(0, 3, 4)]), MORE)[0], strict=True))
    for name in ("auc", *MATCHED, *(("loss", "brier") if link == "logistic" else ())):
        expected = truth[name.replace("spd@", "spd:SEX@").replace("eod@", "eod:SEX@")]
        assert exact.value(name) == pytest.approx(expected, abs=1e-9), name
        # Few distinct scores: a bin may hold two, so the quick one is a little coarser.
        assert quick[name] == pytest.approx(expected, abs=5e-3), name
    assert exact.brier == pytest.approx(
        np.mean((rows[4] - (1 / (1 + np.exp(-scores)) if link == "logistic" else scores)) ** 2)
    )


def test_bins_of_many_scores_are_as_good_as_sorting() -> None:
    """4,000 records with scores of their own: losses to 0.0001, and gaps to one record of the smallest group."""
    rng = np.random.default_rng(0)
    y, group = rng.random(4_000) < 0.3, rng.integers(0, 3, 4_000)
    scores = rng.normal(size=4_000) * 1.5 + y + 0.3 * group - 1
    truth = measure_scores(scores, y, {"S": group})
    bins = make_bins(logistic=True)
    counts = np.zeros((3, 2, COUNT))
    at = np.clip(((scores - bins.low) / bins.width).astype(int), 0, COUNT - 1)
    np.add.at(counts, (group, y.astype(int), at), 1.0)
    shares = counts.sum(axis=2) / 4_000
    rates, found = np.empty((3, 2)), np.empty(3)
    rank(counts, shares, bins, rates, found)
    assert found[0] == pytest.approx(truth["auc"], abs=1e-4)
    assert found[1] == pytest.approx(truth["loss"], abs=1e-4)
    assert found[2] == pytest.approx(truth["brier"], abs=1e-4)
    assert (rates * shares).sum() == pytest.approx(y.mean())  # the rate is matched exactly
    positive = (rates * shares).sum(axis=1) / shares.sum(axis=1)
    one = 1 / min(np.bincount(group[y]))
    assert np.ptp(rates[:, 1]) == pytest.approx(truth["eod:S@rate"], abs=one)
    assert np.ptp(positive) == pytest.approx(truth["spd:S@rate"], abs=one)


def test_the_batch_gives_what_one_federation_gives(forecaster: Forecaster) -> None:
    federations = [(0, 2), (1, 3, 5), (0, 1, 2, 3, 4, 5, 6, 7)]
    quick = forecaster.values(_sums(forecaster, federations), ALL)
    # Both kernels sum in float32, in an order of the compiler's choice.
    half = forecaster.values(_sums(forecaster, federations))
    np.testing.assert_allclose(quick[:, : len(NAMES)], half, atol=1e-6)
    for row, members in zip(quick, federations, strict=True):
        slow = forecaster.predict(list(members), draws=0).metrics
        for name, value in zip(ALL, row, strict=True):
            # Another sample of the same people, eight times as large.
            assert value == pytest.approx(slow.value(name), abs=0.02), name
    alone = forecaster.values(_sums(forecaster, federations), ("eod@rate", "auc"))
    np.testing.assert_allclose(alone, quick[:, [ALL.index("eod@rate"), ALL.index("auc")]], atol=1e-6)


def test_a_shifted_intercept_moves_one_half_and_not_the_matched_rate(forecaster: Forecaster) -> None:
    row = _sums(forecaster, [(0, 1, 2)])
    before = dict(zip(ALL, forecaster.values(row, ALL)[0], strict=True))
    beta = forecaster.coefficients([0, 1, 2])
    beta[0] += 3.0
    shifted = forecaster.population.metrics(beta)
    assert abs(shifted.value("balanced_accuracy") - before["balanced_accuracy"]) > 0.03
    for name in ("auc", *MATCHED):
        assert shifted.value(name) == pytest.approx(before[name], abs=0.02), name


def test_the_search_finds_the_best_auc_under_a_limit_at_matched_rates(forecaster: Forecaster) -> None:
    federations = list(combinations(range(8), 3))
    values = forecaster.values(_sums(forecaster, federations), ("auc", "eod@rate"))
    auc, eod = values.T
    limit = float(np.quantile(eod, 0.3))
    objective = Forecast.of(forecaster, "auc", subject_to={"eod@rate": limit})
    found = select(forecaster.estimates, 3, objective=objective, method="exact")
    kept = np.flatnonzero(eod <= limit)
    best = federations[int(kept[np.argmax(auc[kept])])]
    assert found.clients == tuple(f"c{i}" for i in best)
    assert best != federations[int(np.argmax(auc))], "the limit must bind, or this shows nothing"
    assert objective.missed(_sums(forecaster, [best])[0]) == []
    tight = Forecast.of(forecaster, {"balanced_accuracy@rate": 1}, subject_to={"loss": 0.0})
    miss = tight.missed(_sums(forecaster, [best])[0])[0]
    assert "loss is forecast at" in str(miss)
    assert "at most 0" in str(miss)


def test_losses_are_made_small() -> None:
    assert Forecast("loss").weights == {"loss": -1.0}
    assert Forecast("auc").weights == {"auc": 1.0}
    assert Forecast("eod:SEX@rate").weights == {"eod:SEX@rate": -1.0}
    # A federation that misses a limit never beats one that keeps it, whatever its log loss.
    objective = Forecast("loss", subject_to={"eod@rate": 0.1})
    kept, missed = objective.losses(np.array([[8.0, 0.1], [0.0, 0.1001]]))
    assert kept < missed


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Forecast("aux"), "maximise must be a metric .* did you mean 'auc'"),
        (lambda: Forecast("auc@rate"), "maximise must be a metric"),
        (lambda: Forecast("auc", subject_to={"eod@rat": 0.1}), "did you mean 'eod@rate'"),
        (lambda: Forecast("auc", subject_to={"eod@best": 0.1}), "subject_to must be a metric"),
        (lambda: Forecast("auc", subject_to={"eod@rate": 1.5}), "limit of eod@rate must lie between 0 and 1"),
        (lambda: Forecast("auc", subject_to={"loss": -1}), "limit of loss must lie between 0 and inf"),
        (lambda: Forecast("auc:SEX"), "must name an attribute only for gaps"),
    ],
)
def test_mistakes(make, message: str) -> None:
    with pytest.raises(FedwiseError, match=message):
        make()


def test_attributes_are_those_of_the_schema(forecaster: Forecaster) -> None:
    rows = _sums(forecaster, [(0, 1), (2, 3)])
    one, other = forecaster.values(rows, ("eod:SEX@rate", "eod@rate")).T
    np.testing.assert_array_equal(one, other)
    with pytest.raises(FedwiseError, match="did you mean 'SEX'"):
        Forecast.of(forecaster, "eod:SEXX@rate").rows(forecaster.estimates)


TWO = fw.Schema.parse(
    """
    name = "two"
    [columns.A]
    role = "feature"
    levels = [0, 1, 2]
    [columns.SEX]
    role = "sensitive"
    levels = [0, 1]
    [columns.RACE]
    role = "sensitive"
    levels = [0, 1, 2]
    [columns.Y]
    role = "target"
    levels = [0, 1]
    """
)


def test_a_second_attribute_has_gaps_of_its_own() -> None:
    from fedwise.estimation.estimates import Estimates
    from fedwise.owner.tables import count
    from fedwise.schema.layout import Layout

    def draw(seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        sex, race = rng.integers(0, 2, 4_000), rng.integers(0, 3, 4_000)
        a = np.minimum(rng.integers(0, 3, 4_000) + (race == 2), 2)
        y = rng.random(4_000) < 0.15 + 0.2 * a + 0.1 * sex
        return np.stack([a, sex, race, y]).astype(np.int16)

    names = TWO.names
    layout = Layout.of(TWO, tuple((x, z) for i, x in enumerate(names) for z in names[i + 1 :]))
    clients = [draw(i) for i in range(3)]
    cells = np.stack([count(c, layout).exact for c in clients]).astype(float)
    estimates = Estimates.plain(("a", "b", "c"), TWO, layout, cells, np.zeros(layout.tables))
    both = Forecaster(estimates)
    rows = both.rows[[0, 1]].sum(axis=0)[None]
    sex, race, default = both.values(rows, ("eod:SEX@rate", "eod:RACE@rate", "eod@rate"))[0]
    assert sex == default != race
    alone = Forecaster(estimates, settings=Settings(attribute="RACE"))
    assert race == pytest.approx(alone.values(rows, ("eod@rate",))[0, 0], abs=0.01)
    assert both.values(rows, ("spd:RACE",))[0, 0] == pytest.approx(alone.values(rows)[0, 4], abs=0.01)
    blind = Forecaster(estimates, settings=Settings(use_sensitive=False))
    with pytest.raises(FedwiseError, match=r"set Settings\(attribute='RACE'\)"):
        blind.values(blind.rows[:1], ("eod:RACE",))


def test_the_front_and_the_effects_take_these_metrics(forecaster: Forecaster) -> None:
    found = front(forecaster, 3, metric="auc", gap="eod@rate", points=4, method="exact")
    federations = list(combinations(range(8), 3))
    auc, eod = forecaster.values(_sums(forecaster, federations), ("auc", "eod@rate")).T
    assert found[-1].value == pytest.approx(auc.max())
    assert found[0].gap == pytest.approx(eod.min())
    for point in found:
        assert not ((auc > point.value + 1e-12) & (eod <= point.gap)).any()
        assert point.metrics["eod@rate"] == point.gap
    with pytest.raises(FedwiseError, match="gap must be one of"):
        front(forecaster, 3, metric="auc", gap="f1@rate")
    brought = effects(forecaster, [0, 1, 2], metric="auc", orders=4)
    whole = float(forecaster.values(_sums(forecaster, [(0, 1, 2)]), ("auc",))[0, 0])
    empty = float(forecaster.values(np.zeros((1, forecaster.rows.shape[1])), ("auc",))[0, 0])
    assert sum(e.shapley for e in brought) == pytest.approx(whole - empty)


def test_errors_of_every_metric_under_noise(codes: list[np.ndarray]) -> None:
    noisy = Forecaster(noisy_estimates(codes, 8.0, seed=0))
    errors = noisy.predict([0, 1], draws=8).std_errors
    assert set(errors) == set(ALL)
    assert min(errors.values()) > 0
    objective = Forecast.of(noisy, "auc", subject_to={"eod@rate": 0.1})
    margin = objective.margins(noisy.rows[[0, 1]].sum(axis=0)[None])["eod@rate"]
    assert margin == pytest.approx(noisy.typical_errors(2, ("eod@rate",))[0])
