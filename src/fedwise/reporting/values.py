"""Values: everything a report shows, as plain values. The page, the JSON and the charts all read these.

Only released, estimated or aggregate numbers have a place here; there is no field for an exact count.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ..certificate import Assumption
from ..objective.pfl import Terms, Weights


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """A number people know, with its 95% interval where there is one."""

    label: str
    metric: str
    value: float
    low: float | None = None
    high: float | None = None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The federation, its loss and how sure we are."""

    clients: list[str]
    k: int
    candidates: int
    loss: float
    std_error: float | None
    terms: Terms
    weights: Weights
    objective: str
    estimator: str
    method: str
    status: str
    statement: str
    noise_statement: str
    assumptions: list[Assumption]
    forecast: list[Measure]


class Privacy(msgspec.Struct, frozen=True, kw_only=True):
    """The promise, in words and numbers."""

    label: Literal["private", "simulated", "not private"]
    promise: str
    relation: str
    epsilon: float | Literal["inf"]
    delta: float
    tables: int
    cells: int
    noise_least: float
    noise_most: float
    calibration: str
    allocation: str
    left: list[str]
    stayed: list[str]
    training: list[str]


class ClientValue(msgspec.Struct, frozen=True, kw_only=True):
    """One client as the releases show it.

    `terms` and `loss` are those of the client alone. `leave_one_out` and `shapley` say what a member does to
    the federation's loss (negative helps). `swap` is the change of that loss by the best exchange that brings
    this outsider in, for the member `swap_for`.
    """

    client: str
    chosen: bool
    records: float
    terms: Terms
    loss: float
    leave_one_out: float | None = None
    shapley: float | None = None
    frequency: float | None = None
    swap: float | None = None
    swap_for: str | None = None


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Terms of a federation, or the mean of several."""

    name: str
    terms: Terms
    loss: float
    low: float | None = None
    high: float | None = None


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """A good federation that was not chosen: who joins, who leaves, at what price."""

    clients: list[str]
    joins: list[str]
    leaves: list[str]
    loss: float
    gap: float


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Best federation of one size."""

    k: int
    loss: float
    terms: Terms | None
    clients: list[str]
    chosen: bool = False


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """How the search went."""

    method: str
    status: str
    evaluations: int
    seconds: float
    seed: int | None
    chains: int | None
    agreed: int | None
    trace: list[tuple[int, float]]


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one training over the rounds: mean over seeds, smallest and largest."""

    label: str
    metric: str
    seeds: int
    rounds: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of training, chosen federation first, baselines after it."""

    scope: str
    attribute: str
    curves: list[Curve]
    final: list[Measure]


class AuditValue(msgspec.Struct, frozen=True, kw_only=True):
    """One membership attack."""

    epsilon: float | Literal["inf"]
    attack: str
    trials: int
    auc: float
    auc_std_error: float
    auc_theory: float
    tpr_at_1_percent: float
    tpr_theory: float
    epsilon_lower_bound: float
    ok: bool


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Something the reader must know before trusting the rest."""

    level: Literal["stop", "warning", "note"]
    title: str
    text: str


class Tile(msgspec.Struct, frozen=True, kw_only=True):
    """One state on the tile map."""

    client: str
    code: str
    name: str
    row: int
    column: int
    status: Literal["chosen", "rest", "absent"]


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """A whole report."""

    title: str
    schema: str
    version: str
    verdict: Verdict
    privacy: Privacy
    groups: list[Group]
    clients: list[ClientValue]
    alternatives: list[Alternative]
    frontier: list[Point]
    search: Search
    training: Training | None
    audits: list[AuditValue]
    alerts: list[Alert]
    tiles: list[Tile]
    commands: list[str]
    digests: dict[str, str]

    @property
    def chosen(self) -> list[ClientValue]:
        """The members, best contribution to the federation first where it is known."""
        return [row for row in self.clients if row.chosen]

    @property
    def rest(self) -> list[ClientValue]:
        """Everyone else."""
        return [row for row in self.clients if not row.chosen]
