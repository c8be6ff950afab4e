"""Dirt: ways in which a client's records can be spoilt, each at three severities.

Everything works on codes, shape (variables, rows), so that a client's tables and its training rows are spoilt alike.

| kind | light | medium | heavy |
|---|---|---|---|
| random labels | 20% of the labels drawn evenly | 40% | 70% |
| flipped labels | 10% of the labels are the other one | 25% | 40% |
| biased labels | 30% of the positive records of the last group recorded negative | 60% | 90% |
| shuffled features | in 25% of the rows every feature permuted on its own | 50% | all rows |
| swapped columns | 1 pair of features exchanged | 2 pairs | 4 pairs |
| repeated rows | 1,000 of the rows, drawn again up to the client's size | 200 | 50 |
| another's rows | 30% of the rows are those of another client | 60% | all rows |
| mixture | each client one of the kinds above, at random | | |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from fedwise.schema.schema import Schema

Codes = npt.NDArray[np.int16]
Severity = Literal["light", "medium", "heavy"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)

#: Amounts by kind, in the order of severities.
AMOUNTS = {
    "random labels": (0.2, 0.4, 0.7),
    "flipped labels": (0.1, 0.25, 0.4),
    "biased labels": (0.3, 0.6, 0.9),
    "shuffled features": (0.25, 0.5, 1.0),
    "swapped columns": (1, 2, 4),
    "repeated rows": (1000, 200, 50),
    "another's rows": (0.3, 0.6, 1.0),
}
#: Kinds whose detection is promised, and all.
PROMISED = ("random labels", "flipped labels", "biased labels", "shuffled features", "repeated rows")
KINDS = (*AMOUNTS, "mixture")


def spoil(
    codes: Mapping[str, Codes],
    dirty: Sequence[str],
    schema: Schema,
    *,
    kind: str,
    severity: Severity,
    seed: int,
) -> dict[str, Codes]:
    """Codes of all clients, those of the `dirty` ones spoilt."""
    out = dict(codes)
    names = list(codes)
    for client in dirty:
        rng = np.random.default_rng([seed, names.index(client), list(KINDS).index(kind), 0xD187])
        one = str(rng.choice(list(AMOUNTS))) if kind == "mixture" else kind
        amount = AMOUNTS[one][SEVERITIES.index(severity)]
        own = codes[client]
        if one == "another's rows":
            donor = names[int(rng.choice([i for i, name in enumerate(names) if name not in dirty]))]
            out[client] = _mixed(own, codes[donor], amount, rng)
        else:
            out[client] = _SPOILERS[one](own, schema, amount, rng)
    return out


def draw_dirty(clients: Sequence[str], share: float, seed: int) -> list[str]:
    """Who is spoilt: every client alike."""
    order = np.random.default_rng([seed, 0x9D]).permutation(len(clients))
    return sorted(clients[i] for i in order[: round(share * len(clients))])


def _random_labels(codes: Codes, schema: Schema, amount: float, rng: np.random.Generator) -> Codes:
    made = codes.copy()
    hit = rng.random(codes.shape[1]) < amount
    made[schema.target, hit] = rng.integers(0, schema.sizes[schema.target], hit.sum())
    return made


def _flipped_labels(codes: Codes, schema: Schema, amount: float, rng: np.random.Generator) -> Codes:
    made = codes.copy()
    hit = rng.random(codes.shape[1]) < amount
    made[schema.target, hit] = 1 - made[schema.target, hit]
    return made


def _biased_labels(codes: Codes, schema: Schema, amount: float, rng: np.random.Generator) -> Codes:
    made = codes.copy()
    group = schema.sensitive[0]
    there = (codes[group] == schema.sizes[group] - 1) & (codes[schema.target] == 1)
    made[schema.target, there & (rng.random(codes.shape[1]) < amount)] = 0
    return made


def _shuffled_features(codes: Codes, schema: Schema, amount: float, rng: np.random.Generator) -> Codes:
    made = codes.copy()
    part = np.flatnonzero(rng.random(codes.shape[1]) < amount)
    for feature in schema.features:
        made[feature, part] = codes[feature, rng.permutation(part)]
    return made


def _swapped_columns(codes: Codes, schema: Schema, amount: float, rng: np.random.Generator) -> Codes:
    """Pairs of features exchange their values, stretched to the other's number of levels."""
    made = codes.copy()
    order = rng.permutation(schema.features)
    for a, b in zip(order[0::2][: int(amount)], order[1::2], strict=False):
        sizes = schema.sizes[a], schema.sizes[b]
        made[a] = codes[b].astype(np.int64) * sizes[0] // sizes[1]
        made[b] = codes[a].astype(np.int64) * sizes[1] // sizes[0]
    return made


def _repeated_rows(codes: Codes, schema: Schema, amount: float, rng: np.random.Generator) -> Codes:
    kept = rng.permutation(codes.shape[1])[: int(amount)]
    return np.ascontiguousarray(codes[:, rng.choice(kept, codes.shape[1])])


def _mixed(own: Codes, other: Codes, amount: float, rng: np.random.Generator) -> Codes:
    """A share of the rows replaced by rows of another client."""
    made = own.copy()
    hit = np.flatnonzero(rng.random(own.shape[1]) < amount)
    made[:, hit] = other[:, rng.integers(0, other.shape[1], len(hit))]
    return made


_SPOILERS: dict[str, Callable[[Codes, Schema, float, np.random.Generator], Codes]] = {
    "random labels": _random_labels,
    "flipped labels": _flipped_labels,
    "biased labels": _biased_labels,
    "shuffled features": _shuffled_features,
    "swapped columns": _swapped_columns,
    "repeated rows": _repeated_rows,
}
