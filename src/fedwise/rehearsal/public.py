"""Public stage: doubles that train, judged by public rows instead of artificial people.

Public rows have labels of their own and no noise, so they judge as they are. What remains of the noise is in the
doubles: a model has learnt their half of it, and its scores spread too widely. How much, the two halves tell on the
pool's own artificial people, as in every stage (`fedwise.rehearsal.judging`).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ..doubling.target import PublicRows
from ..estimation import Releases
from ..training.encoding import Encoder
from .drawn_judges import DrawnJudges
from .judging import Judges
from .stage import Stage

#: Records of the pool's people who tell how much of the scores' spread is signal.
_COMPARED = 8_000


class PublicStage(Stage):
    """A stage whose judges are public rows; the rest as in `Stage`."""

    def __init__(self, pool: Releases, encoder: Encoder, public: PublicRows, **options: Any) -> None:
        super().__init__(pool, encoder, **options)
        self.public = public

    @cached_property
    def judges(self) -> Judges | DrawnJudges:
        """The public rows, or as many of them as judge, drawn anew in each stage."""
        rows = self.encoder.encode(self.public.sample(self.judged, self.seed))
        if self.encoder.task.kind != "binary":
            return DrawnJudges(rows, self.encoder.task, self.encoder.attributes)
        schema = self.encoder.schema
        names = tuple(schema.columns[v].labels for v in schema.sensitive)
        return Judges(rows, rows.y.astype(np.float64), self.encoder.attributes, names)

    @cached_property
    def gap_judges(self) -> None:
        """None: public rows judge gaps as they judge everything."""
        return

    @cached_property
    def people(self) -> Judges | DrawnJudges:
        """Artificial people of the whole pool from the half of the noise that the doubles have not seen."""
        return self._population(self._judging, min(self.judged, _COMPARED), "judge")
