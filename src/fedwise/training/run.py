"""Run: a directory that holds a training, enough to reproduce it, to go on with it and to use its model.

    config.json            what was asked: configuration, federation, where the data was
    schema.toml            the public schema: how inputs are built
    selection.json         the selection the federation came from, where there was one
    plan.json              the plan its clients answered, where there was one
    metrics.parquet        every metric of every round
    checkpoint.safetensors all that is needed to go on after the last finished round
    model.safetensors      the trained model, by the names of torch's state_dict
    privacy.json           what each client has spent, where training was private

Every file is replaced whole or not at all. ``config.json`` is the last of what was asked to be written and the
first to go: a directory without it holds no run, whatever else a stopped process left there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from ..errors import DataError, FedwiseError, MissingExtra
from ..files import decode, read_bytes, write_new
from ..notebook import html_table, plot
from ..schema.schema import Schema
from .accounting import Cost, decode_costs, encode_costs
from .encoding import Encoder, Rows
from .federation import Prepared
from .model import Model, Vector
from .records import COLUMNS, Record, to_parquet
from .simulate import Config, Progress

_OUTPUTS = (
    "config.json",
    "checkpoint.safetensors",
    "model.safetensors",
    "metrics.parquet",
    "privacy.json",
    "selection.json",
    "plan.json",
)
#: Parts of a manifest that may differ when a run goes on: where the data lies, and what holds the rest.
_NOT_ASKED = {"format", "data", "config", "fingerprint"}


#: Metrics in the few lines a run prints of itself.
_SHOWN = ("accuracy", "f1", "auc", "macro_f1", "macro_auc", "mae", "rmse", "eod", "spd", "error_gap")


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What was asked.

    Format 1 did not say where the noise of a private run came from: it was the run's seed.
    """

    format: Literal["fedwise/run/1", "fedwise/run/2"] = "fedwise/run/2"
    config: Config
    federation: tuple[str, ...]
    clients: tuple[str, ...]
    schema_digest: str
    fingerprint: str
    data: str = ""
    test: float = 0.2
    split_seed: int = 0
    use_sensitive: bool = True


class Run:
    """A run directory. Make one with `Run.create`, read one with `Run.open`."""

    def __init__(self, path: Path, manifest: Manifest, schema: Schema) -> None:
        self.path = path
        self.manifest = manifest
        self.schema = schema
        #: Sentences about clients whose data is unusual but usable, where the run was trained just now.
        self.notes: tuple[str, ...] = ()

    @classmethod
    def create(
        cls,
        path: str | Path,
        manifest: Manifest,
        schema: Schema,
        *,
        force: bool = False,
        beside: Mapping[str, bytes] | None = None,
    ) -> Run:
        """Start a run directory; one that holds a run is refused unless `force`.

        `beside` are files to keep with it, such as the selection and the plan. They are part of what was
        asked, so a run that exists has them all.
        """
        path = Path(path)
        if (path / "config.json").exists() and not force:
            raise FedwiseError(
                f"run directory '{path}' holds a run already; pass --resume to go on, or --force"
            )
        try:
            for name in _OUTPUTS:
                (path / name).unlink(missing_ok=True)
        except OSError as cause:
            raise FedwiseError(
                f"run directory '{path}' cannot be written ({cause.strerror}); choose another with -o"
            ) from None
        run = cls(path, manifest, schema)
        run._write("schema.toml", schema.to_toml().encode())
        for name, data in (beside or {}).items():
            run._write(name, data)
        run._write("config.json", msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
        return run

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Read a run directory."""
        path = Path(path)
        if not path.is_dir():
            raise FedwiseError(f"run directory '{path}' does not exist; check the path")
        data = read_bytes(path / "config.json", what="run file", error=FedwiseError)
        manifest = decode(data, Manifest, what=f"run file '{path / 'config.json'}'", error=FedwiseError)
        if manifest.format == "fedwise/run/1" and manifest.config.privacy is not None:
            config = msgspec.structs.replace(manifest.config, simulated=True)
            manifest = msgspec.structs.replace(manifest, config=config)
        schema = Schema.load(path / "schema.toml")
        if schema.digest != manifest.schema_digest:
            raise FedwiseError(
                f"run directory '{path}' holds another schema than it was trained with; restore it"
            )
        return cls(path, manifest, schema)

    @property
    def encoder(self) -> Encoder:
        """Builds the model's inputs."""
        return Encoder(self.schema, use_sensitive=self.manifest.use_sensitive)

    @property
    def model(self) -> Model:
        """The network that was trained (built-in ones only)."""
        return Model.named(self.manifest.config.model, self.encoder.width, self.encoder.task)

    def save(self, now: Progress) -> None:
        """Checkpoint a finished round, then write the table of metrics.

        The checkpoint holds the metrics of its own round: from the moment anything of a round is on disk,
        the round is done and its privacy noise is never drawn again.
        """
        tensors: dict[str, npt.NDArray[Any]] = {json.dumps(["parameters"]): now.parameters}
        for key, array in now.server.items():
            tensors[json.dumps(["server", key])] = array
        for client, state in now.clients.items():
            for key, array in state.items():
                tensors[json.dumps(["client", client, key])] = array
        plain = {}
        for key, value in now.sampler.items():
            if isinstance(value, np.ndarray):
                tensors[json.dumps(["sampler", key])] = value
            else:
                plain[key] = value
        own = [msgspec.to_builtins(record) for record in now.records if record.round == now.round]
        notes = {"round": now.round, "sampler": plain, "spent": now.spent, "records": own}
        self._write("checkpoint.safetensors", _pack(tensors, notes), now.round - 1)
        self.save_metrics(now)

    def save_metrics(self, now: Progress) -> None:
        """Write the table of metrics."""
        self._write("metrics.parquet", to_parquet(now.records), now.round)

    def progress(self) -> Progress | None:
        """The last checkpoint; ``None`` before the first."""
        path = self.path / "checkpoint.safetensors"
        if not path.exists():
            return None
        tensors, notes = _unpack(path)
        found = Progress(int(notes["round"]), np.zeros(0, np.float32), {}, sampler=dict(notes["sampler"]))
        found.spent = {
            client: tuple((float(s), float(q), int(n)) for s, q, n in steps)
            for client, steps in notes["spent"].items()
        }
        for name, array in tensors.items():
            match json.loads(name):
                case ["parameters"]:
                    found.parameters = array
                case ["server", key]:
                    found.server[key] = array
                case ["client", client, key]:
                    found.clients[client] = {**found.clients.get(client, {}), key: array}
                case ["sampler", key]:
                    found.sampler[key] = array
        own = notes.get("records")
        # Version 0.1.0 wrote the metrics first, and none into the checkpoint.
        last = found.round if own is None else found.round - 1
        table = self.metrics().filter(pl.col("round") <= last)
        found.records = [Record(**row) for row in table.iter_rows(named=True)]
        found.records += [Record(**row) for row in own or ()]
        return found

    def finish(self, now: Progress, model: Model, costs: Sequence[Cost] = ()) -> None:
        """Write what was spent, then the model: no model is on disk without its cost."""
        arrays = {name: np.ascontiguousarray(array) for name, array in model.split(now.parameters).items()}
        notes = {"model": self.manifest.config.model, "schema": self.schema.digest, "round": now.round}
        if self.simulated:
            notes["simulated"] = True
        if costs:
            self._write("privacy.json", encode_costs(costs), now.round)
        self._write("model.safetensors", _pack(arrays, notes), now.round)

    def parameters(self) -> Vector:
        """The trained model's parameters."""
        path = self.path / "model.safetensors"
        if not path.exists():
            raise FedwiseError(f"run directory '{self.path}' holds no model yet; finish it with --resume")
        return self.model.flatten(_unpack(path)[0])

    @property
    def simulated(self) -> bool:
        """Whether the privacy noise came from a seed, and so protects nobody."""
        return self.manifest.config.simulated

    def costs(self) -> list[Cost]:
        """What every client has spent; empty where neither release nor training was private."""
        path = self.path / "privacy.json"
        if not path.exists():
            return []
        data = read_bytes(path, what="privacy file", error=FedwiseError)
        return decode_costs(data, what=f"privacy file '{path}'")

    def final(self) -> list[Record]:
        """Metrics of the last tested round, on the held-out rows of all clients and of the federation."""
        tested = self.metrics().filter(pl.col("rows").is_in(["all", "own"]))
        last = tested.filter(pl.col("round") == pl.col("round").max())
        return [Record(**row) for row in last.iter_rows(named=True)]

    def to_frame(self) -> pl.DataFrame:
        """As `metrics`."""
        return self.metrics()

    def __str__(self) -> str:
        return "\n".join(f"{label:<13}{text}" for label, text in self._lines())

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def _repr_html_(self) -> str:
        return html_table(self._lines())

    def plot(self) -> Any:
        """AUC over the rounds as an `altair.Chart`."""
        return plot(self)

    def _lines(self) -> list[tuple[str, str]]:
        config, final = self.manifest.config, self.final()
        reached = final[0].round if final else 0
        lines = [
            ("run", str(self.path)),
            ("federation", ", ".join(self.manifest.federation)),
            ("training", f"{config.strategy}, sampler {config.sampler}, round {reached} of {config.rounds}"),
        ]
        if config.privacy is None:
            lines.append(("privacy", "training was not private"))
        else:
            marked = ", simulated: the noise came from a seed and protects nobody" if self.simulated else ""
            lines.append(
                (
                    "privacy",
                    f"DP-SGD, epsilon {config.privacy.epsilon:g}, delta {config.privacy.delta:g}{marked}",
                )
            )
        for record in final:
            if record.rows == "all" and record.metric in _SHOWN:
                name = f"{record.metric} {record.attribute}".strip()
                lines.append((name, f"{record.value:.4f}"))
        return lines

    def metrics(self) -> pl.DataFrame:
        """Every metric of every round; columns as in `Record`."""
        path = self.path / "metrics.parquet"
        if not path.exists():
            return pl.DataFrame(schema=COLUMNS)
        try:
            return pl.read_parquet(path)
        except (pl.exceptions.PolarsError, OSError):
            raise FedwiseError(
                f"metrics file '{path}' cannot be read; start the run again with --force"
            ) from None

    def check_data(self, found: str) -> None:
        """Refuse to go on with other rows than the run was started with."""
        if found != self.manifest.fingerprint:
            raise DataError(
                f"the data is not what run '{self.path}' was started with; restore it, or start again with --force"
            )

    def check_asked(self, asked: Manifest) -> None:
        """Refuse to go on with another run than the one asked for."""
        self.check_data(asked.fingerprint)
        ours, theirs = (
            {**msgspec.to_builtins(m), **msgspec.to_builtins(m.config)} for m in (self.manifest, asked)
        )
        other = [name for name in ours if name not in _NOT_ASKED and ours[name] != theirs[name]]
        if other:
            raise FedwiseError(
                f"run directory '{self.path}' was started with another {other[0].replace('_', ' ')}; "
                "ask for the same run, or start again with --force"
            )

    def _write(self, name: str, data: bytes, good: int | None = None) -> None:
        try:
            write_new(self.path / name, data, force=True)
        except FedwiseError as error:
            if good is None or good < 0:
                raise
            raise FedwiseError(
                f"{error}; the checkpoint of round {good} is intact: go on with --resume"
            ) from None


def fingerprint(prepared: Prepared, federation: Sequence[str]) -> str:
    """SHA-256 over the training rows of a federation: a resumed run must see the same data."""
    digest = hashlib.sha256()
    for client in federation:
        rows: Rows = prepared.train[client]
        for array in (rows.hot, rows.dense, rows.y, rows.groups):
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(client.encode() + b"\0")
    return digest.hexdigest()


def _pack(tensors: dict[str, npt.NDArray[Any]], notes: dict[str, Any]) -> bytes:
    try:
        from safetensors.numpy import save
    except ImportError:
        raise MissingExtra("saving a model", "train") from None
    packed: bytes = save(tensors, metadata={"fedwise": json.dumps(notes)})
    return packed


def _unpack(path: Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise MissingExtra("reading a model", "train") from None
    try:
        with safe_open(path, framework="np") as file:
            names = list(file.keys())
            return {name: file.get_tensor(name) for name in names}, json.loads(file.metadata()["fedwise"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        raise FedwiseError(
            f"file '{path}' is damaged or not fedwise's; start the run again with --force"
        ) from None
