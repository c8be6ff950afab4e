"""Audit of training: the strongest membership attack we know on DP-SGD, with parameters the server chose.

A hostile server wants to know whether a record, the canary, is in the data. It may send any parameters and
settings and it sees the parameters that come back. It chooses the weight of an input that only the canary
has so large that the network is sure and wrong about the canary: its gradient is far above the clipping
norm and points along that weight alone, in every step. With plain SGD the way the weight went, over the
learning rate, is the sum over all steps,

    S = K + z·√T·N(0, 1) in units of the clipping norm,    K = 0 without the canary, Bin(T, q) with it,

for noise multiplier z, T steps and sampling rate q. With q = 1 no test of an adversary who sees every step
does better; a threshold on S is the likelihood-ratio test. Canaries with weights of their own do not
disturb each other, so one update is a trial of each of them.

Two lower bounds on ε come out. The first assumes nothing about the mechanism (Clopper–Pearson, as for
releases), and cannot reach the promise where ε is attained only in the far tail. The second takes the noise
for a Gaussian and asks how much of it can be there, given the error rates of the attack; the accountant
turns that into ε.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.stats import binom, norm

from ..errors import FedwiseError
from ..privacy.scales import gaussian_epsilon
from ..privacy.subsampled import epsilon as accounted
from ..privacy.subsampled import sampling, scale_noise
from ..training.checks import LARGEST_LR, LARGEST_PARAMETER
from ..training.encoding import Rows
from ..training.local import Instruction, LocalSettings, Update
from ..training.model import Model
from ..training.private import Privacy, private_update
from .rates import auc, clopper_pearson, epsilon_lower_bound

Floats = npt.NDArray[np.float64]
#: `private_update`, or something broken in its place.
Mechanism = Callable[..., Update]

#: Value of a canary's own input: the rest of its gradient (the bias) is a thousandth of it.
_LOUD = 1000.0


class TrainingAudit(msgspec.Struct, frozen=True):
    """Outcome of an audit of training.

    `noise_bound` is the most noise that can be there, as a multiplier, and `epsilon_of_noise` the ε it makes;
    `epsilon_lower_bound` needs no assumption. Each holds with at least half of the risk 1 − `confidence`.
    `ok` means that neither exceeds the promise.
    """

    epsilon: float
    delta: float
    noise_multiplier: float
    rate: float
    steps: int
    trials: int
    auc: float
    auc_std_error: float
    noise_bound: float
    epsilon_of_noise: float
    epsilon_lower_bound: float
    confidence: float

    @property
    def ok(self) -> bool:
        """Whether the promise stands."""
        return max(self.epsilon_of_noise, self.epsilon_lower_bound) <= self.epsilon


def audit_training(
    promise: Privacy,
    *,
    batch: int = 100,
    epochs: int = 1,
    canaries: int = 100,
    updates: int = 200,
    seed: int = 0,
    confidence: float = 0.999,
    model: Model | None = None,
    mechanism: Mechanism = private_update,
) -> TrainingAudit:
    """Attack `updates` updates, each with about half of the canaries in its data.

    Parameters
    ----------
    promise
        What the noise is scaled for: one update of `epochs` epochs.
    batch
        Expected rows of a step, out of `canaries`; as many or more is the full batch.
    seed
        Which canaries are in. The noise has no seed.
    confidence
        An honest mechanism exceeds its promise with probability at most 1 − confidence.
    model
        A network with `canaries` inputs whose first array is its weights. Default: logistic regression.
    mechanism
        What trains; a test puts a broken one here and must see it caught.
    """
    if canaries < 2 or updates < 1:
        raise FedwiseError(f"canaries and updates must be at least 2 and 1, got {canaries} and {updates}")
    rate, steps = sampling(canaries, batch, epochs)
    noise = scale_noise(promise.epsilon, promise.delta, rate, steps)
    rng = np.random.default_rng(seed)
    inside, outside = [], []
    for number in range(updates):
        present = rng.random(canaries) < 0.5
        scores = _attack(promise, present, batch, epochs, noise, number, model, mechanism)
        inside.append(scores[present])
        outside.append(scores[~present])
    found_in, found_out = np.concatenate(inside), np.concatenate(outside)
    half = 1 - (1 - confidence) / 2
    bound = noise_bound(found_in, found_out, rate=rate, steps=steps, confidence=half)
    area, error = auc(found_in, found_out)
    return TrainingAudit(
        epsilon=promise.epsilon,
        delta=promise.delta,
        noise_multiplier=noise,
        rate=rate,
        steps=steps,
        trials=len(found_in) + len(found_out),
        auc=area,
        auc_std_error=error,
        noise_bound=bound,
        epsilon_of_noise=_epsilon(bound, rate, steps, promise.delta),
        epsilon_lower_bound=epsilon_lower_bound(found_in, found_out, delta=promise.delta, confidence=half),
        confidence=confidence,
    )


def _attack(
    promise: Privacy,
    present: npt.NDArray[np.bool_],
    batch: int,
    epochs: int,
    noise: float,
    number: int,
    model: Model | None,
    mechanism: Mechanism,
) -> Floats:
    """S of every canary, from one update on the canaries that are present."""
    canaries = len(present)
    model = model or Model(canaries, ())
    rows = canary_rows(present)
    sent = np.zeros(model.size, dtype=np.float32)
    sent[:canaries] = LARGEST_PARAMETER / 2
    expected = float(min(batch, canaries))
    # Steps of about 1 for each clipping norm: far above the precision of the weight, far below its size.
    lr = min(expected / promise.clip, LARGEST_LR)
    settings = LocalSettings(optimizer="sgd", lr=lr, batch=batch, epochs=epochs)
    update = mechanism(
        model, sent, rows, instruction=Instruction(settings), client="audit", round=number + 1,
        noise_multiplier=noise, clip=promise.clip, population=float(canaries),
    )  # fmt: skip
    way = sent[:canaries].astype(np.float64) - update.parameters[:canaries].astype(np.float64)
    scores: Floats = way * (expected / (lr * promise.clip))
    return scores


def canary_rows(present: npt.NDArray[np.bool_]) -> Rows:
    """Rows of the canaries that are present: each has one input nobody else has, and the target 0."""
    count = int(present.sum())
    return Rows(
        width=len(present),
        hot=np.zeros((count, 0), dtype=np.int32),
        dense=(_LOUD * np.eye(len(present), dtype=np.float32))[present],
        dense_at=np.arange(len(present)),
        y=np.zeros(count, dtype=np.float32),
        groups=np.zeros((0, count), dtype=np.int16),
    )


def noise_bound(inside: Floats, outside: Floats, *, rate: float, steps: int, confidence: float) -> float:
    """The largest noise multiplier that the error rates of the attack allow, with the given confidence.

    The threshold is half of what a canary adds in expectation, fixed before any trial. A multiplier z allows
    a true positive rate of at most E_K Φ̄(Φ̄⁻¹(FPR) − K/(z√T)) at that false positive rate, and less for
    larger z.
    """
    threshold = rate * steps / 2
    risk = (1 - confidence) / 2
    tpr, _ = clopper_pearson(int((inside > threshold).sum()), len(inside), risk)
    _, fpr = clopper_pearson(int((outside > threshold).sum()), len(outside), risk)
    counts = np.arange(steps + 1)
    chances = binom.pmf(counts, steps, rate)

    def excess(log_noise: float) -> float:
        shift = counts / (math.exp(log_noise) * math.sqrt(steps))
        return float(np.sum(chances * norm.sf(norm.isf(fpr) - shift))) - tpr

    low, high = math.log(1e-3), math.log(1e6)
    if fpr >= 1 or excess(high) >= 0:
        return math.inf
    return math.exp(float(brentq(excess, low, high))) if excess(low) > 0 else 0.0


def _epsilon(noise: float, rate: float, steps: int, delta: float) -> float:
    """ε of a noise multiplier; in closed form for full batches, whose composition is one Gaussian."""
    if math.isinf(noise):
        return 0.0
    if noise == 0:
        return math.inf
    if rate < 1:
        return accounted([(noise, rate, steps)], delta)
    return gaussian_epsilon(math.sqrt(steps) / noise, delta)
