"""Ledger: composition, refusal, and a book that can only over-count."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import fedwise as fw
from conftest import SMALL, make_people
from fedwise.data import schema as shipped
from fedwise.errors import BudgetExceeded, FedwiseError, LedgerError, PlanError, ReleaseError
from fedwise.privacy.calibration import gaussian_epsilon, gaussian_mu
from fedwise.privacy.ledger import Ledger

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


def run(script: str, *arguments: object) -> dict[str, object]:
    """Run a script in a process of its own: it forks, which a test process with threads must not."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, object] = json.loads(done.stdout)
    return found


CROWD = """
import json, os, sys
from fedwise.errors import BudgetExceeded
from fedwise.privacy.calibration import gaussian_mu
from fedwise.privacy.ledger import Ledger

path, released, room = sys.argv[1], sys.argv[2], int(sys.argv[3])
mu = gaussian_mu(1.0, 1e-5) / room ** 0.5
gate_read, gate_write = os.pipe()
children = []
for number in range(100):
    pid = os.fork()
    if pid == 0:
        os.close(gate_write)
        os.read(gate_read, 1)  # all start together
        try:
            # Opening is part of the race: everyone may be the first.
            Ledger(path, 1.0, 1e-5).charge(mu, client=f"c{number}", plan="p", epsilon=0.1, delta=1e-5)
            file = os.open(released, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(file, f"c{number}\\n".encode())
            os._exit(0)
        except BudgetExceeded:
            os._exit(3)
        except BaseException as error:
            print(type(error), error, file=sys.stderr)
            os._exit(1)
    children.append(pid)
os.close(gate_read)
os.close(gate_write)
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
print(json.dumps({"codes": codes}))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_hundred_processes_charge_one_ledger(tmp_path: Path) -> None:
    codes = run(CROWD, tmp_path / "l.db", tmp_path / "released", 60)["codes"]
    assert isinstance(codes, list)
    assert sorted(codes) == [0] * 60 + [3] * 40
    released = (tmp_path / "released").read_text().split()
    ledger = Ledger(tmp_path / "l.db")
    assert sorted(c.client for c in ledger.history()) == sorted(released)
    balance = ledger.balance()
    mu = gaussian_mu(1.0, 1e-5) / math.sqrt(60)
    assert balance.spent >= gaussian_epsilon(mu * math.sqrt(len(released)), 1e-5) * (1 - 1e-9)
    assert balance.spent <= 1.0 + 1e-9


KILLS = """
import json, os, pathlib, random, signal, sqlite3, sys, time
import polars as pl
import numpy as np
import fedwise as fw
from fedwise.privacy.noise import add_noise
from fedwise.tables import count

folder = pathlib.Path(sys.argv[1])
plan = fw.plan(fw.Schema.parse(sys.argv[2]), 0.05)
fw.release
release_module = sys.modules["fedwise.release"]  # the name fedwise.release is the function
# Compile and load once, before the forks; nothing here starts a thread.
add_noise(count(np.zeros((4, 1), dtype=np.int16), plan.layout), plan.sigmas)
rows = {"AGE": [20, 30], "JOB": ["farm", "shop"], "SEX": [1, 2], "INCOME": [1, 99999]}


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class Deadly(sqlite3.Connection):
    point = ""

    def execute(self, sql, *args):
        word = sql.split()[0]
        if Deadly.point == f"before {word}":
            die()
        found = super().execute(sql, *args)
        if Deadly.point == f"after {word}":
            die()
        return found


def around(module, name, when):
    real = getattr(module, name)

    def call(*args, **kwargs):
        if when == "before":
            die()
        found = real(*args, **kwargs)
        if when == "after":
            die()
        return found

    setattr(module, name, call)


def one(path, client, out):
    frame = pl.DataFrame(rows)
    book = fw.Ledger(path)
    fw.release(plan, frame, client=client, ledger=book).save(out / f"{client}.release.json")


def book_of(path):
    # Opened in a child too: SQLite connections and polars threads must not exist before a fork.
    read, write = os.pipe()
    if os.fork() == 0:
        book = fw.Ledger(path)
        answer = {"clients": [c.client for c in book.history()], "spent": book.balance().spent}
        os.write(write, json.dumps(answer).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = json.loads(pipe.read())
    os.wait()
    return answer


def spawn(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print(type(error), error, file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return pid


def fresh(name):
    path, out = folder / f"{name}.db", folder / name
    out.mkdir()
    os.waitpid(spawn(lambda: fw.Ledger(path, 5.0, 1e-5)), 0)
    return path, out


points = {
    "before INSERT": None, "after INSERT": None, "before COMMIT": None, "after COMMIT": None,
    "noise before": (release_module, "add_noise"), "noise after": (release_module, "add_noise"),
    "fsync before": (os, "fsync"), "fsync after": (os, "fsync"),
    "link before": (os, "link"), "link after": (os, "link"),
}
report = {}
for number, (point, patch) in enumerate(points.items()):
    path, out = fresh(f"point{number}")

    def work():
        if patch is None:
            connect = sqlite3.connect
            book = fw.Ledger(path)  # opening commits too: the point is inside the charge
            sqlite3.connect = lambda p, **kw: connect(p, factory=Deadly, **kw)
            Deadly.point = point
            fw.release(plan, pl.DataFrame(rows), client="a", ledger=book).save(out / "a.release.json")
        else:
            around(*patch, point.split()[1])
            one(path, "a", out)

    _, status = os.waitpid(spawn(work), 0)
    files = [file.name.split(".")[0] for file in out.glob("*.release.json")]
    report[point] = {"signal": os.WTERMSIG(status), "files": files, **book_of(path)}

timed = []
random.seed(7)
path, out = fresh("timed")
for trial in range(8):
    def work():
        for i in range(10_000):
            one(path, f"t{trial}-{i}", out)

    pid = spawn(work)
    begun = time.monotonic()
    # Wait for its first release, then kill it at a random moment of a later one.
    while not list(out.glob(f"t{trial}-*.json")) and time.monotonic() - begun < 20:
        time.sleep(0.002)
    time.sleep(random.uniform(0.0, 0.03))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    files = [file.name.removesuffix(".release.json") for file in out.glob("t*.release.json")]
    timed.append({"files": files, **book_of(path)})
print(json.dumps({"points": report, "timed": timed, "mu": plan.mu}))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_killed_process_can_only_have_recorded_too_much(tmp_path: Path) -> None:
    found = run(KILLS, tmp_path, SMALL)
    points, timed, mu = found["points"], found["timed"], found["mu"]
    assert isinstance(points, dict)
    assert isinstance(timed, list)
    assert isinstance(mu, float)
    for point, after in points.items():
        assert after["signal"] == 9, point  # the process really died there
        assert set(after["files"]) <= set(after["clients"]), point
    charged = [point for point, after in points.items() if after["clients"] == ["a"]]
    assert charged == [p for p in points if p not in ("before INSERT", "after INSERT", "before COMMIT")]
    assert [point for point, after in points.items() if after["files"]] == ["link after"]
    for after in timed:
        assert set(after["files"]) <= set(after["clients"])
        assert after["spent"] >= gaussian_epsilon(mu * math.sqrt(len(after["files"])), 1e-5) * (1 - 1e-9)
    assert len(timed[-1]["files"]) >= 8
