"""Full and read-only disks, and a clock that goes backwards: one clear sentence, and nothing lost."""

from __future__ import annotations

import errno
import signal
from pathlib import Path

import pytest

from .fork_server import ForkServer, Outcome
from .recovery import (
    COMMANDS,
    World,
    book,
    check_again,
    check_error,
    check_whole,
    find,
    fresh,
)

FULL, READ_ONLY = errno.ENOSPC, errno.EROFS
#: Steps whose failure matters most; the soak run takes all.
POINTS = {
    "release": (("sql COMMIT", 0), ("fsync", 1)),
    "select": (("fsync", 0),),
    "train": (("open .plan.json", 0), ("rename .checkpoint", 1)),
    "compare": (("open .table", 0),),
}


def check_told(outcome: Outcome, fault: int) -> None:
    """What, where, and what to do."""
    check_error(outcome)
    line = next(line for line in outcome.err.splitlines() if line.startswith("error: "))
    reasons = {
        FULL: ("No space left on device", "disk is full"),
        READ_ONLY: ("Read-only file system", "readonly database"),
    }
    assert any(reason in line for reason in reasons[fault]), line
    assert "'" in line, f"no file is named: {line}"
    assert ";" in line, f"no remedy is named: {line}"


def strike(world: World, server: ForkServer, folder: Path, command: str, at: int, fault: int) -> bool:
    """Fail a command from one step on; check what it says and leaves. Whether it failed at all."""
    outcome = server.one(world.words(command), fresh(folder), fail_at=at, fail_errno=fault)
    assert outcome.signal == 0
    check_whole(folder)
    if outcome.code == 0:  # nothing after that step needs the disk
        return False
    check_told(outcome, fault)
    left = [path for path in folder.rglob("*") if path.name.endswith(".part")]
    assert not left or fault == READ_ONLY, f"left behind: {left}"
    if command == "release" and book(folder)[0] and not list(folder.rglob("*.release.json")):
        assert "was charged before and stays so" in outcome.err
    return True


@pytest.mark.parametrize("command", COMMANDS)
def test_the_disk_fills_up_half_way(command: str, world: World, server: ForkServer, tmp_path: Path) -> None:
    steps = world.steps(command, server)
    for text, nth in POINTS[command]:
        assert strike(world, server, tmp_path, command, find(steps, text, nth=nth), FULL), text
    check_again(command, world, server, tmp_path)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_read_only_directory(command: str, world: World, server: ForkServer, tmp_path: Path) -> None:
    assert strike(world, server, tmp_path, command, 0, READ_ONLY)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_full_disk_costs_no_budget(world: World, server: ForkServer, tmp_path: Path) -> None:
    """Where there is no room for the release, nothing is charged."""
    words = world.words("release")
    outcome = server.one(words, tmp_path, fail_at=0, fail_errno=FULL)
    check_told(outcome, FULL)
    assert not (tmp_path / "book.db").exists()
    assert list(tmp_path.rglob("*.release.json")) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_write_is_cut_short(command: str, world: World, server: ForkServer, tmp_path: Path) -> None:
    """No file may grow past 300 bytes: the write itself fails, half way."""
    outcome = server.one(world.words(command), fresh(tmp_path), largest=300)
    check_error(outcome, "File too large", ";")
    check_whole(tmp_path)
    check_again(command, world, server, tmp_path)


def test_a_clock_that_goes_backwards(world: World, server: ForkServer, tmp_path: Path) -> None:
    """Order and totals of the ledger do not depend on the time written beside each line."""
    words = world.words("release")
    for number, clock in enumerate((2e9, 1e9, 1.5e9)):
        named = [word.replace("X", f"X{number}") for word in words]
        assert server.one(named, tmp_path, clock=clock).code == 0
    charges, balance = book(tmp_path)
    assert [c.client for c in charges] == ["X0", "X1", "X2"]
    assert [c.at[:4] for c in charges] == ["2033", "2001", "2017"]
    undisturbed = fresh(tmp_path / "other")
    for number in range(3):
        assert server.one([word.replace("X", f"X{number}") for word in words], undisturbed).code == 0
    assert book(undisturbed)[1] == balance


def test_the_injector_can_fail_a_step(world: World, server: ForkServer, tmp_path: Path) -> None:
    """Proof: written in place, the same fault leaves a file that the checks refuse."""
    outcome = server.one(world.words("select"), tmp_path, largest=300, sabotage="write in place")
    assert outcome.code == 1
    assert "Traceback" in outcome.err
    with pytest.raises(AssertionError):
        check_error(outcome)
    with pytest.raises(Exception, match="selection file"):
        check_whole(tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(FULL, id="full"),
        pytest.param(READ_ONLY, id="read-only"),
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_the_disk_fails_at_every_step(
    command: str, fault: int, world: World, server: ForkServer, tmp_path: Path
) -> None:
    failed = 0
    steps = world.steps(command, server)
    for at in range(len(steps)):
        failed += strike(world, server, tmp_path, command, at, fault)
        if at % 4 == 0:
            check_again(command, world, server, tmp_path)
    assert failed > len(steps) * 0.6


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_write_is_cut_short_anywhere(
    command: str, world: World, server: ForkServer, tmp_path: Path
) -> None:
    for largest in (0, 1, 1000, 4095, 4096, 5000, 12_000, 33_000):
        outcome = server.one(world.words(command), fresh(tmp_path), largest=largest)
        assert outcome.signal != signal.SIGXFSZ
        if outcome.code:
            check_error(outcome, ";")
        check_whole(tmp_path)
        check_again(command, world, server, tmp_path)
