"""Nothing exact leaves through the command line: every byte written, printed, logged or handed to the kernel."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import fedwise as fw
from owner import leak_walk
from owner.guild import write_inputs
from owner.leak_walk import Secrets, Watch

pytestmark = pytest.mark.slow

#: What people type, and the exit code. ``{n}`` is a fresh number, so that outputs do not collide.
COMMANDS: tuple[tuple[str, int], ...] = (
    ("release plan.json rows.parquet -c ash -o a.json --budget 1.6", 0),
    ("release plan.json rows.parquet -c elm -o b.json --json", 0),
    ("release plan.json rows.parquet -c oak -o c.json", 3),
    ("release plan.json rows.parquet -c oak -o c.json --debug", 3),
    ("release plan.json rows.parquet -c ash -o again.json", 0),
    ("release plan.json rows.parquet -c ash -o a.json", 2),
    ("release plan.json rows.parquet -c ../ash -o d.json", 2),
    ("release plan.json rows.parquet -c ash -o e.json --schema other.toml", 2),
    ("release strict.json rows.parquet -c ash -o f.json -l f.db", 2),
    ("release strict.json rows.parquet -c ash -o f.json -l f.db --debug", 2),
    *(
        (f"release plan.json {name} -c ash -o x.json -l x.db {extra}", 2)
        for name in ("missing_column.parquet", "missing_value.parquet", "text_for_number.parquet", "outside.parquet",
                     "empty_income.parquet", "ragged.csv", "words.csv", "binary.csv", "cut.parquet")
        for extra in ("--json", "--debug")
    ),
    # Not `inspect`: it reads the noisy file alone, and its rounded estimate of the records hits the truth by
    # chance once in some thirty runs.
    ("budget rows.parquet.ledger.db --json", 0),
    ("budget rows.parquet.ledger.db", 0),
)  # fmt: skip

#: Runs several command lines in one process, as the `fedwise` command does, with every logger at DEBUG.
DRIVER = """
import json, logging, pathlib, sys, traceback
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
from owner.leak_walk import Watch
from fedwise.cli.main import main

folder, vault, commands = pathlib.Path.cwd(), pathlib.Path(sys.argv[1]), json.loads(sys.argv[2])
inputs = [folder / name for name in json.loads(sys.argv[3])]
codes = []
with Watch(folder, vault, inputs=inputs) as watch:
    for words in commands:
        sys.argv = ["fedwise", *words]
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        except BaseException as error:  # --debug shows the traceback
            traceback.print_exc()
            code = getattr(error, "exit_code", 99)
        codes.append(code)
    watch.blobs.clear()  # the parent walks the files and streams
(vault / "codes.json").write_text(json.dumps(codes))
"""


def run_commands(
    home: Path,
    vault: Path,
    inputs: list[Path],
    *,
    before: list[str] | None = None,
    first: int = len(COMMANDS),
) -> tuple[Watch, list[int]]:
    tests = str(Path(leak_walk.__file__).parents[1])
    vault.mkdir()
    words = json.dumps([command.split() for command, _ in COMMANDS[:first]])
    names = json.dumps([path.name for path in inputs])
    done = subprocess.run(
        [*(before or []), sys.executable, "-c", DRIVER, str(vault), words, names],
        cwd=home,
        env={**os.environ, "PYTHONPATH": tests, "COLUMNS": "200"},
        capture_output=True,
        timeout=500,
        check=False,
    )
    assert (vault / "codes.json").exists(), done.stderr[-3000:]
    watch = Watch(home, vault, inputs=inputs)
    watch.note("stdout", done.stdout)
    watch.note("stderr", done.stderr)
    watch.note_files()
    return watch, json.loads((vault / "codes.json").read_text())


def test_the_command_line(home: Path, rows: pl.DataFrame, plan: fw.Plan, secrets: Secrets) -> None:
    inputs = write_inputs(home, rows, plan)
    watch, codes = run_commands(home, home.parent / "vault", inputs)
    for (command, wanted), code in zip(COMMANDS, codes, strict=True):
        assert code == wanted, command
    assert watch.walk(secrets) == []
    # The walk saw what there was to see: releases, the ledger, the temporary files they were written through.
    names = [name for name, _ in watch.blobs]
    for part in ("a.json", "b.json", "rows.parquet.ledger.db", ".part"):
        assert any(name.startswith("file ") and part in name for name in names), part
    streams = b"".join(data for name, data in watch.blobs if name in ("stdout", "stderr"))
    assert streams.count(b"Traceback") >= 9
    assert b"refuses this release" in streams


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace to see every write of the process")
def test_every_write_to_the_kernel(home: Path, rows: pl.DataFrame, plan: fw.Plan, secrets: Secrets) -> None:
    """As above, but through the kernel's eyes: SQLite's journals and whatever native code writes, too."""
    trace = home.parent / "trace"
    calls = "write,pwrite64,writev,pwritev,sendto,sendmsg,rename,renameat,renameat2,link,linkat"
    before = ["strace", "-f", "--seccomp-bpf", "-qq", "-y", "-xx", "-s", "10000000", "-e", f"trace={calls}",
              "-o", str(trace)]  # fmt: skip
    probe = subprocess.run([*before, "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("strace may not trace here")
    inputs = write_inputs(home, rows, plan)
    _, codes = run_commands(home, home.parent / "vault", inputs, before=before, first=4)
    assert codes == [0, 0, 3, 3]
    watch = Watch(home, home.parent / "vault")
    # Copies into the vault are the test's own.
    vault = str(home.parent / "vault").encode()
    wanted = re.compile(rb"(?:\\x[0-9a-f]{2})+")
    written = 0
    for line in trace.read_bytes().splitlines():
        payloads = [bytes.fromhex(hit.replace(b"\\x", b"").decode()) for hit in wanted.findall(line)]
        if not payloads or any(vault in payload for payload in payloads):
            continue
        target = payloads[0]
        # Compiled code does not depend on rows, and is random enough to hold any four bytes.
        if target.endswith((b".nbi", b".nbc", b".pyc")) or b"__pycache__" in target:
            continue
        for payload in payloads:
            watch.note(f"kernel {target!r}", payload)
            written += len(payload)
    assert watch.walk(secrets) == []
    everything = b"".join(data for _, data in watch.blobs)
    assert written > 20_000
    assert b"SQLite format 3" in everything  # what only native code writes
    assert b'"fedwise/release/1"' in everything
