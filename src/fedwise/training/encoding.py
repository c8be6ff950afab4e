"""Encoding: model inputs from the public schema alone, so every client builds the same ones.

A one-hot column is kept as the *position* of its one, a scaled column as a number: the dense matrix of
zeros and ones is built only for engines that need it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from ..errors import DataError, SchemaError
from ..schema.codes import encode_column
from ..schema.frame import FrameLike
from ..schema.schema import Column, Role, Schema
from .task import Task, scale_of

Floats32 = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Rows:
    """Encoded rows of one client.

    Parameters
    ----------
    width
        Number of model inputs.
    hot
        Shape (rows, one-hot columns): position of each column's one among the inputs.
    dense, dense_at
        Shape (rows, numeric inputs): values; and the position of each among the inputs.
    y
        Shape (rows,): the target: 0.0 or 1.0, the code of a class, or a scaled number (see `task`).
    groups
        Shape (sensitive attributes, rows): codes of each sensitive attribute.
    """

    width: int
    hot: npt.NDArray[np.int32]
    dense: Floats32
    dense_at: npt.NDArray[np.int64]
    y: Floats32
    groups: npt.NDArray[np.int16]

    def __len__(self) -> int:
        return len(self.y)

    @cached_property
    def matrix(self) -> Floats32:
        """The inputs as one dense matrix, shape (rows, width)."""
        out = np.zeros((len(self), self.width), dtype=np.float32)
        np.put_along_axis(out, self.hot.astype(np.int64), np.float32(1.0), axis=1)
        out[:, self.dense_at] = self.dense
        return out

    @cached_property
    def tensors(self) -> tuple[object, object]:
        """Inputs and target as torch tensors, built once."""
        import torch

        return torch.from_numpy(self.matrix), torch.from_numpy(self.y)

    def take(self, index: npt.NDArray[np.int64]) -> Rows:
        """The rows at `index`, in that order."""
        return Rows(
            self.width,
            self.hot[index],
            self.dense[index],
            self.dense_at,
            self.y[index],
            self.groups[:, index],
        )

    @classmethod
    def concat(cls, parts: list[Rows]) -> Rows:
        """All rows of several clients, one after the other."""
        if not parts:
            raise DataError("rows of at least one client are needed; name a client")
        return cls(
            parts[0].width,
            np.concatenate([part.hot for part in parts]),
            np.concatenate([part.dense for part in parts]),
            parts[0].dense_at,
            np.concatenate([part.y for part in parts]),
            np.concatenate([part.groups for part in parts], axis=1),
        )


class Encoder:
    """Turns frames into `Rows` as the schema declares.

    Parameters
    ----------
    schema
        The public schema, with one target. Of two levels the second one is the positive class; see `Task`.
    use_sensitive
        Whether sensitive attributes are inputs too (default, as SEX is in the folktables tasks). They are
        always kept as groups for the fairness metrics.
    """

    def __init__(self, schema: Schema, *, use_sensitive: bool = True) -> None:
        self.task = Task.of(schema)
        self.schema = schema
        self.use_sensitive = use_sensitive
        names: list[str] = []
        self._hot: list[tuple[int, int]] = []
        self._scaled: list[tuple[int, int]] = []
        for position, column in enumerate(schema.columns):
            if column.role == Role.TARGET or column.model == "drop":
                continue
            if column.role == Role.SENSITIVE and not use_sensitive:
                continue
            at = len(names)
            if column.model == "one-hot":
                self._hot.append((position, at))
                names += [f"{column.name}={label}" for label in column.labels]
            else:
                self._scaled.append((position, at))
                names += [column.name, f"{column.name}=other"] if column.has_other else [column.name]
        if not names:
            raise SchemaError(f"schema '{schema.name}' drops every column from the model; keep at least one")
        self.names = tuple(names)

    @property
    def width(self) -> int:
        """Number of model inputs."""
        return len(self.names)

    @property
    def attributes(self) -> tuple[str, ...]:
        """Names of the sensitive attributes, in the order of `Rows.groups`."""
        return tuple(self.schema.columns[i].name for i in self.schema.sensitive)

    def encode(self, frame: FrameLike, *, client: str | None = None) -> Rows:
        """Encode rows that satisfy the schema's filter; rows whose target is ``other`` are left out.

        Raises
        ------
        DataError
            As `Schema.encode`, with the client's name in front when given.
        """
        try:
            selected = self.schema.select_rows(frame)
            codes = self.schema.encode(selected)
            target = self.schema.columns[self.schema.target]
            if target.has_other:
                keep = codes[self.schema.target] < target.size - 1
                codes, selected = codes[:, keep], selected.filter(pl.Series(keep))
            return self._build(codes, selected)
        except DataError as error:
            raise DataError(f"client '{client}': {error}" if client else str(error)) from None

    def encode_inputs(self, frame: FrameLike) -> tuple[npt.NDArray[np.int64], Rows]:
        """Encode rows to be predicted: only the model's inputs and the columns of the filter are needed.

        Where the filter reads the target's own column (``PINCP > 100``) and the rows lack it, as rows to be
        predicted do, that part of the filter is left out.

        Returns
        -------
        positions, rows
            Which rows of `frame` satisfy the schema's filter, and their inputs. Target and groups are 0.

        Raises
        ------
        DataError
            As `Schema.encode`, for the inputs and the filter alone.
        """
        rows = self.schema.read(frame)
        keep = self.schema.satisfied(rows, may_lack=self.schema.columns[self.schema.target].sources)
        rows = rows.filter(pl.Series(keep))
        codes = np.zeros((len(self.schema.columns), rows.height), dtype=np.int16)
        for position, _ in (*self._hot, *self._scaled):
            codes[position] = encode_column(self.schema.columns[position], rows)
        return np.flatnonzero(keep), self._build(codes, rows)

    def _build(self, codes: npt.NDArray[np.int16], rows: pl.DataFrame) -> Rows:
        count = codes.shape[1]
        hot = np.empty((count, len(self._hot)), dtype=np.int32)
        for c, (position, at) in enumerate(self._hot):
            hot[:, c] = codes[position].astype(np.int32) + at
        dense: list[Floats32] = []
        dense_at: list[int] = []
        for position, at in self._scaled:
            column = self.schema.columns[position]
            other = codes[position] == column.size - 1 if column.has_other else np.zeros(count, dtype=bool)
            dense.append(_scale(column, rows, other))
            dense_at.append(at)
            if column.has_other:
                dense.append(other.astype(np.float32))
                dense_at.append(at + 1)
        return Rows(
            width=self.width,
            hot=hot,
            dense=np.stack(dense, axis=1) if dense else np.zeros((count, 0), dtype=np.float32),
            dense_at=np.array(dense_at, dtype=np.int64),
            y=self._target(codes[self.schema.target], rows),
            groups=np.ascontiguousarray(codes[list(self.schema.sensitive)]),
        )

    def _target(self, codes: npt.NDArray[np.int16], rows: pl.DataFrame) -> Floats32:
        """What is trained on: codes of classes, or a scaled number."""
        column = self.schema.columns[self.schema.target]
        absent = not any(name in rows.columns for name in column.sources)
        if self.task.kind != "number" or absent:  # rows to be predicted have no target
            return codes.astype(np.float32)
        if column.model == "scaled":
            return _scale(column, rows, np.zeros(len(codes), dtype=bool))
        assert column.bins is not None  # the schema checks it
        edges = np.asarray(column.bins)
        middles = (edges[1:] + edges[:-1]) / 2
        return np.asarray((middles[codes] - self.task.centre) / self.task.width, dtype=np.float32)


def _scale(column: Column, rows: pl.DataFrame, other: npt.NDArray[np.bool_]) -> Floats32:
    """``(x − centre) / width``; 0 where the value counts as ``other``."""
    centre, width = scale_of(column)
    name = next(name for name in column.sources if name in rows.columns)
    values = rows.get_column(name).cast(pl.Float64).fill_null(centre).to_numpy()
    return np.where(other, 0.0, (values - centre) / width).astype(np.float32)
