"""The shipped schemas are the paper's discretisation, and the tasks' own."""

from __future__ import annotations

import pytest

from fedwise import data
from fedwise.data.tasks import TASKS
from fedwise.errors import SchemaError
from fedwise.schema.schema import Schema

PAPER_VARIABLES = {
    "income": "AGEP COW SCHL MAR OCCP POBP RELP WKHP RAC1P",
    "employment": "AGEP SCHL MAR RELP DIS CIT MIL NATIVITY RAC1P",
    "public_coverage": "AGEP SCHL MAR DIS CIT MIL NATIVITY PINCP RAC1P",
    "travel_time": "AGEP SCHL MAR RELP DIS CIT OCCP JWTR RAC1P",
    "mobility": "AGEP SCHL MAR RELP DIS CIT COW WKHP RAC1P",
}
PAPER_BINS = {
    "AGEP": (0, 18, 30, 45, 65, 100),
    "SCHL": (0, 16, 17, 21, 22, 23, 25),
    "WKHP": (-1, 0, 10, 20, 30, 39, 41, 50, 100),
    "OCCP": (0, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000),
    "POBP": (0, 60, 100, 200, 300, 310, 400, 500, 555),
    "PINCP": (-100000, 0, 15000, 30000, 50000, 75000, 100000, 200000, 1000000),
    "JWTR": (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 13),
}
LABELS = {
    "income": "PINCP_gt50k",
    "employment": "ESR_employed",
    "public_coverage": "PUBCOV_covered",
    "travel_time": "JWMNP_gt20",
    "mobility": "MIG_moved",
}


def test_every_task_has_a_schema() -> None:
    assert data.schemas() == sorted(TASKS)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_file_and_task_agree(name: str) -> None:
    shipped, built = data.schema(name), TASKS[name].schema()
    assert shipped == built
    assert shipped.digest == built.digest
    assert Schema.parse(built.to_toml()) == built


@pytest.mark.parametrize("name", sorted(TASKS))
def test_variables_and_bins_are_the_papers(name: str) -> None:
    schema = data.schema(name)
    assert " ".join(schema.columns[i].name for i in schema.features) == PAPER_VARIABLES[name]
    assert [schema.columns[i].name for i in schema.sensitive] == ["SEX"]
    target = schema.columns[schema.target]
    assert (target.name, target.levels) == (LABELS[name], (0, 1))
    for column in schema.columns:
        assert column.bins == PAPER_BINS.get(column.name), column.name


def test_model_treatment_follows_the_paper() -> None:
    for name in TASKS:
        for column in TASKS[name].schema("full").columns:
            scaled = column.name in {"AGEP", "WKHP", "PINCP", "JWMNP", "POVPIP"}
            dropped = column.name in {"OCCP", "POBP"}
            assert column.model == ("scaled" if scaled else "drop" if dropped else "one-hot"), column.name


def test_unknown_schema_suggests_the_nearest() -> None:
    with pytest.raises(SchemaError, match="did you mean 'mobility'"):
        data.schema("mobilty")
