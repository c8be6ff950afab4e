"""The examples run as they stand."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.soak
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(path), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) >= 4


def test_the_gallery_lists_every_example() -> None:
    root = Path(__file__).parents[2]
    text = (root / "docs" / "gallery.md").read_text(encoding="utf-8")
    kept = [*EXAMPLES, *(root / "examples").glob("*.ipynb")]
    assert [path.name for path in kept if f"`examples/{path.name}`" not in text] == []
