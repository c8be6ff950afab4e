"""Doubles: artificial records of every client, drawn from its estimated tables.

A double has its client's estimated number of records and its estimated pair tables, and beyond pairs what they imply
(`fedwise.doubling.model`). Its columns are those the schema reads, so any code that trains on the client's rows trains
on its double. Drawing uses released tables alone: no privacy is spent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl

from ..errors import FedwiseError, PoolError, nearest
from ..estimation import Releases, estimate
from ..estimation.estimates import Estimates
from ..schema.schema import Schema
from .drawer import THREADS, Drawer
from .population import population
from .target import PublicRows, TargetLike, target_of

#: Name of the file with people of the target, and how many unless told.
_TARGET, PEOPLE = "target", 20_000
#: What a file says of itself: these keys in the metadata of its Parquet.
ARTIFICIAL, PUBLIC = "fedwise.artificial", "fedwise.public"


class Doubles(Mapping[str, pl.DataFrame]):
    """Artificial records by client.

    Attributes
    ----------
    schema
        What reads the records.
    label
        What protected the releases they were drawn from: see `fedwise.Pool.label`.
    seed
        Seed of the drawing.
    target
        People of several clients together, or public rows, where they were asked for.
    public
        Whether the target's rows are public ones, and not artificial.
    """

    def __init__(
        self,
        frames: Mapping[str, pl.DataFrame],
        schema: Schema,
        *,
        label: str = "",
        seed: int = 0,
        target: pl.DataFrame | None = None,
        public: bool = False,
    ) -> None:
        self._frames = dict(frames)
        self.schema = schema
        self.label = label
        self.seed = seed
        self.target = target
        self.public = public

    def __getitem__(self, client: str) -> pl.DataFrame:
        if client not in self._frames:
            raise PoolError(f"doubles hold no client '{client}'{nearest(client, tuple(self._frames))}")
        return self._frames[client]

    def __contains__(self, client: object) -> bool:
        return client in self._frames

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames)

    def __len__(self) -> int:
        return len(self._frames)

    def __repr__(self) -> str:
        rows = sum(frame.height for frame in self._frames.values())
        return f"Doubles: {rows:,} artificial records of {len(self)} clients ({self.label or 'unlabelled'} releases)"

    def save(self, folder: str | Path, *, force: bool = False) -> list[Path]:
        """Write a Parquet file for each client and ``target.parquet``, marked as artificial in their metadata.

        Returns
        -------
        paths
            The files written.
        """
        folder = Path(folder)
        frames = dict(self._frames)
        if self.target is not None:
            if _TARGET in frames:
                raise FedwiseError(
                    f"no client may be called '{_TARGET}' where a target is written; draw it by itself"
                )
            frames[_TARGET] = self.target
        paths = [folder / f"{name}.parquet" for name in frames]
        taken = [path for path in paths if path.exists()]
        if taken and not force:
            raise FedwiseError(f"'{taken[0]}' exists already; use force (--force) to replace it")
        folder.mkdir(parents=True, exist_ok=True)
        note = {
            ARTIFICIAL: "drawn by fedwise from released tables; a record may coincide with a person's by chance",
            "fedwise.releases": self.label,
            "fedwise.schema": self.schema.digest,
            "fedwise.seed": str(self.seed),
        }
        given = {PUBLIC: "public rows given as the target, as they are", "fedwise.schema": self.schema.digest}
        for path, (name, frame) in zip(paths, frames.items(), strict=True):
            frame.write_parquet(path, metadata=given if self.public and name == _TARGET else note)
        return paths


def doubles(
    pool: Releases | Estimates,
    *,
    clients: Sequence[str] | None = None,
    records: int | None = None,
    target: TargetLike | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Doubles:
    """Draw the doubles of a pool's clients.

    Parameters
    ----------
    pool
        Releases, or estimates made from them.
    clients
        Whose doubles to draw; default all. A client's double does not depend on who else is drawn.
    records
        Most records of a double; default as many as the client is estimated to have.
    target
        Also draw a double of the people of these clients together, in proportion to their records:
        `Doubles.target`, of 20,000 records. Or **public** rows, a frame or a file: `Doubles.target` then holds what
        the schema reads of them, as they are. Never give private rows here.
    seed
        Equal seeds give equal doubles.
    progress
        Called with (doubles drawn, doubles).

    Examples
    --------
    >>> made = fw.doubles(pool, seed=0)             # doctest: +SKIP
    >>> made["CA"].head()                           # doctest: +SKIP
    """
    if isinstance(clients, str):
        raise PoolError(f"clients must be a list of names, got the text '{clients}'; write ['{clients}']")
    estimates = pool if isinstance(pool, Estimates) else estimate(pool)
    asked = target_of(target, estimates.schema)
    public = asked if isinstance(asked, PublicRows) else None
    together = () if asked is None or isinstance(asked, PublicRows) else asked
    drawer = Drawer(estimates, seed=seed)
    names = tuple(estimates.clients if clients is None else clients)
    for name in (*names, *together):
        if name not in estimates.clients:
            raise PoolError(f"pool holds no client '{name}'{nearest(name, estimates.clients)}")
    frames: dict[str, pl.DataFrame] = {}
    with ThreadPoolExecutor(THREADS) as threads:
        for name, frame in zip(names, threads.map(lambda n: drawer.frame(n, records), names), strict=True):
            frames[name] = frame
            if progress is not None:
                progress(len(frames), len(names))
    people = None if public is None else public.frame
    if together:
        at = [estimates.clients.index(name) for name in dict.fromkeys(together)]
        people = population(drawer, at, PEOPLE, seed=seed).frame
    return Doubles(
        frames, estimates.schema, label=getattr(pool, "label", ""), seed=seed, target=people,
        public=public is not None,
    )  # fmt: skip
