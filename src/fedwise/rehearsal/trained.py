"""Trained: what one training on doubles came to, and how it stands in a file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ..errors import FedwiseError
from ..files import write_new
from .judging import GroupRates


class Gaps(msgspec.Struct, frozen=True):
    """Gaps between groups, by full name, of a training on doubles of the whole release, and the groups' rates."""

    final: dict[str, float]
    groups: tuple[GroupRates, ...] = ()


class Trained(msgspec.Struct, frozen=True):
    """What one training on doubles came to.

    Parameters
    ----------
    final
        Metrics of the last round on the judging population, by full name.
    curve
        Rounds tested, and some metrics at each: ``{"round": […], "auc": […]}``.
    groups
        Rates of every group of every sensitive attribute.
    whole
        What a second training, on doubles of the whole release, says of gaps; ``None`` where there was none.
    """

    final: dict[str, float]
    curve: dict[str, tuple[float, ...]]
    groups: tuple[GroupRates, ...] = ()
    whole: Gaps | None = None


class _GapsLine(msgspec.Struct, frozen=True):
    """`Gaps` in a file. JSON has no NaN: what is not known is null."""

    final: dict[str, float | None]
    groups: tuple[dict[str, str | float | None], ...] = ()

    @property
    def gaps(self) -> Gaps:
        return Gaps({name: _number(value) for name, value in self.final.items()}, _rates(self.groups))


class _Line(msgspec.Struct, frozen=True):
    """A finished training in a file."""

    key: str
    final: dict[str, float | None]
    curve: dict[str, tuple[float | None, ...]]
    groups: tuple[dict[str, str | float | None], ...] = ()
    whole: _GapsLine | None = None

    @property
    def trained(self) -> Trained:
        return Trained(
            {name: _number(value) for name, value in self.final.items()},
            {name: tuple(map(_number, values)) for name, values in self.curve.items()},
            _rates(self.groups),
            None if self.whole is None else self.whole.gaps,
        )


def _rates(groups: Sequence[Mapping[str, str | float | None]]) -> tuple[GroupRates, ...]:
    known = [{n: math.nan if v is None else v for n, v in group.items()} for group in groups]
    return tuple(msgspec.convert(group, GroupRates) for group in known)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def read_trained(path: Path) -> dict[str, Trained]:
    """Finished trainings of a file. A line that a stop has cut is taken out, so that the next one stands alone."""
    try:
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if whole != data:
            write_new(path, whole, force=True)
    except OSError as cause:
        raise FedwiseError(f"'{path}' cannot be read ({cause.strerror}); choose another directory") from None
    found = {}
    for number, text in enumerate(whole.splitlines(), 1):
        try:
            line = msgspec.json.decode(text, type=_Line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise FedwiseError(
                f"'{path}' line {number} is no finished training; remove the file to start again"
            ) from None
        found[line.key] = line.trained
    return found
