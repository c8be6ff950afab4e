"""Score: a public rule that gives every record a number between −1 and 1, and the sum that one client answers with.

The tables of a small client at a small ε are mostly noise, and most of their cells say nothing of who is worth
choosing. Once the releases of others show the slope of the loss, one number says it: by how much a client's records
together raise or lower the loss. The rule is points for each combination of levels of each pair of columns; a record
scores by its points, evenly between two limits and no more beyond them, in tenths.

The points come from the coordinator, so nothing is believed of them: whatever they are, a record scores between −1 and
1, and adding or removing one changes the sum by 1 at most.
"""

from __future__ import annotations

import hashlib
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import ReleaseError
from ..planning import Plan
from ..privacy.staging import SCORE_PARTS
from ..schema.frame import FrameLike
from ..schema.layout import Layout
from .tables import Tables

#: Largest number of points of a cell: sums over all pairs of a schema stay far from overflow.
MAX_POINTS = 10**9
#: What the sum is called where tables have the names of their columns.
SCORE_PAIR = ("score", "all records")
#: The sum as a table of one cell.
_SUM = Layout(SCORE_PAIR, (1, 1), ((0, 1),))


class Points(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Points for the levels of one pair of columns, row by row."""

    pair: tuple[str, str]
    points: tuple[int, ...]


class Score(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """What scores: points by pair of columns, and the limits between which they count.

    A record whose points over all pairs are `high` or more scores 1, one with `low` or fewer −1, any other what lies
    evenly between, rounded to tenths.
    """

    low: int
    high: int
    points: tuple[Points, ...]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the rule: every client of a pool must have answered the same."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()

    @property
    def _faulty(self) -> bool:
        """Whether limits or points are out of bounds, whatever the plan."""
        numbers = (self.low, self.high, *(number for part in self.points for number in part.points))
        return not self.low < self.high or not self.points or max(map(abs, numbers)) > MAX_POINTS

    def check(self, plan: Plan) -> None:
        """Refuse a rule that does not fit the pairs of a plan.

        Raises
        ------
        ReleaseError
            A pair is not one of the plan's, or its points do not fit its levels.
        """
        asked = {table.pair: table.shape for table in plan.as_pairs.tables}
        pairs = [part.pair for part in self.points]
        fits = all(
            part.pair in asked and len(part.points) == asked[part.pair][0] * asked[part.pair][1]
            for part in self.points
        )
        if self._faulty or not fits or len(set(pairs)) != len(pairs):
            raise ReleaseError(
                f"score must give points for pairs of columns of plan {plan.digest[:12]}, and low limits below high "
                "ones; ask the coordinator for a new shortlist"
            )

    def of_records(self, plan: Plan, codes: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Score of each record in tenths, from −10 to 10.

        Parameters
        ----------
        codes
            Shape (variables, records), in the order of the plan's pairs: `plan.as_pairs.schema`.
        """
        points, width = self.points_of(plan.as_pairs.layout, codes), self.high - self.low
        # Halves are rounded up, in whole numbers throughout: every machine scores alike.
        tenths = (2 * SCORE_PARTS * (2 * points - self.low - self.high) + width) // (2 * width)
        return np.clip(tenths, -SCORE_PARTS, SCORE_PARTS)

    def points_of(self, layout: Layout, codes: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """The points of each record, over all pairs."""
        at = {name: i for i, name in enumerate(layout.names)}
        wide = codes.astype(np.intp)
        total = np.zeros(codes.shape[1], dtype=np.int64)
        for part in self.points:
            x, y = (at[name] for name in part.pair)
            total += np.array(part.points, dtype=np.int64)[wide[x] * layout.sizes[y] + wide[y]]
        return total

    def count(self, plan: Plan, frame: FrameLike) -> Tables:
        """The exact sum over a client's records in tenths: private, as any exact table is.

        Raises
        ------
        DataError, ReleaseError
            The rows, or the rule, do not fit the plan.
        """
        self.check(plan)
        codes = plan.as_pairs.schema.encode(frame)
        return Tables(_SUM, np.array([self.of_records(plan, codes).sum()], dtype=np.int64))
