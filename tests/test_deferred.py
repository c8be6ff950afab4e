"""Modules that load when they are first used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fedwise.deferred import Deferred


def test_it_gives_what_the_module_has() -> None:
    import colorsys

    module = Deferred("colorsys")
    assert module.rgb_to_hsv is colorsys.rgb_to_hsv
    assert module.rgb_to_hsv is colorsys.rgb_to_hsv  # kept
    with pytest.raises(AttributeError, match="nonsense"):
        _ = module.nonsense
    with pytest.raises(ModuleNotFoundError):
        _ = Deferred("no_such_module").anything


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import fedwise.search, fedwise.pool.pool", "polars scipy.optimize"),
        ("import fedwise.owner.release, fedwise.owner.examination", "numba scipy opendp"),
        ("import fedwise.cli.main", "fedwise.cli.select rich numpy"),
    ],
)
def test_commands_do_not_load_what_they_do_not_use(statement: str, absent: str) -> None:
    code = f"{statement}\nimport sys; print(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert not set(absent.split()) & set(done.stdout.split())
