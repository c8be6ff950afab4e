"""Own app: a Flower app, unchanged, run in this process on the doubles of a federation's clients.

Every node gets Flower's ``partition-id`` and ``num-partitions``, and the path of its client's double under one key of
its ``node_config``, as a deployed node names its own file. What the app's handlers report is collected on the way.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from ..doubling.draw import doubles
from ..errors import FedwiseError, MissingExtra
from ..estimation import Releases
from ..files import write_new

try:
    from flwr.app import Context, Message, RecordDict

    from .inprocess import InProcessGrid
except ImportError:  # pragma: no cover - one environment cannot have and lack it
    raise MissingExtra("rehearsing a Flower app", "flower") from None

#: Key of a node's configuration under which an app finds its rows.
DATA_KEY = "data"


class AppRehearsed(msgspec.Struct, frozen=True, kw_only=True):
    """What a Flower app reported on doubles.

    `metrics` has a row for each round, kind of message and metric: the mean over clients, weighted by
    ``num-examples`` where a client tells it.
    """

    app: str
    clients: tuple[str, ...]
    metrics: tuple[tuple[int, str, str, float], ...]
    errors: tuple[str, ...] = ()
    label: str = ""
    seed: int = 0

    def to_frame(self) -> pl.DataFrame:
        """Columns round, kind, metric, value."""
        return pl.DataFrame(list(self.metrics), schema=["round", "kind", "metric", "value"], orient="row")

    def last(self) -> dict[str, float]:
        """Metrics of the last round in which each was reported, evaluations before trainings."""
        found: dict[str, float] = {}
        for kind in ("train", "evaluate"):
            for _, of, metric, value in self.metrics:
                if of == kind:
                    found[metric] = value
        return found

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write it as JSON."""
        write_new(Path(path), msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n", force=force)


class _Listening(InProcessGrid):
    """The grid, noting the metrics of every reply."""

    def __init__(
        self, app: Any, nodes: Sequence[Mapping[str, Any]], *, run_config: Mapping[str, Any]
    ) -> None:
        super().__init__(app, nodes, run_config=run_config)
        self.heard: list[tuple[int, str, dict[str, float]]] = []
        self.errors: list[str] = []
        self._rounds: dict[str, int] = {}
        self._round_of: dict[str, int] = {}

    def push_messages(self, messages: Any) -> Any:
        """Deliver; messages of one kind that are sent together are a round."""
        listed = list(messages)
        for kind in {_kind(message) for message in listed}:
            self._rounds[kind] = self._rounds.get(kind, 0) + 1
        ids = super().push_messages(listed)
        for number, message in zip(ids, listed, strict=True):
            self._round_of[number] = self._rounds[_kind(message)]
        return ids

    def pull_messages(self, message_ids: Any) -> Any:
        """Replies that are there; their metrics are noted."""
        replies = []
        for number in message_ids:
            for reply in super().pull_messages([number]):
                self._note(reply, self._round_of[number])
                replies.append(reply)
        return replies

    def _note(self, reply: Message, number: int) -> None:
        kind = _kind(reply)
        if reply.has_error():
            self.errors.append(str(reply.error.reason))
            return
        told: dict[str, float] = {}
        for record in reply.content.metric_records.values():
            told |= {name: float(value) for name, value in record.items() if isinstance(value, int | float)}
        self.heard.append((number, kind, told))


def _kind(message: Message) -> str:
    return str(message.metadata.message_type).split(".")[0]


def rehearse_app(
    directory: str | Path,
    pool: Releases,
    federation: Sequence[str],
    *,
    run_config: Mapping[str, Any] | None = None,
    data_key: str = DATA_KEY,
    records: int | None = None,
    seed: int = 0,
) -> AppRehearsed:
    """Run a Flower app on the doubles of some clients, a node for each.

    Parameters
    ----------
    directory
        The app: a ``pyproject.toml`` with ``[tool.flwr.app.components]``, and what it names. Its code is run.
    federation
        Whose doubles the nodes hold.
    run_config
        In place of values of ``[tool.flwr.app.config]``, as ``flwr run -c`` gives them.
    data_key
        Key of the node's configuration under which the app finds the path of its rows, a Parquet file.
    records
        Most records of a double.

    Raises
    ------
    FedwiseError
        The directory is no app, its code cannot be loaded, or every node failed.
    """
    root = Path(directory)
    components, config = _project(root)
    config |= dict(run_config or {})
    made = doubles(pool, clients=list(federation), records=records, seed=seed)
    with tempfile.TemporaryDirectory(prefix="fedwise-doubles-") as folder:
        paths = made.save(folder)
        nodes = [{data_key: str(path)} for path in paths]
        with _loaded(root, components) as (client, server):
            grid = _Listening(client, nodes, run_config=config)
            context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config)
            server(grid, context)
    if not grid.heard:
        why = f"; the first said: {grid.errors[0]}" if grid.errors else ""
        raise FedwiseError(f"app '{root}' reported no metrics from any node{why}")
    return AppRehearsed(
        app=str(root), clients=tuple(federation), metrics=_means(grid.heard), label=made.label, seed=seed,
        errors=tuple(dict.fromkeys(grid.errors)),
    )  # fmt: skip


def _means(heard: Sequence[tuple[int, str, dict[str, float]]]) -> tuple[tuple[int, str, str, float], ...]:
    """Weighted means of what the nodes told, by round, kind and metric."""
    sums: dict[tuple[int, str, str], tuple[float, float]] = {}
    for number, kind, told in heard:
        weight = max(told.get("num-examples", 1.0), 0.0)
        for metric, value in told.items():
            if metric != "num-examples":
                total, weights = sums.get((number, kind, metric), (0.0, 0.0))
                sums[number, kind, metric] = (total + weight * value, weights + weight)
    return tuple((*key, total / weights) for key, (total, weights) in sums.items() if weights > 0)


def _project(root: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Components and configuration of an app."""
    path = root / "pyproject.toml"
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))["tool"]["flwr"]["app"]
        components = {name: str(found["components"][name]) for name in ("clientapp", "serverapp")}
    except (OSError, KeyError, TypeError, ValueError):
        raise FedwiseError(
            f"app '{root}' must be a directory with a pyproject.toml that names "
            "[tool.flwr.app.components] clientapp and serverapp"
        ) from None
    return components, _flat(found.get("config", {}))


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as Flower reads them: ``{"a": {"b": 1}}`` is ``a.b = 1``."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


@contextmanager
def _loaded(root: Path, components: Mapping[str, str]) -> Iterator[tuple[Any, Any]]:
    """The client and server of an app, imported for a while: two apps may call their modules alike."""
    before = set(sys.modules)
    place = str(root.resolve())
    sys.path.insert(0, place)
    try:
        found = []
        for name in ("clientapp", "serverapp"):
            module, _, attribute = components[name].partition(":")
            try:
                found.append(getattr(importlib.import_module(module), attribute))
            except (ImportError, AttributeError) as error:
                raise FedwiseError(
                    f"{name} '{components[name]}' of app '{root}' cannot be loaded ({error}); check pyproject.toml"
                ) from None
        yield found[0], found[1]
    finally:
        sys.path.remove(place)
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and Path(file).is_relative_to(place):
                del sys.modules[name]
