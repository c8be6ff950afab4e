"""Nothing exact leaves: real releases and real failures, and a walk over every byte that came of them.

The rows hold numbers and texts that cannot be mistaken (see `leak_walk`). The walk itself is deterministic but
for noisy counts, whose chance to look like a leak is below 1e-9 a run; planted leaks prove that it finds
what it looks for.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import fedwise as fw
from fedwise.errors import BudgetExceeded, DataError, FedwiseError
from owner import leak_walk
from owner.leak_walk import (
    INCOMES,
    NAMES,
    RECORDS,
    SCHEMA,
    SEEN,
    STRANGE,
    UNSEEN,
    Secrets,
    Watch,
    guild,
    repeated_cells,
)

STRICT = SCHEMA.replace('unknown = "other"\n', "")


@pytest.fixture(scope="module")
def plan() -> fw.Plan:
    return fw.plan(fw.Schema.parse(SCHEMA))


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    return guild()


@pytest.fixture(scope="module")
def secrets(plan: fw.Plan, rows: pl.DataFrame) -> Secrets:
    found = Secrets.of(plan, rows)
    assert RECORDS in found.numbers
    assert len(found.numbers) > len(INCOMES) + 4
    return found


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of its own for every file, temporary ones included."""
    place = tmp_path / "home"
    (place / "tmp").mkdir(parents=True)
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(place / "tmp" if name == "TMPDIR" else place))
    monkeypatch.setattr(tempfile, "tempdir", str(place / "tmp"))
    monkeypatch.chdir(place)
    return place


def write_inputs(folder: Path, rows: pl.DataFrame, plan: fw.Plan) -> list[Path]:
    """The owner's rows, whole and damaged in all the ways we know; these stay and are not walked."""
    plan.save(folder / "plan.json")
    fw.plan(fw.Schema.parse(STRICT)).save(folder / "strict.json")
    few = rows.head(2000)
    made = {
        "rows.parquet": rows,
        "missing_column.parquet": rows.drop("SEX"),
        "missing_value.parquet": few.with_columns(
            pl.when(pl.int_range(pl.len()) == 9).then(None).otherwise(pl.col("SEX")).alias("SEX")
        ),
        "text_for_number.parquet": few.with_columns(pl.lit(NAMES[0]).alias("AGE")),
        "outside.parquet": few.with_columns(pl.lit(INCOMES[0]).alias("AGE")),
        "empty_income.parquet": few.with_columns(pl.lit(NAMES[1]).alias("INCOME")),
    }
    for name, frame in made.items():
        frame.write_parquet(folder / name)
    few.write_csv(folder / "ragged.csv")
    with (folder / "ragged.csv").open("a") as file:
        file.write(f"{STRANGE},{INCOMES[0]}\n")
    few.with_columns(pl.lit(f'"{NAMES[0]}').alias("AGE")).write_csv(folder / "words.csv")
    (folder / "binary.csv").write_bytes(b"TRADE,AGE,SEX,INCOME\n\xff\xfe" + STRANGE.encode())
    cut = (folder / "rows.parquet").read_bytes()
    (folder / "cut.parquet").write_bytes(cut[: len(cut) // 2])
    return [*(folder / name for name in made), *(folder / f"{n}.csv" for n in ("ragged", "words", "binary")),
            folder / "cut.parquet"]  # fmt: skip


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


# --- In Python ---------------------------------------------------------------------------------------------


def failures(rows: pl.DataFrame, plan: fw.Plan, folder: Path) -> list[Callable[[], object]]:
    """Calls that fail, each in another way."""
    strict = fw.plan(fw.Schema.parse(STRICT))
    few = rows.head(2000)
    pandas = few.to_pandas()
    mixed = pandas.astype(object)
    mixed.loc[3, "AGE"] = NAMES[0]
    spent = fw.Ledger(folder / "spent.db", 0.5)

    def release(asked: fw.Plan, frame: Any, **options: Any) -> Callable[[], object]:
        options = options or {"uncharged": True}
        return lambda: fw.release(asked, frame, client="ash", **options)

    return [
        release(strict, rows),
        release(strict, pandas),
        release(strict, few.lazy().with_columns(pl.col("TRADE").cast(pl.Int64))),
        release(plan, rows.drop("AGE")),
        release(plan, rows.with_columns(pl.lit(NAMES[0]).alias("SEX"))),
        release(plan, rows.with_columns(pl.lit(INCOMES[0]).alias("SEX"))),
        release(plan, rows.with_columns(pl.lit(None).alias("INCOME"))),
        release(plan, mixed),
        release(plan, few.to_arrow().rename_columns(["TRADE", "AGE", "SEX", "SEX", "NAME"])),
        release(plan, {"TRADE": [STRANGE]}),
        release(plan, folder / "ragged.csv"),
        release(plan, folder / "cut.parquet"),
        release(plan, rows, ledger=spent),
        lambda: fw.release(plan, rows, client=STRANGE[:3] + "/x", uncharged=True),
    ]


def test_the_library(
    home: Path, rows: pl.DataFrame, plan: fw.Plan, secrets: Secrets, capfd: pytest.CaptureFixture[str]
) -> None:
    inputs = write_inputs(home, rows, plan)
    with Watch(home, home.parent / "vault", inputs=inputs) as watch:
        made = fw.release(plan, rows, client="ash", ledger=fw.Ledger(home / "l.db", 1.0))
        made.save(home / "ash.release.json")
        watch.note("repr", repr(made))
        errors = []
        for number, call in enumerate(failures(rows, plan, home)):
            with pytest.raises(FedwiseError) as caught:
                pytest.fail(f"call {number} did not fail: {call()!r}")
            errors.append(type(caught.value))
            watch.note_error(f"failure {number}", caught.value)
        shown = capfd.readouterr()
        watch.note("stdout", shown.out)
        watch.note("stderr", shown.err)
    assert watch.walk(secrets) == []
    assert {DataError, BudgetExceeded} <= set(errors)


def test_cells_are_exact_no_more_often_than_noise_allows(
    rows: pl.DataFrame, plan: fw.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """30 releases: an honest cell is accused once in 10⁹ runs, one that leaves without noise always."""
    few = rows.head(3000)
    releases = [fw.release(plan, few, client="ash", uncharged=True) for _ in range(30)]
    assert repeated_cells(releases, few) == []
    module = sys.modules["fedwise.owner.release"]
    real = module.add_noise

    def leaky(tables: Any, sigmas: Any) -> Any:
        noisy = real(tables, sigmas)
        noisy[5] = tables.exact[5]
        return noisy

    monkeypatch.setattr(module, "add_noise", leaky)
    assert repeated_cells([fw.release(plan, few, client="ash", uncharged=True) for _ in range(30)], few) == [
        5
    ]


# --- Over Flower ---------------------------------------------------------------------------------------------


def test_flower_messages(home: Path, rows: pl.DataFrame, plan: fw.Plan, secrets: Secrets) -> None:
    pytest.importorskip("flwr", reason="needs the extra flower")
    from flower import quiet  # noqa: F401, I001
    from flower.kit import make_node
    from flwr.app import Message
    from flwr.common.serde import message_to_proto, recorddict_to_proto

    from fedwise.flower import InProcessGrid, release_app, wire
    from fedwise.owner.policy import Refusal

    def explode(context: Any) -> Any:
        raise ValueError(f"cannot parse {STRANGE} among {RECORDS} rows")

    inputs = write_inputs(home, rows, plan)
    few = rows.head(2000)
    other = fw.plan(fw.Schema.parse(SCHEMA), 0.7)
    strict = fw.plan(fw.Schema.parse(STRICT), 0.3)
    cases: list[tuple[dict[str, Any], list[tuple[bytes, Refusal | None]], Any]] = [
        ({"frame": rows}, [(plan.encode(), None), (plan.encode(), None), (other.encode(), Refusal.BUDGET),
                           (strict.encode(), Refusal.SCHEMA), (b"{", Refusal.UNREADABLE)], None),
        ({"frame": rows, "max_epsilon": 0.5}, [(plan.encode(), Refusal.EPSILON)], None),
        ({"frame": rows.drop("SEX")}, [(plan.encode(), Refusal.FAILED)], None),
        ({"frame": few.with_columns(pl.lit(INCOMES[0]).alias("AGE"))}, [(plan.encode(), Refusal.FAILED)], None),
        ({"frame": few.with_columns(pl.lit(NAMES[0]).alias("INCOME"))}, [(plan.encode(), Refusal.FAILED)], None),
        ({"frame": few, "data": "nowhere.parquet"}, [(plan.encode(), Refusal.FAILED)], None),
        ({"frame": few, "data": None}, [(plan.encode(), Refusal.FAILED)], explode),
    ]  # fmt: skip
    # Owners' directories hold their rows, which stay: files of that name are not walked.
    for number in range(len(cases)):
        inputs.append(home / f"n{number}" / "rows.parquet")
    with Watch(home, home.parent / "vault", inputs=inputs) as watch:
        for number, (settings, questions, data) in enumerate(cases):
            config = make_node(home, f"n{number}", **settings)
            (home / f"n{number}" / "schema.toml").write_text(SCHEMA)
            grid = InProcessGrid(release_app(data=data), [config])
            for question, wanted in questions:
                sent = Message(wire.request(question), 1001, wire.MESSAGE_TYPE)
                (reply,) = grid.send_and_receive([sent])
                answer = wire.read_answer(reply)
                assert answer is wanted if wanted else isinstance(answer, bytes), number
                watch.note(f"message {number}", recorddict_to_proto(reply.content).SerializeToString())
                watch.note(f"envelope {number}", message_to_proto(reply).SerializeToString())
            state = grid.contexts[1001].state
            watch.note(f"state message {number}", recorddict_to_proto(state).SerializeToString())
    assert watch.walk(secrets) == []
    logged = [data for name, data in watch.blobs if name.startswith("log flwr")]
    assert any(b"ValueError" in data for data in logged)


# --- Proof that the walk finds what it looks for -------------------------------------------------------------


def total_in_metadata(monkeypatch: pytest.MonkeyPatch, rows: pl.DataFrame) -> None:
    monkeypatch.setattr(sys.modules["fedwise.owner.release"], "__version__", f"0.1.0+{rows.height}")


def row_value_in_a_log(monkeypatch: pytest.MonkeyPatch, rows: pl.DataFrame) -> None:
    import logging

    _around_noise(
        monkeypatch, lambda tables: logging.getLogger("fedwise").debug("first: %s", rows["NAME"][0])
    )


def seen_levels_in_the_file(monkeypatch: pytest.MonkeyPatch, rows: pl.DataFrame) -> None:
    seen = sorted(set(rows["TRADE"].unique()) & set(SEEN))
    monkeypatch.setattr(sys.modules["fedwise.owner.release"], "__version__", ",".join(seen))


def unseen_levels_in_the_file(monkeypatch: pytest.MonkeyPatch, rows: pl.DataFrame) -> None:
    monkeypatch.setattr(sys.modules["fedwise.owner.release"], "__version__", f"no {UNSEEN[0]}")


def exact_tables_in_a_temporary_file(monkeypatch: pytest.MonkeyPatch, rows: pl.DataFrame) -> None:
    def dump(tables: Any) -> None:
        # The total goes along, as the last of the cumulated counts of any table does.
        with tempfile.NamedTemporaryFile(suffix=".npy") as file:
            first = tables.exact[tables.layout.slice(0)]
            np.save(file, np.cumsum(first))
            file.flush()
            os.rename(file.name, file.name + ".old")
            os.remove(file.name + ".old")
            Path(file.name).touch()

    _around_noise(monkeypatch, dump)


def count_on_the_screen(monkeypatch: pytest.MonkeyPatch, rows: pl.DataFrame) -> None:
    _around_noise(monkeypatch, lambda tables: sys.stderr.write(f"counted {rows.height:,} records\n"))


def total_as_a_float_in_the_ledger(monkeypatch: pytest.MonkeyPatch, rows: pl.DataFrame) -> None:
    import sqlite3

    def write(tables: Any) -> None:
        db = sqlite3.connect("extra.db", isolation_level=None)
        db.execute("CREATE TABLE t (n REAL)")
        db.execute("INSERT INTO t VALUES (?)", (rows.height + 0.0,))
        db.execute("INSERT INTO t VALUES (?)", (float(INCOMES[0]) / 1,))
        db.close()
        Path("extra.bin").write_bytes(np.array([rows.height], dtype="<f8").tobytes())

    _around_noise(monkeypatch, write)


def _around_noise(monkeypatch: pytest.MonkeyPatch, leak: Callable[[Any], object]) -> None:
    module = sys.modules["fedwise.owner.release"]
    real = module.add_noise

    def add_noise(tables: Any, sigmas: Any) -> Any:
        leak(tables)
        return real(tables, sigmas)

    monkeypatch.setattr(module, "add_noise", add_noise)


LEAKS = {
    total_in_metadata: f"number {RECORDS}",
    row_value_in_a_log: "text ",
    seen_levels_in_the_file: "levels ",
    unseen_levels_in_the_file: "levels ",
    exact_tables_in_a_temporary_file: f"binary {RECORDS}",
    count_on_the_screen: f"number {RECORDS:,}",
    total_as_a_float_in_the_ledger: f"binary {RECORDS}",
}


@pytest.mark.parametrize("leak", LEAKS, ids=lambda leak: leak.__name__)
def test_planted_leaks_are_found(
    leak: Callable[..., None],
    home: Path,
    rows: pl.DataFrame,
    plan: fw.Plan,
    secrets: Secrets,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    leak(monkeypatch, rows)
    with Watch(home, home.parent / "vault") as watch:
        fw.release(plan, rows, client="ash", uncharged=True).save(home / "ash.release.json")
        shown = capfd.readouterr()
        watch.note("stdout", shown.out)
        watch.note("stderr", shown.err)
    assert any(LEAKS[leak] in what for what in watch.walk(secrets))


def test_a_count_in_an_error_text_is_found(
    home: Path, rows: pl.DataFrame, plan: fw.Plan, secrets: Secrets, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(column: Any, frame: pl.DataFrame) -> Any:
        try:
            raise KeyError(NAMES[0])
        except KeyError as cause:
            raise DataError(f"none of {frame.height} rows fits") from cause

    monkeypatch.setattr("fedwise.schema.schema.encode_column", encode)
    with Watch(home, home.parent / "vault") as watch:
        with pytest.raises(DataError) as caught:
            fw.release(plan, rows, client="ash", uncharged=True)
        watch.note_error("failure", caught.value)
    found = watch.walk(secrets)
    assert any(f"number {RECORDS}" in what for what in found)
    assert any(f"text {NAMES[0]}" in what for what in found)
