"""Federation data: every client's rows, split once and encoded once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import DataError, nearest
from ..schema.frame import Format, FrameLike
from ..schema.schema import Schema
from .encoding import Encoder, Rows


@dataclass(frozen=True, eq=False)
class Prepared:
    """Training and held-out rows of all clients, ready for any number of runs.

    `notes` are sentences about clients whose data is unusual but usable.
    """

    encoder: Encoder
    train: Mapping[str, Rows]
    test: Mapping[str, Rows]
    notes: tuple[str, ...] = ()

    @property
    def clients(self) -> tuple[str, ...]:
        """All clients, whether they train or not."""
        return tuple(self.train)

    @cached_property
    def held_out(self) -> Rows:
        """The held-out rows of all clients, one client after the other: every method's common test."""
        return Rows.concat(list(self.test.values()))

    @cached_property
    def owner(self) -> npt.NDArray[np.int64]:
        """Position of the client that owns each held-out row."""
        return np.repeat(np.arange(len(self.test)), [len(rows) for rows in self.test.values()])

    def own(self, federation: Sequence[str]) -> npt.NDArray[np.int64]:
        """Positions among `held_out` of the rows that belong to a federation."""
        places = [i for i, client in enumerate(self.test) if client in set(federation)]
        return np.flatnonzero(np.isin(self.owner, places))

    def check(self, federation: Sequence[str]) -> tuple[str, ...]:
        """The federation in the order of the clients; unknown, repeated and empty clients are refused."""
        if not federation:
            raise DataError("federation must name at least one client")
        for client in federation:
            if client not in self.train:
                raise DataError(f"client '{client}' has no data{nearest(client, self.train)}")
            if len(self.train[client]) == 0:
                raise DataError(f"client '{client}' has no training rows; leave it out of the federation")
        if len(set(federation)) != len(federation):
            raise DataError("federation must name each client once")
        return tuple(client for client in self.train if client in set(federation))


def prepare(
    frames: Mapping[str, FrameLike],
    schema: Schema,
    *,
    test: float = 0.2,
    seed: int = 0,
    use_sensitive: bool = True,
) -> Prepared:
    """Split every client once and encode both parts from the public schema.

    Parameters
    ----------
    frames
        Rows of each client by name: frames or paths.
    test, seed
        Share held out and seed of the split (see `fedwise.data.split`).
    use_sensitive
        Whether sensitive attributes are model inputs.

    Raises
    ------
    DataError
        A client's data does not fit the schema, or there is no client at all.
    """
    from ..data.split import split

    if not frames:
        raise DataError("training needs the data of at least one client; check the data directory")
    encoder = Encoder(schema, use_sensitive=use_sensitive)
    train, held, notes = {}, {}, []
    for client, frame in frames.items():
        first, second = split(frame, test, seed=seed, client=client, schema=schema)
        train[client] = encoder.encode(first, client=client)
        held[client] = encoder.encode(second, client=client)
        if encoder.task.kind != "number" and len(np.unique(train[client].y)) < 2:
            notes.append(
                f"client '{client}': fewer than two classes in its training rows; its updates favour that class"
            )
        if len(held[client]) == 0:
            notes.append(f"client '{client}': no held-out rows; it does not count in the common test")
    return Prepared(encoder, train, held, tuple(notes))


def read_frames(frames: Mapping[str, FrameLike] | str | Path) -> tuple[str, dict[str, FrameLike]]:
    """Where the data is, in words a run directory can keep, and the frames or files of all clients.

    A text is a directory of files, ``by:PUMA:all.csv`` for one file divided by a column, or ``synthetic:0.1`` for the
    embedded states at that scale. Frames given one by one lie nowhere that could be named: their place is empty.
    """
    if isinstance(frames, Mapping):
        return "", dict(frames)
    source = str(frames)
    if source.startswith("synthetic:"):
        from ..data.synthetic import states

        return source, dict(states(scale=float(source.removeprefix("synthetic:"))))
    if source.startswith("by:"):
        from ..data.division import divide

        column, _, path = source.removeprefix("by:").partition(":")
        return source, dict(divide(path, column))
    return source, dict(find_frames(source))


def find_frames(folder: str | Path, clients: Sequence[str] | None = None) -> dict[str, Path]:
    """Data files of a directory by client name: ``CA.parquet``, ``CA.csv`` or ``CA.tsv.gz`` is client CA."""
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(
            f"data directory '{folder}' does not exist; give a directory with one file for each client"
        )
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        form = Format.of(path)
        # A text file is as likely to hold notes.
        if form is None or ".txt" in path.name.lower() or path.name.startswith(".") or not path.is_file():
            continue
        if form.name in found:
            raise DataError(f"client '{form.name}' has two files in '{folder}'; keep one")
        found[form.name] = path
    if not found:
        raise DataError(
            f"data directory '{folder}' holds no .parquet, .csv or .tsv file; one for each client is needed"
        )
    for client in clients or ():
        if client not in found:
            raise DataError(f"client '{client}' has no file in '{folder}'{nearest(client, found)}")
    return found
