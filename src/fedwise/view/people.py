"""People: the groups of every sensitive attribute, as the releases show them and as the trained model treats them."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from ..estimation.estimates import Estimates
from ..schema.schema import Schema

Floats = npt.NDArray[np.float64]


class PeopleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One group of people. Shares are of the records, positives the share of the group with a positive label.

    ``None`` where the group is too small, or the table of attribute and target was not asked for.
    """

    group: str
    share: float
    positives: float | None
    share_of_all: float
    positives_of_all: float | None


class Attribute(msgspec.Struct, frozen=True, kw_only=True):
    """One sensitive attribute with its groups, in the federation and in all clients together."""

    name: str
    rows: list[PeopleRow]

    @property
    def gap(self) -> float | None:
        """Largest less smallest share of positive labels, in the federation."""
        known = [row.positives for row in self.rows if row.positives is not None]
        return max(known) - min(known) if len(known) > 1 else None


def attributes_of(estimates: Estimates, members: npt.NDArray[np.int64]) -> list[Attribute]:
    """Every sensitive attribute of the schema with its groups."""
    schema = estimates.schema
    return [
        Attribute(name=schema.names[i], rows=_rows(estimates, schema, i, members)) for i in schema.sensitive
    ]


def _rows(
    estimates: Estimates, schema: Schema, attribute: int, members: npt.NDArray[np.int64]
) -> list[PeopleRow]:
    mine, mine_yes = _counts(estimates, attribute, members)
    everyone, every_yes = _counts(estimates, attribute, np.arange(len(estimates.clients)))
    return [
        PeopleRow(
            group=label,
            share=_share(mine[code], mine.sum()) or 0.0,
            positives=_share(*mine_yes[:, code]) if mine_yes is not None else None,
            share_of_all=_share(everyone[code], everyone.sum()) or 0.0,
            positives_of_all=_share(*every_yes[:, code]) if every_yes is not None else None,
        )
        for code, label in enumerate(schema.columns[attribute].labels)
    ]


def _counts(
    estimates: Estimates, attribute: int, clients: npt.NDArray[np.int64]
) -> tuple[Floats, Floats | None]:
    """Estimated records of each group; and of each group those with a positive label, and all that have a label."""
    layout, schema = estimates.layout, estimates.schema
    records = np.maximum(estimates.marginals[clients, layout.marginal(attribute)].sum(axis=0), 0.0)
    if len(schema.targets) != 1:
        return records, None
    target = schema.columns[schema.target]
    if target.size - target.has_other != 2:
        return records, None  # there is no positive label
    for pair in ((attribute, schema.target), (schema.target, attribute)):
        if pair in layout.pairs:
            summed = estimates.cells[clients].sum(axis=0)
            table = np.maximum(layout.view(summed, layout.pairs.index(pair)).astype(np.float64), 0.0)
            labelled = (table if pair[0] == attribute else table.T)[:, :2]
            return records, np.stack([labelled[:, 1], labelled.sum(axis=1)])
    return records, None


def _share(part: float, whole: float) -> float | None:
    return float(min(max(part / whole, 0.0), 1.0)) if whole >= 1.0 else None
