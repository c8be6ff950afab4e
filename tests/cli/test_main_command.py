"""The command line itself: its version, and how it ends when a person or a pipe stops it."""

from __future__ import annotations

import sys

import pytest

import fedwise
from cli.cli_kit import Run
from fedwise.cli import main as command
from fedwise.cli.command import OLD_SPELLINGS
from fedwise.errors import FedwiseError


def test_version(run: Run) -> None:
    for word in ("--version", "-V"):
        assert run(word) == (0, f"fedwise {fedwise.__version__}\n", "")


def test_old_spellings_are_understood_and_not_shown(run: Run) -> None:
    shown = run("train", "--help").out
    assert "--releases" in shown
    assert "--pool" not in shown
    for word in ("--pool=absent", "--releases=absent"):
        refused = run("train", word, "--data", "absent", "-o", "out")
        assert refused == (2, "", "error: releases 'absent' do not exist; check the path\n")
    for name, pairs in OLD_SPELLINGS.items():
        for old, new in pairs.items():
            help_text = run(name, "--help").out
            assert old not in help_text.replace(new, "")
            assert new in help_text


def test_a_shell_completes(run: Run) -> None:
    assert "--show-completion" in run("--help").out


@pytest.mark.parametrize(
    ("error", "code", "shown"),
    [
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (BrokenPipeError(), 0, ""),
        (FedwiseError("k must be at least 1, got 0"), 2, "error: k must be at least 1, got 0\n"),
    ],
    ids=["Ctrl-C", "closed pipe", "refusal"],
)
def test_what_ends_a_command(
    error: BaseException, code: int, shown: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(**_: object) -> None:
        raise error

    monkeypatch.setattr(command, "app", end)
    assert run("select") == (code, "", shown)


def test_debug_shows_the_error_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(args: list[str], **_: object) -> None:
        raise FedwiseError(" ".join(args))

    monkeypatch.setattr(command, "app", end)
    monkeypatch.setattr(sys, "argv", ["fedwise", "select", "--debug", "-k", "2"])
    # The option works after any command, and no command sees it.
    with pytest.raises(FedwiseError, match=r"^select -k 2$"):
        command.main()
