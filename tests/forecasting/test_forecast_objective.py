"""Forecast as an objective of the search, and the valuation of clients."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest

from fedwise.errors import FedwiseError
from fedwise.forecasting import NAMES, Forecast, Forecaster, Settings, effects, front, with_forecast
from fedwise.search import select
from forecasting.forecast_pools import codes_of, exact_estimates, noisy_estimates


@pytest.fixture(scope="module")
def forecaster() -> Forecaster:
    """Nine clients, exact tables."""
    return Forecaster(exact_estimates([codes_of(i) for i in range(9)]), settings=Settings(records=1024))


def everything(forecaster: Forecaster, k: int) -> tuple[list[tuple[int, ...]], np.ndarray]:
    federations = list(combinations(range(len(forecaster.estimates.clients)), k))
    return federations, forecaster.values(
        np.stack([forecaster.rows[list(m)].sum(axis=0) for m in federations])
    )


def test_select_finds_the_best_forecast(forecaster: Forecaster) -> None:
    objective = Forecast.of(forecaster, "balanced_accuracy")
    found = select(forecaster.estimates, 3, objective=objective, seed=1, threads=1)
    federations, values = everything(forecaster, 3)
    best = federations[int(np.argmax(values[:, NAMES.index("balanced_accuracy")]))]
    assert found.clients == tuple(forecaster.estimates.clients[i] for i in best)
    assert found.loss == pytest.approx(-values[:, NAMES.index("balanced_accuracy")].max())


def test_limit_on_spd_is_kept_at_the_least_cost(forecaster: Forecaster) -> None:
    federations, values = everything(forecaster, 3)
    spd, accuracy = values[:, NAMES.index("spd")], values[:, NAMES.index("balanced_accuracy")]
    limit = float(np.quantile(spd, 0.2))
    assert spd[np.argmax(accuracy)] > limit
    objective = Forecast.of(forecaster, "balanced_accuracy", subject_to={"spd": limit})
    found = select(forecaster.estimates, 3, objective=objective, seed=1, threads=1)
    kept = np.flatnonzero(objective.feasible(values))
    best = federations[int(kept[np.argmax(accuracy[kept])])]
    assert found.clients == tuple(forecaster.estimates.clients[i] for i in best)


def test_objective_fits_itself_when_used_alone() -> None:
    estimates = exact_estimates([codes_of(i) for i in range(6)])
    objective = Forecast({"f1": 1.0, "eod": -0.5}, settings=Settings(records=512))
    rows = objective.rows(estimates)
    values = objective.forecaster.values(rows[:2])  # type: ignore[union-attr]
    expected = -values[:, NAMES.index("f1")] + 0.5 * values[:, NAMES.index("eod")]
    np.testing.assert_allclose(objective.evaluate(rows[:2]), expected)


def test_least_limits_bound_from_below(forecaster: Forecaster) -> None:
    objective = Forecast.of(forecaster, "spd", subject_to={"accuracy": 0.9})
    values = np.zeros((1, len(NAMES)))
    values[0, NAMES.index("accuracy")], values[0, NAMES.index("spd")] = 0.85, 0.1
    assert objective.losses(values)[0] == pytest.approx(0.1 + 1 + 10 * 0.05)
    assert not objective.feasible(values)[0]


def test_forecasts_follow_the_model_that_is_trained() -> None:
    assert Settings.for_model("logistic").coding == "schema"
    assert Settings.for_model("mlp") == Settings.for_model("64-32") == Settings()
    with pytest.raises(FedwiseError, match="did you mean 'logistic'"):
        Settings.for_model("logistc")


def test_a_selection_shows_the_forecast_it_went_by(forecaster: Forecaster) -> None:
    estimates = forecaster.estimates
    own = Forecast("f1", target=["c1"], settings=Settings(records=512, coding="schema"))
    found = with_forecast(select(estimates, 3, objective=own, seed=1, threads=1), estimates, objective=own)
    again = Forecaster(estimates, ["c1"], settings=Settings(records=512, coding="schema"))
    shown = {value.metric: value.value for value in found.forecast}
    assert shown["f1"] == pytest.approx(again.predict(found.clients).metrics.f1)
    plain = with_forecast(select(estimates, 3, seed=1, threads=1), estimates, model="logistic")
    linear = Forecaster(estimates, settings=Settings.for_model("logistic")).predict(plain.clients)
    assert {v.metric: v.value for v in plain.forecast}["f1"] == pytest.approx(linear.metrics.f1)


def test_limits_no_federation_keeps_are_flagged(forecaster: Forecaster) -> None:
    hopeless = Forecast.of(forecaster, "balanced_accuracy", subject_to={"spd": 0.0, "accuracy": 0.1})
    found = select(forecaster.estimates, 3, objective=hopeless, seed=1, threads=1)
    (flag,) = [flag for flag in found.flags if flag.startswith("limit not kept")]
    assert "spd is forecast at" in flag
    assert "at most 0" in flag
    _, values = everything(forecaster, 3)
    easy = Forecast.of(forecaster, "balanced_accuracy", subject_to={"spd": float(values.max())})
    found = select(forecaster.estimates, 3, objective=easy, seed=1, threads=1)
    assert not any(flag.startswith("limit") for flag in found.flags)


def test_limits_are_tightened_by_the_noise_of_a_typical_federation() -> None:
    made = Forecaster(
        noisy_estimates([codes_of(i) for i in range(6)], 20.0, seed=1), settings=Settings(records=512)
    )
    errors = made.typical_errors(3)
    assert (errors > 0).any()
    # By hand: the median over the same federations of the spread over redraws.
    redrawn = made._redrawn_rows([np.random.default_rng([0, 17, number]) for number in range(12)])
    rng, by_hand = np.random.default_rng([0x7E, 3]), []
    for _ in range(16):
        members = rng.choice(6, 3, replace=False)
        values = [made.values(one[members].sum(axis=0)[None])[0] for one in redrawn]
        by_hand.append(np.std(values, axis=0, ddof=1))
    np.testing.assert_allclose(errors, np.median(by_hand, axis=0), rtol=1e-4)
    sums = made.rows[:3].sum(axis=0)[None]
    spd = float(made.values(sums)[0, NAMES.index("spd")])
    error = errors[NAMES.index("spd")]
    loose = Forecast.of(made, "f1", subject_to={"spd": spd + 0.5 * error}, margin=0.0)
    tight = Forecast.of(made, "f1", subject_to={"spd": spd + 0.5 * error}, margin=1.0)
    gained = tight.evaluate(sums)[0] - loose.evaluate(sums)[0]
    assert gained == pytest.approx(1 + 10 * 0.5 * error)
    assert tight.missed(sums[0]) == []


MISTAKES = [
    ({"margin": -1.0}, "margin must be"),
    ({"maximise": "acuracy"}, "did you mean 'accuracy'"),
    ({"maximise": {"f1": 0.0}}, "other than 0"),
    ({"maximise": {"f1": float("nan")}}, "finite"),
    ({"subject_to": {"spdd": 0.1}}, "did you mean 'spd'"),
    ({"subject_to": {"spd": 1.5}}, "between 0 and 1"),
    ({"penalty": 0.0}, "above 0"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_mistakes_are_named(arguments: dict, message: str) -> None:
    with pytest.raises(FedwiseError, match=message):
        Forecast(**arguments)


def test_evaluate_before_rows_is_refused() -> None:
    with pytest.raises(FedwiseError, match="call rows"):
        Forecast().evaluate(np.zeros((1, 3)))


def test_effects_are_shapley_values(forecaster: Forecaster) -> None:
    """Against all 24 orders; sampled means lie within five standard errors."""
    members, at = [0, 2, 5, 7], NAMES.index("accuracy")

    def value(part: tuple[int, ...]) -> float:
        return float(forecaster.values(forecaster.rows[list(part)].sum(axis=0)[None])[0, at])

    exact = dict.fromkeys(members, 0.0)
    for order in permutations(members):
        for i, member in enumerate(order):
            exact[member] += (value(order[: i + 1]) - value(order[:i])) / 24
    found = {e.client: e for e in effects(forecaster, members, metric="accuracy", orders=400, seed=2)}
    for member in members:
        effect = found[f"c{member}"]
        assert effect.shapley == pytest.approx(exact[member], abs=5 * effect.std_error + 1e-9)
        rest = tuple(m for m in members if m != member)
        assert effect.leave_one_out == pytest.approx(value(tuple(members)) - value(rest), abs=1e-9)
    total = sum(e.shapley for e in found.values())
    assert total == pytest.approx(value(tuple(members)) - value(()), abs=1e-9)


def test_front_is_the_true_front_at_its_ends(forecaster: Forecaster) -> None:
    found = front(forecaster, 3, gap="spd", points=4, method="exact", threads=1)
    _, values = everything(forecaster, 3)
    spd, accuracy = values[:, NAMES.index("spd")], values[:, NAMES.index("balanced_accuracy")]
    assert found[-1].value == pytest.approx(accuracy.max())
    assert found[0].gap == pytest.approx(spd.min())
    for point in found:  # nothing found is dominated by anything at all
        assert not ((accuracy > point.value + 1e-12) & (spd < point.gap - 1e-12)).any()
    gaps, heights = [p.gap for p in found], [p.value for p in found]
    assert gaps == sorted(gaps)
    assert heights == sorted(heights)
