"""Settings of a training, as people write them: one flat value."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..errors import FedwiseError, nearest
from ..files import format_toml, parse_toml, read_bytes, shorten, write_new
from .simulate import Config


class Training(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a federation is trained and tested. The defaults are the paper's.

    Parameters
    ----------
    rounds
        Communication rounds.
    strategy, strategy_options
        How updates are combined: ``fedavg``, ``fedprox``, ``scaffold``, ``fedadam``, ``fairfed``, ``fedfb``,
        ``fade_weights``, ``fade_subset``, or a robust rule: ``median``, ``trimmed_mean``, ``krum``,
        ``multi_krum``, ``fltrust``.
    sampler, sampler_options, fraction
        Who takes part in a round, and which share of the federation.
    model
        ``mlp`` (32-32-32), ``logistic``, or widths such as ``64-32``.
    optimizer, lr, batch, epochs, mu, carry
        How a client trains: see `fedwise.training.local.LocalSettings`.
    engine
        ``auto``, ``fast`` (kernels) or ``torch`` (autograd).
    epsilon, delta, clip
        Train with DP-SGD under this promise for all rounds together; without `epsilon` training is not private.
    seed
        Of the first parameters, the order of rows and the sampler; 0 where it is left out. With `epsilon` a
        seed also draws the noise, which then protects nobody: the run is marked ``simulated``. Without a
        seed the noise comes from the operating system.
    test, split_seed
        Share of each client's rows held out, and the seed of that split.
    use_sensitive
        Whether sensitive attributes are model inputs.
    evaluate_every, replicates
        Rounds between two tests, and bootstrap samples of the last one's intervals.

    Raises
    ------
    FedwiseError
        A value is not possible; the text names it.
    """

    rounds: int = 50
    strategy: str = "fedavg"
    strategy_options: dict[str, Any] = {}
    sampler: str = "full"
    sampler_options: dict[str, Any] = {}
    fraction: float = 0.5
    model: str = "mlp"
    optimizer: str = "adam"
    lr: float = 1e-4
    batch: int = 32
    epochs: int = 1
    mu: float = 0.0
    carry: bool = False
    engine: str = "auto"
    epsilon: float | None = None
    delta: float = 1e-5
    clip: float = 1.0
    seed: int | None = None
    test: float = 0.2
    split_seed: int = 0
    use_sensitive: bool = True
    evaluate_every: int = 1
    replicates: int = 200

    def __post_init__(self) -> None:
        if not 0 <= self.test < 1:
            raise FedwiseError(f"test must be a share of at least 0 and below 1, got {self.test}")
        self.config()

    @classmethod
    def load(cls, path: str | Path) -> Training:
        """Read what `save` wrote: the table ``training`` of a TOML file; its other tables are left aside.

        Raises
        ------
        FedwiseError
            The file has no such table, or one with a setting that does not exist or is not possible.
        """
        what = f"settings file '{path}'"
        text = read_bytes(Path(path), what="settings file", error=FedwiseError).decode("utf-8", "replace")
        found = parse_toml(text, what=what, error=FedwiseError).get("training")
        if not isinstance(found, dict):
            raise FedwiseError(f"{what} must have a table [training]; fedwise tune writes one")
        unknown = sorted(set(found) - set(cls.__struct_fields__))
        if unknown:
            raise FedwiseError(
                f"{what} has an unknown setting '{unknown[0]}'{nearest(unknown[0], cls.__struct_fields__)}"
            )
        try:
            return msgspec.convert(found, cls)
        except msgspec.ValidationError as error:
            raise FedwiseError(f"{what} is not valid: {shorten(str(error))}") from None

    def save(
        self, path: str | Path, *, force: bool = False, beside: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        """Write the settings that differ from the defaults, and tables `beside` them that say where they come from."""
        own = {
            name: getattr(self, name)
            for name, default in msgspec.structs.asdict(Training()).items()
            if getattr(self, name) != default and getattr(self, name) is not None
        }
        text = format_toml({"training": own, **(beside or {})})
        write_new(Path(path), text.encode(), force=force)

    @property
    def simulated(self) -> bool:
        """Whether the privacy noise of this training would be drawn from its seed."""
        return self.epsilon is not None and self.seed is not None

    def config(self) -> Config:
        """The configuration that a run directory keeps."""
        private = self.epsilon is not None
        fields = {
            "rounds": self.rounds,
            "strategy": self.strategy,
            "strategy_options": self.strategy_options,
            "sampler": self.sampler,
            "sampler_options": self.sampler_options,
            "fraction": self.fraction,
            "settings": {
                name: getattr(self, name) for name in ("optimizer", "lr", "batch", "epochs", "mu", "carry")
            },
            "model": self.model,
            "seed": 0 if self.seed is None else self.seed,
            "engine": self.engine,
            "evaluate_every": self.evaluate_every,
            "replicates": self.replicates,
            "privacy": {name: getattr(self, name) for name in ("epsilon", "delta", "clip")}
            if private
            else None,
            "simulated": self.simulated,
        }
        try:
            return msgspec.convert(fields, Config)
        except msgspec.ValidationError as error:
            raise FedwiseError(f"option is not valid: {str(error).replace('`', '')}") from None
