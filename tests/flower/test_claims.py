"""Claims: one of many gets a step, old ones are forgotten, and a folder others can write is not trusted."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from fedwise.errors import FedwiseError
from fedwise.flower.claims import claim, new_session

DAY = 86_400


def test_one_of_many_at_once_gets_the_step(tmp_path):
    session = new_session()

    def attempt(_):
        try:
            claim(session, "unmask", folder=tmp_path / "claims")
        except FedwiseError as cause:
            return str(cause)
        return "taken"

    with ThreadPoolExecutor(8) as pool:
        found = Counter(pool.map(attempt, range(40)))
    assert found == {"taken": 1, "secure aggregation takes every step once; restart the round": 39}
    claim(session, "collect", folder=tmp_path / "claims")
    claim(new_session(), "unmask", folder=tmp_path / "claims")


def test_claims_are_kept_while_their_session_may_go_on(tmp_path):
    folder = tmp_path / "claims"
    session = new_session(now=10.5 * DAY)
    claim(session, "a", folder=folder, now=10.5 * DAY)
    claim(new_session(now=11.9 * DAY), "a", folder=folder, now=11.9 * DAY)
    with pytest.raises(FedwiseError, match="every step once"):
        claim(session, "a", folder=folder, now=11.9 * DAY)
    claim(new_session(now=12 * DAY), "a", folder=folder, now=12 * DAY)
    assert sorted(path.name for path in folder.iterdir()) == ["11", "12"]
    # Its claims are gone, and so is the session.
    with pytest.raises(FedwiseError, match="within a day"):
        claim(session, "a", folder=folder, now=12 * DAY)


def test_a_folder_that_others_may_write_is_refused(tmp_path):
    folder = tmp_path / "claims"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(FedwiseError, match="must be private to this user"):
        claim(new_session(), "a", folder=folder)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FedwiseError, match="must be writable"):
        claim(new_session(), "a", folder=tmp_path / "file" / "claims")
