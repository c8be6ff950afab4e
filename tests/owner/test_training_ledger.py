"""Training in the ledger: charged round by round, composed with releases, kept over kills and versions."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

import fedwise as fw
from fedwise.cli.main import app as command
from fedwise.errors import BudgetExceeded, FedwiseError, LedgerError
from fedwise.owner.allowance import Allowance, Promise, sampling
from fedwise.owner.policy import Policy
from fedwise.privacy.scales import gaussian_mu
from fedwise.privacy.subsampled import Steps, epsilon

STEPS = Steps(2.0, 0.1, 10)


@pytest.fixture
def ledger(tmp_path: Path) -> fw.Ledger:
    return fw.Ledger(tmp_path / "budget.db", 5.0, 2e-5)


def charge(ledger: fw.Ledger, steps: Steps = STEPS, *, promise: str = "p", limit: int = 100) -> None:
    ledger.charge_round(steps, client="c", promise=promise, limit=limit, epsilon=4.0, delta=1e-5)


def policy(tmp_path: Path, **fields: object) -> Policy:
    (tmp_path / "schema.toml").touch()
    terms = {
        "client": "c",
        "schema": tmp_path / "schema.toml",
        "max_epsilon": 1.0,
        "ledger": tmp_path / "budget.db",
    }
    terms |= {"train_epsilon": 4.0, "train_rounds": 3} | fields
    return Policy(**terms)  # type: ignore[arg-type]


def test_rounds_compose_with_releases_by_one_accountant(ledger: fw.Ledger) -> None:
    ledger.charge(gaussian_mu(1.0, 1e-5), client="c", plan="p", epsilon=1.0, delta=1e-5)
    charge(ledger)
    charge(ledger)
    balance = ledger.balance()
    steps = Steps(2.0, 0.1, 20)
    assert balance.spent == pytest.approx(epsilon([steps], 2e-5, mu=gaussian_mu(1.0, 1e-5)))
    assert balance.training == pytest.approx(epsilon([steps], 2e-5))
    assert max(balance.releases, balance.training) < balance.spent < balance.releases + balance.training
    assert (balance.charges, balance.rounds) == (1, 2)


def test_what_is_left_is_what_a_release_may_cost(ledger: fw.Ledger) -> None:
    charge(ledger)
    left = ledger.balance().remaining
    with pytest.raises(BudgetExceeded, match="refuses this release"):
        ledger.charge(gaussian_mu(1.02 * left, 2e-5), client="c", plan="p", epsilon=1.02 * left, delta=2e-5)
    ledger.charge(gaussian_mu(0.999 * left, 2e-5), client="c", plan="p", epsilon=0.999 * left, delta=2e-5)
    assert ledger.balance().remaining < 0.1 * left


def test_a_round_past_the_budget_is_refused_and_not_recorded(ledger: fw.Ledger) -> None:
    done = 0
    while epsilon([Steps(1.2, 0.2, 10 * (done + 1))], 2e-5) <= 5.0:
        charge(ledger, Steps(1.2, 0.2, 10))
        done += 1
    assert done > 0
    with pytest.raises(BudgetExceeded, match="refuses this round"):
        charge(ledger, Steps(1.2, 0.2, 10))
    assert ledger.balance().rounds == done
    assert ledger.balance().spent <= 5.0


def test_a_release_counts_the_rounds_before_it(tmp_path: Path) -> None:
    ledger = fw.Ledger(tmp_path / "b.db", 1.0, 1e-5)
    charge(ledger, Steps(5.0, 0.1, 10))
    with pytest.raises(BudgetExceeded):
        ledger.charge(gaussian_mu(1.0, 1e-5), client="c", plan="p", epsilon=1.0, delta=1e-5)


def test_the_allowance_covers_its_rounds_and_no_other_terms(tmp_path: Path) -> None:
    allowance = Allowance(policy(tmp_path))
    first = allowance.begin(batch=64, epochs=1, population=1000)
    # Later releases tell another number of records; the noise was set with the first.
    assert allowance.begin(batch=64, epochs=1, population=1234) == first
    with pytest.raises(BudgetExceeded, match="another promise"):
        allowance.begin(batch=32, epochs=1, population=1000)
    allowance.begin(batch=64, epochs=1, population=1000)
    with pytest.raises(BudgetExceeded, match="covers 3 rounds"):
        Allowance(policy(tmp_path)).begin(batch=64, epochs=1, population=1000)
    balance = fw.Ledger(tmp_path / "budget.db").balance()
    assert balance.rounds == 3
    assert epsilon([Steps(first.noise, first.rate, 3 * first.number)], 1e-5) <= 4.0
    assert balance.spent <= 4.0


def test_a_budget_without_room_for_training_refuses_it(tmp_path: Path) -> None:
    tight = policy(tmp_path, budget_epsilon=1.0, budget_delta=1e-5)
    with pytest.raises(BudgetExceeded, match="Requested:  one round"):
        [Allowance(tight).begin(batch=64, epochs=1, population=1000) for _ in range(3)]


@pytest.mark.parametrize(
    "asked", [{"batch": 0, "epochs": 1}, {"batch": 64, "epochs": -1}, {"batch": 10**12, "epochs": 1}]
)
def test_hostile_settings_are_refused(tmp_path: Path, asked: dict[str, int]) -> None:
    with pytest.raises(FedwiseError, match="positive batch"):
        Allowance(policy(tmp_path)).begin(population=1000, **asked)
    assert not (tmp_path / "budget.db").exists()


def test_a_ledger_of_format_2_grows_at_its_first_round(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    ledger = fw.Ledger(path, 5.0, 2e-5)
    ledger.charge(0.1, client="c", plan="p", epsilon=0.4, delta=1e-5)
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE training")
        db.execute("PRAGMA user_version = 2")
    before = fw.Ledger(path).balance()
    assert (before.charges, before.rounds) == (1, 0)
    charge(fw.Ledger(path))
    after = fw.Ledger(path).balance()
    assert (after.charges, after.rounds) == (1, 1)
    assert after.spent > before.spent


@pytest.mark.parametrize(
    "harm", ["DELETE FROM training", "UPDATE training SET steps = 1", "UPDATE training SET noise = 9"]
)
def test_a_doctored_line_of_training_is_found(ledger: fw.Ledger, harm: str) -> None:
    charge(ledger)
    with sqlite3.connect(ledger.path) as db:
        db.execute(harm)
    with pytest.raises(LedgerError, match="not a readable ledger"):
        ledger.balance()


def test_rounds_that_0_1_0_counted_elsewhere_are_taken_over(tmp_path: Path) -> None:
    kept = tmp_path / "budget.db.releases"
    kept.mkdir()
    terms = policy(tmp_path)
    made = terms.open_ledger()
    assert made is not None
    old = {"promise": {"epsilon": 4.0, "delta": 1e-5, "rounds": 3, "rows": 1234, "batch": 64, "epochs": 1, "clip": 1.0},
           "noise": 1.5, "used": 2}  # fmt: skip
    (kept / "training.json").write_text(json.dumps(old))
    for _ in range(4):
        made.count_open("evaluation", client="c")  # which are no private rounds
    steps = Allowance(terms).begin(batch=64, epochs=1, population=999)
    assert (steps.noise, made.balance().rounds) == (1.5, 3)
    assert not (kept / "training.json").exists()
    # The rate is rounded up: it no longer tells 1,234 rows.
    assert steps.rate == pytest.approx(0.052)
    with pytest.raises(BudgetExceeded, match="covers 3 rounds"):
        Allowance(terms).begin(batch=64, epochs=1, population=999)


def test_no_file_of_the_node_tells_the_number_of_rows_or_is_readable_by_others(tmp_path: Path) -> None:
    Allowance(policy(tmp_path)).begin(batch=64, epochs=1, population=1000)
    for file in tmp_path.rglob("budget*"):
        assert stat.S_IMODE(file.stat().st_mode) == (0o700 if file.is_dir() else 0o600)
    promise = Promise(4.0, 1e-5, 3, 64, 1, 1.0)
    (line,) = fw.Ledger(tmp_path / "budget.db").training()
    assert line.promise == msgspec.json.encode(promise).decode()
    assert (line.rate, line.steps) == sampling(1000, 64, 1)


def test_a_lost_ledger_stops_the_owner(tmp_path: Path) -> None:
    kept = tmp_path / "budget.db.releases"
    kept.mkdir()
    (kept / "c-1.release.json").write_text("{}")
    with pytest.raises(LedgerError, match="restore the ledger from a backup"):
        fw.Ledger(tmp_path / "budget.db", 1.0, 1e-5)
    with pytest.raises(LedgerError, match="move that folder away on purpose"):
        policy(tmp_path).open_ledger()
    kept.rename(tmp_path / "elsewhere")
    assert fw.Ledger(tmp_path / "budget.db", 1.0, 1e-5).created


def test_a_lost_ledger_of_training_alone_is_noticed_too(tmp_path: Path) -> None:
    Allowance(policy(tmp_path)).begin(batch=64, epochs=1, population=1000)
    for file in tmp_path.glob("budget.db*"):
        if file.is_file():
            file.unlink()
    with pytest.raises(LedgerError, match="restore the ledger from a backup"):
        Allowance(policy(tmp_path)).begin(batch=64, epochs=1, population=1000)


def test_a_new_ledger_is_announced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    terms = policy(tmp_path)
    terms.open_ledger()
    assert "new ledger" in caplog.text
    assert "5 at delta 2e-05" in caplog.text
    caplog.clear()
    terms.open_ledger()
    assert caplog.text == ""


def test_open_answers_are_counted_and_limited(ledger: fw.Ledger) -> None:
    ledger.count_open("evaluation", client="c", limit=2)
    ledger.count_open("open round", client="c", limit=1)
    ledger.count_open("evaluation", client="c", limit=2)
    for kind, limit in (("evaluation", 2), ("open round", 1)):
        with pytest.raises(BudgetExceeded, match="these are used"):
            fw.Ledger(ledger.path).count_open(kind, client="c", limit=limit)  # type: ignore[arg-type]
    balance = ledger.balance()
    assert (balance.open_rounds, balance.evaluations, balance.spent) == (1, 2, 0.0)


def test_the_command_shows_both(ledger: fw.Ledger) -> None:
    ledger.charge(gaussian_mu(1.0, 1e-5), client="c", plan="p" * 20, epsilon=1.0, delta=1e-5)
    charge(ledger)
    ledger.count_open("evaluation", client="c")
    shown = CliRunner().invoke(command, ["budget", str(ledger.path)])
    assert shown.exit_code == 0, shown.output
    assert "private round" in shown.output
    assert "1 evaluation(s) left without noise: no epsilon" in " ".join(shown.output.split())
    found = json.loads(CliRunner().invoke(command, ["budget", str(ledger.path), "--json"]).stdout)
    assert [line["kind"] for line in found["training"]] == ["private round", "evaluation"]
    assert found["balance"]["rounds"] == 1


#: One process that forks a node for each round, so that the imports are paid once. It starts no thread.
KILLED = """
import json, os, sys
from pathlib import Path
from fedwise.owner import allowance, ledger
from fedwise.owner.policy import Policy

def killed(module, name, before):
    real = getattr(module, name)
    def call(*args, **options):
        if before: os._exit(9)
        real(*args, **options)
        os._exit(9)
    setattr(module, name, call)

def node(home, point):
    policy = Policy(
        client="c", schema=home / "s", max_epsilon=1.0, ledger=home / "budget.db", train_epsilon=4.0, train_rounds=9
    )
    if point == "before the charge": killed(ledger.lines, "add_training", True)
    if point == "inside the transaction": killed(ledger.lines, "add_training", False)
    allowance.Allowance(policy).begin(batch=64, epochs=1, population=1000)
    # Noise would be drawn and the update would leave here.
    os._exit(9 if point == "after the charge" else 0)

codes = []
for home, point in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        try:
            node(Path(home), point)
        finally:
            os._exit(2)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(codes))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_kill_leaves_the_ledger_at_or_above_what_left(tmp_path: Path) -> None:
    """An answered round, then one that is killed: an update left in the first alone."""
    points = {"before the charge": 1, "inside the transaction": 1, "after the charge": 2}
    homes = {point: tmp_path / str(number) for number, point in enumerate(points)}
    for home in homes.values():
        home.mkdir()
    rounds = [(str(home), where) for point, home in homes.items() for where in ("never", point)]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, json.dumps(rounds)],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert json.loads(done.stdout) == [0, 9] * len(points), done.stderr
    for point, charged in points.items():
        assert fw.Ledger(homes[point] / "budget.db").balance().rounds == charged, point
