"""Valuation: other ways to tell spoilt clients, each as one number for each client; larger is more suspicious.

Those of trained models need what the tables do not: updates of every client, and clean public rows to judge them on.
Subsets are valued by the mean of their members' updates (one round of reconstruction, Song, Tong and Wei 2019), as
training each of them would take thousands of trainings.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from dirty_training import ROUNDS, SETTINGS, Arena

from fedwise.estimation import estimate
from fedwise.objective.pfl import loss
from fedwise.pool.attenuation import Shares
from fedwise.pool.pool import Pool
from fedwise.search.shapley import sample_shapley
from fedwise.training.local import Instruction, local_update, log_losses, predict
from fedwise.training.model import Model
from fedwise.training.strategies.strategy import mean, shares

Floats = npt.NDArray[np.float64]

#: Orders of joining for the Shapley values.
ORDERS = 30


def from_tables(pool: Pool) -> dict[str, Floats]:
    """Rivals that read released tables, as the card does."""
    estimates = estimate(pool)
    every = range(len(pool))
    consistent = Shares.of(pool.matrix, pool.plan.layout, pool.sigmas)
    middle = np.median(consistent.cells, axis=0)
    return {
        "own loss (PFL)": np.array([loss(estimates, [i], pool.plan.weights) for i in every]),
        "distance to the pool": np.abs(consistent.cells - middle).sum(axis=1),
        "transport (FedBary-like)": transport(consistent, pool),
    }


def transport(found: Shares, pool: Pool) -> Floats:
    """Mean Wasserstein distance of the tables of the label to the pool's: a step in either variable costs 1."""
    import ot

    layout, target = found.layout, pool.plan.schema.target
    total, tables = np.zeros(len(pool)), 0
    for j, pair in enumerate(layout.pairs):
        if target not in pair:
            continue
        cells = np.maximum(found.cells[:, layout.slice(j)], 0.0) + 1e-12
        cells /= cells.sum(axis=1, keepdims=True)
        middle = np.median(cells, axis=0)
        a, b = layout.shapes[j]
        row, column = np.divmod(np.arange(a * b), b)
        cost = (row[:, None] != row).astype(np.float64) + (column[:, None] != column)
        total += [ot.emd2(one, middle / middle.sum(), cost) for one in cells]
        tables += 1
    return total / max(tables, 1)


def from_models(arena: Arena, clients: tuple[str, ...], *, seed: int) -> dict[str, Floats]:
    """Rivals that need trained models and clean public rows."""
    model = Model.named("logistic", arena.judges.width)
    asked = Instruction(SETTINGS)
    start = model.initial(0)
    updates = []
    for client in clients:
        parameters = start
        for number in range(1, ROUNDS + 1):
            update = local_update(
                model, parameters, arena.train[client], instruction=asked, client=client, seed=0, round=number
            )
            parameters = update.parameters
        updates.append(update)

    def cost(members: npt.NDArray[np.int64]) -> float:
        some = [updates[i] for i in members]
        merged = mean(some, shares(some)).astype(np.float32)
        return float(log_losses(predict(model, merged, arena.root), arena.root.y).mean())

    everyone = np.arange(len(clients))
    whole = cost(everyone)
    left = np.array([cost(np.delete(everyone, i)) for i in everyone])
    empty = float(log_losses(predict(model, start, arena.root), arena.root.y).mean())

    def along(orders: npt.NDArray[np.int64]) -> Floats:
        return np.array([[cost(order[: i + 1]) for i in range(len(order))] for order in orders])

    sampled = sample_shapley(
        along, len(clients), orders=ORDERS, rng=np.random.default_rng([seed, 0x5A]), empty=empty
    )
    return {
        "own model on public rows": np.array([cost(np.array([i])) for i in everyone]),
        "leave one out": whole - left,
        "Shapley value": sampled.means,
    }
