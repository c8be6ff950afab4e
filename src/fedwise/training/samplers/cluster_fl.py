"""ClusterFL (after Ouyang, Xie, Zhou, Huang, Xing 2021): clients with like updates form a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from .sampler import Floats, Sampler, SamplerState


class ClusterFl(Sampler):
    """Cluster clients by the direction of their last update, and draw across clusters in turn.

    Average linkage on cosine distance, into `count` clusters; clients whose update is not known yet are a
    cluster of their own that is visited first. The clusters are then visited in random order, one random
    member each, until `count` clients are found.
    """

    name: ClassVar[str] = "cluster_fl"

    def __init__(
        self, clients: Sequence[str], *, sizes: Mapping[str, float] | None = None, fraction: float = 0.5
    ) -> None:
        super().__init__(clients, sizes=sizes, fraction=fraction)
        self._known: dict[str, npt.NDArray[np.float32]] = {}

    def clusters(self) -> list[tuple[str, ...]]:
        """The clusters of the clients whose update is known, by first member."""
        known = [client for client in self.clients if client in self._known]
        if len(known) < 2:
            return [(client,) for client in known]
        # scipy's clustering is imported here: other samplers do not need it.
        from scipy.cluster.hierarchy import fcluster, linkage
        from scipy.spatial.distance import squareform

        units = np.stack([self._known[client] for client in known]).astype(np.float64)
        distance = np.clip(1.0 - units @ units.T, 0.0, 2.0)
        np.fill_diagonal(distance, 0.0)
        tree = linkage(squareform((distance + distance.T) / 2, checks=False), method="average")
        labels = fcluster(tree, t=min(self.count, len(known)), criterion="maxclust")
        found: dict[int, list[str]] = {}
        for client, label in zip(known, labels, strict=True):
            found.setdefault(int(label), []).append(client)
        return sorted((tuple(members) for members in found.values()), key=lambda c: self.clients.index(c[0]))

    def choose(self, round: int, rng: np.random.Generator) -> tuple[str, ...]:
        """One member of each cluster in turn."""
        groups = self.clusters()
        queues = [
            list(rng.permutation(np.array(groups[i], dtype=object))) for i in rng.permutation(len(groups))
        ]
        unknown = [client for client in self.clients if client not in self._known]
        if unknown:
            queues.insert(0, list(rng.permutation(np.array(unknown, dtype=object))))
        chosen: set[str] = set()
        while len(chosen) < self.count:
            for queue in queues:
                if queue and len(chosen) < self.count:
                    chosen.add(str(queue.pop()))
        return tuple(client for client in self.clients if client in chosen)

    def observe(self, losses: Mapping[str, float], updates: Mapping[str, Floats] | None = None) -> None:
        """Remember the direction of each update."""
        for client, update in (updates or {}).items():
            length = float(np.linalg.norm(update))
            if client in self.clients and np.isfinite(length) and length > 0:
                self._known[client] = (update / length).astype(np.float32)

    def state(self) -> SamplerState:
        """The directions, as arrays."""
        return {f"update/{client}": update for client, update in self._known.items()}

    def restore(self, state: SamplerState) -> None:
        """Go on from `state`."""
        self._known = {key.removeprefix("update/"): np.asarray(value) for key, value in state.items()}
