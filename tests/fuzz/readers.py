"""Everything in fedwise that reads what somebody else wrote: seeds, ways to mutate, and what may come of it."""

from __future__ import annotations

import json
import random
import sqlite3
import tomllib
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

import fedwise as fw
from conftest import SMALL, make_people
from fedwise.errors import BudgetExceeded, FedwiseError
from fedwise.files import decode
from fuzz.mutator import mutate_bytes, mutate_tree, write_json, write_toml

TINY = """
where = ["AGE > 16", "10 < HOURS < 90"]
[columns.AGE]
role = "feature"
bins = [0, 18.5, 40, 65, 120]
model = "scaled"
scale = [40.0, 20.0]
source = ["AGEP", "AGE"]
[columns.S]
role = "sensitive"
levels = [1, 2]
unknown = "other"
[columns.T]
role = "target"
rule = "INCOME > 50000 and KIND == 'a'"
missing = "other"
"""
POLICY = """
client = "ash"
schema = "schema.toml"
data = "rows.parquet"
max_epsilon = 1.0
max_delta = 1e-5
ledger = "budget.db"
budget_epsilon = 3.0
columns = ["AGE", "JOB", "SEX", "INCOME"]
train_epsilon = 2.0
train_rounds = 5
"""


def plans() -> list[fw.Plan]:
    """Plans of every calibration and allocation, and one without privacy."""
    small, tiny = fw.Schema.parse(SMALL), fw.Schema.parse(TINY)
    return [
        fw.plan(small),
        fw.plan(small, 0.1, calibration="rdp", allocation="uniform"),
        fw.plan(tiny, 8.0, delta=1e-3),
        fw.plan(small, float("inf")),
    ]


class Reader:
    """Base: seeds and mutants of a JSON format, read by `read`."""

    name = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / f"input.{self.name}"

    def seeds(self) -> list[bytes]:
        """Valid files."""
        raise NotImplementedError

    def mutate(self, data: bytes, rng: random.Random, corpus: list[bytes]) -> bytes:
        """Another input made of `data`."""
        if rng.random() < 0.5:
            return mutate_bytes(data, rng, corpus)
        try:
            tree = json.loads(data)
        except (ValueError, RecursionError):
            return mutate_bytes(data, rng, corpus)
        if not isinstance(tree, dict | list):
            return mutate_bytes(data, rng, corpus)
        return write_json(self.sign(mutate_tree(tree, rng), rng), rng)

    def sign(self, tree: Any, rng: random.Random) -> Any:
        """What a forger does: put the digests right after changing what they cover."""
        return tree

    def _from_file(self, data: bytes) -> bool:
        """Every eighth input goes through a file, and all that is no text; most time would go into files else."""
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = ""
        if text and len(data) % 8:
            return False
        self.path.write_bytes(data)
        return True

    def read(self, data: bytes) -> None:
        """Read one input; `FedwiseError` is a refusal, any other exception a bug."""
        raise NotImplementedError


class SchemaReader(Reader):
    name = "schema"

    def seeds(self) -> list[bytes]:
        return [SMALL.encode(), TINY.encode(), fw.Schema.parse(SMALL).to_toml().encode()]

    def mutate(self, data: bytes, rng: random.Random, corpus: list[bytes]) -> bytes:
        if rng.random() < 0.5:
            return mutate_bytes(data, rng, corpus)
        try:
            tree = tomllib.loads(data.decode())
        except (ValueError, RecursionError):
            return mutate_bytes(data, rng, corpus)
        return write_toml(mutate_tree(tree, rng))

    def read(self, data: bytes) -> None:
        if self._from_file(data):
            found = fw.Schema.load(self.path)
        else:
            found = fw.Schema.parse(data.decode())
        # What is accepted must survive the way out and back.
        assert fw.Schema.parse(found.to_toml()) == found


class PolicyReader(SchemaReader):
    name = "policy"

    def seeds(self) -> list[bytes]:
        experiment = POLICY.replace('ledger = "budget.db"', "simulated_seed = 3").replace(
            "budget_epsilon = 3.0", ""
        )
        return [POLICY.encode(), experiment.encode()]

    def read(self, data: bytes) -> None:
        from fedwise.owner.policy import Policy

        self.path.write_bytes(data)
        Policy.load(self.path)


def _signed(tree: Any) -> Any:
    """A plan's tree with its digests put right, where it still is one."""
    with suppress(Exception):
        found = decode(json.dumps(tree).encode(), fw.Plan, what="plan", error=FedwiseError)
        found = msgspec.structs.replace(found, schema_digest=found.schema.digest)
        return {**tree, "schema_digest": found.schema_digest, "digest": found.compute_digest()}
    return tree


class PlanReader(Reader):
    name = "plan"

    def seeds(self) -> list[bytes]:
        return [plan.encode() for plan in plans()]

    def sign(self, tree: Any, rng: random.Random) -> Any:
        return _signed(tree) if rng.random() < 0.8 else tree

    def read(self, data: bytes) -> None:
        found = fw.Plan.load(self.path) if self._from_file(data) else fw.Plan.decode(data)
        str(found)
        assert fw.Plan.decode(found.encode()) == found


class ReleaseReader(Reader):
    name = "release"

    def seeds(self) -> list[bytes]:
        frames = [make_people(60), make_people(60)]
        extra = {"HOURS": pl.lit(40), "KIND": pl.lit("a"), "S": pl.col("SEX"), "AGEP": pl.col("AGE")}
        frames.append(make_people(60).with_columns(**extra))
        frames.append(make_people(60))
        found = []
        for plan, frame in zip(plans(), frames, strict=True):
            kind = {"simulated": True, "seed": 1} if plan.private else {"no_privacy": True}
            found.append(fw.release(plan, frame, client="ash", **kind).encode())
        return found

    def sign(self, tree: Any, rng: random.Random) -> Any:
        if rng.random() < 0.2 or not isinstance(tree, dict) or not isinstance(tree.get("plan"), dict):
            return tree
        plan = _signed(tree["plan"])
        tree = {
            **tree,
            "plan": plan,
            "plan_digest": plan.get("digest"),
            "schema_digest": plan.get("schema_digest"),
        }
        if rng.random() < 0.7:
            tree |= {"epsilon": plan.get("epsilon"), "delta": plan.get("delta")}
        return tree

    def read(self, data: bytes) -> None:
        from_file = self._from_file(data)
        found = fw.Release.load(self.path) if from_file else fw.Release.decode(data)
        repr(found)
        assert fw.Release.decode(found.encode()) == found
        # A name that passes stays in its directory.
        assert (self.folder / f"{found.client}.release.json").parent == self.folder
        if from_file:
            fw.Pool.load([self.path], accept_flagged=True)
        else:
            fw.Pool.of([found], accept_flagged=True)


class AnswerReader(ReleaseReader):
    """A server that reads what a node sent: nothing may be raised at all, the node is left out instead."""

    name = "answer"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.plan = plans()[0]
        self.honest = super().seeds()[:1]

    def seeds(self) -> list[bytes]:
        return self.honest

    def read(self, data: bytes) -> None:
        from fedwise.coordinator.answers import sort_answers
        from fedwise.owner import envelope

        reply = envelope.released(data)
        rng = random.Random(data)
        for _ in range(0 if data in self.honest else rng.choice((0, 0, 1, 2))):
            odd = rng.choice(
                (b"1", b"0.5", b'"x"', b'"\\u001b[2J"', b'""', b"[1, 2]", b"[]", b"true", b"-1", b"NaN")
            )
            field = rng.choice((b"protocol", b"status", b"release", b"code", b"client", b"more"))
            reply = reply.replace(b"{", b'{"' + field + b'":' + odd + b",", 1)
        found = sort_answers([1, 2], {1: reply}, self.plan)
        assert len(found.releases) + len(found.absent) == 2
        for absence in found.absent:
            assert str(absence).isprintable()
            assert len(str(absence)) < 300
        if 1 not in found.releases:
            raise FedwiseError("left out")


#: What somebody may do to a ledger's database; ``{n}`` is a number out of the list below.
_SQL = (
    "DELETE FROM charge WHERE id = {i}",
    "DELETE FROM charge",
    "DELETE FROM seal",
    "DELETE FROM budget",
    "UPDATE charge SET mu = {n} WHERE id = {i}",
    "UPDATE charge SET epsilon = {n}",
    "UPDATE charge SET delta = {n}",
    "UPDATE charge SET client = {n}",
    "UPDATE charge SET id = {n} WHERE id = {i}",
    "UPDATE budget SET epsilon = {n}",
    "UPDATE budget SET delta = {n}",
    "UPDATE budget SET id = {n}",
    "UPDATE seal SET digest = {n}",
    "DELETE FROM training",
    "DROP TABLE training",
    "INSERT INTO training (at, client, kind, promise, noise, rate, steps) "
    "VALUES ('now', 'c', 'open round', '', {n}, 0, 0)",
    "INSERT INTO budget (at, epsilon, delta) VALUES ('now', {n}, 1e-5)",
    "INSERT INTO charge (at, client, plan, mu, epsilon, delta) VALUES ('now', 'x', 'p', {n}, {n}, 0.1)",
    "INSERT INTO seal (digest) VALUES ({n})",
    "CREATE TRIGGER t{i} AFTER INSERT ON charge BEGIN DELETE FROM charge; END",
    "CREATE TRIGGER t{i} BEFORE INSERT ON charge BEGIN SELECT RAISE(IGNORE); END",
    "CREATE TRIGGER t{i} AFTER UPDATE ON seal BEGIN UPDATE budget SET epsilon = 99.0; END",
    "ALTER TABLE charge RENAME TO old{i}",
    "CREATE VIEW charge AS SELECT * FROM old{i} WHERE 0",
    "CREATE TRIGGER v{i} INSTEAD OF INSERT ON charge BEGIN SELECT 1; END",
    "CREATE VIEW charge AS WITH RECURSIVE n(i) AS (SELECT 1.0 UNION ALL SELECT i + 1 FROM n) SELECT 1 id, 'a' at, "
    "'c' client, 'p' plan, i mu, i epsilon, i delta FROM n",
    "CREATE TABLE charge (id, at, client, plan, mu, epsilon, delta)",
    "DROP TABLE charge",
    "DROP TABLE seal",
    "ALTER TABLE charge ADD COLUMN more REAL DEFAULT 0",
    "CREATE INDEX x{i} ON charge (mu)",
    "PRAGMA user_version = {i}",
    "PRAGMA application_id = {i}",
    "PRAGMA writable_schema = 1",
    "UPDATE sqlite_master SET rootpage = {i} WHERE name = 'charge'",
    "UPDATE sqlite_master SET sql = replace(sql, 'mu REAL', 'mu TEXT')",
    "UPDATE sqlite_master SET type = 'view' WHERE name = 'charge'",
    "VACUUM",
)
_NUMBERS = (
    "0",
    "-1",
    "0.5",
    "1e-300",
    "1e154",
    "1e308",
    "9e999",
    "-9e999",
    "NULL",
    "'x'",
    "x'ff'",
    "2",
    "1.0",
)


class LedgerReader(Reader):
    """A ledger file: whatever was done to it, what it shows is never less than what was really spent."""

    name = "ledger"
    BUDGET = (2.0, 1e-5)
    MUS = (0.11, 0.07, 0.2)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.whole: list[bytes] = []

    def seeds(self) -> list[bytes]:
        if not self.whole:
            self._clear()
            book = fw.Ledger(self.path, *self.BUDGET)
            for number, mu in enumerate(self.MUS):
                book.charge(mu, client=f"c{number}", plan="p" * 64, epsilon=0.5, delta=1e-5)
            self.whole = [self.path.read_bytes()]
            self._clear()
        return self.whole

    def mutate(self, data: bytes, rng: random.Random, corpus: list[bytes]) -> bytes:
        if rng.random() < 0.6:
            return self._flip(data, rng) if rng.random() < 0.7 else mutate_bytes(data, rng, corpus)
        # A database in WAL mode cannot live in memory: its header is put back to the older mode and on again.
        plain = bytearray(data)
        if len(plain) < 100:
            return mutate_bytes(data, rng, corpus)
        plain[18:20] = b"\x01\x01"
        with (
            closing(sqlite3.connect(":memory:", isolation_level=None)) as db,
            suppress(sqlite3.Error, MemoryError),
        ):
            db.deserialize(bytes(plain))
            for _ in range(rng.choice((1, 2, 4))):
                statement = rng.choice(_SQL).format(i=rng.randrange(6), n=rng.choice(_NUMBERS))
                # SQLite quotes a damaged file in its messages, which then are no text.
                with suppress(sqlite3.Error, UnicodeDecodeError):
                    db.execute(statement)
            found = bytearray(db.serialize())
            if len(found) >= 100 and rng.random() < 0.9:
                found[18:20] = b"\x02\x02"
            return bytes(found)
        return bytes(plain)

    def _flip(self, data: bytes, rng: random.Random) -> bytes:
        """Small damage where the lines are: the head of a page, or the last bytes that are not zero."""
        found = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 3))):
            page = rng.randrange(max(1, len(found) // 4096)) * 4096
            used = [i for i in range(page, min(page + 4096, len(found))) if found[i]]
            if used:
                found[rng.choice(used)] = rng.randrange(256)
        return bytes(found)

    def read(self, data: bytes) -> None:
        self._clear()
        self.path.write_bytes(data)
        try:
            # The owner may name the budget or not; naming it must not start the book anew.
            book = fw.Ledger(self.path, *(self.BUDGET if len(data) % 2 else ()))
            history = book.history()
            before = book.balance()
            assert (before.epsilon, before.delta) == self.BUDGET
            assert [charge.mu for charge in history] == list(self.MUS), "charges were forgotten"
            after = book.charge(0.05, client="new", plan="q" * 64, epsilon=0.1, delta=1e-5)
            assert after.spent > before.spent
            assert [charge.mu for charge in fw.Ledger(self.path).history()] == [*self.MUS, 0.05]
            try:
                book.charge(2.0, client="greedy", plan="q" * 64, epsilon=9.0, delta=1e-5)
            except BudgetExceeded:
                return
            raise AssertionError("a charge beyond the budget was accepted")
        finally:
            self._clear()

    def _clear(self) -> None:
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)


READERS: dict[str, type[Reader]] = {
    kind.name: kind
    for kind in (SchemaReader, PolicyReader, PlanReader, ReleaseReader, AnswerReader, LedgerReader)
}
