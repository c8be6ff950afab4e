"""Simulate: a whole federated training in one process, round by round."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from ..errors import FedwiseError
from ..privacy.subsampled import sampling, scale_noise
from . import metrics
from .accounting import History
from .federation import Prepared
from .local import ClientState, Engine, Instruction, LocalSettings, Update, local_update, predict
from .model import Model, Vector, check_extra
from .private import Privacy, private_update
from .records import Record
from .round import Round
from .samplers import find_sampler
from .strategies import REPORTING, ServerState, make_strategy

#: Samplers that look at the exact losses of clients, which DP-SGD does not cover.
_LOSS_SAMPLERS = frozenset({"ucb_cs", "threshold", "power_of_choice"})


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that decides a run, beside the data and the federation.

    `replicates` bootstrap samples bound the metrics of the last round; with 0 it is tested like any other.
    `simulated` draws the noise of DP-SGD from the seed, to be repeated; such noise protects nobody. By
    default it comes from the operating system.
    """

    rounds: int = 50
    strategy: str = "fedavg"
    strategy_options: dict[str, Any] = msgspec.field(default_factory=dict)
    sampler: str = "full"
    sampler_options: dict[str, Any] = msgspec.field(default_factory=dict)
    fraction: float = 0.5
    settings: LocalSettings = msgspec.field(default_factory=LocalSettings)
    model: str = "mlp"
    seed: int = 0
    engine: Engine = "auto"
    evaluate_every: int = 1
    replicates: int = 200
    privacy: Privacy | None = None
    simulated: bool = False

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.evaluate_every < 1:
            raise FedwiseError(
                f"rounds and evaluate_every must be at least 1, got {self.rounds} and {self.evaluate_every}"
            )
        if self.replicates < 0:
            raise FedwiseError(f"replicates must be at least 0, got {self.replicates}; 0 makes no intervals")
        if self.seed < 0:
            raise FedwiseError(f"seed must be at least 0, got {self.seed}")
        make_strategy(self.strategy, **self.strategy_options)
        find_sampler(self.sampler, self.sampler_options)
        if not 0 < self.fraction <= 1:
            raise FedwiseError(f"fraction must be above 0 and at most 1, got {self.fraction}")
        if self.simulated and self.privacy is None:
            raise FedwiseError("simulated must be false without privacy: there is no noise to draw; drop it")
        if self.privacy is not None:
            if self.sampler in _LOSS_SAMPLERS:
                raise FedwiseError(
                    f"sampler {self.sampler} reads exact losses, which DP-SGD does not cover; "
                    "use full, uniform, fed_sampling or cluster_fl"
                )
            if self.strategy in REPORTING:
                raise FedwiseError(
                    f"strategy {self.strategy} asks for exact sums by group, which DP-SGD does not cover; "
                    "use fedavg, fedprox, scaffold, fedadam or a robust rule"
                )


@dataclass(eq=False)
class Progress:
    """Where a run stands after a round: all that a checkpoint must hold."""

    round: int
    parameters: Vector
    server: ServerState
    clients: dict[str, ClientState] = field(default_factory=dict)
    sampler: dict[str, Any] = field(default_factory=dict)
    spent: dict[str, History] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)

    def value(self, metric: str, *, rows: str = "all", attribute: str = "") -> float:
        """The latest value of a metric; NaN before the first."""
        for record in reversed(self.records):
            if (record.metric, record.rows, record.attribute) == (metric, rows, attribute):
                return record.value
        return math.nan


def simulate(
    prepared: Prepared,
    federation: Sequence[str],
    config: Config,
    *,
    model: Model | None = None,
    resume: Progress | None = None,
    on_round: Callable[[Progress], None] | None = None,
) -> Progress:
    """Train a federation, and test it after each round on the held-out rows of all clients.

    Parameters
    ----------
    prepared
        Data of all clients; those outside the federation only lend their held-out rows.
    federation
        Who may train.
    model
        Default: the network `config.model` names.
    resume
        Go on from a checkpoint; the result is the same as without the break, up to privacy noise that comes
        from the operating system.
    on_round
        Called after every round, to save and to show.

    Raises
    ------
    Diverged
        A client's loss is not finite. `on_round` has seen the last good round.
    """
    check_extra(private=config.privacy is not None)
    members = prepared.check(federation)
    if config.strategy in REPORTING and prepared.encoder.task.kind != "binary":
        raise FedwiseError(
            f"strategy {config.strategy} must have a target of two classes; use fedavg, fedprox, scaffold or fedadam"
        )
    model = model or Model.named(config.model, prepared.encoder.width, prepared.encoder.task)
    sizes = {client: len(prepared.train[client]) for client in members}
    server = Round.of(
        config.strategy,
        config.sampler,
        sizes,
        settings=config.settings,
        seed=config.seed,
        strategy_options=config.strategy_options,
        sampler_options={"fraction": config.fraction, **config.sampler_options},
    )
    noise = _noise(config, sizes)
    if resume is None:
        parameters = model.initial(config.seed)
        now = Progress(0, parameters, server.start(parameters))
        now.records += _test(prepared, members, model, now, config, last=False)
        now.sampler = server.sampler.state()
        if on_round:
            on_round(now)
    else:
        now = resume
        server.sampler.restore(now.sampler)
    while now.round < config.rounds:
        now = _round(prepared, model, server, config, noise, now)
        last = now.round == config.rounds
        if last or now.round % config.evaluate_every == 0:
            now.records += _test(prepared, members, model, now, config, last=last)
        if on_round:
            on_round(now)
    return now


def _round(
    prepared: Prepared, model: Model, server: Round, config: Config, noise: dict[str, float], now: Progress
) -> Progress:
    number = now.round + 1
    chosen = server.choose(
        number, lambda asked: {client: _loss(prepared, model, now, client, config.engine) for client in asked}
    )
    instruction = server.instruct(now.server)
    updates = [_update(prepared, model, instruction, config, noise, now, client, number) for client in chosen]
    parameters, state = server.combine(now.parameters, updates, now.server)
    spent = dict(now.spent)
    for update in updates:
        if update.privacy is not None:
            spent[update.client] = _merge(spent.get(update.client, ()), update.privacy)
    records = now.records + [Record(number, "training", u.client, "loss", "", u.loss) for u in updates]
    clients = {**now.clients, **{u.client: u.state for u in updates if u.state}}
    return Progress(number, parameters, state, clients, server.sampler.state(), spent, records)


def _update(
    prepared: Prepared,
    model: Model,
    instruction: Instruction,
    config: Config,
    noise: dict[str, float],
    now: Progress,
    client: str,
    number: int,
) -> Update:
    rows, state = prepared.train[client], now.clients.get(client)
    if config.privacy is not None:
        return private_update(
            model,
            now.parameters,
            rows,
            instruction=instruction,
            client=client,
            round=number,
            noise_multiplier=noise[client],
            clip=config.privacy.clip,
            state=state,
            seed=config.seed if config.simulated else None,
        )
    return local_update(
        model,
        now.parameters,
        rows,
        instruction=instruction,
        client=client,
        seed=config.seed,
        round=number,
        state=state,
        engine=config.engine,
    )


def _noise(config: Config, sizes: dict[str, int]) -> dict[str, float]:
    """Noise multiplier of each client, so that all rounds together keep the training promise."""
    if config.privacy is None:
        return {}
    out = {}
    for client, rows in sizes.items():
        rate, steps = sampling(rows, config.settings.batch, config.settings.epochs)
        out[client] = scale_noise(config.privacy.epsilon, config.privacy.delta, rate, steps * config.rounds)
    return out


def _merge(history: History, entry: tuple[float, float, int]) -> History:
    """Append steps, joined with the last entry where noise and rate are the same."""
    if history and history[-1][:2] == entry[:2]:
        return (*history[:-1], (entry[0], entry[1], history[-1][2] + entry[2]))
    return (*history, entry)


def _loss(prepared: Prepared, model: Model, now: Progress, client: str, engine: Engine) -> float:
    rows = prepared.train[client]
    scores = predict(model, now.parameters, rows, engine=engine)
    return float(model.task.losses(scores, rows.y).mean())


def _test(
    prepared: Prepared, members: tuple[str, ...], model: Model, now: Progress, config: Config, *, last: bool
) -> list[Record]:
    """Metrics on the held-out rows of all clients and of the federation; all there are in the last round."""
    everyone = prepared.held_out
    best = _best_threshold(prepared, members, model, now, config) if last else None
    logits = predict(model, now.parameters, everyone, engine=config.engine)
    own = prepared.own(members)
    names = prepared.encoder.attributes
    out = []
    for label, rows, scores in (("all", everyone, logits), ("own", everyone.take(own), logits[own])):
        if last and config.replicates:
            values = metrics.final(
                scores,
                rows,
                names,
                replicates=config.replicates,
                seed=config.seed,
                best=best,
                task=model.task,
            )
        else:
            values = metrics.evaluate(scores, rows, names, extended=last, best=best, task=model.task)
        out += [Record(now.round, label, "", v.metric, v.attribute, v.value, v.low, v.high) for v in values]
    return out


def _best_threshold(
    prepared: Prepared, members: tuple[str, ...], model: Model, now: Progress, config: Config
) -> float | None:
    """The best threshold on the federation's training rows; None for private training.

    It is an exact function of the training rows, which the noise of DP-SGD does not cover. Without that promise
    it can be computed here, as one process holds all rows; nothing of it is asked of the nodes of an engine.
    """
    if config.privacy is not None or model.task.kind != "binary":
        return None
    rows = [prepared.train[client] for client in members]
    scores = [predict(model, now.parameters, part, engine=config.engine) for part in rows]
    return metrics.best_threshold(np.concatenate(scores), np.concatenate([part.y for part in rows]))
