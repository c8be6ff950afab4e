"""Ledger: composition, refusal, and a book that can only over-count."""

from __future__ import annotations

import math
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

import fedwise as fw
from conftest import SMALL, make_people
from fedwise.data import schema as shipped
from fedwise.errors import BudgetExceeded, FedwiseError, LedgerError, PlanError, ReleaseError
from fedwise.owner.ledger import Ledger
from fedwise.privacy.scales import gaussian_epsilon, gaussian_mu

PROMISE = {"client": "c", "plan": "p" * 64, "delta": 1e-5}


def charge(ledger: Ledger, mu: float, epsilon: float = 0.5) -> float:
    return ledger.charge(mu, epsilon=epsilon, **PROMISE).spent


def test_mu_squares_add_up(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.db", 10.0, 1e-6)
    mus = [0.1, 0.2, 0.3, 0.05]
    for n, mu in enumerate(mus, 1):
        # The promise of one release alone is at a larger delta than the owner's: only μ counts here.
        spent = charge(ledger, mu)
        together = math.sqrt(math.fsum(m * m for m in mus[:n]))
        assert spent == pytest.approx(gaussian_epsilon(together, 1e-6), rel=1e-12)
    balance = ledger.balance()
    left = gaussian_mu(10.0, 1e-6) ** 2 - sum(m * m for m in mus)
    assert balance.remaining == pytest.approx(gaussian_epsilon(math.sqrt(left), 1e-6), rel=1e-9)
    assert balance.charges == 4
    assert [c.mu for c in ledger.history()] == mus
    assert {c.plan for c in ledger.history()} == {"p" * 64}


def test_what_remains_can_be_spent_and_no_more(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.db", 2.0, 1e-5)
    charge(ledger, gaussian_mu(1.0, 1e-5))
    remaining = ledger.balance().remaining
    with pytest.raises(BudgetExceeded):
        charge(ledger, gaussian_mu(remaining * 1.0001, 1e-5))
    charge(ledger, gaussian_mu(remaining, 1e-5))
    assert ledger.balance().remaining == 0.0
    assert ledger.balance().spent == pytest.approx(2.0, rel=1e-8)
    # Two halves cost less than their sum: composition is tight.
    assert 1.0 + remaining > 2.3


@pytest.mark.parametrize("calibration", ["tight", "rdp"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 20.0, 100.0])
@pytest.mark.parametrize("name", ["small", "one table", "income"])
def test_a_budget_equal_to_the_promise_fits_one_release_exactly(
    name: str, epsilon: float, calibration: str, tmp_path: Path
) -> None:
    one = '[columns.A]\nrole = "feature"\nlevels = [0, 1]\n[columns.T]\nrole = "target"\nlevels = [0, 1]\n'
    schema = shipped(name) if name == "income" else fw.Schema.parse(SMALL if name == "small" else one)
    plan = fw.plan(schema, epsilon, calibration=calibration)
    ledger = Ledger(tmp_path / "l.db", epsilon, plan.delta)
    assert ledger.balance().remaining == epsilon
    promise = {"client": "c", "plan": plan.digest, "epsilon": plan.epsilon, "delta": plan.delta}
    balance = ledger.charge(plan.mu, **promise)
    assert balance.spent <= epsilon
    if calibration == "tight":
        assert balance.spent > 0.97 * epsilon
        assert balance.remaining <= 0.05 * epsilon
        with pytest.raises(BudgetExceeded):
            ledger.charge(plan.mu, **promise)
    assert ledger.balance().spent <= epsilon


def test_refusal_names_requested_remaining_difference(tmp_path: Path, small_schema: fw.Schema) -> None:
    plan = fw.plan(small_schema)
    ledger = Ledger(tmp_path / "l.db", 1.0, 1e-5)
    people = make_people(20)
    fw.release(plan, people, client="c", ledger=ledger)
    before = (tmp_path / "l.db").read_bytes()
    with pytest.raises(BudgetExceeded) as caught:
        fw.release(plan, people, client="c", ledger=ledger)
    assert caught.value.exit_code == 3
    lines = {line.split(":")[0].strip(): line for line in str(caught.value).splitlines() if ":" in line}
    needed = gaussian_epsilon(plan.mu * math.sqrt(2), 1e-5)
    assert "epsilon 1 at delta 1e-05" in lines["Requested"]
    assert f"{needed:.4g}" in lines["Requested"]
    assert f"epsilon {ledger.balance().remaining:.4g} of 1" in lines["Remaining"]
    assert f"epsilon {needed - 1:.4g}" in lines["Difference"]
    assert len(ledger.history()) == 1
    assert (tmp_path / "l.db").read_bytes() == before


def test_raising_the_budget_is_a_deed_on_record(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.db", 1.0, 1e-5)
    charge(ledger, gaussian_mu(1.0, 1e-5))
    with pytest.raises(BudgetExceeded):
        charge(ledger, 0.2)
    assert ledger.set_budget(3.0).epsilon == 3.0
    charge(ledger, 0.2)
    assert Ledger(tmp_path / "l.db").balance().epsilon == 3.0
    # Lowering it below what is spent refuses everything and shows nothing left.
    ledger.set_budget(0.5, 1e-6)
    assert ledger.balance().remaining == 0.0
    with pytest.raises(BudgetExceeded):
        charge(ledger, 0.001)
    with sqlite3.connect(tmp_path / "l.db") as db:
        assert db.execute("SELECT epsilon FROM budget ORDER BY id").fetchall() == [(1.0,), (3.0,), (0.5,)]
    db.close()
    for bad in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(FedwiseError):
            ledger.set_budget(bad)


def test_opening(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    with pytest.raises(LedgerError, match="does not exist; give a total epsilon"):
        Ledger(path)
    assert not path.exists()
    with pytest.raises(PlanError, match="epsilon must be above 0"):
        Ledger(path, 0.0)
    with pytest.raises(PlanError, match="delta must lie"):
        Ledger(path, 1.0, 1.0)
    with pytest.raises(LedgerError, match="finite"):
        Ledger(path, math.inf)
    assert not path.exists()
    with pytest.raises(LedgerError, match="directory does not exist"):
        Ledger(tmp_path / "absent" / "l.db", 1.0)
    with pytest.raises(LedgerError, match="is a directory"):
        Ledger(tmp_path, 1.0)
    Ledger(path, 1.0, 1e-6)
    Ledger(path, 1.0)
    Ledger(path, None, 1e-6)
    assert Ledger(path).balance().delta == 1e-6
    with pytest.raises(LedgerError, match="differs from the one given"):
        Ledger(path, 2.0)
    with pytest.raises(LedgerError, match="differs from the one given"):
        Ledger(path, 1.0, 1e-5)


@pytest.mark.parametrize("mu", [0.0, -1.0, math.inf, math.nan])
def test_charges_that_mean_nothing(mu: float, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.db", 1.0)
    with pytest.raises(LedgerError, match="finite mu above 0"):
        charge(ledger, mu)
    assert ledger.history() == []


def foreign(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE charge (mu REAL)")
    db.commit()
    db.close()


def altered(*statements: str):  # type: ignore[no-untyped-def]
    def make(path: Path) -> None:
        charge(Ledger(path, 1.0), 0.1)
        db = sqlite3.connect(path)
        for statement in statements:
            db.execute(statement)
        db.commit()
        db.close()

    return make


def truncated(path: Path) -> None:
    altered()(path)
    path.write_bytes(path.read_bytes()[:5000])


def overwritten(path: Path) -> None:
    altered()(path)
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xaa" * (len(data) - 4096)
    path.write_bytes(bytes(data))


DAMAGED = {
    "text": lambda path: path.write_text("not a database " * 100),
    "json": lambda path: path.write_text("{}"),
    "empty": lambda path: path.write_bytes(b""),
    "foreign database": foreign,
    "truncated": truncated,
    "overwritten": overwritten,
    "no budget": altered("DELETE FROM budget"),
    "no tables": altered("DROP TABLE charge"),
    "text for a number": altered("UPDATE charge SET mu = 'none'"),
    "text for the budget": altered("UPDATE budget SET epsilon = 'lots'"),
    "negative charge": altered("UPDATE charge SET mu = -0.1"),
    "newer format": altered("PRAGMA user_version = 99"),
    "other application": altered("PRAGMA application_id = 7"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_files_that_are_no_ledger(case: str, tmp_path: Path, small_schema: fw.Schema) -> None:
    path = tmp_path / "l.db"
    DAMAGED[case](path)
    before = path.read_bytes()

    def use() -> None:
        ledger = Ledger(path)
        fw.release(fw.plan(small_schema, 0.1), make_people(9), client="c", ledger=ledger)

    with pytest.raises(LedgerError) as caught:
        use()
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before


def test_read_only_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Ledger(tmp_path / "l.db", 1.0)
    connect = sqlite3.connect
    # Root may write to a file of any mode, so the connection itself is opened read-only.
    monkeypatch.setattr(
        sqlite3, "connect", lambda path, **kw: connect(f"file:{path}?mode=ro", uri=True, **kw)
    )
    with pytest.raises(LedgerError, match="cannot be used"):
        charge(Ledger(tmp_path / "l.db"), 0.1)


def test_only_real_private_releases_take_a_ledger(tmp_path: Path, small_schema: fw.Schema) -> None:
    ledger = Ledger(tmp_path / "l.db", 1.0)
    people = make_people(9)
    for plan, extra in [
        (fw.plan(small_schema), {"simulated": True, "seed": 1}),
        (fw.plan(small_schema, math.inf), {}),
    ]:
        with pytest.raises(ReleaseError, match="ledger must not be given"):
            fw.release(plan, people, client="c", ledger=ledger, **extra)
    assert ledger.history() == []


def test_a_new_ledger_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made without a journal, so it must be whole on the disk before anybody can open it."""
    steps: list[str] = []
    sync, link = os.fsync, os.link

    def fsync(descriptor: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def named(source: str, target: Path) -> None:
        steps.append("name")
        with closing(sqlite3.connect(source)) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        link(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", named)
    Ledger(tmp_path / "l.db", 1.0)
    assert steps == ["file", "name", "folder"]
    assert [file.name for file in tmp_path.iterdir()] == ["l.db"]


def test_charges_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Creation may do without; a charge must not."""
    ledger = Ledger(tmp_path / "l.db", 1.0)
    seen = []
    connect = Ledger._connect

    def spied(self: Ledger) -> sqlite3.Connection:
        db = connect(self)
        seen.append(
            tuple(db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous"))
        )
        return db

    monkeypatch.setattr(Ledger, "_connect", spied)
    charge(ledger, 0.1)
    assert seen == [("wal", 2)]
