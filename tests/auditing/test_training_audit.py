"""Audit of training: the promise stands, half of the noise is caught, and the bounds are bounds.

A false alarm of one honest audit has probability at most 1 − `CONFIDENCE` = 10⁻⁹; of the soak test's 100
audits together at most 10⁻⁷ (the sum).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from fedwise.auditing.training import audit_training, noise_bound
from fedwise.errors import FedwiseError
from fedwise.training.model import Model
from fedwise.training.private import Privacy, private_update

CONFIDENCE = 1 - 1e-9
EPSILONS = [0.5, 1.0, 4.0]
#: Expected rows of a step (of 100), epochs: one full step, several, and subsampled ones.
SETTINGS = {"one step": (100, 1), "five steps": (100, 5), "sampled": (25, 1)}


def half(*args, noise_multiplier: float, **fields):
    """The planted defect: half of the noise."""
    return private_update(*args, noise_multiplier=noise_multiplier / 2, **fields)


@pytest.mark.parametrize(("epsilon", "updates"), [(0.5, 600), (1.0, 250), (4.0, 100)])
def test_the_promise_stands_and_half_of_the_noise_does_not(epsilon: float, updates: int) -> None:
    promise = Privacy(epsilon=epsilon)
    honest = audit_training(promise, updates=updates, confidence=CONFIDENCE)
    assert honest.ok
    assert honest.trials == 100 * updates
    caught = audit_training(promise, updates=updates, confidence=CONFIDENCE, mechanism=half)
    assert not caught.ok
    assert caught.noise_bound < honest.noise_multiplier
    assert caught.epsilon_of_noise > epsilon


def test_the_attack_is_as_strong_as_theory() -> None:
    """AUC of the threshold on S at rate 1 is Φ(√T/(z√2)): nothing of the canary is lost, within 5 errors."""
    found = audit_training(Privacy(epsilon=4.0), epochs=3, updates=100, confidence=CONFIDENCE)
    theory = stats.norm.cdf(math.sqrt(found.steps / 2) / found.noise_multiplier)
    assert abs(found.auc - theory) < 5 * found.auc_std_error
    assert found.auc_std_error < 0.01


def test_sampled_steps_and_modules_are_audited_too() -> None:
    sampled = audit_training(Privacy(epsilon=4.0), batch=25, updates=150, confidence=CONFIDENCE)
    assert (sampled.rate, sampled.steps) == (0.25, 4)
    assert sampled.ok
    assert not audit_training(
        Privacy(epsilon=4.0), batch=25, updates=150, confidence=CONFIDENCE, mechanism=half
    ).ok
    model = Model(100, factory=lambda inputs: torch.nn.Linear(inputs, 1))
    assert audit_training(Privacy(epsilon=4.0), updates=60, confidence=CONFIDENCE, model=model).ok
    assert not audit_training(
        Privacy(epsilon=4.0), updates=60, confidence=CONFIDENCE, model=model, mechanism=half
    ).ok


def test_no_noise_at_all_has_no_epsilon() -> None:
    def bare(*args, noise_multiplier: float, **fields):
        return private_update(*args, noise_multiplier=0.0, **fields)

    found = audit_training(Privacy(epsilon=1.0), updates=20, mechanism=bare)
    assert found.auc == 1.0
    assert found.epsilon_lower_bound > 1.0  # without any assumption
    assert found.epsilon_of_noise > 5
    assert not found.ok


def test_the_noise_bound_is_a_bound() -> None:
    """At confidence 0.9 it lies under the true noise in at most 10% of 300 artificial attacks (and chance)."""
    rng = np.random.default_rng(0)
    for rate, steps, noise in ((1.0, 1, 2.0), (1.0, 4, 3.0), (0.3, 5, 1.0)):
        wrong, bounds = 0, []
        for _ in range(300):
            outside = rng.normal(0, noise * math.sqrt(steps), 400)
            inside = rng.binomial(steps, rate, 400) + rng.normal(0, noise * math.sqrt(steps), 400)
            found = noise_bound(inside, outside, rate=rate, steps=steps, confidence=0.9)
            wrong += found < noise
            bounds.append(found)
        assert wrong <= stats.binom.ppf(1 - 1e-6, 300, 0.1)
        assert np.median(bounds) < 3 * noise  # and not an empty one


def test_ends_of_the_noise_bound() -> None:
    one, zero = np.ones(50), np.zeros(50)
    fields = {"rate": 1.0, "steps": 1, "confidence": 0.9}
    assert math.isinf(noise_bound(zero, one, **fields))
    assert math.isinf(noise_bound(one, one, **fields))
    assert noise_bound(np.ones(10**5), np.zeros(10**5), **fields) < 0.2


def test_mistakes() -> None:
    with pytest.raises(FedwiseError, match="canaries and updates must be at least 2 and 1, got 1 and 5"):
        audit_training(Privacy(epsilon=1.0), canaries=1, updates=5)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_hundred_audits_keep_the_promise_and_catch_half_of_the_noise() -> None:
    audits = 0
    for epsilon in EPSILONS:
        promise = Privacy(epsilon=epsilon)
        for name, (batch, epochs) in SETTINGS.items():
            fields = {"batch": batch, "epochs": epochs, "updates": 1000, "confidence": CONFIDENCE}
            found = [audit_training(promise, seed=n, **fields) for n in range(11)]
            audits += len(found)
            assert all(audit.ok for audit in found), (epsilon, name)
            caught = audit_training(promise, mechanism=half, **fields)
            assert not caught.ok, (epsilon, name)
            largest = max(max(audit.epsilon_of_noise, audit.epsilon_lower_bound) for audit in found)
            print(  # noqa: T201
                f"epsilon {epsilon} {name}: largest bound {largest:.3f} of 11, half of the noise "
                f"{caught.epsilon_of_noise:.3f}, without assumption {caught.epsilon_lower_bound:.3f}"
            )
    model = Model(100, factory=lambda inputs: torch.nn.Linear(inputs, 1))
    assert audit_training(Privacy(epsilon=1.0), model=model, updates=1000, confidence=CONFIDENCE).ok
    assert audits + 1 == 100
