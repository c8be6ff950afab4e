"""Machine code: read from disk without the compiler, compiled where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.caching import FunctionCache

from fedwise.machine_code import compiled

#: Says whether the tables of the compiler are loaded, before and after a call; one of them stands for all.
_CALL = """
import sys
import numpy as np
from fedwise.estimation.fitting import fit
found = fit(np.ones((2, 2)), np.array([[0.3, 0.7]]), np.array([[0.5, 0.5]]))
assert np.allclose(found[0], [[0.15, 0.15], [0.35, 0.35]]), found
print("numba.np.arraymath" in sys.modules)
"""


def test_a_second_process_reads_the_code_and_does_not_load_the_compiler(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    said = [
        subprocess.run(
            [sys.executable, "-c", _CALL], env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()
        for _ in range(2)
    ]
    assert said == ["True", "False"]


def double(values: np.ndarray) -> float:
    """Twice the sum."""
    total = 0.0
    for value in values:
        total += 2.0 * value
    return total


def test_a_numba_with_other_names_reads_in_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def elsewhere(self: object, sig: object, target_context: object) -> None:
        asked.append(sig)

    monkeypatch.setattr(FunctionCache, "load_overload", elsewhere)
    monkeypatch.delattr("numba.core.caching.Cache._load_overload")
    monkeypatch.setattr(FunctionCache, "save_overload", lambda self, sig, data: None)
    assert compiled()(double)(np.ones(3)) == 6.0
    assert len(asked) == 1


def test_without_compilation_the_function_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.core.config.DISABLE_JIT", 1)
    assert compiled()(double) is double
