"""Certificate: what the search proved about a selection, and what the noise leaves open.

Two doubts are kept apart, and people read them under two headings, *proved* and *left open*. Proved is what the
search did: whether a federation with a lower *estimated* loss exists. Left open is what nobody can see through
the noise: the chance that some single swap is *truly* better, and how much better (`search.doubt`).

The paper's two bounds are filled in on request (`fedwise.paper_bounds`). Their assumptions hardly ever hold at
ε = 1, so they are shown with what is not met in front, and a bound that excludes nothing is not shown as a number.
"""

from __future__ import annotations

import msgspec

from .notebook import html_table

_NOTHING = "says nothing here"


class Assumption(msgspec.Struct, frozen=True):
    """Something the paper's bounds rest on, whether it holds here, and what was found."""

    text: str
    holds: bool
    found: str


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """What is proved about a selection, and what is left open.

    Parameters
    ----------
    statement
        What the search proves, in one sentence.
    noise_statement
        What the noise leaves open, in one sentence. Show `left_open`, which also knows files of 0.1.0.
    sigma
        Standard error of the federation's loss under the noise; ``None`` where unknown.
    gap, best_swap
        Loss of the best swap neighbour less the selection's loss, and who leaves and joins in that swap.
    neighbour_error, neighbour_chance
        Standard deviation of that difference, and the chance that this one swap is truly better.
    swap_chance
        Chance that some single swap is truly better.
    regret, regret_bound
        Expected true loss above the best swap (0 where none is better), and what it stays below with a chance of 90%.
    swaps
        Swaps that were compared.
    redraw_changes
        Members that the search replaces when the noise is drawn again, on average over redraws.
    redraw_regret, redraw_regret_bound
        By how much the federations chosen under redrawn noise are worse than this one by the estimates: on average,
        and in 95% of the redraws at most (with fewer than 20 of them: in all).
    local_bound
        The paper's bound on `neighbour_chance`; this and all below only on request.
    expected_sup
        E‖ξ‖∞ by simulation: an estimate, not a proof.
    mu, global_bound
        The paper: the selection is within `mu` of the true best, except with probability `global_bound`.
    loss_spread
        Largest less smallest estimated loss over sampled federations: a `mu` beyond it excludes nothing.
    assumptions
        What the paper's bounds rest on.
    """

    statement: str
    noise_statement: str
    sigma: float | None = None
    gap: float | None = None
    local_bound: float | None = None
    neighbour_error: float | None = None
    neighbour_chance: float | None = None
    expected_sup: float | None = None
    mu: float | None = None
    global_bound: float | None = None
    assumptions: tuple[Assumption, ...] = ()
    best_swap: tuple[str, str] | None = None
    swap_chance: float | None = None
    regret: float | None = None
    regret_bound: float | None = None
    swaps: int = 0
    loss_spread: float | None = None
    redraw_changes: float | None = None
    redraw_regret: float | None = None
    redraw_regret_bound: float | None = None

    @property
    def sound(self) -> bool:
        """Whether every assumption of the paper's bounds holds."""
        return all(assumption.holds for assumption in self.assumptions)

    @property
    def left_open(self) -> str:
        """What the noise leaves open, in words."""
        # Version 0.1.0 wrote the paper's bounds into this sentence, whether or not they said anything.
        if self.mu and self.loss_spread is None:
            return "Not measured by the version that made this selection; select again."
        return self.noise_statement

    @property
    def paper(self) -> tuple[str, ...]:
        """The paper's bounds in sentences, what is not met in front; empty where they were not asked for."""
        if self.mu is None and self.local_bound is None:
            return ()
        broken = [f"{a.text} ({a.found})" for a in self.assumptions if not a.holds]
        lines = [f"assumptions not met: {'; '.join(broken)}"] if broken else []
        if self.local_bound is not None:
            lines.append(f"local bound: {self._local()}")
        if self.mu is not None:
            lines.append(f"global bound: {self._global()}")
        return tuple(lines)

    def _local(self) -> str:
        # Noise that is as likely up as down turns a gap with a chance of at most one half: the bound's own premise.
        if self.local_bound is None or self.local_bound >= 0.5:
            return f"{_NOTHING}: it allows for a chance of one half, which no swap that looks worse exceeds"
        return f"the best single swap is truly better with probability at most {self.local_bound:.2g}"

    def _global(self) -> str:
        if self.mu is None or self.global_bound is None or self.global_bound >= 1.0:
            return _NOTHING
        if self.mu == 0.0:
            return "the tables carry no noise: the order of losses is exact"
        if self.loss_spread is None:
            return f"{_NOTHING}: the spread of the losses it would be compared with is not known"
        if self.mu >= self.loss_spread:
            return f"{_NOTHING}: it allows for more than the losses of federations differ"
        return f"the true loss is within {self.mu:.4g} of the best, except with probability {self.global_bound:.2g}"

    def __repr__(self) -> str:
        return f"Certificate({self.statement})"

    def _repr_html_(self) -> str:
        rows = [
            ("proved", self.statement),
            ("left open", self.left_open),
            *(("the paper", line) for line in self.paper),
        ]
        return html_table([row for row in rows if row[1]])

    def __str__(self) -> str:
        return "\n".join(line for line in (self.statement, self.left_open, *self.paper) if line)


def in_words(chance: float) -> str:
    """A simulated probability, rounded to what it can bear: steps of 5%, and no certainty.

    >>> in_words(0.583), in_words(0.01), in_words(0.98)
    ('about 60%', 'below 5%', 'above 95%')
    """
    if chance < 0.05:
        return "below 5%"
    if chance > 0.95:
        return "above 95%"
    return f"about {5 * round(20 * chance)}%"


def members_changed(mean: float, k: int) -> str:
    """How many of k members a redraw of the noise replaces, in words.

    >>> members_changed(0.0, 5), members_changed(0.3, 5), members_changed(1.2, 5)
    ('none of the 5 members', 'fewer than 1 of 5 members on average', '1 of 5 members on average')
    """
    if mean == 0:
        return f"none of the {k} members"
    return f"{'fewer than 1' if mean < 0.95 else round(mean)} of {k} members on average"


def noise_sentence(swap_chance: float, regret: float, regret_bound: float) -> str:
    """What the noise leaves open, as a sentence."""
    start = f"Some single swap is truly better with a chance {_of(in_words(swap_chance))}"
    if regret < 5e-7:
        return f"{start}; nothing is lost by keeping this federation, as far as one swap goes."
    most = f"at most {regret_bound:.2g}" if regret_bound >= 5e-7 else "nothing"
    return f"{start}; the expected loss above the best swap is {regret:.2g}, with a chance of 90% {most}."


def _of(words: str) -> str:
    return f"of {words}" if words.startswith("about") else words
