"""Training on a node: Flower handlers over `fedwise.training`, the same code the simulation runs."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from ..errors import BudgetExceeded, FedwiseError
from ..owner.allowance import Allowance
from ..owner.archive import Archive
from ..owner.policy import Declined, Policy, Refusal
from ..owner.replies import records
from ..privacy.subsampled import Steps
from ..schema.schema import Schema
from ..training.checks import check_parameters, check_request, check_settings
from ..training.encoding import Encoder
from ..training.local import (
    ClientState,
    GroupSums,
    Instruction,
    LocalSettings,
    Update,
    local_update,
    predict,
)
from ..training.model import Model, Vector
from ..training.private import private_update
from .client_app import find_data
from .guard import LOSS_ACTION, STATE, admitted_policy, guard, hand_over

#: Keys of the records that travel beside Flower's own ``arrays``, ``config`` and ``metrics``.
SETTINGS, CONTROL, CELLS, REPORT = "fedwise.settings", "fedwise.control", "fedwise.cells", "fedwise.report"
_MEMORY = "fedwise.memory"
_LOG = logging.getLogger("flwr")
Weight = Literal["released", "exact", "equal"]


def train_app(
    app: ClientApp | None = None,
    *,
    schema: Schema,
    data: Any = None,
    policy: Any = None,
    model: str | Model = "mlp",
    settings: LocalSettings | None = None,
    weight: Weight = "released",
    test: Callable[[Context], Any] | None = None,
) -> ClientApp:
    """Give a ClientApp handlers that train and test fedwise's model on the node's rows.

    They serve Flower's own strategies (FedAvg, FedProx with its ``proximal-mu``, FedAdam, …) and
    `FedwiseStrategy` alike. Exceptions stay on the node.

    Parameters
    ----------
    schema, model
        Inputs and network; equal on all nodes.
    data, policy
        As for `release_app`. A policy with ``train_epsilon`` makes every update private (DP-SGD).
    settings
        How to train when the server does not say. Default: the paper's.
    weight
        What travels as ``num-examples``: the number of records the noisy ``released`` tables tell, the
        ``exact`` number (which no noise protects), or ``equal`` weights.
    test
        Rows for ``evaluate``, as a function of the node's `Context`. Default: the training rows.
    """
    if weight not in ("released", "exact", "equal"):
        raise FedwiseError(f"weight must be released, exact or equal, got '{weight}'")
    app = ClientApp() if app is None else app
    encoder = Encoder(schema)
    network = Model.named(model, encoder.width, encoder.task) if isinstance(model, str) else model
    trainer = _Trainer(encoder, network, data, settings or LocalSettings(), weight, test)
    app.train()(trainer.train)
    app.evaluate()(trainer.evaluate)
    app.query(LOSS_ACTION)(trainer.loss)
    guard(app, policy=policy).private.add("train")
    return app


class _Trainer:
    def __init__(
        self,
        encoder: Encoder,
        model: Model,
        data: Any,
        settings: LocalSettings,
        weight: Weight,
        test: Callable[[Context], Any] | None,
    ) -> None:
        self.encoder, self.model, self.settings, self.weight = encoder, model, settings, weight
        self.data, self.test = data, test

    def train(self, message: Message, context: Context) -> Message:
        """One local update: private where the policy promises it."""
        config = _config(message)
        policy = admitted_policy()
        parameters, instruction = self._request(message, private=policy.train_epsilon is not None)
        number = int(config.get("server-round", 1))
        memory = _recall(context)
        if policy.train_epsilon is not None:
            update = self._private(policy, parameters, instruction, number, memory, context)
        else:
            update = local_update(
                self.model,
                parameters,
                self.encoder.encode(find_data(self.data, policy, context)),
                instruction=instruction,
                client=policy.client,
                seed=int(config.get("seed", context.run_config.get("seed", 0))),
                round=number,
                state=memory,
            )
        if update.state:
            context.state[_MEMORY] = _arrays(update.state)
        weight = self._weight(policy, update.rows, context)
        reply = Message(write_update(self.model, update, weight), reply_to=message)
        if policy.train_epsilon is not None:
            hand_over(reply)
        return reply

    def _private(
        self,
        policy: Policy,
        parameters: Vector,
        instruction: Instruction,
        number: int,
        memory: ClientState,
        context: Context,
    ) -> Update:
        """DP-SGD, charged before a row is read. Nothing exact decides how much work it is."""
        if self.weight == "exact":
            raise FedwiseError(
                "weight must not be exact under train_epsilon: no noise covers the number of rows"
            )
        asked = instruction.settings
        population = self._population(policy, context)
        try:
            steps = Allowance(policy).begin(batch=asked.batch, epochs=asked.epochs, population=population)
        except BudgetExceeded as cause:
            _LOG.warning("fedwise: %s", cause)
            raise Declined(Refusal.BUDGET) from None
        # As it was when training began, whatever a release tells since: what is done must be what was charged.
        population = round(asked.batch / steps.rate) if steps.rate < 1 else min(population, asked.batch)
        if asked.batch / population > steps.rate:
            population += 1  # a rate that was rounded up when rounds of 0.1.0 were taken over
        update = private_update(
            self.model,
            parameters,
            self.encoder.encode(find_data(self.data, policy, context)),
            instruction=instruction,
            client=policy.client,
            round=number,
            noise_multiplier=steps.noise,
            clip=policy.train_clip,
            state=memory,
            seed=policy.simulated_seed,
            population=population,
        )
        _check_charged(update, steps)
        return update

    def loss(self, message: Message, context: Context) -> Message:
        """Mean log loss of the received parameters on the training rows. Exact: no noise protects it."""
        policy = admitted_policy()
        parameters = self._parameters(message)
        rows = self.encoder.encode(find_data(self.data, policy, context))
        value = float(self.model.task.losses(predict(self.model, parameters, rows), rows.y).mean())
        return Message(RecordDict({"metrics": MetricRecord({"loss": value})}), reply_to=message)

    def evaluate(self, message: Message, context: Context) -> Message:
        """Loss and accuracy of the received parameters."""
        policy = admitted_policy()
        parameters = self._parameters(message)
        found = self.test(context) if self.test is not None else find_data(self.data, policy, context)
        rows = self.encoder.encode(found)
        logits = predict(self.model, parameters, rows)
        metrics = {
            "loss": float(self.model.task.losses(logits, rows.y).mean()),
            "accuracy": self.model.task.accuracy(logits, rows.y),
            "num-examples": self._weight(policy, len(rows), context),
        }
        return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

    def _request(self, message: Message, *, private: bool) -> tuple[Vector, Instruction]:
        """What the server asks, refused before any row is read if it is out of bounds."""
        parameters = self._parameters(message)
        try:
            instruction = read_instruction(message, self.settings)
            check_settings(instruction)
            if private:
                check_request(self.model, parameters, instruction)
        except Exception:
            raise Declined(Refusal.PARAMETERS) from None
        return parameters, instruction

    def _parameters(self, message: Message) -> Vector:
        """The received parameters, refused before any row is read if they are out of bounds."""
        try:
            found = read_vector(self.model, message)
            check_parameters(self.model, found)
        except Exception:
            raise Declined(Refusal.PARAMETERS) from None
        return found

    def _weight(self, policy: Policy, rows: int, context: Context) -> float:
        if self.weight == "exact":
            return float(rows)
        if self.weight == "equal":
            return 1.0
        told = self._released(policy, context)
        if told is None:
            raise FedwiseError(
                "node has no release to take its weight from; ask for one first, or train with weight='equal' or "
                "'exact'"
            )
        return told

    def _population(self, policy: Policy, context: Context) -> int:
        """Number of records DP-SGD expects: public, from the policy or from the noisy tables."""
        if policy.train_population is not None:
            return policy.train_population
        told = self._released(policy, context)
        if told is None:
            raise FedwiseError(
                "private training must know how many records to expect; answer a plan first, or state "
                "train_population in the policy"
            )
        return max(1, round(told))

    def _released(self, policy: Policy, context: Context) -> float | None:
        """Number of records as the node's own release tells it."""
        if STATE in context.state.config_records:
            return float(context.state.config_records[STATE]["records"])
        # A node restarted in the middle of a run has lost its context, not its release.
        if policy.ledger is not None:
            saved = Archive(policy.ledger).newest(policy.client)
            if saved is not None:
                return records(saved)
        return None


def _check_charged(update: Update, charged: Steps) -> None:
    """Keep back an update that cost more than the ledger knows. It cannot happen; if it does, nothing leaves."""
    noise, rate, number = update.privacy or (0.0, 1.0, 1)
    if noise < charged.noise or rate > charged.rate * (1 + 1e-12) or number > charged.number:
        raise FedwiseError("private training did more than was charged; the update stays on the node")


def read_vector(model: Model, message: Message) -> Vector:
    """The parameters in a message's record ``arrays``."""
    found = message.content.array_records["arrays"]
    return model.flatten({name: array.numpy() for name, array in found.items()})


def initial_arrays(schema: Schema, model: str | Model = "mlp", *, seed: int = 0) -> ArrayRecord:
    """First parameters of the network `train_app` trains, for a strategy's ``initial_arrays``."""
    encoder = Encoder(schema)
    network = Model.named(model, encoder.width, encoder.task) if isinstance(model, str) else model
    return write_vector(network, network.initial(seed))


def write_vector(model: Model, vector: Vector) -> ArrayRecord:
    """Parameters as an ArrayRecord with the names of torch's ``state_dict``."""
    return _arrays(model.split(vector))


def write_instruction(instruction: Instruction) -> dict[str, Any]:
    """Records for an instruction, beside ``arrays``; the first goes into ``config``."""
    asked = {
        "settings": instruction.settings,
        "attribute": instruction.attribute,
        "report": instruction.report,
    }
    if instruction.trained:
        asked["trained"] = True
    settings = msgspec.json.encode(asked).decode()
    out: dict[str, Any] = {SETTINGS: settings}
    if instruction.control is not None:
        out[CONTROL] = _arrays({"control": instruction.control})
    if instruction.cell_weights is not None:
        out[CELLS] = _arrays({"cells": instruction.cell_weights})
    return out


def read_instruction(message: Message, default: LocalSettings) -> Instruction:
    """What the server asks: our own records, or a plain Flower strategy's config."""
    config, arrays = _config(message), message.content.array_records
    if SETTINGS not in config:
        mu = float(config.get("proximal-mu", default.mu))
        return Instruction(msgspec.structs.replace(default, mu=mu))
    asked = msgspec.json.decode(str(config[SETTINGS]), type=_Asked)
    return Instruction(
        asked.settings,
        control=arrays[CONTROL]["control"].numpy() if CONTROL in arrays else None,
        cell_weights=arrays[CELLS]["cells"].numpy() if CELLS in arrays else None,
        attribute=asked.attribute,
        report=asked.report,
        trained=asked.trained,
    )


def write_update(model: Model, update: Update, weight: float) -> RecordDict:
    """A client's answer. Flower's strategies want exactly one ArrayRecord, so extras come only when asked."""
    metrics: dict[str, float] = {"num-examples": weight}
    if math.isfinite(update.loss):
        metrics["loss"] = update.loss
    content = RecordDict({"arrays": write_vector(model, update.parameters), "metrics": MetricRecord(metrics)})
    if update.control_change is not None:
        content[CONTROL] = _arrays({"change": update.control_change})
    if update.report is not None:
        content[REPORT] = _arrays({"counts": update.report.counts, "losses": update.report.losses})
    return content


def read_update(model: Model, message: Message, client: str) -> Update:
    """A client's answer, checked: right shapes, finite numbers, positive weight.

    Raises
    ------
    FedwiseError
        Something does not fit; the text names the client only.
    """
    arrays = message.content.array_records
    try:
        metrics = message.content.metric_records["metrics"]
        parameters = read_vector(model, message)
        rows, loss = float(metrics["num-examples"]), float(metrics.get("loss", math.nan))
        change = arrays[CONTROL]["change"].numpy() if CONTROL in arrays else None
        report = None
        if REPORT in arrays:
            report = GroupSums(arrays[REPORT]["counts"].numpy(), arrays[REPORT]["losses"].numpy())
    except Exception:
        raise FedwiseError(f"update of client '{client}' does not fit the model") from None
    finite = np.isfinite(parameters).all() and (change is None or np.isfinite(change).all())
    if not (
        finite and math.isfinite(rows) and rows > 0 and (change is None or change.shape == parameters.shape)
    ):
        raise FedwiseError(f"update of client '{client}' is not finite or has no weight")
    return Update(client, parameters, rows, loss, 0, {}, change, report)  # type: ignore[arg-type]  # weights are real


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    settings: LocalSettings
    attribute: int
    report: bool
    trained: bool = False


def _config(message: Message) -> Mapping[str, Any]:
    return dict(message.content.config_records.get("config", ConfigRecord()))


def _recall(context: Context) -> dict[str, npt.NDArray[Any]]:
    if _MEMORY not in context.state.array_records:
        return {}
    return {name: array.numpy() for name, array in context.state.array_records[_MEMORY].items()}


def _arrays(named: Mapping[str, npt.NDArray[Any]]) -> ArrayRecord:
    return ArrayRecord({name: Array(np.ascontiguousarray(array)) for name, array in named.items()})
