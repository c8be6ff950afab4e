"""Selection: the federation chosen, with its evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from .. import __version__
from ..certificate import Certificate, members_changed
from ..deferred import Deferred
from ..errors import FedwiseError
from ..files import decode, read_bytes, write_new
from ..notebook import html_table, plot
from ..objective.interval import UNKNOWN
from ..objective.pfl import Terms, Weights
from .point import Point

if TYPE_CHECKING:
    import polars as pl
else:
    pl = Deferred("polars")

FORMAT: Literal["fedwise/selection/1"] = "fedwise/selection/1"

Status = Literal["exact", "local", "found", "interrupted"]

#: What each status means, in a sentence.
STATUS_SENTENCES: dict[str, str] = {
    "exact": "Every feasible federation was evaluated.",
    "local": "Every single swap was evaluated and none improves the federation.",
    "found": "The best federation the method met; nothing is proven about it.",
    "interrupted": "The search was interrupted; this is the best found so far.",
}


class Alternative(msgspec.Struct, frozen=True):
    """Another good federation, and how much worse it is."""

    clients: tuple[str, ...]
    loss: float
    gap: float


class Contribution(msgspec.Struct, frozen=True):
    """What one member does to the loss; negative helps.

    `leave_one_out` is loss(W) − loss(W without it). `shapley` is its average marginal change over random
    orders of joining, an empty federation having loss 0; the values sum to the loss.
    """

    client: str
    leave_one_out: float | None
    shapley: float | None = None
    shapley_error: float | None = None


class ForecastValue(msgspec.Struct, frozen=True):
    """A metric of the model this federation would train, forecast from the tables and added from outside.

    `std_error` is that of the privacy noise alone; `low` and `high` bound the trained value at 90%, what the forecast
    lacks included. Where the noise drowns the answer, `known` is false.
    """

    metric: str
    value: float
    std_error: float | None = None
    low: float | None = None
    high: float | None = None
    known: bool = True

    def __str__(self) -> str:
        name = self.metric.replace("_", " ")
        if not self.known:
            return f"{name} {UNKNOWN}"
        between = "" if self.low is None else f" (90%: {self.low:.3f} to {self.high:.3f})"
        return f"{name} {self.value:.4f}{between or _plus_minus(self.std_error)}"


class RehearsedMetric(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of the rehearsed training, with a 90% interval, beside random federations and all clients."""

    metric: str
    value: float | None
    low: float | None = None
    high: float | None = None
    random: float | None = None
    everyone: float | None = None
    beside_random: str = ""


class RehearsedSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What the training of this federation came to on artificial doubles, added from outside.

    Parameters
    ----------
    verdict
        One sentence: better, worse or not distinguishable from random federations, in which metrics.
    random, stages
        Random federations beside it, and how often everything was drawn anew.
    shortened
        Whether doubles were cut short, so that levels are not those of the real training.
    goal
        What was maximised and which limits held, where the federation was chosen by rehearsal.
    settings
        How it was trained.
    """

    verdict: str
    metrics: tuple[RehearsedMetric, ...] = ()
    random: int = 0
    stages: int = 0
    shortened: bool = False
    goal: str = ""
    settings: dict[str, Any] = {}
    seconds: float | None = None


class Selection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer of `fedwise.select`.

    Parameters
    ----------
    clients, k
        The federation and its size.
    loss, terms
        The minimised loss, and the four information terms in bits.
    std_error
        Standard error of the loss under the privacy noise; ``None`` where it is not known.
    interval
        Where the true loss lies (95%). With redraws of the noise it is corrected for the federation having
        been selected, so its middle is above `loss`. ``None`` where it is not known.
    method, status
        How it was searched, and what that proves: see `STATUS_SENTENCES`.
    evaluations, seconds, seed
        Work done. The same seed gives the same federation on any number of threads.
    chains, agreed
        Independent chains of an annealing search, and how many ended at this federation.
    certificate
        What the search proved, and what the noise leaves open.
    alternatives
        Distinct good federations met, best first.
    contributions
        What each member does to the loss.
    frequency, redraws
        How often each client was chosen when the noise was redrawn `redraws` times.
    trace
        (evaluations, best loss) pairs.
    sizes
        Best of each size, where a range was searched.
    constraints
        What the federation had to satisfy beside its size, by argument of `fedwise.select`.
    forecast
        Metrics the trained model would have, where they were asked for.
    targets
        Names of the targets it was chosen for.
    rehearsal
        What the training came to on artificial doubles, where it was rehearsed.
    flags
        What a reader must know: ``simulated``, ``not private``, flagged releases.
    alerts
        What is unusual about releases of the pool that passed its screen, and who took no seat for that.
    records
        Estimated number of records of the federation; the loss does not know it.
    """

    format: Literal["fedwise/selection/1"] = FORMAT
    clients: tuple[str, ...]
    k: int
    loss: float
    terms: Terms
    std_error: float | None
    method: str
    status: Status
    evaluations: int
    seconds: float
    seed: int
    certificate: Certificate
    alternatives: tuple[Alternative, ...] = ()
    contributions: tuple[Contribution, ...] = ()
    frequency: dict[str, float] = {}
    redraws: int = 0
    trace: tuple[tuple[int, float], ...] = ()
    chains: int = 0
    agreed: int = 0
    sizes: tuple[Point, ...] = ()
    forecast: tuple[ForecastValue, ...] = ()
    rehearsal: RehearsedSummary | None = None
    interval: tuple[float, float] | None = None
    constraints: dict[str, Any] = {}
    objective: str = "pfl"
    weights: Weights = Weights()
    estimator: str = ""
    pool: int = 0
    plan_digest: str | None = None
    targets: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    alerts: tuple[str, ...] = ()
    records: float | None = None
    version: str = __version__

    @property
    def sentence(self) -> str:
        """The status in words."""
        return STATUS_SENTENCES[self.status]

    @property
    def interval_text(self) -> str:
        """The interval in words; empty where it is not known, or no wider than a number."""
        if self.interval is None or self.interval[0] == self.interval[1]:
            return ""
        corrected = "corrected" if self.redraws else "not corrected"
        low, high = self.interval
        return f"likely within {low:.4f} to {high:.4f} (95%, {corrected} for having been selected)"

    @property
    def redrawn_text(self) -> str:
        """What redraws of the noise change, in words; empty where none were made."""
        found = self.certificate
        if found.redraw_changes is None or found.redraw_regret_bound is None:
            return ""
        members = members_changed(found.redraw_changes, self.k)
        part = "95%" if self.redraws >= 20 else "all"
        said = f"a redraw of the noise changes {members}"
        if found.redraw_changes == 0:
            return f"{said} ({self.redraws} redraws)"
        cost = f"raises the loss by at most {found.redraw_regret_bound:.2g}"
        return f"{said} and {cost} in {part} of {self.redraws} redraws"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    def encode(self) -> bytes:
        """Indented JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write as JSON; an existing file is kept unless `force`."""
        write_new(Path(path), self.encode(), force=force)

    @classmethod
    def load(cls, path: str | Path) -> Selection:
        """Read what `save` wrote."""
        data = read_bytes(Path(path), what="selection file", error=FedwiseError)
        return decode(data, cls, what=f"selection file '{path}'", error=FedwiseError)

    def rows(self) -> list[tuple[str, str]]:
        """Label and text of each line worth showing, in order."""
        lines = [
            ("federation", ", ".join(self.clients)),
            *(("records", f"about {n:,.0f}") for n in [self.records] if n is not None),
            ("loss", f"{self.loss:.6f}{_plus_minus(self.std_error)}"),
            *(("true loss", text) for text in [self.interval_text] if text),
            *(
                (name.replace("_", " "), f"{value:.6f} bits")
                for name, value in msgspec.to_builtins(self.terms).items()
            ),
            ("status", f"{self.status}: {self.sentence}"),
            ("proved", self.certificate.statement),
            *(("noise", text) for text in [self.redrawn_text] if text),
            ("left open", self.certificate.left_open),
            *(("the paper", line) for line in self.certificate.paper),
            *(("alternative", f"{', '.join(a.clients)}  (+{a.gap:.3g})") for a in self.alternatives[:3]),
        ]
        if self.frequency:
            chosen = ", ".join(f"{client} {self.frequency.get(client, 0.0):.0%}" for client in self.clients)
            lines.append(("chosen again", f"{chosen}  ({self.redraws} redraws of the noise)"))
        lines += [("forecast", str(found)) for found in self.forecast]
        if self.rehearsal is not None:
            lines.append(("rehearsal", self.rehearsal.verdict))
        lines.append(
            (
                "search",
                f"{self.method}, {self.evaluations:,} evaluations, {self.seconds:.2f} s, seed {self.seed}",
            )
        )
        lines += [("note", flag) for flag in self.flags]
        lines += [("alert", alert) for alert in self.alerts]
        return lines

    def __str__(self) -> str:
        return "\n".join(f"{label:<13}{text}" for label, text in self.rows())

    def __repr__(self) -> str:
        return f"Selection({', '.join(self.clients)}; loss {self.loss:.4f}, {self.status})"

    def _repr_html_(self) -> str:
        return html_table(self.rows())

    def to_frame(self) -> pl.DataFrame:
        """A row for each member: what it does to the loss, and how often it is chosen when the noise is redrawn."""
        parts = {part.client: part for part in self.contributions}
        return pl.DataFrame(
            [
                {
                    "client": client,
                    "leave_one_out": parts[client].leave_one_out if client in parts else None,
                    "shapley": parts[client].shapley if client in parts else None,
                    "chosen_again": self.frequency.get(client, 0.0) if self.frequency else None,
                }
                for client in self.clients
            ],
            schema={
                "client": pl.String,
                "leave_one_out": pl.Float64,
                "shapley": pl.Float64,
                "chosen_again": pl.Float64,
            },
        )

    def plot(self) -> Any:
        """What each member brings, or the loss by size, as an `altair.Chart`."""
        return plot(self)


def _plus_minus(error: float | None) -> str:
    return "" if error is None else f" ± {error:.2g}"
