"""Quick look: a rehearsal of some seconds, for a first word about a selection."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from ..estimation import Releases
from ..search.selection import Selection
from ..training.settings import Training
from .performance import Rehearsed
from .summary import summary_of
from .workflow import Federation, rehearse

#: Records of a double, of the population that judges, random federations and stages.
RECORDS, JUDGED, RANDOM, STAGES = 400, 5_000, 8, 3
#: Most clients whose doubles are all drawn, so that everybody can be rehearsed together.
_MOST_CLIENTS = 80
#: Most cells of a release for which a look stays quick.
_MOST_CELLS = 20_000


def quick_settings(model: str = "mlp") -> Training:
    """A training that is short because its steps are long."""
    return Training(rounds=10, lr=3e-3, model=model)


def quick_rehearsal(
    selection: Federation,
    pool: Releases,
    *,
    model: str = "mlp",
    seed: int = 0,
    progress: Callable[[int, int, float], None] | None = None,
) -> Rehearsed | None:
    """A selection beside random federations and all clients; ``None`` for a pool too large for a quick look."""
    if pool.matrix.shape[1] > _MOST_CELLS:
        return None
    return rehearse(
        pool, selection, quick_settings(model), random=RANDOM, everyone=len(pool.clients) <= _MOST_CLIENTS,
        stages=STAGES, records=RECORDS, judged=JUDGED, seed=seed, progress=progress,
    )  # fmt: skip


def with_rehearsal(
    selection: Selection,
    pool: Releases,
    *,
    model: str = "mlp",
    seed: int = 0,
    progress: Callable[[int, int, float], None] | None = None,
) -> Selection:
    """The selection with a quick rehearsal beside random federations and all clients.

    Doubles are cut short: the order of federations is what counts, and levels are not those of the real training.
    A selection that was rehearsed already, and a pool too large for a quick look, are left as they are.
    """
    if selection.rehearsal is not None:
        return selection
    began = time.perf_counter()
    found = quick_rehearsal(selection, pool, model=model, seed=seed, progress=progress)
    if found is None:
        return selection
    summary = summary_of(found, seconds=time.perf_counter() - began)
    return msgspec.structs.replace(selection, rehearsal=summary)
