"""Terms of many federations at once, by the names this package uses for them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..objective.pfl import Terms, Weights, client_terms, federation_terms

__all__ = ["as_terms", "client_terms", "federation_terms", "signs"]

as_terms = Terms.of


def signs(weights: Weights) -> npt.NDArray[np.float64]:
    """Signed weight of each term, so that ``terms @ signs`` is the loss."""
    return np.array(weights.signed)
