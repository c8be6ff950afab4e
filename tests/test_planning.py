"""Plans: exactly the tables the objective uses, bound by a digest, honest about their promise."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

import fedwise as fw
from conftest import SMALL
from fedwise.data import schema as shipped
from fedwise.errors import FedwiseError, PlanError
from fedwise.planning import Request
from fedwise.privacy.accounting import LossDistribution, discrete_gaussian, gaussian_curve
from fedwise.privacy.judgement import EXACT_BELOW
from fedwise.privacy.scales import SLACK, SLACK_GROWTH, covering_mu, gaussian_delta

TWO_SENSITIVE = SMALL + '\n[columns.RACE]\nrole = "sensitive"\nlevels = [1, 2, 3]\n'


def signed(plan: fw.Plan, **changes: object) -> fw.Plan:
    """A plan whose maker recomputed the digest after changing it."""
    changed = msgspec.structs.replace(plan, digest="", **changes)
    return msgspec.structs.replace(changed, digest=changed.compute_digest())


def rescaled(plan: fw.Plan, factor: float) -> tuple[Request, ...]:
    return tuple(msgspec.structs.replace(table, sigma=table.sigma * factor) for table in plan.tables)


def pairs(plan: fw.Plan) -> set[frozenset[str]]:
    return {frozenset(table.pair) for table in plan.tables}


def test_asks_for_every_pair_but_two_sensitive_ones() -> None:
    schema = fw.Schema.parse(TWO_SENSITIVE)
    expected = {frozenset(pair) for pair in combinations(schema.names, 2)} - {frozenset(("SEX", "RACE"))}
    plan = fw.plan(schema)
    assert pairs(plan) == expected
    assert len(plan.tables) == len(expected)
    sizes = dict(zip(schema.names, schema.sizes, strict=True))
    assert all(table.shape == (sizes[table.pair[0]], sizes[table.pair[1]]) for table in plan.tables)


@pytest.mark.parametrize(
    ("weights", "gone"),
    [
        (fw.Weights(gamma=0.0), [("AGE", "JOB")]),
        (fw.Weights(alpha=0.0), [("SEX", "RICH")]),
        (fw.Weights(beta=0.0), [("AGE", "SEX"), ("JOB", "SEX")]),
        (fw.Weights(lam=0.0), [("AGE", "RICH"), ("JOB", "RICH")]),
    ],
)
def test_asks_for_nothing_of_weight_zero_and_adds_less_noise(
    weights: fw.Weights, gone: list[tuple[str, str]], small_schema: fw.Schema
) -> None:
    everything = fw.plan(small_schema, allocation="uniform")
    less = fw.plan(small_schema, allocation="uniform", weights=weights)
    assert pairs(everything) - pairs(less) == {frozenset(pair) for pair in gone}
    ratio = everything.sigmas[0] / less.sigmas[0]
    assert ratio == pytest.approx(math.sqrt(len(everything.tables) / len(less.tables)), rel=1e-4)


def test_no_pair_left_is_refused() -> None:
    # Without a sensitive attribute only features and target remain; their weights are 0.
    text = '[columns.A]\nrole = "feature"\nlevels = [0, 1]\n[columns.T]\nrole = "target"\nlevels = [0, 1]\n'
    with pytest.raises(PlanError, match="at least one table"):
        fw.plan(fw.Schema.parse(text), weights=fw.Weights(lam=0.0))


def test_allocation(small_schema: fw.Schema) -> None:
    uniform = fw.plan(small_schema, allocation="uniform")
    weighted = fw.plan(small_schema)
    assert len(set(uniform.sigmas.tolist())) == 1
    assert len(set(weighted.sigmas.tolist())) > 1
    # The same promise, whatever the cut: precisions add up to the same.
    assert np.sum(weighted.sigmas**-2) == pytest.approx(np.sum(uniform.sigmas**-2), rel=1e-4)
    assert weighted.mu == pytest.approx(uniform.mu, rel=1e-4)


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 0.0},
        {"epsilon": -1.0},
        {"epsilon": math.nan},
        {"epsilon": 1000.0},
        {"delta": 0.0},
        {"delta": 1.0},
        {"delta": math.nan},
        {"calibration": "loose"},
        {"allocation": "random"},
    ],
    ids=str,
)
def test_promises_out_of_bounds(change: dict[str, object], small_schema: fw.Schema) -> None:
    with pytest.raises(PlanError, match=f"{next(iter(change))} must"):
        fw.plan(small_schema, **change)


def test_too_many_cells() -> None:
    many = str(list(range(2000)))
    with pytest.raises(PlanError, match="at most 2000000 cells"):
        fw.plan(
            fw.Schema.parse(
                SMALL.replace("bins = [0, 18, 40, 65, 120]", f"levels = {many}").replace("[1, 2]", many)
            )
        )


@pytest.mark.parametrize("epsilon", [0.1, 1.0, math.inf])
@pytest.mark.parametrize("name", ["small", "income"])
def test_round_trip(name: str, epsilon: float, tmp_path: Path, small_schema: fw.Schema) -> None:
    plan = fw.plan(shipped("income") if name == "income" else small_schema, epsilon, calibration="rdp")
    plan.save(tmp_path / "plan.json")
    again = fw.Plan.load(tmp_path / "plan.json")
    assert again == plan
    assert again.layout == plan.layout
    assert again.epsilon == epsilon
    assert again.private == (epsilon < math.inf)
    json.loads((tmp_path / "plan.json").read_text(), parse_constant=lambda token: pytest.fail(token))
    with pytest.raises(PlanError, match="exists"):
        plan.save(tmp_path / "plan.json")
    plan.save(tmp_path / "plan.json", force=True)


def test_the_same_request_has_the_same_digest(small_schema: fw.Schema) -> None:
    plans = [fw.plan(small_schema), fw.plan(small_schema), fw.plan(small_schema, 1.0, delta=1e-5)]
    assert len({plan.digest for plan in plans}) == 1
    others = [
        fw.plan(small_schema, 2.0),
        fw.plan(small_schema, delta=1e-6),
        fw.plan(small_schema, calibration="rdp"),
        fw.plan(small_schema, allocation="uniform"),
        fw.plan(small_schema, weights=fw.Weights(alpha=1.0)),
        fw.plan(fw.Schema.parse(SMALL.replace("18", "19"))),
    ]
    assert len({plan.digest for plan in [*others, plans[0]]}) == 7


def edits(tree: dict[str, object]) -> dict[str, object]:
    """Every number and text of a plan file, as a path and another value of its type."""
    found: dict[str, object] = {}

    def walk(value: object, path: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(inner, f"{path}/{key}")
        elif isinstance(value, list):
            for i, inner in enumerate(value):
                walk(inner, f"{path}/{i}")
        elif isinstance(value, str):
            found[path] = value + "x"
        elif isinstance(value, int | float):
            found[path] = value * 2 + 1

    walk(tree, "")
    return found


def test_every_edit_by_hand_is_noticed(small_schema: fw.Schema) -> None:
    text = fw.plan(small_schema).encode()
    changes = edits(json.loads(text))
    assert len(changes) > 50
    for path, value in changes.items():
        tree = json.loads(text)
        *way, last = path.strip("/").split("/")
        place = tree
        for key in way:
            place = place[int(key)] if isinstance(place, list) else place[key]
        place[int(last) if isinstance(place, list) else last] = value
        with pytest.raises(FedwiseError):
            fw.Plan.decode(json.dumps(tree).encode())
    with pytest.raises(PlanError, match="edited or damaged"):
        fw.Plan.decode(text.replace(b'"alpha": 2.0', b'"alpha": 2.5'))


DISHONEST = {
    "half the noise": lambda p: signed(p, tables=rescaled(p, 0.5)),
    "a little less noise": lambda p: signed(p, tables=rescaled(p, 0.99)),
    "understated mu": lambda p: signed(p, charge_mu=p.mu / 2),
    "mu of the continuous formula": lambda p: signed(
        p, charge_mu=float(np.sqrt(np.sum(p.sigmas**-2.0))) * 0.9999
    ),
    "overstated mu": lambda p: signed(p, charge_mu=500.0),
    "slightly overstated mu": lambda p: signed(p, charge_mu=p.mu * 1.01),
    "mu that no ledger can hold": lambda p: signed(p, charge_mu=1e7),
    "endless mu": lambda p: signed(p, charge_mu="inf"),
    "infinite mu": lambda p: signed(p, charge_mu="inf", tables=rescaled(p, 0.5)),
    "delta above 1": lambda p: signed(p, delta=1.5, tables=rescaled(p, 0.01)),
    "negative epsilon": lambda p: signed(p, promise_epsilon=-3.0, delta=1.5),
    "epsilon smaller than the noise": lambda p: signed(p, promise_epsilon=0.5),
    "delta smaller than the noise": lambda p: signed(p, delta=1e-9),
    "no noise under a promise": lambda p: signed(p, tables=rescaled(p, 0.0)),
    "negative noise": lambda p: signed(p, tables=rescaled(p, -1.0)),
    "noise without promise": lambda p: signed(p, promise_epsilon="inf"),
    "one exact table": lambda p: signed(p, tables=(*rescaled(p, 9.0)[:-1], rescaled(p, 0.0)[-1])),
    "table twice": lambda p: signed(p, tables=(*p.tables, p.tables[0])),
    "table twice, turned": lambda p: signed(
        p, tables=(*p.tables, Request(p.tables[0].pair[::-1], p.tables[0].shape[::-1], 1e9))
    ),
    "variable with itself": lambda p: signed(p, tables=(*p.tables, Request(("AGE", "AGE"), (4, 4), 1e9))),
    "unknown variable": lambda p: signed(p, tables=(*p.tables, Request(("AGE", "PAY"), (4, 4), 1e9))),
    "other shape": lambda p: signed(
        p, tables=(msgspec.structs.replace(p.tables[0], shape=(9, 9)), *p.tables[1:])
    ),
    "no table": lambda p: signed(p, tables=()),
    "other schema": lambda p: signed(p, schema=fw.Schema.parse(SMALL.replace("18", "19"))),
}


@pytest.mark.parametrize("case", DISHONEST)
def test_a_dishonest_maker_with_a_right_digest_is_refused(case: str, small_schema: fw.Schema) -> None:
    plan = fw.plan(small_schema)
    plan.verify()
    with pytest.raises(PlanError):
        DISHONEST[case](plan).verify()


def test_continuous_noise_is_not_enough_where_the_lattice_is_coarse() -> None:
    # σ of the continuous formula for one table at ε = 2 breaks the promise as a discrete Gaussian.
    text = '[columns.A]\nrole = "feature"\nlevels = [0, 1]\n[columns.T]\nrole = "target"\nlevels = [0, 1]\n'
    plan = fw.plan(fw.Schema.parse(text), 2.0)
    continuous = 1.9938124456435388
    assert plan.sigmas[0] > continuous
    with pytest.raises(PlanError, match="less noise than its promise"):
        signed(plan, tables=rescaled(plan, continuous / float(plan.sigmas[0]))).verify()


def test_absurd_scales_are_checked_in_bounded_time(small_schema: fw.Schema) -> None:
    plan = fw.plan(small_schema)
    # More noise than promised is honest if it is charged as such; the exact accountant must not try to hold
    # σ = 1e12 in memory.
    one = (*plan.tables[:-1], msgspec.structs.replace(plan.tables[-1], sigma=1e12))
    every = tuple(msgspec.structs.replace(t, sigma=1e12) for t in plan.tables)
    for tables in (one, every):
        spent = math.sqrt(sum(table.sigma**-2.0 for table in tables))
        signed(plan, tables=tables, charge_mu=(1 + SLACK) * spent).verify()


def one_table(epsilon: float, **options: object) -> fw.Plan:
    text = '[columns.A]\nrole = "feature"\nlevels = [0, 1]\n[columns.T]\nrole = "target"\nlevels = [0, 1]\n'
    return fw.plan(fw.Schema.parse(text), epsilon, **options)


@pytest.mark.parametrize("epsilon", [0.0005, 0.01, 0.1, 1.0, 20.0])
def test_an_overstated_mu_is_refused_and_says_so(epsilon: float, small_schema: fw.Schema) -> None:
    for plan in (fw.plan(small_schema, epsilon), one_table(epsilon)):
        for mu in (plan.mu * 1.6, 500.0, 1e300):
            with pytest.raises(PlanError, match="charges more than its noise costs; do not answer it"):
                signed(plan, charge_mu=mu).verify()


@pytest.mark.parametrize("calibration", ["tight", "rdp"])
@pytest.mark.parametrize("epsilon", [1e-4, 0.003, 0.01, 0.1, 1.0, 5.0, 20.0, 100.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.01])
def test_every_honest_plan_is_accepted(
    calibration: str, epsilon: float, delta: float, small_schema: fw.Schema
) -> None:
    for schema in (small_schema, shipped("income")):
        for allocation in ("weighted", "uniform"):
            fw.plan(schema, epsilon, delta=delta, calibration=calibration, allocation=allocation).verify()
    one_table(epsilon, delta=delta, calibration=calibration).verify()


def test_plans_made_by_version_0_1_0_are_accepted() -> None:
    lines = (Path(__file__).parent / "fixtures" / "plans-0.1.0.ndjson").read_bytes().splitlines()
    plans = [fw.Plan.decode(line) for line in lines]
    assert len(plans) == 43
    mixed = [p for p in plans if p.private and p.sigmas.min() < EXACT_BELOW <= p.sigmas.max()]
    fine = [p for p in plans if p.private and p.sigmas.min() >= EXACT_BELOW]
    assert mixed
    assert fine


def test_an_overstated_mu_costs_at_most_the_steps_of_the_search(small_schema: fw.Schema) -> None:
    for plan in (fw.plan(small_schema), one_table(2.0), one_table(0.0005)):
        spent = float(np.sqrt(np.sum(plan.sigmas**-2.0)))
        accepted = []
        for factor in np.linspace(1.0, 3.0, 41).tolist():
            mu = spent * (1 + factor * (plan.mu / spent - 1))
            try:
                signed(plan, charge_mu=mu).verify()
                accepted.append(factor)
            except PlanError:
                pass
        assert accepted
        assert max(accepted) <= SLACK_GROWTH**2 + 1e-9


def coarse_and_fine(columns: int, sigma: float, epsilon: float) -> tuple[fw.Plan, float, float]:
    """One table of little noise beside all others at σ = 2000: the plan, its promised δ and the true one.

    Each group keeps the promise on its own, and so does the continuous formula of them all.
    """
    text = "".join(f'[columns.F{i}]\nrole = "feature"\nlevels = [0, 1]\n' for i in range(columns - 1))
    schema = fw.Schema.parse(text + '[columns.T]\nrole = "target"\nlevels = [0, 1]\n')
    asked = list(combinations(schema.names, 2))
    fine = math.sqrt(len(asked) - 1) / EXACT_BELOW
    total = math.hypot(1 / sigma, fine)
    delta = 1.0001 * max(gaussian_delta(total, epsilon), LossDistribution.of([sigma]).delta(epsilon))
    z, chance = discrete_gaussian(sigma)
    true = float(chance @ gaussian_curve(fine, epsilon - (2 * z + 1) / (2 * sigma**2)))
    # The same μ whatever the promise: enough to cover all tables, and not too much.
    mu = covering_mu(np.array([1 / total]), LossDistribution.of([sigma], gaussian=fine))
    plan = signed(
        one_table(1.0),
        schema=schema,
        schema_digest=schema.digest,
        promise_epsilon=epsilon,
        delta=delta,
        charge_mu=mu,
        tables=tuple(
            Request(pair=pair, shape=(2, 2), sigma=EXACT_BELOW if j else sigma)
            for j, pair in enumerate(asked)
        ),
    )
    return plan, delta, true


@pytest.mark.parametrize(
    ("columns", "sigma", "epsilon", "times"),
    [(500, 0.3383855, 21.808867, 3.1), (300, 0.3383855, 21.808867, 2.2), (300, 0.4701851, 11.271349, 1.6)],
)
def test_coarse_and_fine_tables_are_composed_together(
    columns: int, sigma: float, epsilon: float, times: float
) -> None:
    plan, delta, true = coarse_and_fine(columns, sigma, epsilon)
    assert true > times * delta
    with pytest.raises(PlanError, match="less noise than its promise"):
        plan.verify()
    with pytest.raises(PlanError, match="less noise than its promise"):
        signed(plan, delta=true * 0.999).verify()
    # No stricter than it needs to be: the true cost, and the grid's rounding of it, is accepted.
    signed(plan, delta=true * 1.25).verify()


def test_an_independent_accountant_agrees_on_coarse_and_fine_tables() -> None:
    sigma, epsilon = 0.4701851, 11.271349
    plan, delta, true = coarse_and_fine(300, sigma, epsilon)
    fine = math.sqrt(len(plan.tables) - 1) / EXACT_BELOW
    total = pld.from_discrete_gaussian_mechanism(sigma, value_discretization_interval=1e-4).compose(
        pld.from_gaussian_mechanism(1 / fine, value_discretization_interval=1e-4)
    )
    assert total.get_delta_for_epsilon(epsilon) == pytest.approx(true, rel=0.01)
    assert total.get_delta_for_epsilon(epsilon) > 1.6 * delta


def test_words(small_schema: fw.Schema) -> None:
    plan = fw.plan(small_schema)
    text = str(plan)
    for table in plan.tables:
        assert " × ".join(table.pair) in text
        assert f"{table.sigma:.4g}" in text
    assert "e^1 = 2.72" in plan.promise
    assert "all 6 tables together" in plan.promise
    assert fw.plan(small_schema, math.inf).promise.startswith("NO PRIVACY")
