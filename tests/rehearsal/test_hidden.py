"""Hidden: what records tell beyond the tables lifts a network that has learnt, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import fedwise as fw
from conftest import make_people
from fedwise.rehearsal.hidden import HIDDEN, NOTHING, Learnt, knowing, learnt, log_odds, normal, with_hidden
from fedwise.rehearsal.judging import Judges
from fedwise.rehearsal.stage import Stage
from fedwise.rehearsal.trainings import judged
from fedwise.training.encoding import Encoder, Rows
from fedwise.training.model import Model


def people(chance: np.ndarray, seed: int | None = 7) -> Judges:
    n = len(chance)
    rows = Rows(
        1, np.zeros((n, 1), np.int32), np.zeros((n, 0), np.float32), np.zeros(0, np.int64), np.zeros(n, np.float32),
        np.zeros((1, n), np.int16),
    )  # fmt: skip
    return Judges(rows, chance, ("SEX",), (("man",),), seed=seed)


@pytest.mark.parametrize("chance", [0.02, 0.2, 0.5, 0.9])
def test_what_the_tables_tell_stays(chance: float) -> None:
    """Over people who look alike in the tables the mean chance is what the tables say."""
    found = with_hidden(np.full(200_000, chance), normal(200_000, 1), HIDDEN)
    # The approximation behind κ is good to .001; 4 standard errors of the mean are at most .001 too.
    assert found.mean() == pytest.approx(chance, abs=2e-3)
    assert found.std() > 0.3 * HIDDEN * chance * (1 - chance)


def test_learnt_is_the_slope_on_the_log_odds() -> None:
    chance = np.random.default_rng(0).uniform(0.05, 0.95, 2_000)
    wanted = log_odds(chance).astype(np.float32)
    assert learnt(wanted, chance).slope == pytest.approx(1.0)
    assert learnt(0.4 * wanted - 2, chance).slope == pytest.approx(0.4, abs=1e-5)
    assert learnt(3 * wanted, chance).slope == 1.0
    for nothing in (-wanted, np.zeros(2_000, np.float32)):
        assert learnt(nothing, chance) == (0.0, 0.0)
    weight = (chance * (1 - chance)) ** 2
    spread = np.sqrt(np.cov(wanted, aweights=weight, ddof=0))
    assert learnt(0.4 * wanted, chance).known == pytest.approx(float(spread), rel=1e-5)


def test_noise_does_not_tell_more() -> None:
    """Scores and log-odds with independent noise: the slope is the doubles' own, and what is known stays."""
    rng = np.random.default_rng(4)
    true = rng.normal(scale=0.6, size=100_000)
    plain = learnt((0.7 * true).astype(np.float32), 1 / (1 + np.exp(-true)))
    for noise in (0.3, 0.8):
        own, other = (true + noise * rng.standard_normal(len(true)) for _ in range(2))
        scores = (0.7 * own).astype(np.float32)
        found = learnt(scores, 1 / (1 + np.exp(-other)), scores, 1 / (1 + np.exp(-own)))
        assert found.slope == pytest.approx(0.7, abs=1e-3)
        # Weights follow noisy chances, so it falls a little; by people of the doubles' own half it would rise.
        assert plain.known - 0.1 < found.known < plain.known + 0.01
        assert learnt(scores, 1 / (1 + np.exp(-own))).known > plain.known + 0.03


def test_where_tables_tell_little_so_do_rows() -> None:
    assert Learnt(1.0, 3.0).hidden == HIDDEN
    assert Learnt(1.0, 0.5).hidden == pytest.approx(0.125)
    assert NOTHING.hidden == 0.0


def test_who_knows_the_hidden_part_tells_the_classes_better_apart() -> None:
    chance = np.random.default_rng(1).uniform(0.1, 0.9, 20_000)
    scores = log_odds(chance).astype(np.float32)
    judges = people(chance)
    values = {}
    for known in (0.0, 0.5, 1.0):
        these, theirs = judges.facing(scores, Learnt(known, 1.0))
        values[known] = these.measure(theirs)[0]
    assert values[0.0]["auc"] + 0.002 < values[0.5]["auc"] < values[1.0]["auc"]
    assert values[0.0]["loss"] > values[0.5]["loss"] > values[1.0]["loss"]
    # A model that knows all of it is as well calibrated as one that knows the tables' part was.
    assert values[1.0]["calibration_error"] < values[0.0]["calibration_error"] + 0.01


def test_a_score_that_knows_nothing_of_it_is_worth_what_it_was() -> None:
    """Chances that are spread without the model's knowing change no expectation."""
    chance = np.random.default_rng(2).uniform(0.1, 0.9, 50_000)
    scores = log_odds(chance).astype(np.float32)
    plain = people(chance).measure(scores)[0]
    spread = people(with_hidden(chance, normal(50_000, 3), HIDDEN), seed=None).measure(scores)[0]
    for name in ("auc", "loss", "balanced_accuracy"):
        assert spread[name] == pytest.approx(plain[name], abs=4e-3), name


def test_rows_tell_it_themselves() -> None:
    """Public rows judge as they are: nothing is added to them."""
    chance = np.random.default_rng(3).uniform(size=100)
    scores = np.linspace(-1, 1, 100).astype(np.float32)
    judges = people(chance, seed=None)
    these, theirs = judges.facing(scores, Learnt(1.0, 1.0))
    assert these is judges
    np.testing.assert_array_equal(theirs, scores)


def test_scores_widen_so_that_the_mean_chance_stays() -> None:
    scores = np.full(200_000, -1.5, np.float32)
    seen = knowing(scores, normal(200_000, 5), HIDDEN).astype(np.float64)
    assert (1 / (1 + np.exp(-seen))).mean() == pytest.approx(1 / (1 + np.exp(1.5)), abs=2e-3)


def test_only_models_in_which_inputs_act_together_can_learn_it() -> None:
    assert Model.named("logistic", 3).additive
    assert not Model.named("mlp", 3).additive
    assert not Model.named("8", 3).additive
    assert not Model(3, (), factory=lambda inputs: None).additive


def test_a_rehearsed_network_gains_and_a_logistic_regression_does_not(small_schema, monkeypatch) -> None:
    plan = fw.plan(small_schema, epsilon=np.inf)
    pool = fw.Pool.of(
        fw.release(plan, make_people(1500, seed=i), client=f"c{i}", no_privacy=True) for i in range(3)
    )
    found: dict[tuple[str, bool], dict[str, float]] = {}
    for model in ("logistic", "8"):
        config = fw.Training(rounds=3, lr=1e-2, model=model).config()
        for there in (True, False):
            if not there:
                monkeypatch.setattr("fedwise.rehearsal.trainings.learnt", lambda *given: NOTHING)
            stage = Stage(pool, Encoder(plan.schema), seed=1, judged=4_000)
            found[model, there] = judged(stage, ("c0", "c1"), config).final
            monkeypatch.undo()
    assert found["8", True]["auc"] > found["8", False]["auc"] + 0.002
    assert found["8", True]["loss"] < found["8", False]["loss"]
    assert found["logistic", True] == found["logistic", False]
