"""Tasks as values: thresholds, adapted schemas, names."""

from __future__ import annotations

import pytest

from fedwise.data import pums
from fedwise.data.tasks import TASKS, find
from fedwise.errors import FedwiseError, SchemaError


def test_names_are_found_in_any_spelling() -> None:
    for spelling in ("public_coverage", "public-coverage", "ACSPublicCoverage", "PublicCoverage"):
        assert find(spelling) is TASKS["public_coverage"]
    with pytest.raises(FedwiseError, match="did you mean 'travel_time'"):
        find("traveltime")


def test_threshold_renames_the_label() -> None:
    income = TASKS["income"]
    assert income.at() is income
    assert income.at(year=2018) is income
    later = income.at(year=2024)
    assert (later.target, later.label) == ("PINCP > 70000", "PINCP_gt70k")
    assert income.at(threshold=50_000, year=2024) == income
    assert TASKS["travel_time"].at(threshold=30).label == "JWMNP_gt30"
    assert later.schema().names[-1] == "PINCP_gt70k"


def test_threshold_is_refused_where_there_is_none() -> None:
    with pytest.raises(FedwiseError, match="no threshold to set"):
        TASKS["mobility"].at(threshold=3)
    with pytest.raises(FedwiseError, match="above 0, got -1"):
        TASKS["income"].at(threshold=-1)
    assert TASKS["employment"].at(year=2024) is TASKS["employment"]


def test_schema_adapts_to_the_columns_at_hand() -> None:
    income = TASKS["income"]
    columns = ["AGEP", "MAR2", "RELSHIPP", "white", "WKHP", "SEX"]
    assert income.schema(columns=columns).names == (
        "AGEP",
        "MAR2",
        "RELP",
        "WKHP",
        "white",
        "SEX",
        "PINCP_gt50k",
    )
    notes = income.notes(columns=columns)
    assert "MAR is not in the data: MAR2 stands in" in notes
    assert "OCCP is not in the data: left out" in notes
    assert not any(note.startswith("RELP") for note in notes)
    with pytest.raises(FedwiseError, match="at least one feature"):
        income.schema(columns=["SEX"])


def test_filters_stay_in_the_schema_where_it_can_check_them() -> None:
    assert TASKS["travel_time"].schema().where == ("AGEP > 16",)
    assert TASKS["mobility"].schema(columns=["SCHL", "SEX"]).where == ()


def test_full_lists_hold_the_papers_features_but_no_places() -> None:
    for task in TASKS.values():
        extra = {"MIL", "NATIVITY"} if task.name == "travel_time" else set()
        assert set(task.paper) - extra <= set(task.full), task.name
        assert not {"ST", "PUMA", "POWPUMA", "SEX"} & set(task.full)
    with pytest.raises(FedwiseError, match="'paper' or 'full'"):
        TASKS["income"].schema("all")  # type: ignore[arg-type]


def test_recodes_land_in_the_older_domain() -> None:
    relp = pums.column("RELP").levels
    assert relp is not None
    assert set(pums.RECODES["RELSHIPP"].values()) == set(relp) - {11}
    assert sorted(pums.RECODES["JWTRNS"].values()) == list(range(1, 13))
    with pytest.raises(SchemaError, match="did you mean 'SCHL'"):
        pums.column("SCHOL")
