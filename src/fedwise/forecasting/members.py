"""Members: the clients of a federation, by name or by position in the pool."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError, nearest

Ints = npt.NDArray[np.int64]
Federation = Sequence[str] | Sequence[int] | Ints


def positions(clients: Sequence[str], federation: Federation) -> Ints:
    """Positions among `clients` of names or positions, each once, sorted."""
    at = {name: i for i, name in enumerate(clients)}
    found = []
    for client in federation:
        if isinstance(client, str):
            if client not in at:
                raise FedwiseError(
                    f"federation must name clients of the pool, got '{client}'{nearest(client, at)}"
                )
            found.append(at[client])
        elif 0 <= int(client) < len(clients):
            found.append(int(client))
        else:
            raise FedwiseError(f"federation must hold positions below {len(clients)}, got {client}")
    if not found:
        raise FedwiseError("federation must have at least one client")
    return np.unique(np.asarray(found, dtype=np.int64))
