"""Policy: what a data owner allows a coordinator to ask, written by the owner and kept on the node."""

from __future__ import annotations

import enum
import logging
import math
from pathlib import Path

import msgspec

from ..errors import FedwiseError, LedgerError
from ..files import parse_toml, read_bytes, shorten
from ..planning import Plan
from ..privacy.scales import check_promise
from ..schema.joint import without_joint
from ..schema.rule import Rule
from ..schema.schema import Schema
from .ledger import Ledger
from .release import check_client, check_version

_LOG = logging.getLogger("fedwise")


class Refusal(enum.StrEnum):
    """Why a node declines, as the coordinator sees it. None of these depends on a record but `FAILED`.

    `FAILED` covers everything that may: bad rows, a full disk, a bug. It is one word on purpose, so that the
    kind of the failure tells nothing about the data; the owner's log on the node says more.
    """

    UNREADABLE = "unreadable"
    EPSILON = "epsilon"
    DELTA = "delta"
    SCHEMA = "schema"
    COLUMNS = "columns"
    BUDGET = "budget"
    POLICY = "policy"
    HANDLER = "handler"
    EXACT = "exact"
    SECURE = "secure"
    MESSAGE = "message"
    PARAMETERS = "parameters"
    FAILED = "failed"

    @property
    def sentence(self) -> str:
        """The reason in words."""
        return _SENTENCES[self]


_SENTENCES = {
    Refusal.UNREADABLE: "the plan is damaged, or made by another version of fedwise",
    Refusal.EPSILON: "the plan asks for a larger epsilon than the owner allows",
    Refusal.DELTA: "the plan asks for a larger delta than the owner allows",
    Refusal.SCHEMA: "the plan's schema is not part of the schema the owner agreed to",
    Refusal.COLUMNS: "the plan reads a column the owner does not allow",
    Refusal.BUDGET: "the owner's ledger has not enough budget left",
    Refusal.POLICY: "the node has no usable policy file",
    Refusal.HANDLER: (
        "the owner requires DP-SGD (train_epsilon), and this app's own handler cannot keep that promise; "
        "train with fedwise.flower.train_app"
    ),
    Refusal.EXACT: "exact metrics and losses are not covered by the owner's training promise; set fraction_evaluate=0",
    Refusal.SECURE: "the owner answers training messages under secure aggregation only; use the SecAgg grid",
    Refusal.MESSAGE: "the owner's policy does not allow messages of this type",
    Refusal.PARAMETERS: "the parameters are not finite, out of bounds, or do not fit the model",
    Refusal.FAILED: "the node could not answer; its owner's log says why",
}


class Declined(FedwiseError):
    """A request the policy does not allow. Carries a fixed reason only."""

    def __init__(self, refusal: Refusal, *, client: str = "") -> None:
        super().__init__(f"declined: {refusal.sentence}")
        self.refusal = refusal
        #: Who declines, where the owner lets it be told.
        self.client = client


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One client's terms. Paths are relative to the policy file.

    Parameters
    ----------
    client
        Public name of this client.
    schema
        The owner's own copy of the schema. A plan may use any of its columns, exactly as declared there,
        under the same row filter. Without this a coordinator could learn from a refusal whether a value of
        its own choice occurs in the data.
    max_epsilon, max_delta
        Largest promise of a single plan.
    answer_less
        Where a plan asks for a larger ε than `max_epsilon`: answer it at `max_epsilon`, with more noise than asked, and
        say so in the release. Default: decline.
    ledger
        Budget ledger of the data set; created with `budget_epsilon` and `budget_delta` when absent.
    budget_epsilon, budget_delta
        Total budget of a new ledger. Default: room for one release of `max_epsilon`.
    data
        The rows: a CSV or Parquet file.
    columns
        Data columns a plan may read. Default: all that the schema names.
    train_epsilon, train_delta, train_rounds, train_clip
        Promise of the training phase: DP-SGD with noise for `train_rounds` rounds, and no round more; exact
        metrics and handlers that are not fedwise's DP-SGD are refused. Default: updates leave without noise of
        their own (use secure aggregation, or trust the coordinator), `train_rounds` of them at most if set.
    train_population
        Number of records DP-SGD expects, a public figure. Default: what the noisy tables of the release tell.
    evaluations
        How often exact metrics of a model (evaluation, losses) may leave in all. Default: no limit; never under
        `train_epsilon`.
    secure_aggregation
        Updates and metrics leave inside a masked sum over at least `least_cohort` clients only.
    messages
        Types of other messages that the app may answer, e.g. ``["query.version"]``. Default: none; what they
        answer is the owner's responsibility, so none may be named beside `train_epsilon`.
        Promise of the training phase: DP-SGD with noise for `train_rounds` rounds, and no round more. Default:
        updates leave without noise of their own (use secure aggregation, or trust the coordinator).
    least_cohort
        Fewest clients whose sum this node takes part in under secure aggregation, itself included; at least 2.
    simulated_seed
        Seeded noise for experiments on public data: NO privacy, no ledger, and every release says so.
    data_version
        A number the owner raises when the data changes, such as 2 or 20260131. It travels with releases, so that a
        coordinator sees which are old; the next edition of a plan is answered anew, and charged, only if it grew.
    name_refusals
        Whether a refusal may name this client. Default: a coordinator learns that a node declined, not whose it is.
    """

    client: str
    schema: Path
    max_epsilon: float
    max_delta: float = 1e-5
    answer_less: bool = False
    ledger: Path | None = None
    budget_epsilon: float | None = None
    budget_delta: float | None = None
    data: Path | None = None
    columns: tuple[str, ...] | None = None
    train_epsilon: float | None = None
    train_delta: float = 1e-5
    train_rounds: int = 0
    train_clip: float = 1.0
    train_population: int | None = None
    evaluations: int | None = None
    secure_aggregation: bool = False
    messages: tuple[str, ...] = ()
    least_cohort: int = 3
    simulated_seed: int | None = None
    data_version: int | None = None
    name_refusals: bool = False

    def __post_init__(self) -> None:
        check_client(self.client, where="policy client")
        check_version(self.data_version, where="policy")
        if not self.max_epsilon > 0 or (math.isinf(self.max_epsilon) and self.simulated_seed is None):
            raise FedwiseError(f"policy max_epsilon must be a finite number above 0, got {self.max_epsilon}")
        if not 0 < self.max_delta < 1:
            raise FedwiseError(f"policy max_delta must be between 0 and 1, got {self.max_delta}")
        if (self.ledger is None) == (self.simulated_seed is None):
            raise FedwiseError(
                "policy must name a ledger; only experiments on public data set simulated_seed instead of one"
            )
        self._check_training()

    def _check_training(self) -> None:
        if self.train_epsilon is not None and self.train_rounds <= 0:
            raise FedwiseError(
                "policy must give train_epsilon and train_rounds together: the noise is set for them"
            )
        if self.train_rounds < 0 or (self.evaluations is not None and self.evaluations < 0):
            raise FedwiseError(
                "policy train_rounds and evaluations must be at least 0; leave them out for no limit"
            )
        if self.train_epsilon is not None:
            check_promise(self.train_epsilon, self.train_delta)
            if math.isinf(self.train_epsilon):
                raise FedwiseError(
                    "policy train_epsilon must be finite; leave it out for training without noise"
                )
            if self.messages:
                raise FedwiseError(
                    "policy must not name other messages beside train_epsilon: no noise covers them"
                )
        if not (math.isfinite(self.train_clip) and self.train_clip > 0):
            raise FedwiseError(f"policy train_clip must be a finite number above 0, got {self.train_clip}")
        if self.train_population is not None and self.train_population < 1:
            raise FedwiseError(f"policy train_population must be at least 1, got {self.train_population}")
        if self.least_cohort < 2:
            raise FedwiseError(f"policy least_cohort must be at least 2, got {self.least_cohort}")

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read a ``policy.toml``.

        Raises
        ------
        FedwiseError
            The file is missing or not a policy.
        """
        path = Path(path)
        try:
            if not path.exists():
                where = shorten(str(path))
                raise FedwiseError(
                    f"policy file '{where}' does not exist; write one, see: fedwise flower new"
                )
            text = read_bytes(path, what="policy file", error=FedwiseError).decode("utf-8")
        except (OSError, UnicodeDecodeError):
            raise FedwiseError(f"policy file '{path}' cannot be read as UTF-8 text") from None
        tree = parse_toml(text, what=f"policy file '{path}'", error=FedwiseError)
        try:
            found = msgspec.convert(tree, cls, dec_hook=_path)
        except msgspec.ValidationError as cause:
            raise FedwiseError(f"policy file '{path}': {shorten(str(cause))}") from None
        root = path.resolve().parent
        places = {
            name: root / place
            for name in ("schema", "ledger", "data")
            if (place := getattr(found, name)) is not None
        }
        return msgspec.structs.replace(found, **places)

    @property
    def agreed(self) -> Schema:
        """The schema the owner agreed to."""
        return Schema.load(self.schema)

    def check(self, plan: Plan, *, stage: int = 1) -> None:
        """Accept a stage of a plan, or raise `Declined`. Looks at no data."""
        if not 1 <= stage <= max(len(plan.staged), 1):
            raise Declined(Refusal.UNREADABLE)
        wanted = plan.stage(stage).epsilon
        if not wanted <= self.max_epsilon and self.own_epsilon(plan, stage=stage) is None:
            raise Declined(Refusal.EPSILON)
        if not plan.delta <= self.max_delta:
            raise Declined(Refusal.DELTA)
        own = self.agreed
        # A joint column is made of columns that must be the owner's themselves.
        asked = without_joint(plan.schema)
        if asked.where != own.where or not set(asked.columns) <= set(own.columns):
            raise Declined(Refusal.SCHEMA)
        if self.columns is not None:
            rules = [Rule.parse(text) for text in plan.schema.where]
            read = {name for column in plan.schema.columns for name in column.sources}
            read |= {name for rule in rules for name in rule.columns}
            if not read <= set(self.columns):
                raise Declined(Refusal.COLUMNS)

    def own_epsilon(self, plan: Plan, *, stage: int = 1) -> float | None:
        """The owner's own total ε where it answers a stage with more noise than asked; None where it answers as asked.

        None also where it cannot: it declines larger promises, or earlier stages have used up what it allows.
        """
        before = plan.stage(stage - 1).epsilon if stage > 1 else 0.0
        less = self.answer_less and plan.private and plan.stage(stage).epsilon > self.max_epsilon
        return self.max_epsilon if less and self.max_epsilon > before else None

    def open_ledger(self) -> Ledger:
        """The owner's ledger, created on first use and announced. A policy for simulations has none.

        Raises
        ------
        LedgerError
            The ledger is lost: releases charged to it are still here.
        """
        if self.ledger is None:
            raise LedgerError("policy must name a ledger; it is one for simulations")
        if self.ledger.exists():
            return Ledger(self.ledger)
        epsilon, delta = self.budget
        made = Ledger(self.ledger, epsilon, delta)
        _LOG.warning(
            "fedwise: new ledger '%s' with a budget of epsilon %g at delta %g; if there was one before, stop the "
            "node and restore it",
            self.ledger,
            epsilon,
            delta,
        )
        return made

    @property
    def budget(self) -> tuple[float, float]:
        """ε and δ of a new ledger: as declared, or room for one release and the training promise."""
        training = (self.train_epsilon or 0.0, self.train_delta if self.train_epsilon else 0.0)
        epsilon = self.max_epsilon + training[0] if self.budget_epsilon is None else self.budget_epsilon
        delta = self.max_delta + training[1] if self.budget_delta is None else self.budget_delta
        return epsilon, delta


def _path(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise TypeError("a path must be text")  # which msgspec reports with the key's name
