"""Strategy: fedwise's aggregation and samplers (SCAFFOLD, FairFed, UCB-CS, …) as one Flower strategy."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from ..errors import FedwiseError
from ..training.local import LocalSettings, Update
from ..training.model import Model
from ..training.round import Round
from ..training.samplers import Sampler
from ..training.strategies import ServerState, Strategy
from .grid import FederationGrid
from .guard import LOSS_ACTION
from .training import read_update, write_instruction, write_vector

_LOG = logging.getLogger("flwr")


class FedwiseStrategy(FedAvg):  # type: ignore[misc]  # flwr is not typed for us
    """A Flower strategy over the pure functions of `fedwise.training`.

    Clients must run `train_app`. Evaluation is Flower's FedAvg's.

    Parameters
    ----------
    strategy
        ``fedavg``, ``fedprox``, ``scaffold``, ``fedadam``, ``fairfed``, ``fedfb``, ``fade_weights``,
        ``fade_subset``, ``median``, ``trimmed_mean``, ``krum``, ``multi_krum``, ``fltrust``, or an object.
    model
        The network; its inputs are the schema's (`Encoder.width`).
    sizes
        Records of each chosen client: ``federation.sizes``.
    sampler
        Who takes part in a round: ``full``, ``uniform``, ``ucb_cs``, ``threshold``, ``fed_sampling``,
        ``power_of_choice``, ``cluster_fl``, or an object.
    settings, seed
        How clients train, and the seed of their row orders and of the sampler.
    timeout
        Seconds for the losses a sampler asks before it chooses.
    options
        For Flower's FedAvg: ``fraction_evaluate`` and the like.
    """

    def __init__(
        self,
        strategy: str | Strategy = "fedavg",
        *,
        model: Model,
        sizes: Mapping[str, float],
        sampler: str | Sampler = "full",
        settings: LocalSettings | None = None,
        seed: int = 0,
        timeout: float = 600.0,
        strategy_options: Mapping[str, Any] | None = None,
        sampler_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.round = Round.of(
            strategy,
            sampler,
            dict(sorted(sizes.items())),
            settings=settings or LocalSettings(),
            seed=seed,
            strategy_options=strategy_options,
            sampler_options=sampler_options,
        )
        self.model, self.timeout = model, timeout
        self.state: ServerState | None = None
        #: Who was asked to train, round by round.
        self.participants: list[tuple[str, ...]] = []
        self._names: dict[int, str] = {}
        self._sent = np.zeros(0, dtype=np.float32)

    def summary(self) -> None:
        """Log what will be done."""
        names = self.round.strategy.name, self.round.sampler.name
        _LOG.info("\t├──> Strategy: %s | sampler: %s", *names)
        super().summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask losses where the sampler wants them, choose, and instruct the participants."""
        if not isinstance(grid, FederationGrid):
            raise FedwiseError("grid must be the one select_federation returned: it knows the clients' names")
        self._names = dict(grid.names)
        online = {grid.names[node] for node in grid.get_node_ids()}
        self._sent = self.model.flatten({name: array.numpy() for name, array in arrays.items()})
        if self.state is None:
            self.state = self.round.start(self._sent)
        chosen = self.round.choose(
            server_round, lambda asked: self._losses(asked, arrays, grid), online=online
        )
        self.participants.append(chosen)
        records: dict[str, Any] = write_instruction(self.round.instruct(self.state))
        plain = {key: value for key, value in records.items() if isinstance(value, str)}
        config = ConfigRecord({**config, **plain, "server-round": server_round, "seed": self.round.seed})
        extra = {key: value for key, value in records.items() if key not in plain}
        content = RecordDict({"arrays": arrays, "config": config, **extra})
        return [Message(content, grid.nodes[client], "train") for client in chosen]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Read the updates that hold together, and let the strategy combine them."""
        updates: list[Update] = []
        for reply in replies:
            client = self._names.get(reply.metadata.src_node_id, "")
            if reply.has_error() or not client:
                continue
            try:
                updates.append(read_update(self.model, reply, client))
            except FedwiseError as cause:
                _LOG.warning("fedwise: left out: %s", cause)
        if not updates or self.state is None:
            _LOG.warning("fedwise: round %d has no usable update; the model stays as it is", server_round)
            return None, None
        moved, self.state = self.round.combine(self._sent, updates, self.state)
        metrics = MetricRecord({"clients": len(updates)})
        known = [update for update in updates if math.isfinite(update.loss)]
        if known:
            metrics["loss"] = sum(u.loss * u.rows for u in known) / sum(u.rows for u in known)
        return write_vector(self.model, moved), metrics

    def _losses(self, clients: Sequence[str], arrays: ArrayRecord, grid: FederationGrid) -> dict[str, float]:
        content = RecordDict({"arrays": arrays})
        messages = [Message(content, grid.nodes[client], f"query.{LOSS_ACTION}") for client in clients]
        out = {}
        for reply in grid.send_and_receive(messages, timeout=self.timeout):
            if reply.has_error() or "metrics" not in reply.content.metric_records:
                continue
            value = float(reply.content.metric_records["metrics"].get("loss", math.nan))
            if math.isfinite(value):
                out[grid.names[reply.metadata.src_node_id]] = value
        return out
