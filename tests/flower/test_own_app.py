"""A Flower app rehearsed unchanged: its own code, its own metrics, on the doubles of a federation."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import fedwise as fw
from conftest import make_people
from fedwise.flower.own_app import rehearse_app

APP = Path(__file__).parent / "tabular_app"


@pytest.fixture(scope="module")
def pool(small_schema) -> fw.Pool:
    plan = fw.plan(small_schema, epsilon=3.0)
    return fw.Pool.of(
        fw.release(plan, make_people(400, seed=i), client=f"c{i}", simulated=True, seed=i) for i in range(3)
    )


def test_an_app_is_rehearsed_unchanged(pool, tmp_path) -> None:
    found = rehearse_app(APP, pool, ["c0", "c2"], records=300)
    table = found.to_frame()
    assert set(table["metric"]) == {"train_loss", "eval_loss", "eval_acc"}
    assert table.filter(kind="train")["round"].to_list() == [1, 2, 3]
    losses = table.filter(kind="train")["value"].to_list()
    assert losses[-1] < losses[0] < 0.6931
    assert 0.5 < found.last()["eval_acc"] <= 1
    assert found.clients == ("c0", "c2")
    assert found.label == "simulated"
    assert not any(name.startswith("tabular") for name in sys.modules)
    found.save(tmp_path / "app.json")
    short = rehearse_app(APP, pool, ["c0"], records=300, run_config={"num-server-rounds": 1})
    assert short.to_frame()["round"].max() == 1
    assert rehearse_app(APP, pool, ["c0", "c2"], records=300).metrics == found.metrics


def test_mistakes(pool, tmp_path) -> None:
    with pytest.raises(fw.FedwiseError, match=r"must be a directory with a pyproject\.toml"):
        rehearse_app(tmp_path, pool, ["c0"])
    (tmp_path / "pyproject.toml").write_text(
        '[tool.flwr.app.components]\nserverapp = "nowhere:app"\nclientapp = "nowhere:app"\n'
    )
    with pytest.raises(fw.FedwiseError, match=r"clientapp 'nowhere:app' of app .* cannot be loaded"):
        rehearse_app(tmp_path, pool, ["c0"])
    with pytest.raises(fw.FedwiseError, match=r"reported no metrics from any node; the first said"):
        rehearse_app(APP, pool, ["c0"], records=50, data_key="rows")
