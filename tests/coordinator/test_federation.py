"""The coordinator's core on the smallest engine: who is asked, who replaces whom, what is charged, what is saved."""

from __future__ import annotations

import json
import logging

import polars as pl
import pytest

import fedwise as fw
from conftest import make_people
from fedwise.coordinator.choice import Choice
from fedwise.coordinator.federation import Federation, Turnover
from fedwise.coordinator.gathering import gather
from fedwise.coordinator.inquiry import Waiting
from fedwise.coordinator.local import LocalChannel, answering
from fedwise.errors import FedwiseError, PoolError
from fedwise.pool.drift import drift
from fedwise.training.records import Record
from owners import make_node

QUICK = {"evidence": "none"}


def spoil(frame: pl.DataFrame) -> pl.DataFrame:
    """The same people with incomes that say nothing about them: nobody would choose this client."""
    return frame.with_columns(pl.col("INCOME").sample(fraction=1.0, shuffle=True, seed=1))


def make_channel(root, names, **policy):
    """Every owner with a home of its own; node `i` answers from there."""
    nodes = {}
    for i, name in enumerate(names):
        config = make_node(root, name, rows=1500, seed=i, **policy)
        nodes[name] = answering(config["policy"])
    return LocalChannel(nodes)


def form(channel, plan, k=3, *, turnover=None, wait=5.0, **options):
    waiting = Waiting(timeout=wait, grace=0.0, enough=k, expected=k, poll=0.01)
    gathered = gather(channel, plan, waiting, least=k)
    return Federation(channel, gathered, Choice(k, 0, None, {**QUICK, **options}), waiting, turnover=turnover)


@pytest.fixture(scope="module")
def plan(small_schema):
    return fw.plan(small_schema, epsilon=1.0)


NAMES = ("ash", "birch", "cedar", "date", "elm", "fir")


@pytest.fixture
def channel(tmp_path):
    return make_channel(tmp_path, NAMES)


def charges(root, name):
    book = root / name / "budget.db"
    return len(fw.Ledger(book).history()) if book.exists() else 0


def test_the_choice_is_that_of_the_files(tmp_path, channel, plan):
    federation = form(channel, plan)
    federation.save(tmp_path / "run")
    files = fw.select(fw.Pool.load(tmp_path / "run/releases"), 3, **QUICK)
    assert federation.selection.clients == files.clients
    assert federation.selection.loss == files.loss
    assert federation.members == {name: name for name in sorted(files.clients)}


def test_a_second_run_replaces_the_first_on_purpose_only(tmp_path, channel, plan, caplog):
    """Releases and metrics that an earlier run left must not be read as part of this one."""
    first = form(channel, plan)
    first.save(tmp_path / "run", metrics=[Record(1, "all", "", "accuracy", "", 0.5)])
    channel.offline.add("fir")
    second = form(channel, plan)
    with pytest.raises(FedwiseError, match="exists"):
        second.save(tmp_path / "run")
    assert len(fw.Pool.load(tmp_path / "run/releases")) == 6
    with caplog.at_level(logging.INFO, logger="fedwise"):
        second.save(tmp_path / "run", force=True)
    assert f"fedwise report {tmp_path / 'run'}" in caplog.text
    assert "fir" not in fw.Pool.load(tmp_path / "run/releases").clients
    assert not (tmp_path / "run/metrics.parquet").exists()


def test_a_substitute_is_the_best_other_client_and_nobody_is_asked(tmp_path, channel, plan):
    federation = form(channel, plan)
    asked = list(channel.asked)
    gone = federation.clients[0]
    stay = [name for name in federation.clients if name != gone]
    channel.offline.add(gone)
    (came,) = federation.substitute(gone, reason="offline")
    best = fw.select(federation.pool, 3, include=stay, exclude=[gone], **QUICK)
    assert set(federation.clients) == set(best.clients) == {*stay, came}
    assert channel.asked == asked
    assert [(c.kind, c.client) for c in federation.changes] == [("left", gone), ("came", came)]
    assert all(charges(tmp_path, name) == 1 for name in NAMES)
    with pytest.raises(FedwiseError, match="not in the federation"):
        federation.substitute(gone)


def test_a_substitute_must_be_online_and_a_smaller_federation_goes_on(channel, plan):
    federation = form(channel, plan)
    gone, *stay = federation.clients
    channel.offline |= set(NAMES) - set(stay)
    assert federation.substitute(gone) == ()
    assert set(federation.clients) == set(stay)


def test_a_member_that_nobody_can_replace_stays_one(channel, plan, caplog):
    federation = form(channel, plan, turnover=Turnover(substitutes=1))
    first, second, third = federation.clients
    others = sorted(set(NAMES) - {first, second, third})
    channel.offline |= set(others[1:])
    with caplog.at_level(logging.WARNING, logger="fedwise"):
        federation.after_round({first: "no answer in time", second: "no answer in time"})
    assert set(federation.clients) == {second, third, others[0]}
    assert f"nobody can replace {second}" in caplog.text
    federation.after_round({})
    assert [(c.kind, c.client) for c in federation.changes] == [("left", first), ("came", others[0])]


def test_rounds_count_strikes_and_choose_again(channel, plan):
    federation = form(channel, plan, turnover=Turnover(substitutes=2, reselect=4))
    gone = federation.clients[0]
    federation.after_round({gone: "no answer in time"})
    assert gone in federation.clients
    federation.after_round({gone: "no answer in time"})
    assert gone not in federation.clients
    assert len(federation.clients) == 3
    federation.after_round({})
    before = federation.clients
    federation.after_round({})  # round 4: everyone is online, so the best three come back
    assert federation.clients == tuple(sorted(federation.first.clients)) != before
    assert federation.changes[-1].round == 4
    with pytest.raises(FedwiseError, match="reselect must be at least 0"):
        Turnover(reselect=-1)


def test_late_joiners_are_asked_and_nobody_else(tmp_path, channel, plan):
    channel.offline.add("fir")
    federation = form(channel, plan)
    assert "fir" not in federation.pool.clients
    channel.offline.clear()
    asked = len(channel.asked)
    assert federation.admit() == ("fir",)
    assert channel.asked[asked:] == ["fir"]
    assert federation.pool.clients == NAMES
    assert federation.admit() == ()
    assert federation.reselect() == tuple(sorted(set(federation.clients) - set(federation.first.clients)))


def test_declined_owners_are_named_where_they_allow_it(tmp_path, plan, small_schema):
    channel = make_channel(tmp_path, ("ash", "birch"))
    channel.nodes["cedar"] = answering(
        make_node(tmp_path, "cedar", max_epsilon=0.1, name_refusals=True)["policy"]
    )
    channel.nodes["date"] = answering(make_node(tmp_path, "date", max_epsilon=0.1)["policy"])
    federation = form(channel, plan, k=2)
    assert [(a.client, a.node) for a in federation.declined] == [("cedar", "cedar"), (None, "date")]
    with pytest.raises(PoolError, match="cedar \\(declined\\): the plan asks for a larger epsilon"):
        form(channel, plan, k=4, wait=0.1)


def test_several_policies_share_one_ledger(tmp_path, small_schema):
    """A second task is answered under terms of its own, and both draw on one budget."""
    config = make_node(tmp_path, "ash", budget_epsilon=1.1, budget_delta=2e-5)
    home = tmp_path / "ash"
    other = small_schema.to_toml().replace("INCOME > 50000", "INCOME > 20000")
    (home / "other.toml").write_text(other)
    (home / "policies").mkdir()
    for name, schema, limit in (("poor", "other.toml", 0.5), ("rich", "schema.toml", 1.0)):
        (home / f"policies/{name}.toml").write_text(
            f'client = "ash"\nschema = "../{schema}"\ndata = "../rows.parquet"\nledger = "../budget.db"\n'
            f"max_epsilon = {limit}\nbudget_epsilon = 1.1\nbudget_delta = 2e-5\n"
        )
    nodes = {
        "ash": answering(home / "policies"),
        "both": answering(f"{config['policy']}, {home}/policies/poor.toml"),
    }
    rich, poor = fw.plan(small_schema, epsilon=1.0), fw.plan(fw.Schema.parse(other), epsilon=0.6)
    assert form(LocalChannel({"ash": nodes["ash"]}), rich, k=1).clients == ("ash",)
    assert form(LocalChannel({"ash": nodes["both"]}), rich, k=1).clients == ("ash",)
    with pytest.raises(PoolError, match="larger epsilon than the owner allows"):
        form(LocalChannel({"ash": nodes["ash"]}), poor, k=1, wait=0.1)
    small = fw.plan(fw.Schema.parse(other), epsilon=0.3)
    assert form(LocalChannel({"ash": nodes["ash"]}), small, k=1).clients == ("ash",)
    with pytest.raises(PoolError, match="not enough budget left"):
        form(LocalChannel({"ash": nodes["ash"]}), fw.plan(fw.Schema.parse(other), epsilon=0.5), k=1, wait=0.1)
    assert charges(tmp_path, "ash") == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [({"client": "birch"}, "one client"), ({"ledger": "other.db"}, "one ledger")],
)
def test_policies_that_do_not_go_together_are_refused(tmp_path, change, message):
    from fedwise.owner.policies import Policies

    paths = [make_node(tmp_path / str(i), "ash", **extra)["policy"] for i, extra in enumerate(({}, change))]
    if "client" in change:
        second = tmp_path / "1/ash/policy.toml"
        second.write_text(second.read_text().replace("budget.db", str(tmp_path / "0/ash/budget.db")))
    with pytest.raises(FedwiseError, match=message):
        Policies.load(", ".join(paths))
    with pytest.raises(FedwiseError, match="holds no policy"):
        Policies.load(tmp_path)


def set_version(root, name, version, frame=None):
    policy = root / name / "policy.toml"
    lines = [line for line in policy.read_text().splitlines() if not line.startswith("data_version")]
    policy.write_text("\n".join([*lines, f"data_version = {version}", ""]))
    if frame is not None:
        frame.write_parquet(root / name / "rows.parquet")


def test_drift_of_one_of_twenty(tmp_path, plan, caplog):
    """The must-show: a warning, a refresh that changes the choice, and no charge for anybody else."""
    names = [f"c{i:02}" for i in range(20)]
    channel = make_channel(tmp_path, names, data_version=1, budget_epsilon=1.6)
    first = form(channel, plan, k=4)
    assert not first.stale
    changed = first.clients[0]
    set_version(tmp_path, changed, 2, spoil(make_people(1500, names.index(changed))))
    with caplog.at_level(logging.INFO, logger="fedwise"):
        federation = form(channel, plan, k=4)
    assert federation.stale == {changed: (1, 2)}
    assert f"the release of {changed} is of version 1 of its data, its owner has version 2 now" in caplog.text
    assert federation.clients == first.clients  # the old release is used until it is refreshed
    asked = len(channel.asked)
    assert federation.refresh() == (changed,)
    assert channel.asked[asked:] == [changed]
    assert not federation.stale
    assert changed not in federation.clients
    assert [charges(tmp_path, name) for name in names] == [2 if name == changed else 1 for name in names]
    (found,) = federation.drifts
    assert found.changed
    assert found.versions == (1, 2)
    federation.save(tmp_path / "run")
    saved = json.loads((tmp_path / "run/federation.json").read_text())
    assert any(f"{changed} left (refresh)" in line for line in saved["changes"])
    assert saved["drift"][0]["client"] == changed
    # The next edition asked of everybody: who did not change sends what there is, at no charge.
    later = form(channel, plan.at_edition(2), k=4)
    assert later.pool.clients == tuple(names)
    assert later.selection.clients == federation.selection.clients
    assert sum(charges(tmp_path, name) for name in names) == 21
    # Without room in the budget the old release stays.
    set_version(tmp_path, changed, 3)
    again = form(channel, plan.at_edition(2), k=4)
    assert again.refresh() == ()
    assert again.stale == {changed: (2, 3)}


def test_drift_has_honest_error_bars(small_schema):
    """Over 200 pairs of draws of unchanged data: at most a few false alarms, and errors of the stated size."""
    plan, people = fw.plan(small_schema, epsilon=1.0), make_people(3000)
    scores, alarms = [], 0
    for seed in range(200):
        pair = [
            fw.release(plan.at_edition(e), people, client="ash", simulated=True, seed=2 * seed + e)
            for e in (1, 2)
        ]
        found = drift(*pair)
        alarms += found.changed
        scores += [shift.change / shift.std_error for shift in found.shifts]
    assert alarms <= 3  # expected 0.2; more than 3 about once in 20,000 runs, and the seed is fixed
    spread = (sum(score**2 for score in scores) / len(scores)) ** 0.5
    assert 0.9 < spread < 1.1
    after = fw.release(plan.at_edition(2), spoil(people), client="ash", simulated=True, seed=5)
    before = fw.release(plan, people, client="ash", simulated=True, seed=4)
    assert drift(before, after).changed
    with pytest.raises(PoolError, match="two editions"):
        drift(before, before)
    with pytest.raises(PoolError, match="one client"):
        drift(before, fw.release(plan.at_edition(2), people, client="elm", simulated=True, seed=1))


def test_an_edition_is_a_plan_of_its_own_and_the_first_is_as_before(plan, small_schema):
    second = plan.at_edition(2)
    assert (plan.number, second.number, second.question) == (1, 2, plan.digest)
    assert b"edition" not in plan.encode()
    assert fw.plan(small_schema, epsilon=1.0, edition=2).digest == second.digest
    assert fw.Plan.decode(second.encode()) == second
    assert second.at_edition(1).digest == plan.digest
    with pytest.raises(FedwiseError, match="edition must be between 1"):
        plan.at_edition(0)
    forged = second.encode().replace(b'"edition": 2', b'"edition": 1')
    with pytest.raises(FedwiseError):
        fw.Plan.decode(forged)


def test_a_pool_takes_the_latest_edition_of_each_client(plan):
    made = [
        fw.release(plan.at_edition(e), make_people(300, i), client=name, simulated=True, seed=e)
        for i, name in enumerate(("ash", "birch"))
        for e in (1, 2)[: i + 1]
    ]
    for order in (made, made[::-1]):
        pool = fw.Pool.of(order)
        assert pool.clients == ("ash", "birch")
        assert (pool.matrix[1] == made[2].counts).all()


def test_noise_is_warned_of(tmp_path, small_schema, caplog):
    nodes = {
        name: answering(make_node(tmp_path, name, rows=15, seed=i)["policy"]) for i, name in enumerate(NAMES)
    }
    with caplog.at_level(logging.INFO, logger="fedwise"):
        form(LocalChannel(nodes), fw.plan(small_schema, epsilon=0.2), evidence="quick")
    assert "the choice is within the noise" in caplog.text
    assert "loss " in caplog.text
    assert "spent by each of 6 clients: epsilon 0.2" in caplog.text


def test_editions_by_files(tmp_path, small_schema):
    """The command line: the next edition is answered anew only where the owner's number grew."""
    from typer.testing import CliRunner

    from fedwise.cli.main import app

    (tmp_path / "schema.toml").write_text(small_schema.to_toml())
    make_people(300).write_parquet(tmp_path / "rows.parquet")

    def run(*words):
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == 0, done.output
        return done

    book = ["--ledger", tmp_path / "budget.db", "--budget", 3]
    made = {}
    for edition, version in ((1, 7), (2, 7), (3, 8)):
        plan = tmp_path / f"plan{edition}.json"
        run("plan", tmp_path / "schema.toml", "--edition", edition, "-o", plan)
        target = tmp_path / f"{edition}.release.json"
        run(
            "release", plan, tmp_path / "rows.parquet", "--client", "ash", "--data-version", version,
            "-o", target, *(book if edition == 1 else book[:2]),
        )  # fmt: skip
        made[edition] = fw.Release.load(target)
    assert made[1] == made[2]
    assert (made[1].version, made[3].version, made[3].plan.number) == (7, 8, 3)
    assert len(fw.Ledger(tmp_path / "budget.db").history()) == 2
