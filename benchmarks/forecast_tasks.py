"""What the forecast's benchmark trains and measures: census tasks, random federations, trained metrics."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedwise.data import acs
from fedwise.data.split import split_all
from fedwise.owner.tables import count
from fedwise.planning import plan
from fedwise.training.encoding import Rows
from fedwise.training.federation import Prepared, prepare
from fedwise.training.local import predict
from fedwise.training.model import Model
from fedwise.training.simulate import Config, simulate

DATA = Path(__file__).parents[1].parent / "shared" / "data"
TASKS = {
    "income": ("acs2018_income.parquet", None),
    "income_2024": ("acs2024_person.parquet", 2024),
    "public_coverage": ("acs2024_person.parquet", 2024),
    "travel_time": ("acs2024_person.parquet", 2024),
    "employment": ("acs2024_person.parquet", 2024),
}
METRICS = ("accuracy", "balanced_accuracy", "f1", "spd", "eod")
#: Metrics of a trained model: on all held-out rows, and on two random halves of them.
Trained = dict[str, dict[str, float]]


@dataclass
class Task:
    """A task's data, split once: exact tables of the training rows, encoded rows for training."""

    name: str
    clients: tuple[str, ...]
    schema: Any
    exact: np.ndarray
    prepared: Prepared
    rows: int


def load(name: str, cap: int) -> Task:
    """Read a task; a client keeps at most `cap` rows."""
    file, year = TASKS[name]
    loaded = acs.read(name.removesuffix("_2024"), DATA / file, year=year)
    frames = {
        client: frame.sample(cap, seed=1) if frame.height > cap else frame
        for client, frame in loaded.clients.items()
    }
    train, _ = split_all(frames)
    layout = plan(loaded.schema, math.inf).layout
    exact = np.stack([count(loaded.schema.encode(frame), layout).exact for frame in train.values()])
    rows = sum(frame.height for frame in train.values())
    return Task(name, tuple(train), loaded.schema, exact, prepare(frames, loaded.schema), rows)


def federations(task: Task, size: int, number: int, seed: int) -> list[tuple[int, ...]]:
    """Distinct random federations."""
    rng = np.random.default_rng([seed, size])
    found: dict[tuple[int, ...], None] = {}
    while len(found) < min(number, math.comb(len(task.clients), size)):
        found[tuple(sorted(rng.choice(len(task.clients), size, replace=False).tolist()))] = None
    return list(found)


class Trainer:
    """Trains federations of a task, remembering what it has trained in a file.

    Parameters
    ----------
    thin
        Mean number of rows a client trains the network on; natural proportions stay. Logistic regression and
        the tables see all training rows.
    """

    def __init__(self, task: Task, model: str, cache: Path, *, cap: int, rounds: int, thin: int) -> None:
        self.task, self.model, self.rounds = task, model, rounds
        tag = f"{rounds}-{thin}" if model == "mlp" else "newton"
        self.path = cache / f"{task.name}-{model}-{cap}-{tag}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.known: dict[str, Trained] = {}
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                entry = json.loads(line)
                self.known[entry.pop("key")] = entry
        self.seconds = 0.0
        self.thinned = _thin(task.prepared, thin)
        held = task.prepared.held_out
        self._half = np.random.default_rng(77).random(len(held)) < 0.5

    def __call__(self, members: tuple[int, ...], seed: int = 0) -> Trained:
        """Metrics of the federation on the held-out rows of all clients."""
        names = [self.task.clients[i] for i in members]
        salt = f"|{seed}" if seed else ""
        key = hashlib.sha256((",".join(names) + salt).encode()).hexdigest()[:16]
        if key not in self.known:
            began = time.perf_counter()
            scores = self._logistic(names) if self.model == "logistic" else self._mlp(names, seed)
            held = self.task.prepared.held_out
            y, group = held.y > 0.5, held.groups[0]
            self.known[key] = {
                part: measured(scores[at] > 0, y[at], group[at])
                for part, at in {"all": slice(None), "a": self._half, "b": ~self._half}.items()
            }
            self.seconds += time.perf_counter() - began
            with self.path.open("a") as file:
                file.write(json.dumps({"key": key, **self.known[key]}) + "\n")
        return self.known[key]

    def _logistic(self, names: list[str]) -> np.ndarray:
        """Logistic regression on the federation's rows together, by Newton's method."""
        prepared = self.task.prepared
        x = np.concatenate([prepared.train[name].matrix for name in names])
        x = np.concatenate([np.ones((len(x), 1), np.float32), x], axis=1)
        y = np.concatenate([prepared.train[name].y for name in names])
        beta = np.zeros(x.shape[1])
        for _ in range(15):
            chance = 1 / (1 + np.exp(-(x @ beta.astype(np.float32)).astype(float)))
            weight = np.maximum(chance * (1 - chance), 1e-6).astype(np.float32)
            hessian = ((x * weight[:, None]).T @ x).astype(float) + np.eye(x.shape[1])
            step = np.linalg.solve(hessian, x.T @ (y - chance).astype(np.float32) - beta)
            beta += step
            if np.abs(step).max() < 1e-4:
                break
        return np.asarray(beta[0] + prepared.held_out.matrix @ beta[1:].astype(np.float32))

    def _mlp(self, names: list[str], seed: int) -> np.ndarray:
        """The paper's network by FedAvg."""
        config = Config(rounds=self.rounds, model="mlp", evaluate_every=self.rounds, replicates=0, seed=seed)
        model = Model.named("mlp", self.thinned.encoder.width)
        done = simulate(self.thinned, names, config, model=model)
        return np.asarray(predict(model, done.parameters, self.task.prepared.held_out))


def measured(yes: np.ndarray, y: np.ndarray, group: np.ndarray) -> dict[str, float]:
    """Metrics of predictions."""
    recall, specificity = yes[y].mean(), 1 - yes[~y].mean()
    rates = [yes[group == g].mean() for g in np.unique(group)]
    true = [yes[(group == g) & y].mean() for g in np.unique(group)]
    return {
        "accuracy": float((yes == y).mean()),
        "balanced_accuracy": float((recall + specificity) / 2),
        "f1": float(2 * (yes & y).sum() / max(yes.sum() + y.sum(), 1)),
        "spd": float(max(rates) - min(rates)),
        "eod": float(max(true) - min(true)),
    }


def reliability(first: list[Trained], second: list[Trained]) -> dict[str, float]:
    """How well a metric tells federations apart, by metric: 1 is perfectly, 0 not at all.

    Each federation is measured twice, on disjoint halves of the test rows (for the network also with another
    seed); r is the correlation of the two measurements over federations. The whole test set has the
    reliability 2r/(1+r) (Spearman–Brown). Above ½ federations differ by more than the noise.
    """
    found = {}
    for metric in METRICS:
        a = np.array([one["a"][metric] for one in first])
        b = np.array([one["b"][metric] for one in second])
        r = float(np.corrcoef(a, b)[0, 1])
        found[metric] = 2 * r / (1 + r) if r > 0 else 0.0
    return found


def _thin(prepared: Prepared, mean_rows: int) -> Prepared:
    """A fixed random share of every client's training rows; hardly any test rows, as they are not used."""
    mean = sum(map(len, prepared.train.values())) / len(prepared.train)
    share = min(1.0, mean_rows / mean)

    def part(rows: Mapping[str, Rows], share: float, salt: int) -> dict[str, Rows]:
        kept = {}
        for i, (client, these) in enumerate(rows.items()):
            size = max(min(len(these), 1), round(len(these) * share))
            order = np.random.default_rng([salt, i]).permutation(len(these))
            kept[client] = these.take(np.sort(order[:size]))
        return kept

    return Prepared(prepared.encoder, part(prepared.train, share, 11), part(prepared.test, 0.02, 12))
