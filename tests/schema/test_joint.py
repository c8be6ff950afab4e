"""Joint tables: what a plan asks in place of pairs, and how they sum to the pairs."""

from __future__ import annotations

import math
import tracemalloc

import msgspec
import numpy as np
import polars as pl
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant

import fedwise as fw
from fedwise.errors import PlanError, SchemaError
from fedwise.owner.tables import count
from fedwise.planning import Plan
from fedwise.schema.joint import JOINT, MAX_JOINT, with_joint, without_joint

SCHEMA = fw.Schema(
    name="joint",
    columns=(
        fw.Column("label", fw.Role.TARGET, levels=("no", "yes")),
        fw.Column("sex", fw.Role.SENSITIVE, levels=("f", "m")),
        fw.Column("age", fw.Role.FEATURE, levels=(0, 1, 2)),
        fw.Column("race", fw.Role.SENSITIVE, levels=("a", "b", "c")),
        fw.Column("job", fw.Role.FEATURE, levels=(0, 1, 2, 3)),
    ),
)
#: One sensitive attribute, after the features and the target.
SIMPLE = fw.Schema(
    name="simple", columns=(SCHEMA.columns[2], SCHEMA.columns[4], SCHEMA.columns[0], SCHEMA.columns[1])
)


def people(schema: fw.Schema, rows: int = 400, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    return pl.DataFrame({column.name: rng.choice(np.array(column.levels), rows) for column in schema.columns})


@pytest.mark.parametrize("schema", [SCHEMA, SIMPLE], ids=["two attributes", "one"])
def test_joint_tables_sum_to_the_pairs(schema: fw.Schema) -> None:
    pairs, joint = fw.plan(schema), fw.plan(schema, joint=True)
    rows = people(schema)
    assert joint.folding is not None
    assert joint.folding.layout == pairs.layout
    asked = count(joint.schema.encode(rows), joint.layout).exact
    np.testing.assert_array_equal(joint.folding.cells(asked), count(schema.encode(rows), pairs.layout).exact)
    both = np.stack([asked, 2 * asked])
    np.testing.assert_array_equal(joint.folding.cells(both)[1], 2 * joint.folding.cells(asked))


def test_many_levels_are_summed_without_large_matrices() -> None:
    wide = [fw.Column(name, fw.Role.FEATURE, levels=tuple(range(150))) for name in ("a", "b")]
    schema = fw.Schema(name="wide", columns=(SCHEMA.columns[1], *wide, SCHEMA.columns[0]))
    pairs, joint = fw.plan(schema), fw.plan(schema, joint=True)
    rows = people(schema)
    asked = count(joint.schema.encode(rows), joint.layout).exact
    tracemalloc.start()
    np.testing.assert_array_equal(joint.folding.cells(asked), count(schema.encode(rows), pairs.layout).exact)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 50 * asked.nbytes


def test_the_plan_says_what_is_joined() -> None:
    assert "is one column of all combinations of sex, race, label" in str(fw.plan(SCHEMA, joint=True))


def test_two_groups_and_two_classes_cost_no_cell_more() -> None:
    pairs, joint = fw.plan(SIMPLE), fw.plan(SIMPLE, joint=True)
    assert joint.layout.cells == pairs.layout.cells
    assert len(joint.tables) == len(pairs.tables) - len(SIMPLE.features)


def test_a_joint_table_has_the_precision_of_those_it_replaces() -> None:
    pairs, joint = fw.plan(SIMPLE, delta=1e-6), fw.plan(SIMPLE, delta=1e-6, joint=True)
    assert np.sum(joint.sigmas**-2.0) == pytest.approx(np.sum(pairs.sigmas**-2.0), rel=1e-3)
    at = {table.pair: table.sigma for table in joint.tables}
    old = {table.pair: table.sigma for table in pairs.tables}
    together = (old["age", "label"] ** -2 + old["age", "sex"] ** -2) ** -0.5
    assert at["age", JOINT] == pytest.approx(together, rel=1e-3)
    # Each cell of a pair is the sum of two counts.
    read = {table.pair: table.sigma for table in joint.as_pairs.tables}
    assert read["age", "sex"] == pytest.approx(math.sqrt(2) * at["age", JOINT])
    assert read["age", "job"] == at["age", "job"]


def test_the_promise_holds_in_an_independent_accountant() -> None:
    joint = fw.plan(SCHEMA, epsilon=0.7, delta=1e-5, joint=True)
    accountant = PLDAccountant()
    accountant.compose(GaussianDpEvent(1.0 / math.sqrt(float(np.sum(joint.sigmas**-2.0)))))
    assert accountant.get_epsilon(1e-5) <= 0.7


def test_a_plan_is_read_back_and_its_own_epsilon_keeps_the_tables() -> None:
    from fedwise.owner.question import own_plan

    joint = fw.plan(SCHEMA, joint=True, stages=[0.2, 1.0])
    again = Plan.decode(joint.encode())
    assert again == joint
    assert again.as_pairs.stage(1).sigmas == pytest.approx(joint.folding.scales(joint.stage(1).sigmas))
    less = own_plan(joint, 0.5)
    assert [table.pair for table in less.tables] == [table.pair for table in joint.tables]


def test_a_doctored_joint_column_is_refused() -> None:
    joint = fw.plan(SIMPLE, joint=True)
    column = msgspec.structs.replace(joint.schema.columns[-1], cross=SIMPLE.columns[:2])
    schema = msgspec.structs.replace(joint.schema, columns=(*SIMPLE.columns, column))
    tables = tuple(
        msgspec.structs.replace(t, shape=(t.shape[0], column.size)) if t.pair[1] == JOINT else t
        for t in joint.tables
    )
    wrong = msgspec.structs.replace(
        joint, schema=schema, schema_digest=schema.digest, tables=tables, digest=""
    )
    wrong = msgspec.structs.replace(wrong, digest=wrong.compute_digest())
    with pytest.raises(PlanError, match="joint tables that are not its schema's"):
        wrong.verify()


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ([c for c in SCHEMA.columns if c.role != fw.Role.SENSITIVE], "at least one sensitive attribute"),
        ([*SCHEMA.columns, fw.Column("other", fw.Role.TARGET, levels=(0, 1))], "one target"),
        (
            [*SCHEMA.columns, fw.Column("area", fw.Role.SENSITIVE, levels=tuple(range(MAX_JOINT)))],
            "at most 64",
        ),
    ],
)
def test_what_cannot_be_joined_is_said(columns: list[fw.Column], says: str) -> None:
    with pytest.raises(SchemaError, match=says):
        fw.plan(fw.Schema(name="s", columns=tuple(columns)), joint=True)


def test_nobody_writes_a_joint_column_by_hand() -> None:
    with pytest.raises(SchemaError, match="role feature, sensitive or target"):
        fw.Column("x", "joint", levels=(0, 1))  # type: ignore[arg-type]
    joint = with_joint(SIMPLE)
    assert without_joint(joint) == SIMPLE
    with pytest.raises(SchemaError, match="one joint column at most, the last"):
        msgspec.structs.replace(joint, columns=joint.columns[::-1])


def test_a_crossed_attribute_is_joined_by_its_parts() -> None:
    sex, race = SCHEMA.columns[1], SCHEMA.columns[3]
    schema = fw.Schema(
        name="crossed",
        columns=(
            SCHEMA.columns[2],
            SCHEMA.columns[0],
            fw.Column("both", fw.Role.SENSITIVE, cross=(sex, race)),
        ),
    )
    pairs, joint = fw.plan(schema), fw.plan(schema, joint=True)
    rows = people(SCHEMA)
    asked = count(joint.schema.encode(rows), joint.layout).exact
    np.testing.assert_array_equal(joint.folding.cells(asked), count(schema.encode(rows), pairs.layout).exact)
