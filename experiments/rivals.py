"""Rivals of tuning by rehearsal: settings that clients find on their own rows and agree on privately.

`vote` follows DP-Hype (arXiv 2510.04902): every client tries each setting on its own rows and votes for the best; the
counts of votes are summed with Gaussian noise and the largest wins. `average` follows PrivTuna (arXiv 2402.16087): the
settings that are best for each client are averaged; there under encryption, here with Gaussian noise as well, so that
both keep the same promise for a whole client. Both need a training of every setting at every client.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from fedwise.privacy.scales import gaussian_mu
from fedwise.training.encoding import Rows
from fedwise.training.federation import Prepared
from fedwise.training.settings import Training
from fedwise.training.simulate import simulate

STRATEGIES = ("fedavg", "scaffold", "fedadam", "fairfed")
RATES = (1e-5, 1e-4, 1e-3, 1e-2)
EPOCHS = (1, 3)
MODELS = ("mlp", "logistic")


class Setting(NamedTuple):
    """One of the 64 ways to train."""

    strategy: str
    lr: float
    epochs: int
    model: str

    def training(self, **more: object) -> Training:
        return msgspec.convert({**self._asdict(), **more}, Training)

    @property
    def local(self) -> Setting:
        """What a client alone can try of it: who aggregates how makes no difference there."""
        return self._replace(strategy=STRATEGIES[0])


SETTINGS = tuple(itertools.starmap(Setting, itertools.product(STRATEGIES, RATES, EPOCHS, MODELS)))
LOCAL = tuple(dict.fromkeys(setting.local for setting in SETTINGS))


def own_scores(prepared: Prepared, client: str, *, rounds: int, seed: int) -> dict[Setting, float]:
    """AUC on a quarter of a client's training rows of models trained on the others, for each local setting."""
    rows: Rows = prepared.train[client]
    order = np.random.default_rng([seed, len(rows)]).permutation(len(rows))
    cut = max(1, len(rows) // 4)
    alone = Prepared(
        prepared.encoder, {client: rows.take(np.sort(order[cut:]))}, {client: rows.take(np.sort(order[:cut]))}
    )
    found = {}
    for setting in LOCAL:
        config = setting.training(rounds=rounds, seed=seed, evaluate_every=rounds, replicates=0).config()
        value = simulate(alone, [client], config).value("auc")
        found[setting] = value if math.isfinite(value) else 0.5
    return found


def best_of(scores: Mapping[Setting, float]) -> Setting:
    """The best setting; of equal ones the first."""
    return max(scores, key=lambda setting: scores[setting])


def vote(best: Sequence[Setting], epsilon: float, delta: float, rng: np.random.Generator) -> Setting:
    """The setting with the most votes under noise. A client's vote moves between two counts: sensitivity √2."""
    counts = np.array([sum(choice == setting for choice in best) for setting in LOCAL], dtype=float)
    scale = 0.0 if math.isinf(epsilon) else math.sqrt(2.0) / gaussian_mu(epsilon, delta)
    return LOCAL[int(np.argmax(counts + rng.normal(0.0, 1.0, len(counts)) * scale))]


def average(best: Sequence[Setting], epsilon: float, delta: float, rng: np.random.Generator) -> Setting:
    """The mean of each setting under noise, moved to the nearest one there is.

    Each is scaled to 0 … 1 (learning rates by their logarithms), so a client changes the three sums by √3 at most.
    """
    spans = [np.log10(RATES), np.array(EPOCHS, float), np.arange(len(MODELS), dtype=float)]
    values = np.array([[math.log10(s.lr), s.epochs, MODELS.index(s.model)] for s in best])
    low, width = np.array([span[0] for span in spans]), np.array([np.ptp(span) for span in spans])
    scale = 0.0 if math.isinf(epsilon) else math.sqrt(3.0) / gaussian_mu(epsilon, delta)
    total = ((values - low) / width).sum(axis=0) + rng.normal(0.0, 1.0, 3) * scale
    means = low + width * np.clip(total / len(best), 0.0, 1.0)
    lr, epochs, model = (int(np.argmin(np.abs(span - mean))) for span, mean in zip(spans, means, strict=True))
    return Setting(STRATEGIES[0], RATES[lr], EPOCHS[epochs], MODELS[model])
