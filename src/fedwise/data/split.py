"""Split: hold rows out for testing, once for each client, before anything else happens.

The split depends on the seed, the client's name and the number of rows alone, so that tables, training and
testing always agree on which rows are held out, in any process and in any order of clients.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import polars as pl

from ..errors import FedwiseError
from ..schema.frame import FrameLike, read
from ..schema.schema import Schema


def split(
    frame: FrameLike, test: float = 0.2, *, seed: int = 0, client: str = "", schema: Schema | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Divide a client's rows into a training and a test part.

    Parameters
    ----------
    frame
        Anything `fedwise.schema.frame.read` accepts.
    test
        Share of rows held out, in [0, 1). With two rows or more and `test` above 0, both parts get a row.
    seed, client
        Mixed by SHA-256 into the seed of a permutation of the rows.
    schema
        Reads the frame, and only the columns it names. Give it for files: without it the types of a CSV
        file's columns are guessed from their values, and the text ``01`` becomes the number 1.

    Returns
    -------
    train, test
        Rows in their original order.

    Raises
    ------
    FedwiseError
        `test` is outside [0, 1).
    """
    if not 0 <= test < 1:
        raise FedwiseError(f"test must be a share of at least 0 and below 1, got {test}")
    rows = read(frame) if schema is None else schema.read(frame)
    held = _held_out(rows.height, test, seed, client)
    return rows.filter(pl.Series(~held)), rows.filter(pl.Series(held))


def split_all(
    clients: Mapping[str, FrameLike], test: float = 0.2, *, seed: int = 0, schema: Schema | None = None
) -> tuple[dict[str, pl.DataFrame], dict[str, pl.DataFrame]]:
    """`split` of every client: two dictionaries by client name, train and test."""
    parts = {
        name: split(frame, test, seed=seed, client=name, schema=schema) for name, frame in clients.items()
    }
    return {name: part[0] for name, part in parts.items()}, {name: part[1] for name, part in parts.items()}


def _held_out(rows: int, test: float, seed: int, client: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    digest = hashlib.sha256(f"fedwise split\0{seed}\0{client}".encode()).digest()
    generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "big")))
    size = round(rows * test)
    if test > 0 and rows > 1:
        size = min(max(size, 1), rows - 1)
    held = np.zeros(rows, dtype=bool)
    held[generator.permutation(rows)[:size]] = True
    return held
