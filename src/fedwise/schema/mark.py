"""Mark: the column of the data that says which public codebook made its features."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..deferred import Deferred
from ..errors import DataError

if TYPE_CHECKING:
    import polars as pl
else:
    pl = Deferred("polars")

#: Name of that column.
CODEBOOK = "codebook"


def codebook_mark(digest: str) -> str:
    """What the column `CODEBOOK` of features holds: the first half of the codebook's digest."""
    return digest[:32]


def check_codebook(rows: pl.DataFrame, digest: str) -> None:
    """Refuse features that the schema's codebook did not make."""
    mark = codebook_mark(digest)
    if CODEBOOK not in rows.columns:
        raise DataError(
            f"column '{CODEBOOK}' is missing from the data: the schema counts features of codebook {digest[:12]}; "
            "make them with fedwise features apply"
        )
    told = rows.get_column(CODEBOOK).cast(pl.String)
    if rows.height and not bool((told == mark).fill_null(value=False).all()):
        raise DataError(
            f"features must all be made with codebook {digest[:12]}, as the schema says, got others; make them again "
            "with fedwise features apply and the plan's codebook"
        )
