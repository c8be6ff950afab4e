"""Card: what a client's noisy tables say about the quality of its records, and what they cannot say.

Everything is computed from released tables, so it costs no further privacy. A card is a suspicion with error bars
against the other clients of the pool; a majority of them is taken to be honest. See docs/theory/quality.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..deferred import Deferred
from ..errors import FedwiseError, PoolError
from ..schema.schema import Schema
from .attenuation import Shares
from .outliers import LEAST_CLIENTS
from .pool import Pool
from .population import lacking, shifts
from .symptoms import EFFECTS, FREEDOM, Symptom, symptoms

if TYPE_CHECKING:
    from scipy import special
else:
    special = Deferred("scipy.special")

#: Nominal chance that a pool of honest clients has any suspect, over all clients and entries together.
#: docs/theory/quality.md has the measured rates.
POOL_FALSE_ALARM = 0.01
#: Nominal chance that an honest client is in doubt: a lower bar than a suspect's, for those who choose a few of many
#: and lose little by leaving out somebody honest.
CLIENT_FALSE_DOUBT = 0.15
#: Power below which nothing found means nothing.
ENOUGH_POWER = 0.8
#: What each entry looks for, at the size whose power is stated.
_STATED = {
    "label_noise": f"{EFFECTS['label_noise']:.0%} random labels",
    "feature_noise": f"{EFFECTS['feature_noise']:.0%} random feature values",
    "label_bias": f"a group's label rate {100 * EFFECTS['label_bias']:.0f} points off",
    "repeated": f"every record {EFFECTS['repeated']:.0f} times",
    "shifted": "",
    "size": "",
    "lacking": "",
}
#: A pool larger than this takes seconds to judge.
MOST_JUDGED = 200
#: Entries that state a fact and accuse nobody.
FACTS = ("shifted", "size", "lacking")
#: Beyond this many standard errors a population is called unlike the others'.
_UNLIKE = 4.0


@dataclass(frozen=True)
class Entry:
    """One line of a card.

    Parameters
    ----------
    kind
        ``label_noise`` (share of labels that look random), ``label_bias`` (points by which a group's label rate
        is off), ``feature_noise`` (share of feature values that look random) or ``repeated`` (effective number of
        independent records); and facts that accuse nobody: ``shifted`` (how far the marginals are from the
        pool's), ``size`` (the estimated number of records; z is that number over its noise) and, where it is so,
        ``lacking`` (a class of which there are no more records than noise; z is how far it is short of the pool's).
    about
        The sensitive attribute of a bias, the target of a lacking class; else empty.
    value, error
        The estimate and its standard error: noise, sampling and honest differences between clients.
    z, p
        Distance from the other clients in standard errors, and the chance that an honest client is as far out.
    power
        Chance that the effect stated in `stated` would have made this entry suspect.
    suspect
        Whether it is, at the nominal level `POOL_FALSE_ALARM` for the whole pool (Holm).
    limited
        What limits the power: ``noise`` or ``differences``.
    details
        The features, the group or the classes it is about.
    narrows
        Of a bias: whether the difference between the groups is smaller here than in the pool.
    """

    kind: str
    about: str
    value: float
    error: float
    z: float
    p: float
    power: float
    suspect: bool
    limited: str
    details: tuple[str, ...] = ()
    narrows: bool = False

    @property
    def stated(self) -> str:
        """The effect that `power` is about."""
        return _STATED[self.kind]

    @property
    def telling(self) -> bool:
        """Whether nothing found means something."""
        return self.power >= ENOUGH_POWER

    @property
    def accuses(self) -> bool:
        """Whether the entry can make a client suspect; else it states a fact."""
        return self.kind not in FACTS

    def __str__(self) -> str:
        if self.kind == "shifted":
            return f"the population differs from the others', most in {' and '.join(self.details)}; z = {self.z:.1f}"
        if self.kind == "size":
            return f"about {self.value:,.0f} records, {self.z:.0f} times the noise of that number"
        if self.kind == "lacking":
            classes = (
                f"class{'' if len(self.details) == 1 else 'es'} {', '.join(self.details)} of {self.about}"
            )
            return f"no more records of {classes} than noise; z = {self.z:.1f}"
        if self.kind == "label_noise":
            text = f"about {min(max(self.value, 0.0), 1.0):.0%} of the labels look random"
        elif self.kind == "feature_noise" and self.details and self.z < 4:
            # All features together are not unusual: one of them made the entry suspect.
            return f"the values of {', '.join(self.details)} look random; p = {self.p:.1g}"
        elif self.kind == "feature_noise":
            which = f" ({', '.join(self.details)})" if self.details else ""
            text = f"about {min(max(self.value, 0.0), 1.0):.0%} of the feature values look random{which}"
        elif self.kind == "label_bias":
            way = "above" if self.value > 0 else "below"
            text = (
                f"the label rate of {self.about}={self.details[0]} is {abs(100 * self.value):.0f} points {way} "
                "what other clients have"
            )
        else:
            text = f"the tables vary like those of about {self.value:,.0f} independent records"
        return f"{text}; z = {self.z:.1f}"


@dataclass(frozen=True)
class Card:
    """The quality of one client's records, as far as its noisy tables tell.

    Parameters
    ----------
    client
        Name.
    records
        Estimated number of records.
    entries
        The lines; empty where the pool is too small to compare.
    verdict
        One sentence.
    known
        Whether the number of records can be told from 0. If not, the tables hold no more than noise.
    """

    client: str
    records: float
    entries: tuple[Entry, ...]
    verdict: str
    known: bool = True

    @property
    def suspect(self) -> bool:
        """Whether any entry is."""
        return any(entry.suspect for entry in self.entries)

    @property
    def lacks(self) -> tuple[Entry, ...]:
        """Classes of the target that its tables do not show, though the pool's share of them would be seen."""
        return tuple(entry for entry in self.entries if entry.kind == "lacking")

    @property
    def p(self) -> float:
        """Nominal chance that an honest client is as unusual in any entry (Bonferroni)."""
        found = [entry.p for entry in self.entries if entry.accuses]
        return min(1.0, len(found) * min(found)) if found else 1.0

    @property
    def score(self) -> float:
        """One number for all entries, −log₁₀ p: 2 is reached by one honest client in a hundred. Larger is worse."""
        return 0.0 - float(np.log10(max(self.p, 1e-300)))

    @property
    def doubt(self) -> float:
        """As `p`, without a bias that makes the difference between groups smaller than the pool's.

        A place where the groups are more alike than elsewhere is what a search for fair federations looks for.
        """
        found = [1.0 if entry.narrows else entry.p for entry in self.entries if entry.accuses]
        return min(1.0, len(found) * min(found)) if found else 1.0

    @property
    def doubtful(self) -> bool:
        """Whether `doubt` is at most `CLIENT_FALSE_DOUBT`; every suspect is doubtful."""
        return self.suspect or self.doubt <= CLIENT_FALSE_DOUBT


def quality(pool: Pool) -> dict[str, Card]:
    """A card for each client, from the releases alone: post-processing, no further privacy cost.

    Noise in labels and features, labels biased against a group, and repeated records are looked for, each against
    the other clients of the pool. The test has the nominal level `POOL_FALSE_ALARM` for the whole pool; measured rates
    are in docs/theory/quality.md. Shifted populations, sizes and lacking classes are stated as facts.

    Raises
    ------
    PoolError
        The pool has no client.
    """
    if len(pool) == 0:
        raise PoolError("pool must hold at least one release; add release files")
    schema = pool.plan.schema
    shares = Shares.of(pool.matrix, pool.plan.layout, pool.sigmas)
    if shares.known.sum() < LEAST_CLIENTS:
        few = f"cannot tell: fewer than {LEAST_CLIENTS} clients of known size to compare with"
        return {
            name: Card(name, float(shares.sizes[i]), (), few, bool(shares.known[i]))
            for i, name in enumerate(pool.clients)
        }
    found = symptoms(shares, schema)
    p = np.array([symptom.p for symptom in found])
    p[:, ~shares.known] = 1.0
    suspect = holm(p, POOL_FALSE_ALARM)
    facts = _facts(shares, schema)
    cards = {}
    for i, name in enumerate(pool.clients):
        known = bool(shares.known[i])
        entries = [
            _entry(one, i, suspect=bool(suspect[k, i]), known=known, tests=p.size)
            for k, one in enumerate(found)
        ]
        entries += facts[i]
        cards[name] = Card(
            name, float(shares.sizes[i]), tuple(entries), _verdict(entries, known=known), known
        )
    return cards


def quick_quality(pool: Pool) -> dict[str, Card] | None:
    """The cards where they take about a second; ``None`` for large pools, exact counts and several targets."""
    if len(pool) > MOST_JUDGED or not pool.private:
        return None
    try:
        return quality(pool)
    except FedwiseError:
        return None


def _facts(shares: Shares, schema: Schema) -> list[list[Entry]]:
    """For each client, how far its population is off, its size against the noise, and the classes it lacks."""
    value, unsure, z, details = shifts(shares, schema)
    sizes, errors = shares.sizes.tolist(), shares.total_errors.tolist()
    absent = lacking(shares, schema)
    found = []
    for i, names in enumerate(details):
        shift, unsure_by = float(value[i]), float(unsure[i])
        against = sizes[i] / errors[i] if errors[i] else sizes[i]
        found.append(
            [
                Entry("shifted", "", shift, unsure_by, float(z[i]), 1.0, 1.0, False, "differences", names),
                Entry("size", "", sizes[i], errors[i], against, 1.0, 1.0, False, "noise"),
                *(
                    Entry(
                        "lacking",
                        one.target,
                        one.records,
                        one.error,
                        one.z,
                        1.0,
                        1.0,
                        False,
                        "noise",
                        one.classes,
                    )
                    for one in absent[i]
                ),
            ]
        )
    return found


def holm(p: npt.NDArray[np.float64], level: float) -> npt.NDArray[np.bool_]:
    """Which tests are significant, so that a false one is among them with chance `level` at most."""
    order = np.argsort(p, axis=None)
    steps = level / np.arange(p.size, 0, -1)
    passed = np.logical_and.accumulate(p.ravel()[order] <= steps)
    found = np.zeros(p.size, dtype=np.bool_)
    found[order] = passed
    return found.reshape(p.shape)


def _entry(symptom: Symptom, i: int, *, suspect: bool, known: bool, tests: int) -> Entry:
    critical = -special.stdtrit(FREEDOM[symptom.kind], POOL_FALSE_ALARM / (tests * symptom.tests))
    reach = float(symptom.reach[i]) if known else 0.0
    return Entry(
        symptom.kind,
        symptom.about,
        float(symptom.value[i]),
        float(symptom.error[i]),
        float(symptom.z[i]),
        float(symptom.p[i]) if known else 1.0,
        float(special.ndtr(reach - critical)),
        suspect,
        "noise" if symptom.noisy[i] or not known else "differences",
        symptom.details[i],
        bool(symptom.narrows[i]),
    )


def _verdict(entries: Sequence[Entry], *, known: bool) -> str:
    """What is suspect, else what could not have been seen, else that nothing is unusual; then what is a fact."""
    suspects = [entry for entry in entries if entry.suspect]
    if suspects:
        return "; ".join(str(entry) for entry in suspects)
    shifted = next((e for e in entries if e.kind == "shifted" and e.z > _UNLIKE and known), None)
    facts = [
        *([] if shifted is None else [shifted]),
        *(entry for entry in entries if entry.kind == "lacking"),
    ]
    fact = "".join(f"; {one}" for one in facts)
    judged = [entry for entry in entries if entry.accuses]
    blind = [entry for entry in judged if not entry.telling]
    if not blind:
        return f"nothing unusual{fact}"
    hidden = ", ".join(dict.fromkeys(entry.stated for entry in blind))
    why = "at this ε" if any(entry.limited == "noise" for entry in blind) else "among clients this different"
    if len(blind) == len(judged):
        return f"cannot tell {why}: {hidden} would not be seen{fact}"
    seen = ", ".join(dict.fromkeys(entry.stated for entry in judged if entry.telling))
    return f"no sign of {seen}; cannot tell {why}: {hidden}{fact}"
