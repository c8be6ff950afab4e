"""Files: whole or not at all, and strict about what is read."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from fedwise import files
from fedwise.errors import FedwiseError, PlanError, ReleaseError
from fedwise.files import decode, read_bytes, refuse_existing, write_new


class Thing(msgspec.Struct, forbid_unknown_fields=True):
    number: float = 0.0
    words: list[str] = []


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_write_makes_directories_and_refuses_to_overwrite(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b" / "x.json"
    write_new(target, b"one")
    with pytest.raises(ReleaseError, match=r"exists; choose another name or pass --force"):
        write_new(target, b"two", error=ReleaseError)
    assert target.read_bytes() == b"one"
    write_new(target, b"two", force=True)
    assert target.read_bytes() == b"two"
    assert listing(target.parent) == ["x.json"]


def test_a_file_that_appears_meanwhile_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes with one output, both past the first look: the later one is refused, not the first undone."""
    target = tmp_path / "x"
    monkeypatch.setattr(os, "fsync", lambda _: target.write_bytes(b"theirs"))
    with pytest.raises(PlanError, match="exists; choose another name"):
        write_new(target, b"mine", error=PlanError)
    assert target.read_bytes() == b"theirs"
    assert listing(tmp_path) == ["x"]


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    write_new(tmp_path / "x", b"new")
    assert (tmp_path / "x").read_bytes() == b"new"
    assert listing(tmp_path) == ["x"]


def test_threads_that_write_at_once_leave_the_umask_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the mask sets it for a moment: without a lock a second thread takes that for the mask."""
    change = os.umask

    def slow(mask: int) -> int:
        old = change(mask)
        time.sleep(0.001)
        return old

    old = change(0o022)
    try:
        monkeypatch.setattr(os, "umask", slow)
        with ThreadPoolExecutor(4) as crowd:
            assert set(crowd.map(lambda _: files.file_mode(), range(40))) == {0o644}
        assert change(0o022) == 0o022
    finally:
        change(old)


def test_mode_follows_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_new(tmp_path / "x", b"")
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(old)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("step", ["fsync", "chmod", "replace"])
@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_failure_leaves_no_trace(
    step: str, failure: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_bytes(b"old")

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(os, step, fail)
    expected = PlanError if isinstance(failure, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        write_new(tmp_path / "x", b"new", force=True, error=PlanError)
    monkeypatch.undo()
    assert listing(tmp_path) == ["x"]
    assert (tmp_path / "x").read_bytes() == b"old"


def test_places_that_cannot_be_written_are_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for path, message in [
        (tmp_path, "is a directory"),
        (tmp_path / "file" / "x", "cannot be written"),
        (tmp_path / ("x" * 300), "cannot be written"),
        (tmp_path / "dangling", "exists"),
    ]:
        with pytest.raises(ReleaseError, match=message):
            refuse_existing(path, force=False, error=ReleaseError)
    refuse_existing(tmp_path / "new" / "deep" / "x", force=False)
    refuse_existing(tmp_path / "file", force=True)
    assert listing(tmp_path) == ["dangling", "file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_directory(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(FedwiseError, match="cannot be written"):
            refuse_existing(tmp_path / "x", force=False)
    finally:
        tmp_path.chmod(0o700)


def test_read_bytes_takes_regular_files_of_sane_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    assert read_bytes(tmp_path / "x", what="plan file", error=PlanError) == b"12345"
    os.mkfifo(tmp_path / "pipe")
    for path, message in [
        (tmp_path / "absent", "does not exist"),
        (tmp_path, "is a directory"),
        (tmp_path / "pipe", "not a regular file"),
        (tmp_path / ("x" * 300), "cannot be read"),
    ]:
        with pytest.raises(PlanError, match=f"plan file .*{message}"):
            read_bytes(path, what="plan file", error=PlanError)
    monkeypatch.setattr(files, "MAX_BYTES", 4)
    with pytest.raises(PlanError, match="must be at most"):
        read_bytes(tmp_path / "x", what="plan file", error=PlanError)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"  \n",
        b"{",
        b"[]",
        b"null",
        b'{"number": NaN}',
        b'{"number": Infinity}',
        b'{"number": -Infinity}',
        b'{"number": 1e999}',
        b'{"number": "1"}',
        b'{"number": true}',
        b'{"numbers": 1}',
        b'{"number": 1} {}',
        b'{"words": ["\xff"]}',
        b'{"words": ["\\ud800"]}',
        b'{"words": ' + b"[" * 100_000,
        b'{"words": ' + b'{"a":' * 100_000,
        b"[" * 1_000_000,
        b'{"' + b"k" * 10_000_000 + b'": 1}',
        b'{"\\u001b[2J": 1}',
    ],
    ids=lambda data: repr(data[:30]),
)
def test_decode_is_strict_and_its_message_short(data: bytes) -> None:
    with pytest.raises(ReleaseError, match="release file 'x'") as caught:
        decode(data, Thing, what="release file 'x'", error=ReleaseError)
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()
