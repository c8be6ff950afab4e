"""Stage: one drawing of everything a rehearsal needs, the doubles that train and the population that judges.

Every stage splits the noise anew and draws anew. The fresh noise of a split has the scale of the released one, so the
spread of a metric over stages is about that over releases and drawings. The first parameters are in all stages those
of the training that is rehearsed. The released noise itself is in all stages alike: more of them do not average it
away.

Gaps between groups are judged by people of the whole release, and where asked of a model of it as well; everything
else by people of the half of the noise that the doubles have not seen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from ..cache import Cache
from ..doubling.drawer import Drawer
from ..doubling.population import population
from ..errors import FedwiseError, PoolError, nearest
from ..estimation import Releases, estimate
from ..estimation.estimates import Estimates
from ..training.encoding import Encoder, Rows
from ..training.federation import Prepared
from .drawn_judges import DrawnJudges
from .fission import fission
from .judging import Judges

#: Name of the judging population among a stage's clients; no client can have it.
TARGET = "\0target"
#: Records of that population.
JUDGED = 20_000
#: Most records of it as the doubles' own half of the noise shows it.
_OWN = 8_000
#: How many times as many judge gaps: a gap is a difference of rates in parts of the population.
_FOR_GAPS = 3


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
        self._whole = estimate(pool)
        self._trained, self._judging = fission(pool, rng)
        self._target = self._places(target)
        self.drawer = Drawer(self._trained, seed=self.seed)
        self._rows: Cache[str, Rows] = Cache()
        self._whole_rows: Cache[str, Rows] = Cache()

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
        return self._rows.get(client, lambda: self._draw(client, self.drawer))

    def whole_rows(self, client: str) -> Rows:
        """The same from the whole release."""
        return self._whole_rows.get(client, lambda: self._draw(client, self._whole_drawer))

    @cached_property
    def _whole_drawer(self) -> Drawer:
        return Drawer(self._whole, seed=self.seed)

    def _draw(self, client: str, drawer: Drawer) -> Rows:
        count = max(1, round(drawer.records_of(client) * self.share))
        count = count if self.records is None else min(count, self.records)
        return self.encoder.encode(drawer.frame(client, count), client=client)

    @cached_property
    def judges(self) -> Judges | DrawnJudges:
        """The target population, each of its records with its chance of the positive class."""
        return self._population(self._judging, self.judged, "judge")

    @cached_property
    def own(self) -> Judges | None:
        """The same population as the doubles' half of the noise shows it; none without noise. See `reliability`."""
        if self._trained is self._judging or self.encoder.task.kind != "binary":
            return None
        found = self._population(self._trained, min(self.judged, _OWN), "own")
        assert isinstance(found, Judges)  # two classes
        return found

    @cached_property
    def gap_judges(self) -> Judges | None:
        """The same population as the whole release shows it, for gaps between groups; none without noise.

        A gap is no reward for having learnt the noise, so those who judge it need no noise of their own, and with half
        the variance they tell federations better apart.
        """
        if self._trained is self._judging or self.encoder.task.kind != "binary":
            return None
        found = self._population(self._whole, _FOR_GAPS * self.judged, "gap")
        assert isinstance(found, Judges)  # two classes
        return found

    def _population(self, estimates: Estimates, records: int, what: str) -> Judges | DrawnJudges:
        """People of the target from one half of the noise."""
        drawer = (
            self.drawer
            if estimates is self._trained
            else self._whole_drawer
            if estimates is self._whole
            else Drawer(estimates, seed=self.seed)
        )
        people = population(drawer, self._target, records, seed=_seed(self.seed, 0, what))
        rows = self.encoder.encode(people.frame)
        if self.encoder.task.kind != "binary":
            return DrawnJudges(rows, self.encoder.task, self.encoder.attributes)
        # Records whose target is neither class are left out, as the encoder leaves them out.
        chance = people.chances[people.codes[:, estimates.schema.target] < 2, :2]
        names = tuple(estimates.schema.columns[v].labels for v in estimates.schema.sensitive)
        positive = chance[:, 1] / np.maximum(chance.sum(axis=1), 1e-300)
        return Judges(rows, positive, self.encoder.attributes, names, seed=_seed(self.seed, 0, what))

    def prepared(self, clients: Sequence[str], *, whole: bool = False) -> Prepared:
        """What the trainer takes: these clients' doubles. It tests on one record only; `judges` do the judging.

        With `whole` the doubles are those of the whole release.
        """
        one = self.judges.rows.take(np.zeros(1, np.int64))
        drawn = self.whole_rows if whole else self.rows
        return Prepared(self.encoder, {client: drawn(client) for client in clients}, {TARGET: one})


def _seed(seed: int, number: int, what: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}\0{number}\0{what}".encode()).digest()[:6])
