"""Nothing exact leaves the library or a Flower node: releases and failures, and a walk over every byte of them.

The rows hold numbers and texts that cannot be mistaken (see `guild`). The walk itself is deterministic but
for noisy counts, whose chance to look like a leak is below 1e-9 a run; `test_planted_leaks` proves that it finds
what it looks for, and `test_commands_leak_nothing` walks over the command line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import fedwise as fw
from fedwise.errors import BudgetExceeded, DataError, FedwiseError
from fedwise.owner.policy import Refusal
from owner.guild import INCOMES, NAMES, RECORDS, SCHEMA, STRANGE, STRICT, write_inputs
from owner.leak_walk import Secrets, Watch, repeated_cells


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


# --- Over engines --------------------------------------------------------------------------------------------


def explode(context: Any) -> Any:
    """Data that cannot be read, told with all that must not leave."""
    raise ValueError(f"cannot parse {STRANGE} among {RECORDS} rows")


def node_cases(
    rows: pl.DataFrame, plan: fw.Plan
) -> list[tuple[dict[str, Any], list[tuple[bytes, Refusal | None]], Any]]:
    """Settings of a node, what it is asked with the refusal to expect, and where an app says its rows are."""
    few = rows.head(2000)
    other = fw.plan(fw.Schema.parse(SCHEMA), 0.7)
    strict = fw.plan(fw.Schema.parse(STRICT), 0.3)
    return [
        ({"frame": rows}, [(plan.encode(), None), (plan.encode(), None), (other.encode(), Refusal.BUDGET),
                           (strict.encode(), Refusal.SCHEMA), (b"{", Refusal.UNREADABLE)], None),
        ({"frame": rows, "max_epsilon": 0.5}, [(plan.encode(), Refusal.EPSILON)], None),
        ({"frame": rows.drop("SEX")}, [(plan.encode(), Refusal.FAILED)], None),
        ({"frame": few.with_columns(pl.lit(INCOMES[0]).alias("AGE"))}, [(plan.encode(), Refusal.FAILED)], None),
        ({"frame": few.with_columns(pl.lit(NAMES[0]).alias("INCOME"))}, [(plan.encode(), Refusal.FAILED)], None),
        ({"frame": few, "data": "nowhere.parquet"}, [(plan.encode(), Refusal.FAILED)], None),
        ({"frame": few, "data": None}, [(plan.encode(), Refusal.FAILED)], explode),
    ]  # fmt: skip


def test_flower_messages(home: Path, rows: pl.DataFrame, plan: fw.Plan, secrets: Secrets) -> None:
    pytest.importorskip("flwr", reason="needs the extra flower")
    from flower import quiet  # noqa: F401, I001
    from flower.kit import make_node
    from flwr.app import Message
    from flwr.common.serde import message_to_proto, recorddict_to_proto

    from fedwise.flower import InProcessGrid, release_app, wire

    inputs = write_inputs(home, rows, plan)
    cases = node_cases(rows, plan)
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


def test_nvflare_tasks(home: Path, rows: pl.DataFrame, plan: fw.Plan, secrets: Secrets) -> None:
    pytest.importorskip("nvflare", reason="needs the extra nvflare")
    from nvflare.apis.fl_constant import ReservedKey
    from nvflare.apis.fl_context import FLContext
    from nvflare.fuel.utils import fobs

    from fedwise.nvflare import ReleaseExecutor, wire
    from fedwise.owner import envelope
    from owners import make_node

    inputs = write_inputs(home, rows, plan)
    cases = node_cases(rows, plan)
    for number in range(len(cases)):
        inputs.append(home / f"n{number}" / "rows.parquet")
    with Watch(home, home.parent / "vault", inputs=inputs) as watch:
        for number, (settings, questions, data) in enumerate(cases):
            config = make_node(home, f"n{number}", **settings)
            (home / f"n{number}" / "schema.toml").write_text(SCHEMA)
            executor, context = ReleaseExecutor(policy=config["policy"], data=data or ""), FLContext()
            context.set_prop(ReservedKey.IDENTITY_NAME, f"n{number}", private=False, sticky=False)
            for question, wanted in questions:
                sent = wire.carry(envelope.request(question))
                result = executor.execute(wire.TASK, sent, context, None)
                content = wire.read(result)
                assert isinstance(content, bytes)
                answer = envelope.read_answer(content)
                assert answer is not None
                assert answer.refusal is wanted, number
                watch.note(f"task {number}", content)
                watch.note(f"shareable {number}", fobs.dumps(dict(result)))
    assert watch.walk(secrets) == []
