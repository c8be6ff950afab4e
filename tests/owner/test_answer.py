"""The one way from rows to a release: refused early, charged before noise, kept before it leaves, never drawn twice."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

import fedwise as fw
from conftest import make_people
from fedwise.errors import BudgetExceeded, DataError, FedwiseError, LedgerError, PlanError, ReleaseError
from fedwise.owner import answer as answers
from fedwise.owner.answer import Answer, answer
from fedwise.owner.archive import Archive
from fedwise.owner.ledger import Ledger


def unread() -> NoReturn:
    pytest.fail("the rows were read")


@pytest.fixture
def ask(tmp_path: Path, small_schema: fw.Schema) -> Callable[..., Answer]:
    """Ask the owner in this directory, at epsilon 1 of a budget of 2."""
    people = make_people(50)

    def call(plan: fw.Plan | None = None, data: Any = people, **options: Any) -> Answer:
        path = options.pop("path", tmp_path / "budget.db")
        given: dict[str, Any] = {
            "client": "ash",
            "ledger": lambda: Ledger(path) if path.exists() else Ledger(path, 2.0, 1e-5),
            "archive": Archive(path),
        }
        return answer(plan or fw.plan(small_schema), data, **{**given, **options})

    return call


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_the_same_plan_gets_the_same_release(ask: Callable[..., Answer], tmp_path: Path) -> None:
    first = ask()
    again = ask(data=unread, output=tmp_path / "again.json")
    assert (first.repeated, again.repeated) == (False, True)
    assert again.release == first.release
    assert fw.Release.load(tmp_path / "again.json") == first.release
    assert first.release.label == "private"
    assert len(Ledger(tmp_path / "budget.db").history()) == 1
    assert again.ledger is not None
    assert again.ledger.balance().charges == 1


def test_another_client_or_plan_is_another_release(
    ask: Callable[..., Answer], tmp_path: Path, small_schema: fw.Schema
) -> None:
    found = [ask(), ask(client="birch"), ask(fw.plan(small_schema, 0.5))]
    assert not any(one.repeated for one in found)
    assert len({one.release.encode() for one in found}) == 3
    assert len(Ledger(tmp_path / "budget.db").history()) == 3


def test_rows_that_changed_are_answered_as_before(ask: Callable[..., Answer]) -> None:
    assert ask(data=make_people(50)).release == ask(data=make_people(60, 1)).release


def test_nobody_is_answered_like_somebody(ask: Callable[..., Answer], tmp_path: Path) -> None:
    """A refusal would tell, without noise, that there is nobody."""
    assert ask(data=make_people(0)).release.label == "private"
    assert len(Ledger(tmp_path / "budget.db").history()) == 1


def test_rows_may_be_given_by_a_function(ask: Callable[..., Answer]) -> None:
    assert ask(data=lambda: make_people(9)).release.client == "ash"


@pytest.mark.parametrize(
    ("epsilon", "options", "error", "message"),
    [
        (1.0, {"max_epsilon": 0.99}, BudgetExceeded, r"epsilon 0.99 at most \(--max-epsilon\), got 1"),
        (1.0, {"max_epsilon": 0.0}, FedwiseError, "max_epsilon must be above 0"),
        (1.0, {"max_epsilon": math.nan}, FedwiseError, "max_epsilon must be above 0"),
        (math.inf, {}, ReleaseError, "no privacy"),
        (math.inf, {"max_epsilon": 100.0}, BudgetExceeded, "got inf"),
        (1.0, {"max_delta": 1e-6}, BudgetExceeded, r"delta 1e-06 at most \(--max-delta\), got 1e-05"),
        (1.0, {"max_delta": math.nan}, FedwiseError, "max_delta must be above 0"),
        (1.0, {"client": "../ash"}, ReleaseError, "path separators"),
        (1.0, {"client": "漢" * 100}, ReleaseError, "shorter client name"),
        (1.0, {"output": Path(__file__) / "x.json"}, ReleaseError, "cannot be written"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_refused_is_refused_before_rows_are_read(
    epsilon: float,
    options: dict[str, Any],
    error: type[Exception],
    message: str,
    ask: Callable[..., Answer],
    tmp_path: Path,
    small_schema: fw.Schema,
) -> None:
    with pytest.raises(error, match=message):
        ask(fw.plan(small_schema, epsilon), unread, **options)
    assert files(tmp_path) == []


def test_an_existing_output_is_refused_before_rows_are_read(
    ask: Callable[..., Answer], tmp_path: Path
) -> None:
    (tmp_path / "out.json").write_text("old")
    with pytest.raises(ReleaseError, match="exists"):
        ask(data=unread, output=tmp_path / "out.json")
    assert files(tmp_path) == ["out.json"]
    ask(output=tmp_path / "out.json", force=True)
    assert fw.Release.load(tmp_path / "out.json").client == "ash"


def test_a_dishonest_plan_is_refused(
    ask: Callable[..., Answer], tmp_path: Path, small_schema: fw.Schema
) -> None:
    for change in ({"charge_mu": 500.0}, {"promise_epsilon": 0.1}):
        hostile = msgspec.structs.replace(fw.plan(small_schema), digest="", **change)
        hostile = msgspec.structs.replace(hostile, digest=hostile.compute_digest())
        with pytest.raises(PlanError, match="do not answer it"):
            ask(hostile, unread)
    assert files(tmp_path) == []


def test_bad_rows_create_nothing(ask: Callable[..., Answer], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'SEX' is missing"):
        ask(data=make_people(9).drop("SEX"), output=tmp_path / "out" / "x.json")
    assert files(tmp_path) == []


def test_a_ledger_that_cannot_be_opened_leaves_nothing(ask: Callable[..., Answer], tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="directory does not exist"):
        ask(path=tmp_path / "no" / "where.db")
    assert files(tmp_path) == []
    (tmp_path / "budget.db").write_text("x" * 2000)
    with pytest.raises(LedgerError, match="not a readable ledger"):
        ask()
    assert files(tmp_path) == ["budget.db"]


def test_a_lost_ledger_stops_everything(
    ask: Callable[..., Answer], tmp_path: Path, small_schema: fw.Schema
) -> None:
    ask()
    for file in tmp_path.glob("budget.db*"):
        if file.is_file():
            file.unlink()
    for plan in (fw.plan(small_schema), fw.plan(small_schema, 0.5)):
        with pytest.raises(LedgerError, match="holds what was charged to it"):
            ask(plan, output=tmp_path / "out.json")
    assert files(tmp_path) == [
        "budget.db.releases",
        f"budget.db.releases/ash-{fw.plan(small_schema).digest[:32]}.release.json",
        "budget.db.releases/lock.db",
    ]


def test_a_refused_first_charge_is_not_taken_for_a_lost_ledger(
    ask: Callable[..., Answer], tmp_path: Path, small_schema: fw.Schema
) -> None:
    with pytest.raises(BudgetExceeded):
        ask(fw.plan(small_schema, 3.0))
    (tmp_path / "budget.db").unlink()
    assert not ask().repeated


def test_an_empty_budget_draws_nothing(
    ask: Callable[..., Answer], tmp_path: Path, small_schema: fw.Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(fw.plan(small_schema, 1.9))
    monkeypatch.setattr("fedwise.owner.release.add_noise", lambda *_: pytest.fail("noise was drawn"))
    with pytest.raises(BudgetExceeded, match="Requested"):
        ask(output=tmp_path / "out.json")
    assert not (tmp_path / "out.json").exists()
    assert len(Ledger(tmp_path / "budget.db").history()) == 1


@pytest.mark.skipif(os.name != "posix", reason="needs permissions")
def test_only_the_owner_reads_the_archive(ask: Callable[..., Answer], tmp_path: Path) -> None:
    old = tmp_path / "budget.db.releases"
    old.mkdir(mode=0o755)  # as version 0.1.0 made it
    before = os.umask(0o022)
    try:
        ask(output=tmp_path / "out.json")
    finally:
        os.umask(before)
    assert old.stat().st_mode & 0o777 == 0o700
    kept = list(old.iterdir())
    assert len(kept) == 2
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}
    # The file that is meant to be sent has ordinary permissions.
    assert (tmp_path / "out.json").stat().st_mode & 0o777 == 0o644


def test_no_room_costs_no_budget(
    ask: Callable[..., Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("out.json", "budget.db.releases"):

        def full(path: Path, size: int, *, error: type[Exception], place: str = place) -> None:
            assert size > 1000
            if path.name == place:
                raise error("no room")

        monkeypatch.setattr(answers, "check_room", full)
        with pytest.raises(ReleaseError, match="no room"):
            ask(output=tmp_path / "out.json")
        assert files(tmp_path) == []


def test_a_release_that_cannot_be_kept_does_not_leave(
    ask: Callable[..., Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> NoReturn:
        raise ReleaseError("'x' cannot be written")

    monkeypatch.setattr(Archive, "keep", fail)
    with pytest.raises(ReleaseError, match="was charged before and stays so: this release is spent but lost"):
        ask(output=tmp_path / "out.json")
    assert not (tmp_path / "out.json").exists()
    assert len(Ledger(tmp_path / "budget.db").history()) == 1


def test_a_release_that_cannot_be_handed_over_is_not_lost(
    ask: Callable[..., Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = fw.Release.save

    def fail(release: fw.Release, path: Path, **options: Any) -> None:
        if path.name == "out.json":
            raise ReleaseError("'out.json' cannot be written")
        save(release, path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(fw.Release, "save", fail)
        with pytest.raises(ReleaseError, match=r"is kept in '.*': the same request gets it at no further"):
            ask(output=tmp_path / "out.json")
    assert ask(data=unread, output=tmp_path / "out.json").repeated
    assert len(Ledger(tmp_path / "budget.db").history()) == 1


@pytest.mark.parametrize("damage", ["cut", "another client", "uncharged"])
def test_a_damaged_kept_release_is_not_replaced(
    damage: str, ask: Callable[..., Answer], tmp_path: Path, small_schema: fw.Schema
) -> None:
    ask()
    (kept,) = (tmp_path / "budget.db.releases").glob("*.release.json")
    uncharged = fw.release(fw.plan(small_schema), make_people(50), client="ash", uncharged=True)
    kept.write_bytes(
        {
            "cut": kept.read_bytes()[:500],
            "another client": kept.read_bytes().replace(b'"ash"', b'"elm"'),
            "uncharged": uncharged.encode(),
        }[damage]
    )
    before = kept.read_bytes()
    with pytest.raises(ReleaseError, match="release"):
        ask(data=unread)
    assert kept.read_bytes() == before
    assert len(Ledger(tmp_path / "budget.db").history()) == 1


def test_many_askers_at_once_get_one_release(ask: Callable[..., Answer], tmp_path: Path) -> None:
    gate = threading.Barrier(6)
    found: list[Answer] = []

    def work() -> None:
        gate.wait()
        found.append(ask())

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one.release.encode() for one in found}) == 1
    assert sorted(one.repeated for one in found) == [False] + [True] * 5
    assert len(Ledger(tmp_path / "budget.db").history()) == 1
