"""Two processes on one output: both end with the same whole result, or one is told that it is not alone."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from fedwise.errors import FedwiseError
from fedwise.schema.schema import Schema
from fedwise.training import cached
from fedwise.training.federation import find_frames, prepare
from fedwise.training.lock import NAME, alone
from fedwise.training.simulate import Config

from .fork_server import ForkServer, Job
from .recovery import TRAINED, World, book, check_error, check_whole, same


def both(server: ForkServer, folder: Path, first: list[str], second: list[str]) -> list[int]:
    """Run two commands at once; each succeeds or is refused in one sentence. Their exit codes."""
    outcomes = server.run(Job(first, str(folder)), Job(second, str(folder)))
    for outcome in outcomes:
        assert outcome.signal == 0
        if outcome.code:
            check_error(outcome)
            told = ("in use by another process", "holds a run already", "exists; choose another name")
            assert any(text in outcome.err for text in told), outcome.err
    codes = [outcome.code for outcome in outcomes]
    assert 0 in codes
    check_whole(folder)
    return codes


def test_two_trainings_in_one_directory(world: World, server: ForkServer, tmp_path: Path) -> None:
    words = world.words("train")
    other = [*words, "--rounds", "1"]
    alone_folder = tmp_path / "alone"
    alone_folder.mkdir()
    assert server.one(other, alone_folder).code == 0
    codes = both(server, tmp_path, words, other)
    assert sorted(codes) == [0, 2]
    winner = world.reference("train", server) if codes[0] == 0 else alone_folder
    for name in TRAINED:
        assert (tmp_path / "run" / name).read_bytes() == (winner / "run" / name).read_bytes(), name


def test_a_directory_in_use_is_refused(world: World, server: ForkServer, tmp_path: Path) -> None:
    """However the two are timed: while one is at work, neither a start nor a restart gets in."""
    words, resume = world.words("train"), ["train", "--resume", "-o", "run"]
    with alone(tmp_path / "run"):
        check_error(server.one(words, tmp_path), "in use by another process", "choose another with -o")
    assert server.one(words, tmp_path).code == 0
    with alone(tmp_path / "run"):
        check_error(server.one(resume, tmp_path), "in use by another process")
        check_error(server.one([*words, "--force"], tmp_path), "in use by another process")
    assert server.one(resume, tmp_path).code == 0
    assert {file.name for file in (tmp_path / "run").iterdir()} == {*TRAINED, NAME}


def test_a_killed_process_lets_go(world: World, server: ForkServer, tmp_path: Path) -> None:
    code = (
        "import sys, time, pathlib\nfrom fedwise.training.lock import alone\n"
        "with alone(pathlib.Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "run")], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        check_error(server.one(world.words("train"), tmp_path), "in use by another process")
        holder.kill()
        holder.wait(60)
    assert server.one(world.words("train"), tmp_path).code == 0


@pytest.mark.parametrize("command", ["select", "compare"])
def test_two_at_once_write_one_result(command: str, world: World, server: ForkServer, tmp_path: Path) -> None:
    reference = world.reference(command, server)
    both(server, tmp_path, world.words(command), world.words(command))
    name = "selection.json" if command == "select" else "table.parquet"
    assert same(tmp_path / name, reference / name)


def test_two_releases_at_once_are_one(world: World, server: ForkServer, tmp_path: Path) -> None:
    """Also where each finds no ledger yet, and both write the same file: drawn once, charged once."""
    words = world.words("release")
    both(server, tmp_path, words, words)
    assert len(book(tmp_path)[0]) == 1
    (kept,) = (tmp_path / "book.db.releases").glob("*.release.json")
    assert (tmp_path / "out/X.release.json").read_bytes() == kept.read_bytes()
    other = [word.replace("X.release", "Y.release") for word in words]
    assert server.one(other, tmp_path).code == 0
    assert (tmp_path / "out/Y.release.json").read_bytes() == kept.read_bytes()
    assert len(book(tmp_path)[0]) == 1


def test_a_worker_sends_less_than_a_pipe_takes_at_once(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker killed in the middle of a message would leave its parent waiting for the rest for ever."""
    prepared = prepare(find_frames(world.root / "clients"), Schema.load(world.root / "schema.toml"))
    training = cached.Job(("A", "C"), Config(rounds=3, model="4"))
    monkeypatch.setattr(cached, "_SHARED", [prepared])
    sent = pickle.dumps(cached._work(training, tmp_path / "records.parquet"))
    assert len(sent) < 512  # POSIX: a write of so many bytes is whole or not at all, on any system
    records = cached._run(prepared, training)
    assert pl.read_parquet(tmp_path / "records.parquet").equals(records, null_equal=True)
    assert len(pickle.dumps(records)) > 4096  # what would have been sent otherwise
    with pytest.raises(FedwiseError, match="cannot be written"):
        cached._work(training, tmp_path / "nowhere" / "records.parquet")


def workers_of(pid: int) -> list[int]:
    """Training processes of a comparison: its children that are not multiprocessing's own helper."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    found = []
    for child in children:
        try:
            words = Path(f"/proc/{child}/cmdline").read_bytes()
        except FileNotFoundError:
            continue
        if b"spawn_main" in words:
            found.append(int(child))
    return found


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.soak
@pytest.mark.parametrize("victim", ["parent", "worker"])
def test_a_comparison_in_processes_is_killed(victim: str, world: World, tmp_path: Path) -> None:
    """Workers end with their parent; a parent says that a worker died, and goes on from the cache."""
    words = [*world.words("compare"), "--workers", "2", "--rounds", "400", "--seeds", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fedwise.cli.main", *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 240
    workers: list[int] = []
    while len(workers) < 2 and time.monotonic() < deadline and process.poll() is None:
        workers = workers_of(process.pid)
        time.sleep(0.02)
    while not list((tmp_path / "cache").glob("*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.02)  # the first training is done: both are at work
    assert process.poll() is None
    if victim == "parent":
        process.kill()
    else:
        os.kill(workers[0], signal.SIGKILL)
    _, err = process.communicate(timeout=240)
    while not all(gone(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert all(gone(pid) for pid in workers), "a worker outlives its parent"
    if victim == "worker":
        assert process.returncode == 2
        assert err.startswith("error: a training process died")
        assert "Traceback" not in err
    check_whole(tmp_path)
    kept = {file.name: file.read_bytes() for file in (tmp_path / "cache").glob("*.parquet")}
    assert kept
