"""Dirty training: what federations of a spoilt pool learn, and what robust rules make of all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from spoilt import Case, rows_of, thinned

from fedwise.estimation import estimate
from fedwise.estimation.estimates import Estimates
from fedwise.forecasting.objective import Forecast
from fedwise.pool.card import Card, quality
from fedwise.pool.pool import Pool
from fedwise.search import select
from fedwise.search.problem import Objective
from fedwise.training.encoding import Rows
from fedwise.training.local import LocalSettings, local_update, predict
from fedwise.training.metrics import measure_scores
from fedwise.training.model import Model, Vector
from fedwise.training.settings import Training
from fedwise.training.strategies import make_strategy

#: Members of a federation.
K = 10
ROUNDS = 12
#: Rows that a client trains on, on average; rows of all clients that judge; public rows of FLTrust's root.
MEAN_ROWS, JUDGES, ROOT = 1500, 20_000, 500
SETTINGS = LocalSettings(optimizer="adam", lr=0.01, batch=64)
#: Robust rules, and rules for fairness, over all clients.
ROBUST = ("median", "trimmed_mean", "krum", "multi_krum", "fltrust")
FAIR = ("fairfed", "fedfb", "fade_weights", "fade_subset")
#: Ways that read released tables.
TABLED = ("chosen", "chosen, quality", "oracle", "all, quality", "forecast", "rehearsal")
KEPT = (
    "auc", "loss", "balanced_accuracy", "spd:SEX", "eod:SEX", "balanced_accuracy@rate", "spd:SEX@rate", "eod:SEX@rate",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Arena:
    """Rows to train on, spoilt where the client is, and clean rows of all clients that judge."""

    train: Mapping[str, Rows]
    judges: Rows
    root: Rows
    attribute: str

    @classmethod
    def of(cls, case: Case, *, seed: int, mean_rows: int = MEAN_ROWS) -> Arena:
        """The rows of one case; the root's are held-out rows that do not judge."""
        schema, held = case.world.schema, case.world.held_out
        train = thinned(case.world.codes, mean_rows, 11)
        together = np.concatenate(list(held.values()), axis=1)
        order = np.random.default_rng([seed, 0x7E57]).permutation(together.shape[1])
        root, judges = order[:ROOT], order[ROOT : ROOT + JUDGES]
        return cls(
            {client: rows_of(codes, schema) for client, codes in train.items()},
            rows_of(together[:, judges], schema), rows_of(together[:, root], schema),
            schema.names[schema.sensitive[0]],
        )  # fmt: skip

    def fit(self, members: Sequence[str], strategy: str = "fedavg") -> Vector:
        """Logistic regression trained by the federation for `ROUNDS` rounds."""
        rows = {client: self.train[client] for client in members}
        options = {}
        if strategy == "fltrust":
            rows, options = {**rows, " root": self.root}, {"root": " root"}
        made = make_strategy(strategy, **options)
        model = Model.named("logistic", self.judges.width)
        parameters = model.initial(0)
        state = made.start(parameters, {client: len(part) for client, part in rows.items()})
        for number in range(1, ROUNDS + 1):
            asked = made.configure(SETTINGS, state)
            updates = [
                local_update(model, parameters, part, instruction=asked, client=client, seed=0, round=number)
                for client, part in rows.items()
            ]
            parameters, state = made.aggregate(parameters, updates, state)
        return parameters

    def judge(self, parameters: Vector) -> dict[str, float]:
        """Metrics on clean rows of all clients, at ½ and at the rate-matched threshold."""
        scores = predict(Model.named("logistic", self.judges.width), parameters, self.judges)
        found = measure_scores(scores, self.judges.y, {self.attribute: self.judges.groups[0]})
        return {name: float(found[name.replace("SEX", self.attribute)]) for name in KEPT}


@dataclass(frozen=True, eq=False)
class Choice:
    """One pool read once: its estimates, its cards, and the federations chosen from them."""

    pool: Pool
    estimates: Estimates
    cards: Mapping[str, Card]

    @classmethod
    def of(cls, pool: Pool) -> Choice:
        """Estimate, and look at the quality."""
        return cls(pool, estimate(pool), quality(pool))

    def choose(self, *, exclude: Sequence[str] = (), objective: Objective | None = None) -> tuple[str, ...]:
        """The federation of least loss, or best by another objective; greedy exchange finds what annealing finds."""
        found = select(
            self.estimates, K, exclude=exclude, objective=objective, weights=self.pool.plan.weights,
            method="greedy-exchange", alternatives=0, evidence="none", threads=1,
        )  # fmt: skip
        return found.clients

    @property
    def left_out(self) -> list[str]:
        """Who takes no seat with ``exclude_suspect``: see `fedwise.search.seats.seat`."""
        suspects = [name for name, card in self.cards.items() if card.suspect]
        doubtful = [
            name
            for name, card in sorted(self.cards.items(), key=lambda pair: pair[1].doubt)
            if card.doubtful and not card.suspect
        ]
        return [*suspects, *doubtful[: max(len(self.pool) - len(suspects) - K, 0)]]


def choose_by_rehearsal(
    pool: Pool, shortlist: Sequence[tuple[str, ...]], *, records: int = 400
) -> tuple[str, ...]:
    """The federation of the shortlist with the best rehearsed AUC."""
    from fedwise.rehearsal.workflow import rehearse

    settings = Training(rounds=8, model="logistic", lr=0.01, batch=64, evaluate_every=8, replicates=0)
    found = rehearse(
        pool, [list(one) for one in shortlist], settings, random=0, everyone=False, stages=2, records=records,
        judged=10_000,
    )  # fmt: skip
    best = max(found.performances, key=lambda one: one.value("auc"))
    return tuple(best.clients)


def work(
    case: Case, choice: Choice, *, seed: int, random: int = 2, more: bool = False, rehearsed: bool = False
) -> list[tuple[str, str, tuple[str, ...]]]:
    """What is trained: name, strategy and federation."""
    clients = case.world.clients
    clean = [client for client in clients if client not in case.dirty]
    drawn = [
        tuple(np.random.default_rng([seed, i, 0xBAD]).permutation(clients)[:K].tolist())
        for i in range(random)
    ]
    chosen, filtered = choice.choose(), choice.choose(exclude=choice.left_out)
    found = [
        ("chosen", "fedavg", chosen),
        ("chosen, quality", "fedavg", filtered),
        ("oracle", "fedavg", choice.choose(exclude=case.dirty)),
        ("all", "fedavg", clients),
        ("all, quality", "fedavg", tuple(c for c in clients if c not in choice.left_out)),
        ("all clean", "fedavg", tuple(clean)),
        *(("random", "fedavg", members) for members in drawn),
        *((f"all, {rule}", rule, clients) for rule in ROBUST),
    ]
    if more:
        foreseen = choice.choose(objective=Forecast("auc"))
        found += [("forecast", "fedavg", foreseen)]
        found += [(f"all, {rule}", rule, clients) for rule in FAIR]
        found += [(f"random, {rule}", rule, drawn[0]) for rule in ROBUST]
        if rehearsed:
            best = choose_by_rehearsal(choice.pool, [chosen, filtered, foreseen, *drawn])
            found += [("rehearsal", "fedavg", best)]
    return found


def train_case(
    case: Case, choice: Choice, *, seed: int, more: bool = False, rehearsed: bool = False
) -> list[dict[str, object]]:
    """A row for each way, with its metrics on clean rows and what it costs to send."""
    arena = Arena.of(case, seed=seed)
    size = Model.named("logistic", arena.judges.width).size
    out: list[dict[str, object]] = []
    for name, strategy, members in work(case, choice, seed=seed, more=more, rehearsed=rehearsed):
        found = arena.judge(arena.fit(members, strategy))
        # Parameters there and back in four bytes each; tables only where clients are chosen by them.
        sent = ROUNDS * len(members) * 2 * 4 * size
        if name in TABLED:
            sent += 4 * choice.pool.matrix.size
        out.append(
            {"way": name, "dirty_share": float(case.is_dirty(members).mean()), "members": len(members),
             "rounds": ROUNDS, "bytes": sent, **found}
        )  # fmt: skip
    return out
