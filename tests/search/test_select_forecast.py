"""The forecast beside the loss, and as the objective, through `select` and its command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fedwise as fw
from conftest import make_people
from fedwise.cli.main import main
from fedwise.cli.search_options import forecast_objective
from fedwise.forecasting import with_forecast
from fedwise.search import Selection


@pytest.fixture(scope="module")
def pool(small_schema: fw.Schema) -> fw.Pool:
    """Eight clients of the small schema with weak simulated noise."""
    plan = fw.plan(small_schema, 5.0)
    return fw.Pool.of(
        fw.release(plan, make_people(800, seed=i), client=f"c{i}", simulated=True, seed=1) for i in range(8)
    )


def test_forecast_comes_with_the_selection_and_survives_a_file(pool: fw.Pool, tmp_path: Path) -> None:
    selection = with_forecast(fw.select(pool, 3, evidence="none"), pool)
    named = {f.metric: f for f in selection.forecast}
    assert {"balanced_accuracy", "accuracy", "f1", "spd", "eod"} <= set(named)
    assert 0.5 < named["balanced_accuracy"].value < 1
    assert named["balanced_accuracy"].std_error is not None
    assert "forecast" in str(selection)
    selection.save(tmp_path / "selection.json")
    assert Selection.load(tmp_path / "selection.json") == selection
    assert not fw.select(pool, 3, evidence="none").forecast


def test_objective_from_options(pool: fw.Pool) -> None:
    objective = forecast_objective("balanced_accuracy", "spd=0.9")
    assert objective is not None
    chosen = fw.select(pool, 3, objective=objective, evidence="none")
    chosen = with_forecast(chosen, pool, objective=objective)
    by_pfl = with_forecast(fw.select(pool, 3, evidence="none"), pool)
    value = {f.metric: f.value for f in chosen.forecast}["balanced_accuracy"]
    assert value >= {f.metric: f.value for f in by_pfl.forecast}["balanced_accuracy"] - 1e-9
    assert chosen.objective == "forecast"
    assert json.loads(chosen.encode())["objective"] == "forecast"


@pytest.mark.parametrize("old", [{"forecast": True}, {"model": "logistic"}])
def test_the_search_does_not_forecast(pool: fw.Pool, old: dict[str, object]) -> None:
    with pytest.raises(
        TypeError, match=r"add a forecast to a selection with fedwise.forecasting.with_forecast"
    ):
        fw.select(pool, 3, **old)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("maximise", "limits", "message"),
    [
        (None, "spd=0.05", "needs --maximise"),
        ("balanced_accuracy", "spd", "must look like"),
        ("balanced_acuracy", "", "balanced_accuracy"),
        ("balanced_accuracy", "spd=7", "between 0 and 1"),
    ],
)
def test_wrong_options_say_what_to_write(maximise: str | None, limits: str, message: str) -> None:
    with pytest.raises(fw.FedwiseError, match=message):
        forecast_objective(maximise, limits)


@pytest.mark.parametrize(
    ("target", "options", "metric"),
    [
        ('levels = ["a", "b", "c"]', ["--maximise", "macro_f1", "--subject-to", "eod[b]=0.9"], "recall[c]"),
        ('bins = [0, 1, 2, 3]\nmodel = "scaled"', ["--maximise", "rmse"], "mae_gap"),
    ],
)
def test_the_command_forecasts_any_target(
    target: str,
    options: list[str],
    metric: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schema = fw.Schema.parse(
        '[columns.A]\nrole = "feature"\nlevels = [0, 1, 2]\n[columns.S]\nrole = "sensitive"\nlevels = [0, 1]\n'
        f'[columns.T]\nrole = "target"\n{target}\n'
    )
    plan = fw.plan(schema, 5.0)
    for i in range(4):
        rng = np.random.default_rng(i)
        a, s = rng.integers(0, 3, 600), rng.integers(0, 2, 600)
        t = np.clip(a + rng.integers(-1, 2, 600), 0, 2)
        label = np.array(["a", "b", "c"])[t] if "levels" in target else t + 0.5
        frame = pl.DataFrame({"A": a, "S": s, "T": label})
        fw.release(plan, frame, client=f"c{i}", simulated=True, seed=1).save(tmp_path / f"c{i}.release.json")
    words = ["fedwise", "select", str(tmp_path), "-k", "2", "--evidence", "none", *options, "--json"]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    found = json.loads(capsys.readouterr().out)
    assert found["objective"] == "forecast"
    assert metric in {one["metric"] for one in found["forecast"]}
