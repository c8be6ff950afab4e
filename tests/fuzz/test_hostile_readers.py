"""Whatever is in a file or a message: it is read, or refused with a sentence. Nothing else may happen.

The campaigns mutate valid files under guidance of line coverage (see `mutator`), hundreds of inputs a reader in
every run and a million in all with ``make soak``; the seed is fixed, so a find repeats.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedwise as fw
from conftest import SMALL
from fedwise.errors import FedwiseError, LedgerError, ReleaseError
from fedwise.owner import entries
from fedwise.owner.policy import Policy
from fedwise.owner.release import check_client
from fuzz import campaign
from fuzz.readers import POLICY, READERS, plans

pytestmark = pytest.mark.slow

#: A million inputs, most of them where most code is.
SOAK = {
    "schema": 250_000,
    "policy": 100_000,
    "plan": 250_000,
    "release": 250_000,
    "answer": 100_000,
    "ledger": 50_000,
}


def clean(found: campaign.Outcome) -> None:
    assert not found.bugs, "\n\n".join(f"{place}\n{what}" for place, what in found.bugs.items())
    assert found.strays == []


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: a ledger waits for the disk several times an input."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.mark.parametrize("name", READERS)
def test_many_inputs_are_read_or_refused(name: str, scratch: Path) -> None:
    inputs = 300 if name == "ledger" else 800
    found = campaign.run(name, inputs, seed=11, folder=scratch)
    clean(found)
    assert found.refused > inputs / 2
    # Guidance works: inputs that reach new lines were found and kept.
    assert found.corpus > len(READERS[name](scratch).seeds()) + 3


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("name", SOAK)
def test_a_million_inputs_no_crash_no_hang_no_bloat(name: str) -> None:
    """Each reader in a process of its own, so that the peak of memory is its own."""
    words = [sys.executable, campaign.__file__, name, str(SOAK[name]), "--seed", "7"]
    tests = str(Path(campaign.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": tests}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    found = campaign.Outcome(**json.loads(done.stdout))
    clean(found)
    assert found.inputs == SOAK[name]
    assert found.slowest < 1.0, found.slowest_input
    assert found.growth_mb < 500


# --- Proof that a campaign finds what it looks for --------------------------------------------------------


def test_a_reader_that_lets_an_exception_through_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedwise.schema.schema.parse_toml", lambda text, **_: tomllib.loads(text))
    found = campaign.run("schema", 200, seed=11, folder=tmp_path)
    assert any(place.startswith(("TOMLDecodeError", "RecursionError", "ValueError")) for place in found.bugs)


def test_a_ledger_that_trusts_its_file_is_found(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "read", entries._lines)
    found = campaign.run("ledger", 200, seed=11, folder=scratch)
    assert any("charges were forgotten" in what for what in found.bugs.values())


def test_a_reader_that_writes_elsewhere_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inside").mkdir()
    real = fw.Release.verify

    def verify(self: fw.Release, where: str = "release") -> None:
        real(self, where)
        (tmp_path / "inside" / f"../{self.client}.copy").write_bytes(b"")

    monkeypatch.setattr(fw.Release, "verify", verify)
    found = campaign.run("release", 300, seed=11, folder=tmp_path / "inside")
    assert any(stray.endswith(".copy") for stray in found.strays)


def test_a_message_with_control_characters_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedwise.files.shorten", lambda text: text)
    found = campaign.run("plan", 500, seed=11, folder=tmp_path)
    assert any(place.startswith("message") for place in found.bugs)


# --- Properties ------------------------------------------------------------------------------------------

TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
PLAN = json.loads(plans()[0].encode())
FIELDS = [("plan", key) for key in PLAN] + [("schema", key) for key in ("columns", "name", "where")]


def refused_or_read(read: Any, *given_values: Any) -> None:
    text = ""
    try:
        read(*given_values)
    except FedwiseError as refusal:
        text = str(refusal)
    assert text.isprintable()
    assert len(text) < 2000


@given(text=st.text())
def test_any_text_as_a_schema(text: str) -> None:
    refused_or_read(fw.Schema.parse, text)
    refused_or_read(fw.Schema.parse, SMALL + text)


@given(data=st.binary())
def test_any_bytes_as_json(data: bytes) -> None:
    refused_or_read(fw.Plan.decode, data)
    refused_or_read(fw.Release.decode, data)


@given(field=st.sampled_from(FIELDS), value=TREES)
def test_any_value_in_any_field_of_a_plan(field: tuple[str, str], value: Any) -> None:
    tree = json.loads(json.dumps(PLAN))
    (tree if field[0] == "plan" else tree["schema"])[field[1]] = value
    refused_or_read(fw.Plan.decode, json.dumps(tree).encode("utf-8", "surrogatepass"))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300), cut=st.integers(0, 16_000))
def test_any_bytes_in_a_ledger(data: bytes, cut: int, scratch: Path) -> None:
    reader = READERS["ledger"](scratch)
    whole = reader.seeds()[0]
    damaged = whole[:cut] + data + whole[cut + len(data) :]
    for content in {data, damaged} - {whole}:
        refused_or_read(reader.read, content)


@given(
    name=st.text(alphabet=st.sampled_from("a.~/\\:*?%\0\n\x1b\u202e -é😀") | st.characters(), max_size=120)
)
def test_a_client_name_that_passes_stays_in_its_directory(name: str) -> None:
    try:
        check_client(name)
    except ReleaseError:
        return
    path = Path("releases") / f"{name}.release.json"
    assert path.parts == ("releases", f"{name}.release.json")
    assert Path(os.path.normpath(path)).parts == path.parts
    assert not path.name.startswith(".")


# --- Files that are not what they seem -------------------------------------------------------------------

LOADERS = {
    "schema": fw.Schema.load,
    "plan": fw.Plan.load,
    "release": fw.Release.load,
    "pool": lambda path: fw.Pool.load([path]),
    "policy": Policy.load,
    "ledger": lambda path: fw.Ledger(path, 1.0),
}


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def link_to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_to_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


def link_to_directory(path: Path) -> None:
    path.symlink_to("..")


def utf16(path: Path) -> None:
    path.write_bytes(SMALL.encode("utf-16"))


def long_number(path: Path) -> None:
    path.write_text("a = " + "1" * 5000)


def deep(path: Path) -> None:
    path.write_text("a = " + "[" * 100_000)


def long_key(path: Path) -> None:
    path.write_text("a" + ".a" * 100_000 + " = 1")


ODD = (link_to_itself, link_to_device, link_to_pipe, link_to_directory, utf16, long_number, deep, long_key)


@pytest.mark.parametrize("make", ODD, ids=lambda make: make.__name__)
@pytest.mark.parametrize("name", LOADERS)
def test_odd_files_are_refused(name: str, make: Any, tmp_path: Path) -> None:
    # In a folder of its own: one above holds the files of every other test, and looking through it takes longer.
    path = tmp_path / "home" / "odd"
    path.parent.mkdir()
    make(path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(FedwiseError) as caught:
        LOADERS[name](path)
    assert str(caught.value).isprintable()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("path", ["a\0b", "a" * 5000, "\ud800"], ids=["nul", "long", "surrogate"])
@pytest.mark.parametrize("name", [name for name in LOADERS if name != "pool"])
def test_names_no_file_can_have(name: str, path: str, tmp_path: Path) -> None:
    with pytest.raises(FedwiseError) as caught:
        LOADERS[name](tmp_path / path)
    assert "\0" not in str(caught.value)


@pytest.mark.parametrize("name", ["\u202eb", "a\x1b[2J", "x" * 5000], ids=["turned", "escape", "long"])
def test_odd_column_names_do_not_reach_the_terminal(name: str) -> None:
    text = SMALL.replace("[columns.AGE]", f"[columns.{json.dumps(name)}]")
    with pytest.raises(FedwiseError, match="must start with a letter") as caught:
        fw.Schema.parse(text)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_a_policy_that_names_no_path(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(POLICY.replace('"schema.toml"', "3"))
    with pytest.raises(FedwiseError, match=r"schema"):
        Policy.load(tmp_path / "policy.toml")


# --- Bombs: small to send, large to read ------------------------------------------------------------------

BOMBS = """
import json, resource, sys, time, warnings
warnings.simplefilter("error")
import fedwise as fw, msgspec
from fedwise.errors import FedwiseError
from fedwise.planning import Request
from fuzz.readers import plans

PLAN = plans()[0]
TEXT = PLAN.encode()
LEVELS = b'["farm","shop","office"]'


def small(x):
    return json.dumps(x).encode()


def signed(tables):
    made = msgspec.structs.replace(PLAN, tables=tuple(tables), charge_mu=1e5, promise_epsilon=100.0, delta=0.999)
    return msgspec.structs.replace(made, digest=made.compute_digest()).encode()


columns = [{"name": f"C{i}", "role": "feature", "rule": "A > 1"} for i in range(60_000)]
wide = json.loads(TEXT)
bombs = {
    "levels": lambda: TEXT.replace(b'"farm"', b'"farm",' + b'"a",' * 3_900_000 + b'"b"', 1),
    "numbers": lambda: TEXT.replace(b"18", b"18," + b"1000," * 3_900_000 + b"19", 1),
    "items": lambda: b'{"format": [' + b"1," * 19_000_000 + b"1]}",
    "one wide character": lambda: b'{"format": "' + b"x" * 39_000_000 + "😀".encode() + b'"}',
    "long key": lambda: b'{"' + b"k" * 39_000_000 + b'": 1}',
    "too long": lambda: b'{"format": "' + b"x" * 45_000_000 + b'"}',
    "nesting": lambda: b"[" * 39_000_000,
    "columns": lambda: small({**wide, "schema": {"columns": columns}}),
    "filters": lambda: small({**wide, "schema": {**wide["schema"], "where": ["A > 1"] * 500_000}}),
    "sources": lambda: TEXT.replace(b'"levels":', b'"source": [' + b'"a",' * 3_000_000 + b'"a"], "levels":', 1),
    "wide noise": lambda: signed([Request(t.pair, t.shape, 0.08 if i else 1999.0) for i, t in enumerate(PLAN.tables)]),
}
answer = {}
for name, make in bombs.items():
    data = make()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.thread_time()
    for read in (fw.Plan.decode, fw.Release.decode):
        try:
            read(data)
            verdict = "read"
        except FedwiseError as refusal:
            verdict = "refused" if len(str(refusal)) < 2000 and str(refusal).isprintable() else str(refusal)[:500]
    took = time.thread_time() - start
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    answer[name] = [verdict, grown, took / 2, len(data)]
    del data
for name, text in {
    "dots": "a" + ".a" * 1_000_000 + " = 1",
    "quoted dots": "'a'" + ".'a'" * 500_000 + " = 1",
    "dotted header": "[a" + ".a" * 1_000_000 + "]",
    "spaced dots": "a" + " . a" * 300_000 + " = 1",
    "large": "# " + "x" * 5_000_000,
    "quotes": '"' * 1_000_000,
    "digits": "a = 0x" + "f" * 1_000_000,
}.items():
    start = time.thread_time()
    try:
        fw.Schema.parse(text)
        verdict = "read"
    except FedwiseError as refusal:
        verdict = "refused" if len(str(refusal)) < 2000 and str(refusal).isprintable() else str(refusal)[:500]
    answer[f"toml {name}"] = [verdict, 0.0, time.thread_time() - start, len(text)]
print(json.dumps(answer))
"""


def run_bombs() -> dict[str, tuple[str, float, float, int]]:
    environment = {**os.environ, "PYTHONPATH": str(Path(campaign.__file__).parents[1])}
    words = [sys.executable, "-c", BOMBS]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, tuple[str, float, float, int]] = json.loads(done.stdout)
    return found


def test_bombs_are_refused_in_bounded_memory() -> None:
    for name, (verdict, grown, _, _) in run_bombs().items():
        assert verdict == "refused", name
        assert grown < 500, name


@pytest.mark.soak
def test_bombs_are_refused_at_once() -> None:
    for name, (_, _, took, _) in run_bombs().items():
        assert took < 1.0, name


# --- Ledgers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_a_ledger_that_lost_its_contents_does_not_start_anew(epsilon: float | None, tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    fw.Ledger(path, 1.0).charge(0.1, client="c", plan="p", epsilon=0.5, delta=1e-5)
    whole = path.read_bytes()
    for length in [0, 1, 15, 16, 99, 100, 512, *range(1024, len(whole), 1024), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(LedgerError):
            fw.Ledger(path, epsilon).balance()
        assert path.read_bytes() == whole[:length]
    path.write_bytes(whole)
    assert fw.Ledger(path, epsilon).balance().charges == 1


def test_a_new_ledger_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(1, "Operation not permitted")

    # A file system without hard links.
    monkeypatch.setattr(os, "link", refuse)
    assert fw.Ledger(tmp_path / "l.db", 1.0).balance().epsilon == 1.0
    # Nothing half-made stays behind, and nothing counts as a ledger.
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(LedgerError, match="cannot be created"):
        fw.Ledger(tmp_path / "m.db", 1.0)
    with pytest.raises(LedgerError, match="is empty"):
        fw.Ledger(tmp_path / "m.db", 1.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["l.db", "m.db"]
