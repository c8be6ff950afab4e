"""Metrics at every threshold on their way through trainings, comparisons and predictions."""

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from fedwise.cli.compare import compare as compare_command
from fedwise.cli.predict import predict as predict_command
from fedwise.cli.train import train as train_command
from fedwise.errors import FedwiseError
from fedwise.schema.schema import Schema
from fedwise.training import metrics
from fedwise.training.cached import Cache, Job
from fedwise.training.comparison import Comparison, compare
from fedwise.training.federation import Prepared
from fedwise.training.local import predict
from fedwise.training.model import Model
from fedwise.training.predict import predict_frame
from fedwise.training.private import Privacy
from fedwise.training.records import final, to_frame
from fedwise.training.run import Run
from fedwise.training.settings import Training
from fedwise.training.simulate import Config, simulate
from fedwise.training.workflow import train

QUICK = Config(rounds=2, model="4", replicates=0)
APP = typer.Typer()
for _command in (train_command, compare_command, predict_command):
    APP.command(_command.__name__)(_command)


def _call(*words: object):
    result = CliRunner().invoke(APP, [str(word) for word in words], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_the_last_round_has_every_metric_and_the_others_the_usual_ones(prepared: Prepared) -> None:
    done = simulate(prepared, "ABCD", QUICK)
    table = to_frame(done.records).filter(pl.col("rows") == "all")
    names = {r: set(table.filter(pl.col("round") == r)["metric"]) for r in (0, 1, 2)}
    assert names[0] == names[1] == {*metrics.PLAIN, *metrics.FAIRNESS}
    assert {"brier", "calibration_error", "eod@rate", "f1@best"} <= names[2]
    # The threshold is that of the rows the four trained on, and of nobody else.
    model = Model.named("4", prepared.encoder.width)
    rows = [prepared.train[client] for client in "ABCD"]
    scores = np.concatenate([predict(model, done.parameters, part) for part in rows])
    best = metrics.best_threshold(scores, np.concatenate([part.y for part in rows]))
    held_out = predict(model, done.parameters, prepared.held_out)
    attributes = prepared.encoder.attributes
    for v in metrics.evaluate(held_out, prepared.held_out, attributes, extended=True, best=best):
        assert done.value(v.metric, attribute=v.attribute) == pytest.approx(v.value, nan_ok=True), v


def test_private_training_has_no_figure_of_its_training_rows(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The accountant takes seconds and has tests of its own.
    monkeypatch.setattr("fedwise.training.simulate.scale_noise", lambda *_: 1.0)
    config = Config(
        rounds=1, model="logistic", replicates=0, privacy=Privacy(epsilon=5.0, delta=1e-3), simulated=True
    )
    found = {record.metric for record in simulate(prepared, "AB", config).records}
    assert "eod@rate" in found
    assert not {name for name in found if name.endswith("@best")}


def test_trainings_cached_before_these_metrics_are_repeated(tmp_path: Path, prepared: Prepared) -> None:
    cache, job = Cache(tmp_path, prepared), Job(("A", "B"), QUICK)
    table = to_frame(simulate(prepared, "AB", QUICK).records)
    cache.store(job, table)
    assert cache.load(job) is not None
    cache.store(job, table.filter(pl.col("metric").is_in([*metrics.PLAIN, *metrics.FAIRNESS])))
    assert cache.load(job) is None


def _table(values: dict[str, tuple[float, float]]) -> Comparison:
    lines = [
        (name, "fedavg", "full", 0, 3, "all", "", metric, attribute, value, math.nan, math.nan)
        for name, (auc, eod) in values.items()
        for metric, attribute, value in (("auc", "", auc), ("eod@rate", "S", eod), ("accuracy", "", 0.5))
    ]
    columns = ["federation", "strategy", "sampler", "seed", "round", "rows", "client", "metric", "attribute", "value",
               "low", "high"]  # fmt: skip
    return Comparison(pl.DataFrame(lines, schema=columns, orient="row"), len(values), ("S",))


def test_the_front_keeps_what_no_other_beats() -> None:
    found = _table({"a": (0.8, 0.2), "b": (0.7, 0.1), "c": (0.7, 0.3), "d": (0.6, 0.05), "e": (0.8, 0.25)})
    front = found.front()
    assert front.filter("undominated")["federation"].to_list() == ["a", "b", "d"]
    assert front.columns == ["federation", "strategy", "sampler", "auc", "eod@rate", "undominated"]
    assert front.equals(found.front("auc", "eod:S@rate").rename({"eod:S@rate": "eod@rate"}))
    with pytest.raises(FedwiseError, match="did you mean 'eod@rate'"):
        found.front("auc", "edo@rate")


def test_a_comparison_shows_both_thresholds(
    tmp_path: Path, schema: Schema, frames: dict[str, pl.DataFrame]
) -> None:
    settings = Training(rounds=2, model="4", replicates=0)
    found = compare(frames, schema, {"two": ["A", "B"]}, settings, seeds=(0,))
    assert "f1@rate" in str(found.summary(metrics=["f1@rate"]))
    first = found.attributes[0]
    one = found.summary(metrics=["auc", f"eod:{first}@rate"])
    assert one["metric"].to_list() == ["auc", "eod@rate"]
    with pytest.raises(FedwiseError, match="which only the last round has"):
        found.summary(metric="f1@rate")
    with pytest.raises(FedwiseError, match="did you mean 'auc'"):
        found.summary(metrics=["aucc"])


@pytest.fixture
def run(tmp_path: Path, schema: Schema, frames: dict[str, pl.DataFrame]) -> Run:
    settings = Training(rounds=2, model="4", replicates=0, lr=0.01)
    return train(frames, schema, ["A", "B"], settings, output=tmp_path / "run")


def test_predictions_at_a_threshold(run: Run, frames: dict[str, pl.DataFrame]) -> None:
    frame = frames["E"].drop("Y")
    p = predict_frame(run, frame)["probability"].to_numpy()

    def yes(threshold: float | str) -> np.ndarray:
        return predict_frame(run, frame, threshold=threshold)["prediction"].to_numpy() == "1"

    assert (yes(0.5) == (p > 0.5)).all()
    assert (yes(0.3) == (p > 0.3)).all()
    assert yes(0).all()
    assert not yes(1).any()
    rate = final(run.metrics(), "positive_rate@rate")
    label_rate = run_label_rate(run, frames)
    assert rate == pytest.approx(label_rate, abs=0.1)
    matched = yes("rate")
    tied = np.unique(p, return_counts=True)[1].max()
    assert abs(matched.sum() - rate * len(p)) <= tied / 2
    assert p[matched].min() > p[~matched].max()
    for wrong in ("half", 1.5, -0.1, math.nan):
        with pytest.raises(FedwiseError, match="threshold must be a probability or 'rate'"):
            yes(wrong)


def run_label_rate(run: Run, frames: dict[str, pl.DataFrame]) -> float:
    """Share of positives over the rows of all clients: the held-out ones are a fifth of them."""
    return float(np.mean(np.concatenate([f["Y"].cast(pl.Float64).to_numpy() for f in frames.values()])))


def test_the_commands(tmp_path: Path, run: Run, schema: Schema, frames: dict[str, pl.DataFrame]) -> None:
    (tmp_path / "clients").mkdir()
    for name, frame in frames.items():
        frame.write_parquet(tmp_path / "clients" / f"{name}.parquet")
    schema.save(tmp_path / "toy.toml")
    data = ("--data", tmp_path / "clients", "--schema", tmp_path / "toy.toml")
    quick = ("--rounds", 1, "--model", 4)
    shown = _call("train", *data, *quick, "-o", tmp_path / "new").output
    for word in ("auc", "loss", "balanced_accuracy@rate", "eod@rate by", "label rate"):
        assert word in shown, word
    assert "f1@best" not in shown  # recorded, but not in the table for people
    compared = ("compare", *data, *quick, "--workers", 1, "--seeds", 1, "--strategies", "fedavg")
    shown = _call(*compared, "-o", tmp_path / "c.csv").output
    for word in ("AUC", "balanced", "EOD", "rate-matched"):
        assert word in shown, word
    shown = _call(*compared, "--metrics", "brier,spd@rate", "-o", tmp_path / "d.csv").output
    assert "Brier score" in shown
    assert "AUC" not in shown
    with pytest.raises(FedwiseError, match=r"--metrics must be a metric .* did you mean 'spd@rate'"):
        _call(*compared, "--metrics", "sdp@rate", "-o", tmp_path / "e.csv")
    people = tmp_path / "clients" / "E.parquet"
    counts = []
    for threshold in ("0.01", "rate", "0.99"):
        out = tmp_path / f"{threshold}.csv"
        _call("predict", run.path, people, "--threshold", threshold, "-o", out)
        counts.append(pl.read_csv(out)["prediction"].sum())
    assert counts[0] > counts[1] > counts[2]
    with pytest.raises(FedwiseError, match=r"--threshold must be a probability such as 0.5, or rate"):
        _call("predict", run.path, people, "--threshold", "half", "-o", tmp_path / "f.csv")
