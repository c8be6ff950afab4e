"""Apps of the shape of Flower's own examples get a selection by a few changed lines, in simulation.

`examples/NAME/before` is an app as people have it, written for these tests; `after` is the same app with a selection.
"""

from __future__ import annotations

import difflib
import importlib
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict

from fedwise.flower import InProcessGrid
from flower.kit import SpyGrid

EXAMPLES = Path(__file__).parent / "examples"
#: The most lines that may change, the schema aside.
MOST = 12
CONFIG = {
    "num-server-rounds": 2,
    "local-epochs": 1,
    "batch-size": 32,
    "lr": 0.1,
    "fraction-evaluate": 1.0,
}


def changed(name: str) -> list[str]:
    """Lines of `after` that are new or other than in `before`; empty ones do not count."""
    found = []
    for after in sorted((EXAMPLES / name / "after").glob("*.py")):
        texts = [
            (EXAMPLES / name / folder / after.name).read_text().splitlines() for folder in ("before", "after")
        ]
        found += [line for line in difflib.ndiff(*texts) if line.startswith("+ ") and line[2:].strip()]
    return found


@pytest.mark.parametrize("name", ["fl_tabular", "quickstart_sklearn", "quickstart_pytorch"])
def test_at_most_twelve_lines_change(name):
    files = [
        {path.name for path in (EXAMPLES / name / folder).glob("*.py")} for folder in ("before", "after")
    ]
    assert files[0] == files[1]
    assert 0 < len(changed(name)) <= MOST
    before = sum(len(path.read_text().splitlines()) for path in (EXAMPLES / name / "before").glob("*.py"))
    after = sum(len(path.read_text().splitlines()) for path in (EXAMPLES / name / "after").glob("*.py"))
    assert after >= before  # nothing was taken away to make room


@pytest.mark.parametrize("name", ["fl_tabular", "quickstart_sklearn", "quickstart_pytorch"])
def test_the_changed_app_chooses_and_trains(name, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.chdir("/")  # Flower starts apps anywhere
    trained = {}
    for folder in ("before", "after"):
        client, server = (
            importlib.import_module(f"{name}.{folder}.{part}_app") for part in ("client", "server")
        )
        grid = SpyGrid(InProcessGrid(client.app, 6, run_config=CONFIG))
        server.app(grid, Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=CONFIG))
        trained[folder] = {m.metadata.dst_node_id for m in grid.sent if m.metadata.message_type == "train"}
        assert "acc" in capsys.readouterr().out  # both end with the accuracy of each round
    asked = [m.metadata.dst_node_id for m in grid.sent if m.metadata.message_type.startswith("query")]
    assert len(trained["before"]) == len(asked) == len(set(asked)) == 6
    assert len(trained["after"]) == 3
    assert not grid.grid.contexts.keys() - set(asked)
