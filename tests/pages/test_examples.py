"""The examples run as they stand."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.soak
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(
    path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path)])
    runpy.run_path(str(path), run_name="__main__")
    shown, written = (
        capsys.readouterr().out.splitlines(),
        [one for one in tmp_path.rglob("*") if one.is_file()],
    )
    assert len(shown) >= 4 or len(written) >= 3


def test_the_gallery_lists_every_example() -> None:
    root = Path(__file__).parents[2]
    text = (root / "docs" / "gallery.md").read_text(encoding="utf-8")
    kept = [*EXAMPLES, *(root / "examples").glob("*.ipynb")]
    assert [path.name for path in kept if f"`examples/{path.name}`" not in text] == []
