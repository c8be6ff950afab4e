"""Target: whose predictions count: those of all clients, of some of them, or of public rows.

Public rows are no client's: a published survey, a test set that everybody may see. They are read as they are, without
noise and without a budget, so private rows must never be given here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ..errors import DataError, FedwiseError, PoolError
from ..schema.frame import Format, FrameLike
from ..schema.schema import Schema

#: What people may give: names of clients, or a frame or file with public rows.
TargetLike = Sequence[str] | FrameLike


class PublicRows:
    """Rows of nobody's: what the schema reads of them, those that satisfy its filter.

    Raises
    ------
    FedwiseError
        No row satisfies the filter.
    DataError
        The rows lack a column, or hold a value outside its domain.
    """

    def __init__(self, rows: FrameLike, schema: Schema) -> None:
        try:
            self.frame: pl.DataFrame = schema.select_rows(rows)
            codes = schema.encode(self.frame)
        except DataError as error:
            raise DataError(f"target: {error}") from None
        if self.frame.height == 0:
            raise FedwiseError(
                "target must have at least one public row that the schema's filter keeps, got none"
            )
        told = self.frame.hash_rows(seed=0).to_numpy().tobytes()
        self.digest = hashlib.sha256(np.ascontiguousarray(codes).tobytes() + told).hexdigest()

    def __len__(self) -> int:
        return self.frame.height

    def __repr__(self) -> str:
        """Equal for equal rows: what was rehearsed for others is told apart by it."""
        return f"PublicRows({len(self)}, {self.digest[:16]})"

    def sample(self, records: int, seed: int) -> pl.DataFrame:
        """At most so many of them."""
        return self.frame if len(self) <= records else self.frame.sample(records, seed=seed)


Target = tuple[str, ...] | PublicRows | None


def target_of(target: TargetLike | None, schema: Schema) -> Target:
    """Names of clients, or public rows: a frame, or the path of a file with one of the endings that are read."""
    if target is None or isinstance(target, PublicRows):
        return target
    if isinstance(target, str | Path):
        if Format.of(Path(target)) is None:
            raise PoolError(
                f"target must be a list of names or a file of public rows, got the text '{target}'; "
                f"write ['{target}'], or name a .parquet, .csv or .tsv file"
            )
        return PublicRows(target, schema)
    if isinstance(target, list | tuple | set | frozenset) or _names(target):
        return tuple(target)
    return PublicRows(target, schema)


def _names(target: Any) -> bool:
    """Whether it is a sequence of texts that is no frame."""
    return isinstance(target, Sequence) and all(isinstance(name, str) for name in target)
