"""What must hold after a process was stopped at any moment: the commands under test and their checks."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

import fedwise as fw
from fedwise.owner.ledger import Balance, Charge, Ledger
from fedwise.privacy.scales import gaussian_epsilon
from fedwise.search import Selection
from fedwise.training.run import Run

from .fork_server import ForkServer, Outcome

COMMANDS = ("release", "select", "train", "compare")
#: What the run directory of the undisturbed training holds.
TRAINED = (
    "config.json", "schema.toml", "selection.json", "plan.json", "metrics.parquet", "checkpoint.safetensors",
    "model.safetensors", "privacy.json",
)  # fmt: skip


@dataclass
class World:
    """Inputs, and the undisturbed result of each command, made once."""

    root: Path
    _steps: dict[str, list[str]] = field(default_factory=dict)
    _seconds: dict[str, float] = field(default_factory=dict)

    def words(self, command: str) -> list[str]:
        """A command line; its outputs go to the current directory."""
        root = self.root
        data = ("--data", root / "clients", "--schema", root / "schema.toml", "--model", 4, "--lr", 0.01)
        words: dict[str, tuple[object, ...]] = {
            "release": (root / "plan.json", root / "people.csv", "-c", "X", "-o", "out/X.release.json",
                        "--ledger", "book.db", "--budget", 5),
            "select": (root / "releases", "-k", 2, "--seed", 3, "--no-rehearsal", "-o", "selection.json"),
            "train": (*data, "--selection", root / "chosen.json", "--plan", root / "plan.json", "-o", "run",
                      "--rounds", 2, "--bootstrap", 5, "--strategy", "scaffold"),
            "compare": (*data, "-f", "two=A,C", "-f", "all=A,B,C,D", "--strategies", "fedavg", "--seeds", 1,
                        "--rounds", 1, "--workers", 1, "--cache", "cache", "-o", "table.parquet"),
        }  # fmt: skip
        return [command, *(str(word) for word in words[command])]

    def reference(self, command: str, server: ForkServer) -> Path:
        """The directory of the undisturbed run."""
        folder = self.root / "undisturbed" / command
        if not folder.exists():
            folder.mkdir(parents=True)
            outcome = server.one(self.words(command), folder)
            assert outcome.code == 0, outcome.err
            self._steps[command] = outcome.steps
            self._seconds[command] = outcome.seconds
        return folder

    def steps(self, command: str, server: ForkServer) -> list[str]:
        """Every step of the undisturbed run, in order."""
        self.reference(command, server)
        return self._steps[command]

    def seconds(self, command: str, server: ForkServer) -> float:
        """How long the undisturbed run took."""
        self.reference(command, server)
        return self._seconds[command]


def find(steps: list[str], text: str, *, nth: int = 0) -> int:
    """Position of the nth step with this text in it."""
    return [i for i, step in enumerate(steps) if text in step][nth]


def book(folder: Path) -> tuple[list[Charge], Balance | None]:
    """The ledger's lines and balance; empty where it was never set up."""
    try:
        ledger = Ledger(folder / "book.db")
    except fw.FedwiseError as error:
        if "does not exist" in str(error) or "is empty" in str(error):
            return [], None
        raise
    return ledger.history(), ledger.balance()


def check_whole(folder: Path) -> None:
    """Every file a reader would take is whole; what is not is named so that no reader takes it."""
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = file.name
        if name.startswith(".") and name.endswith((".part", ".trial")):
            continue
        if name.endswith(".release.json"):
            fw.Release.load(file)
        elif name == "selection.json" and file.parent == folder:
            Selection.load(file)
        elif name.endswith(".parquet"):
            pl.read_parquet(file)
        elif name == "plan.json":
            fw.Plan.load(file)
        elif name == "privacy.json":
            json.loads(file.read_bytes())
        elif name == "config.json":
            run = Run.open(file.parent)
            run.progress()
            # All that was asked is there as soon as the run is.
            assert (file.parent / "plan.json").exists()
            assert (file.parent / "selection.json").exists()
            if (file.parent / "model.safetensors").exists():
                run.parameters()
                assert (file.parent / "privacy.json").exists()
    releases = list(folder.rglob("*.release.json"))
    charges, balance = book(folder) if (folder / "book.db").exists() else ([], None)
    check_counted(releases, charges, balance)


def check_counted(releases: list[Path], charges: list[Charge], balance: Balance | None) -> None:
    """No release without its charge, and the sum says so."""
    for file in releases:
        release = fw.Release.load(file)
        assert (release.client, release.plan_digest) in {(c.client, c.plan) for c in charges}, (
            "uncharged release"
        )
        assert balance is not None
        cost = min(release.plan.epsilon, gaussian_epsilon(release.plan.mu, balance.delta))
        assert balance.spent >= cost * (1 - 1e-9), "the ledger under-counts"
    # The file that is handed over is a copy of the one that is kept; two different ones are two releases.
    assert len(charges) >= len({file.read_bytes() for file in releases}), "drawn more often than charged"


def check_charged(folder: Path, steps: list[str], at: int) -> None:
    """The charge is in the book before the noise is drawn: from then on something may have left."""
    if at > find(steps, "noise"):
        assert book(folder)[0], f"no charge, killed at {steps[at]}"


def check_again(command: str, world: World, server: ForkServer, folder: Path, *, force: bool = False) -> None:
    """Run the command again in the directory a stopped one left: it ends as if nothing had happened."""
    reference = world.reference(command, server)
    words = world.words(command)
    if command == "release":
        _release_again(words, server, folder)
    elif command == "train":
        _train_again(words, server, folder, reference, force=force)
    else:
        name = "selection.json" if command == "select" else "table.parquet"
        finished = (folder / name).exists()
        before = (folder / name).read_bytes() if finished else b""
        outcome = server.one(words, folder)
        if finished:
            check_error(outcome, "exists")
            assert (folder / name).read_bytes() == before
        else:
            assert outcome.code == 0, outcome.err
        assert same(folder / name, reference / name)
    check_whole(folder)


def _release_again(words: list[str], server: ForkServer, folder: Path) -> None:
    file = folder / "out" / "X.release.json"
    finished = file.exists()
    kept = [path.read_bytes() for path in (folder / "book.db.releases").glob("*.release.json")]
    charges = len(book(folder)[0])
    outcome = server.one(words, folder)
    if finished:
        check_error(outcome, "exists")
        assert len(book(folder)[0]) == charges
    else:
        assert outcome.code == 0, outcome.err
        # What was kept before the stop is handed over; anything else is drawn, and charged first.
        assert len(book(folder)[0]) == charges + (not kept)
        assert not kept or kept == [file.read_bytes()]


def _train_again(words: list[str], server: ForkServer, folder: Path, reference: Path, *, force: bool) -> None:
    run = folder / "run"
    if (run / "config.json").exists():
        check_error(server.one(words, folder), "holds a run already")
        outcome = server.one([*words, "--force"] if force else ["train", "--resume", "-o", "run"], folder)
    else:
        outcome = server.one(words, folder)
    assert outcome.code == 0, outcome.err
    left = {file.name for file in run.iterdir() if not file.name.startswith(".")}
    assert left == set(TRAINED)
    for name in TRAINED:
        assert (run / name).read_bytes() == (reference / "run" / name).read_bytes(), name


def same(file: Path, other: Path) -> bool:
    """Equal bytes; of a selection, all but the time it took."""
    if file.name != "selection.json":
        return file.read_bytes() == other.read_bytes()
    ours, theirs = json.loads(file.read_bytes()), json.loads(other.read_bytes())
    return {**ours, "seconds": 0} == {**theirs, "seconds": 0}


def check_error(outcome: Outcome, *words: str, code: int = 2) -> None:
    """One sentence on stderr with these words, the right exit code, no traceback."""
    assert outcome.signal == 0
    assert outcome.code == code, (outcome.code, outcome.err)
    assert "Traceback" not in outcome.err, outcome.err
    lines = [line for line in outcome.err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, outcome.err
    for word in words:
        assert word in lines[0], lines[0]


def fresh(folder: Path) -> Path:
    """An empty directory."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
