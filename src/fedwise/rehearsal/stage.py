"""Stage: one drawing of everything a rehearsal needs, the doubles that train and the population that judges.

Every stage splits the noise anew, draws anew and trains from other first parameters. The fresh noise of a split has the
scale of the released one, so the spread of a metric over stages is about that over releases, drawings and seeds. The
released noise itself is in all stages alike: more of them do not average it away.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..cache import Cache
from ..doubling.draw import Drawer
from ..doubling.model import Model
from ..errors import FedwiseError, PoolError, nearest
from ..estimation import Releases
from ..training.encoding import Encoder, Rows
from ..training.federation import Prepared
from .fission import fission

Floats = npt.NDArray[np.float64]
Records = npt.NDArray[np.int16]

#: Name of the judging population among a stage's clients; no client can have it.
TARGET = "\0target"
#: Records of that population.
JUDGED = 20_000
_SWEEPS, _FRESH, _FIT = 16, 5, 5


class Stage:
    """Doubles and a judging population from one split of the noise.

    Parameters
    ----------
    pool
        The releases.
    encoder
        How the model sees a record.
    number
        Which stage: each has randomness of its own.
    seed
        Equal seeds and numbers give equal stages.
    target
        Whose records judge: names of clients; default everybody's.
    records
        Most records of a double; default all.
    share
        Part of a client's records that train.
    judged
        Records of the judging population.
    """

    def __init__(
        self,
        pool: Releases,
        encoder: Encoder,
        *,
        number: int = 0,
        seed: int = 0,
        target: Sequence[str] | None = None,
        records: int | None = None,
        share: float = 1.0,
        judged: int = JUDGED,
    ) -> None:
        self.encoder = encoder
        self.records = records
        self.share = share
        self.judged = judged
        self.seed = _seed(seed, number, "stage")
        rng = np.random.default_rng(self.seed)
        trained, self._judging = fission(pool, rng)
        self._target = self._places(target)
        self.drawer = Drawer(trained, seed=self.seed)
        self._rows: Cache[str, Rows] = Cache()

    def _places(self, target: Sequence[str] | None) -> list[int]:
        clients = self._judging.clients
        for name in target or ():
            if name not in clients:
                raise PoolError(f"pool holds no client '{name}'{nearest(name, clients)}")
        if target is not None and not target:
            raise FedwiseError("target must name at least one client, got none; leave it out for all")
        return [i for i, name in enumerate(clients) if target is None or name in target]

    def rows(self, client: str) -> Rows:
        """Encoded records of a client's double, drawn when first asked for."""
        return self._rows.get(client, lambda: self._draw(client))

    def _draw(self, client: str) -> Rows:
        count = max(1, round(self.drawer.records_of(client) * self.share))
        count = count if self.records is None else min(count, self.records)
        return self.encoder.encode(self.drawer.frame(client, count), client=client)

    @cached_property
    def judges(self) -> Rows:
        """Records of the target population, with labels drawn evenly along their chances.

        A label drawn at random would blur the rates of small groups. Records are put in order of group and chance,
        and labels are taken systematically along it: any stretch of the order has as many positives as its chances
        say, to within one.
        """
        estimates, drawer = self._judging, self.drawer
        shares = drawer.shares(estimates.cells[self._target].sum(axis=0))
        model = Model.fit(
            drawer.grid,
            shares,
            records=min(self.judged, 10_000),
            sweeps=_SWEEPS,
            seed=_seed(self.seed, 0, "judge"),
        )
        rows = model.sample(self.judged, sweeps=_FRESH, seed=_seed(self.seed, 1, "judge"))
        rows = model.refined(rows, shares * self.judged, sweeps=_FIT, seed=_seed(self.seed, 2, "judge"))
        rng = np.random.default_rng(_seed(self.seed, 3, "judge"))
        label(
            rows,
            model.chances(rows, estimates.schema.target),
            estimates.schema.target,
            estimates.schema.sensitive,
            rng,
        )
        return self.encoder.encode(drawer.values.frame(rows, rng)[0])

    def prepared(self, clients: Sequence[str]) -> Prepared:
        """What the trainer takes: these clients' doubles, judged on the target population alone."""
        return Prepared(
            self.encoder, {client: self.rows(client) for client in clients}, {TARGET: self.judges}
        )


def label(
    rows: Records, chances: Floats, target: int, sensitive: Sequence[int], rng: np.random.Generator
) -> None:
    """Give records of two classes labels in proportion to their chances, evenly along group and chance; in place."""
    if chances.shape[1] != 2:
        return
    positive = chances[:, 1]
    order = np.lexsort([positive, *(rows[:, variable].astype(np.float64) for variable in sensitive)])
    running = np.cumsum(positive[order]) + rng.random()
    rows[order, target] = np.diff(np.floor(np.concatenate([[running[0] - positive[order[0]]], running])))


def _seed(seed: int, number: int, what: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}\0{number}\0{what}".encode()).digest()[:6])
