"""One ledger and many processes: a crowd that charges it at once, and processes killed on the way."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import SMALL
from fedwise.owner.ledger import Ledger
from fedwise.privacy.scales import gaussian_epsilon, gaussian_mu

pytestmark = pytest.mark.slow


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
from fedwise.privacy.scales import gaussian_mu
from fedwise.owner.ledger import Ledger

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
from fedwise.owner.noise import add_noise
from fedwise.owner.tables import count

folder = pathlib.Path(sys.argv[1])
plan = fw.plan(fw.Schema.parse(sys.argv[2]), 0.05)
fw.release
release_module = sys.modules["fedwise.owner.release"]  # the name fedwise.owner.release is the function
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
