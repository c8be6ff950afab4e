"""Trained: models of federations as parameter vectors, each kept in a file named by everything that decides it."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from fedwise.files import write_new
from fedwise.training.cached import Cache, Job
from fedwise.training.encoding import Rows
from fedwise.training.federation import Prepared
from fedwise.training.local import Instruction, LocalSettings, local_update
from fedwise.training.model import Model, Vector
from fedwise.training.simulate import Config
from fedwise.training.strategies import make_strategy

Floats = npt.NDArray[np.float64]


class Recipe(msgspec.Struct, frozen=True):
    """How a federation's model is made.

    Parameters
    ----------
    model
        ``mlp``: the paper's network by federated averaging in fedwise's own engine. ``logistic``: logistic
        regression on the federation's rows together, solved to the end (scikit-learn, penalty ½‖β‖²), which is
        what federated averaging of a convex model with small steps tends to.
    rounds, lr, seed
        Of federated averaging.
    reweighed
        Whether rows are weighted so that group and label are independent (`reweighing`).
    """

    model: str = "mlp"
    rounds: int = 20
    lr: float = 1e-3
    seed: int = 0
    reweighed: bool = False

    def train(self, prepared: Prepared, members: Sequence[str]) -> Vector:
        """Parameters of the model that `members` train."""
        model = Model.named(self.model, prepared.encoder.width)
        rows = {client: prepared.train[client] for client in prepared.check(members)}
        cells = reweighing(list(rows.values())) if self.reweighed else None
        if self.model == "logistic":
            return _solve(model, Rows.concat(list(rows.values())), cells)
        instruction = Instruction(LocalSettings(lr=self.lr), cell_weights=cells)
        strategy = make_strategy("fedavg")
        parameters = model.initial(self.seed)
        for number in range(1, self.rounds + 1):
            updates = [
                local_update(
                    model, parameters, part, instruction=instruction, client=client, seed=self.seed, round=number
                )
                for client, part in rows.items()
            ]  # fmt: skip
            parameters, _ = strategy.aggregate(parameters, updates, {})
        return parameters


def reweighing(parts: Sequence[Rows], attribute: int = 0) -> Floats:
    """Weights by label and group that make the two independent (Kamiran and Calders 2012): P(y) P(g) / P(y, g).

    Returns
    -------
    weights
        Shape (2, groups); 1 for a cell without rows.
    """
    y = np.concatenate([part.y for part in parts]) > 0.5
    group = np.concatenate([part.groups[attribute] for part in parts]).astype(np.int64)
    counts = np.zeros((2, int(group.max(initial=0)) + 1))
    np.add.at(counts, (y.astype(np.int64), group), 1.0)
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / max(counts.sum(), 1.0)
    return np.divide(expected, counts, out=np.ones_like(counts), where=counts > 0)


class Models:
    """A directory of trained parameters.

    Parameters
    ----------
    folder
        Made when the first model is trained.
    prepared
        The data every name depends on; each client is hashed once.
    """

    def __init__(self, folder: str | Path, prepared: Prepared) -> None:
        self.folder = Path(folder)
        self.prepared = prepared
        self._cache = Cache(folder, prepared)

    def key(self, members: Sequence[str], recipe: Recipe) -> str:
        """SHA-256 over data, recipe and federation."""
        data = self._cache.key(Job(tuple(members), Config()))
        return hashlib.sha256(f"{data}\0{recipe}".encode()).hexdigest()

    def parameters(self, members: Sequence[str], recipe: Recipe) -> Vector:
        """The federation's parameters, from the directory or trained and kept there."""
        path = self.folder / f"{self.key(members, recipe)[:40]}.npy"
        try:
            found: Vector = np.load(path, allow_pickle=False)
            return found
        except (OSError, ValueError, EOFError):
            pass
        trained = recipe.train(self.prepared, members)
        buffer = io.BytesIO()
        np.save(buffer, trained, allow_pickle=False)
        write_new(path, buffer.getvalue(), force=True)
        return trained


def _solve(model: Model, rows: Rows, cells: Floats | None) -> Vector:
    from sklearn.linear_model import LogisticRegression

    weights = (
        None if cells is None else cells[(rows.y > 0.5).astype(np.int64), rows.groups[0].astype(np.int64)]
    )
    if len(np.unique(rows.y)) < 2:
        return np.zeros(model.size, dtype=np.float32)
    inputs = rows.matrix.astype(
        np.float64
    )  # one-hot columns sum to one: in float32 the Hessian is near singular
    found = LogisticRegression(solver="newton-cholesky").fit(inputs, rows.y, sample_weight=weights)
    return model.flatten({"0.weight": found.coef_, "0.bias": found.intercept_})
