"""Shortlist: who is asked again, and why. A public file, read by the coordinator and by every owner."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from ..errors import FedwiseError, ReleaseError
from ..files import decode, read_bytes, write_new
from ..planning import Plan
from .score import Score

FORMAT: Literal["fedwise/shortlist/1"] = "fedwise/shortlist/1"
_ASKED = {"yes": "asked again", "now": "asked now", "earlier": "asked earlier", "no": "not asked"}


class Standing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One client of the pool: whether it is asked again, and why.

    `share` is the share of redraws of the noise in which it belongs to the best federation, `epsilon` what it has
    spent so far.
    """

    client: str
    asked: bool
    share: float
    epsilon: float
    reason: str


class Wave(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of several waves in which a stage is asked: its number, how many there are, and whom it adds."""

    number: int
    of: int
    clients: tuple[str, ...]


class Shortlist(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who may still be in the best federation, and so is asked for the next stage.

    Make one with `fedwise.shortlist`.

    Attributes
    ----------
    stage, epsilon
        The stage that is asked next, and the total ε after it.
    clients
        Who is asked for the stage, in earlier waves or now.
    standings
        All clients of the pool with reasons, those of the largest share first.
    chance
        Stated chance that a member of the best federation is left out.
    regret, regret_after
        Mean loss above the best that a selection now, and one after the stage, has in redraws of the noise.
    wave
        Which wave of the stage this is, and whom it adds; not set where all are asked at once.
    score
        What scores, where the stage asks for a score; everybody is asked that who was not asked for the tables again.
    ahead
        Who was asked for the tables again ahead of the score.
    """

    format: Literal["fedwise/shortlist/1"] = FORMAT
    plan_digest: str
    schema_digest: str
    stage: int
    epsilon: float
    delta: float
    sizes: tuple[int, ...]
    clients: tuple[str, ...]
    chance: float
    bounded: bool
    redraws: int
    regret: float
    regret_after: float | None
    objective: str
    constraints: dict[str, Any]
    seed: int
    standings: tuple[Standing, ...]
    wave: Wave | msgspec.UnsetType = msgspec.UNSET  # not written where a stage is asked at once
    score: Score | msgspec.UnsetType = msgspec.UNSET  # not written where tables are asked
    ahead: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET  # as the score

    @property
    def added(self) -> tuple[str, ...]:
        """Clients that are asked now; the others on the list were asked in earlier waves."""
        return self.clients if self.wave is msgspec.UNSET else self.wave.clients

    @property
    def scored(self) -> Score | None:
        """What scores, where the stage asks for a score."""
        return None if self.score is msgspec.UNSET else self.score

    @property
    def _part(self) -> str:
        return "stage" if self.wave is msgspec.UNSET else "wave"

    def asks(self, client: str) -> str:
        """Whether a client is asked, in a word: ``yes`` or ``no``; of several waves ``now``, ``earlier`` or ``no``."""
        if client not in self.clients:
            return "no"
        if self.wave is msgspec.UNSET:
            return "yes"
        return "now" if client in self.wave.clients else "earlier"

    @property
    def complete(self) -> bool:
        """Whether no further wave of this stage follows."""
        return self.wave is msgspec.UNSET or self.wave.number >= self.wave.of or not self.wave.clients

    def admit(self, plan: Plan, *, stage: int, client: str) -> None:
        """Refuse a client that this shortlist does not ask for this stage of this plan.

        Raises
        ------
        ReleaseError
            It is for another plan or stage, or the client is not on it. Nothing is charged.
        """
        if self.plan_digest != plan.digest:
            raise ReleaseError(
                f"shortlist must be for plan {plan.digest[:12]}, got one for {self.plan_digest[:12]}; ask the "
                "coordinator for the shortlist of this plan"
            )
        if self.stage != stage:
            raise ReleaseError(
                f"shortlist must be for stage {stage}, got one for stage {self.stage}; answer with --stage {self.stage}"
            )
        if client not in self.clients:
            raise ReleaseError(
                f"client '{client}' must be on the shortlist to answer stage {stage}, and is not; nothing more is "
                "asked of it"
            )

    @property
    def out(self) -> tuple[str, ...]:
        """Clients that are not asked again."""
        return tuple(one.client for one in self.standings if not one.asked)

    @classmethod
    def load(cls, path: str | Path) -> Shortlist:
        """Read a ``shortlist.json``."""
        path = Path(path)
        data = read_bytes(path, what="shortlist file", error=FedwiseError)
        return decode(data, cls, what=f"shortlist file '{path}'", error=FedwiseError)

    def encode(self) -> bytes:
        """The shortlist as indented JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the shortlist as JSON."""
        write_new(Path(path), self.encode(), force=force)

    @property
    def headline(self) -> str:
        """Number, chance and expected loss, in three lines; of a score the first two."""
        lines = [
            f"Shortlist of {len(self.clients)} of {len(self.standings)} clients for stage {self.stage} "
            f"(total epsilon {self.epsilon:g}) of plan {self.plan_digest[:12]}"
            + (
                ""
                if self.wave is msgspec.UNSET or self.scored
                else f", wave {self.wave.number} of {self.wave.of}: {len(self.added)} are asked now"
            ),
            f"  {self.statement}",
        ]
        if self.scored is None:
            after = "" if self.regret_after is None else f", {self.regret_after:.4f} after this {self._part}"
            lines.append(f"  Expected loss above the best: {self.regret:.4f} now{after}.")
        return "\n".join(lines)

    def __str__(self) -> str:
        lines = [self.headline, ""]
        lines += [
            f"  {one.client:<20} {_ASKED[self.asks(one.client)]:<14} {one.reason}" for one in self.standings
        ]
        return "\n".join(lines)

    @property
    def statement(self) -> str:
        """What the elimination says of those it leaves out."""
        if self.scored:
            return "They are asked for one number, the sum of a score; nobody is left out by this stage."
        if not self.complete:
            return (
                f"If nobody else were asked, a member of the best federation would be left out with an estimated "
                f"chance of {self.chance:.0%}; further waves follow."
            )
        if self.bounded:
            return (
                f"The size was bounded: a member of the best federation is left out with an estimated chance of "
                f"{self.chance:.0%}."
            )
        return (
            f"A member of the best federation is left out with a chance of at most {self.chance:.0%}, by redraws of "
            "the noise."
        )
