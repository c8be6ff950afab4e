"""A ledger's book: every way to lose or shrink a charge in it is noticed, and stops the release."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import fedwise as fw
from conftest import make_people
from fedwise.errors import BudgetExceeded, LedgerError
from fedwise.owner.entries import Charge, Entries

VIEW = "ALTER TABLE charge RENAME TO old; CREATE VIEW charge AS SELECT * FROM old WHERE 0;"
ENDLESS = (
    "ALTER TABLE charge RENAME TO old; CREATE VIEW charge AS WITH RECURSIVE n(i) AS (SELECT 1.0 UNION ALL SELECT i + 1 "
    "FROM n) SELECT 1 id, 'a' at, 'c' client, 'p' plan, i mu, i epsilon, i delta FROM n;"
)

#: What was done to the file, and why it would otherwise pass.
DOCTORED = {
    "charge removed": "DELETE FROM charge WHERE id = 1",
    "all charges removed": "DELETE FROM charge",
    "charge made smaller": "UPDATE charge SET mu = 1e-9",
    "charge moved to another client": "UPDATE charge SET client = 'other'",
    "budget raised behind the back": "UPDATE budget SET epsilon = 50.0",
    "newer budget slipped in": "INSERT INTO budget (at, epsilon, delta) VALUES ('now', 50.0, 1e-5)",
    "budget without end": "UPDATE budget SET epsilon = 9e999",
    "delta above 1": "UPDATE budget SET delta = 2.0",
    "negative budget": "UPDATE budget SET epsilon = -1.0",
    "charges whose squares overflow": "UPDATE charge SET mu = 1.3e154",
    "infinite charge": "UPDATE charge SET mu = 9e999",
    "not a number": "PRAGMA ignore_check_constraints = 1; UPDATE charge SET mu = 'nan'",
    "trigger that forgets": "CREATE TRIGGER t AFTER INSERT ON charge BEGIN DELETE FROM charge; END",
    "trigger that ignores": "CREATE TRIGGER t BEFORE INSERT ON charge BEGIN SELECT RAISE(IGNORE); END",
    "trigger that raises the budget": (
        "CREATE TRIGGER t AFTER INSERT ON charge BEGIN UPDATE budget SET epsilon = 99.0; END"
    ),
    "view that hides": VIEW,
    "view that swallows": VIEW + "CREATE TRIGGER t INSTEAD OF INSERT ON charge BEGIN SELECT 1; END",
    "view without end": ENDLESS,
    "column of constants": (
        "DROP TABLE charge; CREATE TABLE charge (id INTEGER PRIMARY KEY, at TEXT, client TEXT, plan TEXT, "
        "mu REAL AS (0.001) STORED, epsilon REAL, delta REAL)"
    ),
    "seal removed": "DELETE FROM seal",
    "seal doubled": "INSERT INTO seal SELECT 2, digest FROM seal",
    "older format": "PRAGMA user_version = 1",
}


def doctor(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(script)


@pytest.fixture
def ledger(tmp_path: Path) -> fw.Ledger:
    made = fw.Ledger(tmp_path / "l.db", 1.0)
    for mu in (0.1, 0.15):
        made.charge(mu, client="c", plan="p" * 64, epsilon=0.4, delta=1e-5)
    return made


@pytest.mark.parametrize("case", DOCTORED)
def test_a_doctored_book_stops_the_release(case: str, ledger: fw.Ledger, small_schema: fw.Schema) -> None:
    doctor(ledger.path, DOCTORED[case])
    before = ledger.path.read_bytes()
    people = make_people(9)
    # Opened before or after the deed, with or without naming the budget.
    for use in (
        lambda: fw.release(fw.plan(small_schema, 0.1), people, client="c", ledger=ledger),
        lambda: fw.Ledger(ledger.path),
        lambda: fw.Ledger(ledger.path, 1.0),
        ledger.balance,
        ledger.history,
        lambda: ledger.set_budget(3.0),
    ):
        with pytest.raises(LedgerError) as caught:
            use()
        assert str(caught.value).isprintable()
    assert ledger.path.read_bytes() == before


def test_every_flipped_byte_of_a_line_is_noticed(ledger: fw.Ledger) -> None:
    """One byte at a time, everywhere something is written: refused, or the book is what it was."""
    whole = ledger.path.read_bytes()
    written = [i for i, byte in enumerate(whole) if byte and i >= 100][::11]
    refused = 0
    for at in written:
        damaged = bytearray(whole)
        damaged[at] ^= 0x41
        ledger.path.write_bytes(bytes(damaged))
        try:
            found = fw.Ledger(ledger.path)
            assert [charge.mu for charge in found.history()] == [0.1, 0.15], at
            assert found.balance().epsilon == 1.0
        except LedgerError:
            refused += 1
        for suffix in ("-wal", "-shm"):
            Path(f"{ledger.path}{suffix}").unlink(missing_ok=True)
    assert refused > 0.9 * len(written)


def test_an_untouched_book_goes_on(ledger: fw.Ledger) -> None:
    doctor(ledger.path, "VACUUM")  # keeps every line, so it is no harm
    assert fw.Ledger(ledger.path).balance().charges == 2
    with pytest.raises(BudgetExceeded):
        ledger.charge(1.0, client="c", plan="p", epsilon=0.9, delta=1e-5)
    ledger.charge(0.01, client="c", plan="p", epsilon=0.1, delta=1e-5)
    ledger.set_budget(2.0)
    assert fw.Ledger(ledger.path).balance().charges == 3


def test_the_digest_covers_every_field() -> None:
    line = Charge(1, "now", "c", "p", 0.1, 0.4, 1e-5)
    book = Entries([(1, "now", 1.0, 1e-5)], [line], [])
    others = [
        Entries([(2, "now", 1.0, 1e-5)], [line], []),
        Entries([(1, "then", 1.0, 1e-5)], [line], []),
        Entries([(1, "now", 1.0000000000000002, 1e-5)], [line], []),
        Entries([(1, "now", 1.0, 1.1e-5)], [line], []),
        Entries([(1, "now", 1.0, 1e-5)], [], []),
        Entries([(1, "now", 1.0, 1e-5)], [line, line], []),
        *(
            Entries(book.budgets, [Charge(*changed)], [])
            for changed in [
                (2, "now", "c", "p", 0.1, 0.4, 1e-5),
                (1, "new", "c", "p", 0.1, 0.4, 1e-5),
                (1, "now", "d", "p", 0.1, 0.4, 1e-5),
                (1, "now", "c", "q", 0.1, 0.4, 1e-5),
                (1, "now", "c", "p", 0.10000000000000002, 0.4, 1e-5),
                (1, "now", "c", "p", 0.1, 0.5, 1e-5),
                (1, "now", "c", "p", 0.1, 0.4, 2e-5),
            ]
        ),
    ]
    assert len({book.digest, *(other.digest for other in others)}) == len(others) + 1
