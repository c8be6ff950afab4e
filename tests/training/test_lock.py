"""The lock of a run directory, within one process; `faults/test_two_processes.py` has it between two."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest
from filelock import FileLock

from fedwise.errors import FedwiseError
from fedwise.training.lock import NAME, alone


def test_a_second_one_is_refused_also_in_this_process_and_thread(tmp_path: Path) -> None:
    told: list[str] = []

    def enter() -> None:
        try:
            with alone(tmp_path / "a" / "run"):
                told.append("got in")
        except FedwiseError as error:
            told.append(str(error))

    with alone(tmp_path / "a" / "run"):
        enter()
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
    enter()
    expected = (
        f"run directory '{tmp_path / 'a' / 'run'}' is in use by another process; wait for it, or choose"
    )
    assert [text.startswith(expected) for text in told] == [True, True, False]
    assert told[-1] == "got in"
    assert [file.name for file in (tmp_path / "a" / "run").iterdir()] == [NAME]


def test_it_is_let_go_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), alone(tmp_path):
        raise ZeroDivisionError
    with alone(tmp_path):
        pass


def test_a_place_that_cannot_be_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(FedwiseError, match=r"cannot be used .*choose another with -o"),
        alone(tmp_path / "file"),
    ):
        pass


@pytest.mark.parametrize(
    ("code", "goes_on"), [(errno.ENOLCK, True), (errno.ENOTSUP, True), (errno.EIO, False)]
)
def test_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, goes_on: bool
) -> None:
    def refuse(self: FileLock, timeout: float) -> None:
        raise OSError(code, "no")

    monkeypatch.setattr(FileLock, "acquire", refuse)
    if goes_on:
        with alone(tmp_path):
            pass
    else:
        with pytest.raises(FedwiseError, match=r"cannot be used \(no\)"), alone(tmp_path):
            pass
