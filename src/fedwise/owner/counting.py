"""Counting: all pair tables in one pass over the codes, compiled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..machine_code import compiled


@compiled()
def count_pairs(
    codes: npt.NDArray[np.int16],
    pairs: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    out: npt.NDArray[np.int64],
) -> None:
    """Add the pairs of all rows to `out`, one table after the other; codes must lie inside their domains."""
    # Rows in blocks: the codes of a block stay in the first cache while every pair is counted over them.
    rows = codes.shape[1]
    block = 2048
    for start in range(0, rows, block):
        stop = min(start + block, rows)
        for j in range(pairs.shape[0]):
            x = codes[pairs[j, 0], start:stop]
            y = codes[pairs[j, 1], start:stop]
            width = sizes[pairs[j, 1]]
            table = out[offsets[j] : offsets[j + 1]]
            for r in range(stop - start):
                table[x[r] * width + y[r]] += 1
