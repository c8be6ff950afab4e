"""Task: a prediction problem on census person records, as a value. Filter, target, features, schema.

The tasks are those of folktables (Ding et al. 2021). Each has two feature lists: ``paper``, the variables
of the paper's tables, and ``full``, folktables' own list without the columns that name a place (ST, PUMA,
POWPUMA), which are constant or nearly so within a client.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Literal

from ..errors import FedwiseError, nearest
from ..schema.rule import Rule
from ..schema.schema import Column, Role, Schema
from . import pums

Features = Literal["paper", "full"]


@dataclass(frozen=True)
class Task:
    """A prediction problem on PUMS columns.

    Parameters
    ----------
    name
        The task's name, also of its shipped schema.
    filter
        Rules a record must satisfy to belong to the task.
    target
        The rule that makes the label: 1 where it holds, 0 where it does not or the value is missing.
    label
        Name of the label column.
    paper, full
        Feature names: those of the paper's tables, and all that folktables lists.
    missing
        Features that are empty for some records of the task (not in universe): these get a level ``other``.
    domains
        Narrower domains than the dictionary's, where the filter rules codes out.
    year_thresholds
        Thresholds of the target that take over from a survey year on.
    """

    name: str
    filter: tuple[str, ...]
    target: str
    label: str
    paper: tuple[str, ...]
    full: tuple[str, ...]
    missing: frozenset[str] = frozenset()
    domains: dict[str, dict[str, object]] = field(default_factory=dict)
    year_thresholds: tuple[tuple[int, int], ...] = ()

    def at(self, *, threshold: int | None = None, year: int | None = None) -> Task:
        """The task with another threshold of its target: ``income.at(threshold=70000)``.

        The label is named after the threshold (``PINCP_gt70k``), so that two definitions never mix. With
        `year` alone the threshold is the one usual for that year.
        """
        if threshold is None:
            usual = [value for since, value in self.year_thresholds if year is not None and year >= since]
            if not usual:
                return self
            threshold = usual[-1]
        comparison = Rule.parse(self.target).comparisons[0]
        if comparison.op != ">" or "_gt" not in self.label:
            raise FedwiseError(f"task '{self.name}' has no threshold to set: its target is '{self.target}'")
        if threshold <= 0:
            raise FedwiseError(f"threshold must be above 0, got {threshold}")
        shown = f"{threshold // 1000}k" if threshold % 1000 == 0 else str(threshold)
        return replace(
            self, target=f"{comparison.column} > {threshold}", label=f"{comparison.column}_gt{shown}"
        )

    def features(self, features: Features = "paper") -> tuple[str, ...]:
        """Names of one of the two feature lists."""
        if features not in ("paper", "full"):
            raise FedwiseError(f"features must be 'paper' or 'full', got '{features}'")
        return self.paper if features == "paper" else self.full

    def schema(self, features: Features = "paper", *, columns: Collection[str] | None = None) -> Schema:
        """The public schema of the task.

        Parameters
        ----------
        features
            ``paper`` or ``full``.
        columns
            Names the data has. A feature it lacks is replaced by its stand-in (`pums.STAND_INS`) or left
            out; `notes` says which.
        """
        chosen = [name for _, name in self._resolve(features, columns) if name]
        if not chosen:
            raise FedwiseError(f"data must hold at least one feature of task '{self.name}', got none of them")
        inside = {*chosen, "SEX", self.label}
        return Schema(
            columns=(
                *(self._column(name) for name in chosen),
                pums.column("SEX"),
                Column(name=self.label, role=Role.TARGET, levels=(0, 1)),
            ),
            name=self.name if features == "paper" else f"{self.name}_full",
            # A rule on a column outside the schema cannot be checked there: the loader applies it.
            where=tuple(rule for rule in self.filter if set(Rule.parse(rule).columns) <= inside),
        )

    def notes(self, features: Features = "paper", *, columns: Collection[str]) -> tuple[str, ...]:
        """What `schema` replaces or leaves out for data with these columns, one sentence each."""
        said = []
        for wanted, got in self._resolve(features, columns):
            if got is None:
                said.append(f"{wanted} is not in the data: left out")
            elif got != wanted:
                said.append(f"{wanted} is not in the data: {got} stands in")
        return tuple(said)

    def _resolve(self, features: Features, columns: Collection[str] | None) -> list[tuple[str, str | None]]:
        wanted = self.features(features)
        if columns is None:
            return [(name, name) for name in wanted]
        present = set(columns) | {old for new, old in pums.RENAMED.items() if new in columns}
        resolved = []
        for name in wanted:
            options = (name, *pums.STAND_INS.get(name, ()))
            resolved.append((name, next((option for option in options if option in present), None)))
        return resolved

    def _column(self, name: str) -> Column:
        changes: dict[str, object] = dict(self.domains.get(name, {}))
        if name in self.missing:
            changes["missing"] = "other"
        return pums.column(name, **changes)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_INCOME = _words("AGEP COW SCHL MAR OCCP POBP RELP WKHP RAC1P")

#: The tasks by name.
TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            name="income",
            filter=("AGEP > 16", "PINCP > 100", "WKHP > 0"),
            target="PINCP > 50000",
            label="PINCP_gt50k",
            paper=_INCOME,
            full=_INCOME,
            # Code 9 is "has not worked for five years", which WKHP > 0 rules out.
            domains={"COW": {"levels": tuple(range(1, 9))}},
            # In 2024 dollars 70,000 gives a positive rate near that of 50,000 in 2018.
            year_thresholds=((2024, 70_000),),
        ),
        Task(
            name="employment",
            filter=("16 < AGEP < 90",),
            target="ESR == 1",
            label="ESR_employed",
            paper=_words("AGEP SCHL MAR RELP DIS CIT MIL NATIVITY RAC1P"),
            full=_words("AGEP SCHL MAR RELP DIS ESP CIT MIG MIL ANC NATIVITY DEAR DEYE DREM RAC1P"),
            missing=frozenset({"ESP"}),
        ),
        Task(
            name="public_coverage",
            filter=("AGEP < 65", "PINCP <= 30000"),
            target="PUBCOV == 1",
            label="PUBCOV_covered",
            paper=_words("AGEP SCHL MAR DIS CIT MIL NATIVITY PINCP RAC1P"),
            full=_words("AGEP SCHL MAR DIS ESP CIT MIG MIL ANC NATIVITY DEAR DEYE DREM PINCP ESR FER RAC1P"),
            # PINCP is asked from age 15, ESR from 16, MIL from 17, FER of women up to 50.
            missing=frozenset({"MIL", "ESP", "ESR", "FER"}),
            domains={"FER": {"unknown": "other"}},
        ),
        Task(
            name="travel_time",
            filter=("AGEP > 16", "ESR == 1"),
            # Missing for people who work at home: not above 20 minutes.
            target="JWMNP > 20",
            label="JWMNP_gt20",
            paper=_words("AGEP SCHL MAR RELP DIS CIT OCCP JWTR RAC1P"),
            full=_words("AGEP SCHL MAR DIS ESP MIG RELP RAC1P CIT OCCP JWTR POVPIP"),
            missing=frozenset({"ESP", "POVPIP"}),
        ),
        Task(
            name="mobility",
            filter=("18 < AGEP < 35",),
            # MIG 1 is "same house as a year ago". folktables predicts staying; the label is its complement.
            target="MIG > 1",
            label="MIG_moved",
            paper=_words("AGEP SCHL MAR RELP DIS CIT COW WKHP RAC1P"),
            full=_words(
                "AGEP SCHL MAR DIS ESP CIT MIL ANC NATIVITY RELP DEAR DEYE DREM RAC1P GCL COW ESR WKHP "
                "JWMNP PINCP"
            ),
            missing=frozenset({"COW", "WKHP", "ESP", "GCL", "JWMNP"}),
            domains={"PINCP": {"unknown": "other"}},
        ),
    )
}


def find(name: str | Task) -> Task:
    """The task called `name` (dashes, case and the prefix ``ACS`` do not matter), or the task itself.

    Raises
    ------
    FedwiseError
        No such task; the message suggests the nearest.
    """
    if isinstance(name, Task):
        return name
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removeprefix("ACS")).replace("-", "_").lower()
    if plain not in TASKS:
        raise FedwiseError(f"task must be one of the census tasks, got '{name}'{nearest(plain, TASKS)}")
    return TASKS[plain]
