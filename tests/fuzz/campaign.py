"""A campaign: many inputs against one reader, and what was seen.

Run by hand: ``PYTHONPATH=tests python tests/fuzz/campaign.py release 100000 --seed 1``. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import tempfile
import time
import traceback
import warnings
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedwise.errors import FedwiseError
from fuzz.mutator import Lines
from fuzz.readers import READERS, Reader

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    "os.mkdir",
    "os.rename",
    "os.link",
    "os.symlink",
    "os.remove",
    "os.rmdir",
    "os.chmod",
    "os.truncate",
}
#: Inputs are cut to this; `test_bombs` reads larger ones.
_LARGEST = 500_000
#: Largest input that is kept for further mutation.
_KEEP = 32_768


@dataclass
class Outcome:
    """Counts of one campaign; `bugs` holds one traceback for each place a wrong exception came from."""

    reader: str
    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    lines: int = 0
    corpus: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    slowest_input: str = ""
    growth_mb: float = 0.0
    strays: list[str] = field(default_factory=list)
    bugs: dict[str, str] = field(default_factory=dict)


class Fence:
    """Notes every file that Python code opens for writing, makes, moves or removes outside a folder."""

    #: The fence that listens now. Audit hooks cannot be taken away again, so there is one for all.
    _now: Fence | None = None
    _hooked = False

    def __init__(self, folder: Path) -> None:
        self.folder = os.path.realpath(folder)
        self.strays: list[str] = []
        if not Fence._hooked:
            Fence._hooked = True
            sys.addaudithook(Fence._hear)

    def __enter__(self) -> None:
        Fence._now = self

    def __exit__(self, *_: object) -> None:
        Fence._now = None

    @staticmethod
    def _hear(event: str, arguments: tuple[Any, ...]) -> None:
        # At the end of the process names of this module are gone before the hook is.
        fence = Fence._now if Fence is not None else None
        if fence is None:
            return
        if event == "open":
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & _WRITES:
                return
        elif event in _CHANGES or event == "sqlite3.connect":
            path = arguments[1] if event == "os.link" else arguments[0]
        else:
            return
        if isinstance(path, int):
            return
        place = os.path.realpath(os.fsdecode(path))
        if not place.startswith(fence.folder + os.sep):
            fence.strays.append(f"{event} {place}")


def run(name: str, inputs: int, *, seed: int, folder: Path) -> Outcome:
    """Mutate and read `inputs` times; every reader gets the same inputs for the same seed."""
    rng = random.Random(f"{name} {seed}")
    reader = READERS[name](folder)
    found = Outcome(name)
    lines = Lines()
    corpus = list(reader.seeds())
    for data in corpus:
        with lines.watching():
            _check(reader, data, found)
    assert found.accepted == len(corpus), f"a seed of {name} is refused: {found.bugs}"
    fence = Fence(folder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    while found.inputs < inputs:
        # New finds are worth more than old ones: half of the parents come from the last twenty.
        parent = rng.choice(corpus[-20:] if rng.random() < 0.5 else corpus)
        data = reader.mutate(parent, rng, corpus)[:_LARGEST]
        # Tracing takes most of the time: once the easy lines are known, a third of the inputs is enough.
        traced = found.inputs < 300 or found.inputs % 3 == 0
        start = time.thread_time()
        with fence, lines.watching() if traced else nullcontext():
            _check(reader, data, found)
        took = time.thread_time() - start
        if took > found.slowest:
            # Tracing slows Python down several times: what counts is the time without it.
            start = time.thread_time()
            _check(reader, data, Outcome(name))
            took = time.thread_time() - start
        if took > found.slowest:
            found.slowest, found.slowest_input = took, repr(data[:200])
        if lines.take_news() and len(data) <= _KEEP:
            corpus.append(data)
        found.inputs += 1
    found.seconds = time.perf_counter() - begin
    found.growth_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 1024
    found.lines, found.corpus, found.strays = len(lines.seen), len(corpus), fence.strays
    return found


def _check(reader: Reader, data: bytes, found: Outcome) -> None:
    try:
        reader.read(data)
        found.accepted += 1
    except FedwiseError as refusal:
        found.refused += 1
        text = str(refusal).replace("\n", " ")
        if not text.isprintable() or len(text) > 2000:
            found.bugs[f"message {text[:60]!r}"] = repr(data[:2000])
    except BaseException as bug:
        if isinstance(bug, KeyboardInterrupt):
            raise
        last = traceback.extract_tb(bug.__traceback__)[-1]
        place = f"{type(bug).__name__} {Path(last.filename).name}:{last.lineno}"
        if place not in found.bugs:
            found.bugs[place] = "".join(traceback.format_exception(bug))[-2500:] + f"\ninput: {data[:3000]!r}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reader", choices=READERS)
    parser.add_argument("inputs", type=int)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    warnings.simplefilter("error")
    # Most of a ledger's time goes into the disk, where there is one.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        found = run(chosen.reader, chosen.inputs, seed=chosen.seed, folder=Path(folder))
    sys.stdout.write(json.dumps(asdict(found)) + "\n")


if __name__ == "__main__":
    main()
