"""Claims: one of many gets a step, steps keep their order, and what was left alone is forgotten."""

from __future__ import annotations

import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from fedwise.errors import FedwiseError
from fedwise.flower.claims import advance, begin

ONCE = "secure aggregation takes every step once; restart the round"


@pytest.mark.parametrize("following", ["second", None])
def test_one_of_many_at_once_gets_the_step(tmp_path, following):
    name = begin("first", folder=tmp_path / "private")

    def attempt(_):
        try:
            advance(name, "first", following, folder=tmp_path / "private")
        except FedwiseError as cause:
            return str(cause)
        return "taken"

    with ThreadPoolExecutor(8) as pool:
        found = Counter(pool.map(attempt, range(40)))
    assert found == {"taken": 1, ONCE: 39}


def test_steps_keep_their_order_and_a_finished_session_leaves_nothing(tmp_path):
    folder = tmp_path / "private"
    name, other = begin("a", folder=folder), begin("a", folder=folder)
    assert name != other
    for wrong in ("b", "c"):
        with pytest.raises(FedwiseError, match=ONCE):
            advance(name, wrong, folder=folder)
    advance(name, "a", "b", folder=folder)
    with pytest.raises(FedwiseError, match=ONCE):
        advance(name, "a", "b", folder=folder)
    advance(name, "b", folder=folder)
    with pytest.raises(FedwiseError, match=ONCE):
        advance(name, "b", folder=folder)
    assert [path.name for path in folder.iterdir()] == [f"{other}.a"]
    assert (folder / f"{other}.a").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_session_left_alone_for_a_day_is_forgotten_and_cannot_go_on(tmp_path):
    folder = tmp_path / "private"
    old, recent = begin("a", folder=folder), begin("a", folder=folder)
    for name, hours in ((old, 25), (recent, 23)):
        then = time.time() - hours * 3600
        os.utime(folder / f"{name}.a", (then, then))
    begin("a", folder=folder)
    advance(recent, "a", folder=folder)
    with pytest.raises(FedwiseError, match=ONCE):
        advance(old, "a", folder=folder)


def test_a_folder_that_others_may_write_is_refused(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(FedwiseError, match="must be private to this user"):
        begin("a", folder=folder)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FedwiseError, match="must be writable"):
        begin("a", folder=tmp_path / "file" / "private")
