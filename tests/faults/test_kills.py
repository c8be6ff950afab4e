"""kill -9 at every step of release, select, train and compare.

After each kill: every file left is whole or invisible to readers, the ledger holds at least what may have
left, and running the command again ends with the undisturbed result, or goes on to it.
"""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

import fedwise as fw

from .fork_server import ForkServer
from .recovery import COMMANDS, World, book, check_again, check_charged, check_error, check_whole, find, fresh

#: The steps at which most could go wrong: text of the step, and which of those with that text.
POINTS = {
    "release": (
        ("sql CREATE TABLE", 1),
        ("sql INSERT INTO", 1),
        ("noise", 0),
        ("link .X", 0),
        ("link .X", 1),
        ("remove .X", 0),
    ),
    "select": (("link", 0),),
    "train": (("rename .config.json", 0), ("rename .checkpoint", 1), ("rename .model", 0)),
    "compare": (("rename", 1), ("rename", -1)),
}
CASES = [(command, *point) for command, points in POINTS.items() for point in points]


def killed(world: World, server: ForkServer, folder: Path, command: str, at: int) -> None:
    """Kill a command before a step, and check what it leaves."""
    steps = world.steps(command, server)
    outcome = server.one(world.words(command), fresh(folder), kill_at=at)
    assert outcome.signal == signal.SIGKILL, (steps[at], outcome.err)
    check_whole(folder)
    if command == "release":
        check_charged(folder, steps, at)


@pytest.mark.parametrize(("command", "text", "nth"), CASES, ids=[f"{c}-{t}-{n}" for c, t, n in CASES])
def test_killed_where_it_hurts(
    command: str, text: str, nth: int, world: World, server: ForkServer, tmp_path: Path
) -> None:
    at = find(world.steps(command, server), text, nth=nth)
    killed(world, server, tmp_path, command, at)
    check_again(command, world, server, tmp_path)


def test_a_training_killed_while_it_replaces_another(
    world: World, server: ForkServer, tmp_path: Path
) -> None:
    """--force over a finished run of other settings: never a mixture of the two."""
    words = world.words("train")
    other = [*words, "--rounds", "1"]
    assert server.one(other, tmp_path).code == 0
    steps = server.one([*words, "--force"], fresh(tmp_path)).steps
    at = find(steps, "rename .config.json")
    assert server.one(other, fresh(tmp_path)).code == 0
    outcome = server.one([*words, "--force"], tmp_path, kill_at=at)
    assert outcome.signal == signal.SIGKILL
    check_error(server.one(["train", "--resume", "-o", "run"], tmp_path), "config.json", "does not exist")
    check_again("train", world, server, tmp_path)


def test_without_a_budget_a_killed_release_is_refused_or_repeated(
    world: World, server: ForkServer, tmp_path: Path
) -> None:
    """The ledger has room for one release only: one that may have left is not made again."""
    words = world.words("release")[:-2]
    steps = world.steps("release", server)
    for at, code in ((find(steps, "noise"), 3), (find(steps, "sql COMMIT", nth=1), 0)):
        outcome = server.one(words, fresh(tmp_path), kill_at=at)
        assert outcome.signal == signal.SIGKILL
        again = server.one(words, tmp_path)
        assert again.code == code, (steps[at], again.err)
        assert len(book(tmp_path)[0]) == 1


# --- Proof that the checks can fail ------------------------------------------------------------------------


def test_the_checks_catch_a_late_charge(world: World, server: ForkServer, tmp_path: Path) -> None:
    words = world.words("release")
    steps = server.one(words, fresh(tmp_path), sabotage="charge late").steps
    assert server.one(
        words, fresh(tmp_path), kill_at=find(steps, "link .X") + 1, sabotage="charge late"
    ).signal
    with pytest.raises(AssertionError, match="uncharged release"):
        check_whole(tmp_path)
    at = find(steps, "link .X")
    assert server.one(words, fresh(tmp_path), kill_at=at, sabotage="charge late").signal
    check_whole(tmp_path)
    with pytest.raises(AssertionError, match="no charge"):
        check_charged(tmp_path, steps, at)


def test_the_checks_catch_a_half_written_file(world: World, server: ForkServer, tmp_path: Path) -> None:
    words = world.words("select")
    for sabotage in ("", "write in place"):
        outcome = server.one(words, fresh(tmp_path), largest=100, largest_kills=True, sabotage=sabotage)
        assert outcome.signal == signal.SIGXFSZ
        if sabotage:
            assert (tmp_path / "selection.json").stat().st_size == 100
            with pytest.raises(fw.FedwiseError, match="selection file"):
                check_whole(tmp_path)
        else:
            check_whole(tmp_path)


# --- All of them ---------------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_two_hundred_kills(world: World, server: ForkServer, tmp_path: Path) -> None:
    """Every step of every command, then torn writes, then random moments, until 200 processes have died."""
    kills = 0
    for command in COMMANDS:
        for at in range(len(world.steps(command, server))):
            killed(world, server, tmp_path / "t", command, at)
            check_again(command, world, server, tmp_path / "t", force=at % 3 == 2)
            kills += 1
    assert kills >= 120
    # A write stopped in the middle: the process dies with a file, or the ledger's log, cut at this size.
    for command in COMMANDS:
        for largest in (0, 1, 1000, 4096, 5000, 20_000):
            outcome = server.one(
                world.words(command), fresh(tmp_path / "t"), largest=largest, largest_kills=True
            )
            if outcome.signal == 0:
                continue
            check_whole(tmp_path / "t")
            check_again(command, world, server, tmp_path / "t")
            kills += 1
    # Any moment at all. Seeded, though where a kill lands depends on the machine.
    rng = random.Random(10)
    alive = 0
    while kills < 200:
        command = rng.choice(COMMANDS)
        moment = rng.uniform(0.0, world.seconds(command, server))
        outcome = server.one(world.words(command), fresh(tmp_path / "t"), kill_after=moment)
        check_whole(tmp_path / "t")
        check_again(command, world, server, tmp_path / "t")
        kills += outcome.signal == signal.SIGKILL
        alive += outcome.signal == 0
        assert alive < 200
    assert kills >= 200
