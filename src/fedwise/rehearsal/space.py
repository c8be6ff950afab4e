"""Space: the settings of a training among which tuning looks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..errors import FedwiseError
from ..training.settings import Training

#: Strategies that ask clients for exact sums, which DP-SGD does not cover.
_OPEN_ONLY = frozenset({"fairfed", "fedfb"})


class Space(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is tried. A range is a pair, other settings are listed; an empty one is not tuned.

    Parameters
    ----------
    strategy, batch, model
        Choices; widths of a model are written ``64-32``.
    lr
        Range, in even steps of its logarithm.
    epochs, rounds, k
        Ranges of whole numbers. With `k` a federation is chosen by the loss for each size.
    """

    strategy: tuple[str, ...] = ("fedavg", "fedprox", "scaffold", "fedadam")
    lr: tuple[float, ...] = (1e-5, 1e-2)
    epochs: tuple[int, ...] = (1, 3)
    rounds: tuple[int, ...] = ()
    batch: tuple[int, ...] = (32, 64, 128)
    model: tuple[str, ...] = ("logistic", "16-16", "mlp", "64-64")
    k: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("lr", "epochs", "rounds", "k"):
            span = getattr(self, name)
            if span and not (len(span) == 2 and 0 < span[0] <= span[1]):
                raise FedwiseError(f"{name} must be a range of two numbers above 0, got {span}")
        if not any(getattr(self, name) for name in self.__struct_fields__):
            raise FedwiseError("space must have at least one setting to tune, got none")

    def suited(self, settings: Training) -> Space:
        """Without strategies that private training refuses."""
        if settings.epsilon is None:
            return self
        kept = tuple(name for name in self.strategy if name not in _OPEN_ONLY)
        return msgspec.structs.replace(self, strategy=kept)

    def suggest(self, trial: Any) -> dict[str, Any]:
        """One point of it, by an Optuna trial."""
        found: dict[str, Any] = {}
        for name in ("strategy", "batch", "model"):
            if getattr(self, name):
                found[name] = trial.suggest_categorical(name, list(getattr(self, name)))
        if self.lr:
            found["lr"] = trial.suggest_float("lr", *self.lr, log=True)
        for name in ("epochs", "rounds", "k"):
            if getattr(self, name):
                found[name] = trial.suggest_int(name, *getattr(self, name))
        return found

    def point_of(self, settings: Training, size: int) -> dict[str, Any] | None:
        """Where these settings lie in it; ``None`` for a point outside."""
        found: dict[str, Any] = {}
        for name in self.__struct_fields__:
            allowed = getattr(self, name)
            if not allowed:
                continue
            value = size if name == "k" else getattr(settings, name)
            listed = name in ("strategy", "batch", "model")
            if value not in allowed if listed else not allowed[0] <= value <= allowed[1]:
                return None
            found[name] = value
        return found


def settings_at(settings: Training, point: Mapping[str, Any]) -> Training:
    """The settings with those of a point in place of their own."""
    return msgspec.structs.replace(settings, **{name: value for name, value in point.items() if name != "k"})
