"""Targets of more than two classes and numbers: kernels, metrics, runs, prediction, private training, rehearsal."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn import metrics as reference

import fedwise as fw
from fedwise.errors import FedwiseError
from fedwise.objective.metric import Metric, parse
from fedwise.training.class_metrics import evaluate_classes
from fedwise.training.encoding import Encoder, Rows
from fedwise.training.federation import prepare
from fedwise.training.local import Instruction, LocalSettings, local_update, predict
from fedwise.training.model import Model
from fedwise.training.number_metrics import evaluate_numbers
from fedwise.training.predict import predict_frame
from fedwise.training.private import private_update
from fedwise.training.row_gradients import row_gradients
from fedwise.training.task import Task

INPUTS = (
    fw.Column("A", "feature", levels=(0, 1, 2, 3)),
    fw.Column("B", "feature", bins=(0.0, 0.5, 1.0), model="scaled"),
    fw.Column("G", "sensitive", levels=(0, 1)),
)
CLASSES = fw.Schema((*INPUTS, fw.Column("K", "target", levels=("low", "mid", "high"))))
NUMBER = fw.Schema((*INPUTS, fw.Column("X", "target", bins=(0.0, 20.0, 40.0, 60.0, 100.0), model="scaled")))
BINNED = fw.Schema((*INPUTS, fw.Column("X", "target", bins=(0.0, 20.0, 40.0, 60.0, 100.0), model="binned")))
SCHEMAS = {"classes": CLASSES, "number": NUMBER, "binned": BINNED}


@functools.cache
def frame(number: int, rows: int = 240) -> pl.DataFrame:
    rng = np.random.default_rng(number)
    a, b, g = rng.integers(4, size=rows), rng.random(rows), rng.integers(2, size=rows)
    x = np.clip(15 * a + 30 * b + 5 * g + rng.normal(0, 6, rows), 0, 99)
    kinds = np.array(["low", "mid", "high"])[np.digitize(x, [25, 50])]
    return pl.DataFrame({"A": a, "B": b, "G": g, "K": kinds, "X": x})


def frames(clients: int = 4) -> dict[str, Any]:
    return {f"c{i}": frame(i) for i in range(clients)}


def encoded(schema: fw.Schema) -> tuple[Encoder, Rows]:
    encoder = Encoder(schema)
    return encoder, encoder.encode(frame(0))


@pytest.mark.parametrize("kind", SCHEMAS)
@pytest.mark.parametrize("hidden", ["logistic", "8-4"])
def test_kernels_train_as_autograd_does(kind: str, hidden: str) -> None:
    encoder, rows = encoded(SCHEMAS[kind])
    model = Model.named(hidden, encoder.width, encoder.task)
    start = model.initial(1)
    settings = Instruction(LocalSettings(lr=0.01, epochs=2))
    fast, slow = (
        local_update(model, start, rows, instruction=settings, client="c", seed=0, round=1, engine=engine)
        for engine in ("fast", "torch")
    )
    np.testing.assert_allclose(fast.parameters, slow.parameters, atol=2e-4)
    assert fast.loss == pytest.approx(slow.loss, rel=1e-4)
    np.testing.assert_allclose(
        predict(model, fast.parameters, rows),
        predict(model, fast.parameters, rows, engine="torch"),
        atol=1e-4,
    )


@pytest.mark.parametrize("kind", SCHEMAS)
def test_clipped_row_gradients_are_those_of_autograd(kind: str) -> None:
    encoder, rows = encoded(SCHEMAS[kind])
    model = Model.named("5", encoder.width, encoder.task)
    theta = model.initial(2)
    own = Model(encoder.width, factory=lambda _: model.module(), task=encoder.task)
    chosen = np.arange(40)
    fast, slow = row_gradients(model, theta, rows), row_gradients(own, theta, rows)
    mine = fast.clipped_sum(fast.own(theta), chosen, 1.0)[model.from_kernel]
    theirs = slow.clipped_sum(slow.own(theta), chosen, 1.0)
    np.testing.assert_allclose(mine, theirs, atol=400)  # steps of 2^-20 of the clipping norm, 40 rows


def test_class_metrics_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    task = Task("classes", ("a", "b", "c"))
    y = rng.integers(3, size=500)
    scores = rng.normal(size=(500, 3)) + 1.5 * np.eye(3)[y]
    group = rng.integers(2, size=500).astype(np.int16)
    rows = _rows(y, group)
    found = {
        (v.metric, v.attribute): v.value for v in evaluate_classes(scores, rows, ["G"], task, extended=True)
    }
    told = scores.argmax(axis=1)
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    assert found["accuracy", ""] == pytest.approx(reference.accuracy_score(y, told))
    assert found["balanced_accuracy", ""] == pytest.approx(reference.balanced_accuracy_score(y, told))
    assert found["macro_f1", ""] == pytest.approx(reference.f1_score(y, told, average="macro"))
    assert found["loss", ""] == pytest.approx(reference.log_loss(y, chances))
    areas = [reference.roc_auc_score(y == c, scores[:, c]) for c in range(3)]
    assert found["macro_auc", ""] == pytest.approx(np.mean(areas))
    recall = [[(told[(y == c) & (group == g)] == c).mean() for g in (0, 1)] for c in range(3)]
    rate = [[(told[group == g] == c).mean() for g in (0, 1)] for c in range(3)]
    assert found["eod[b]", "G"] == pytest.approx(abs(recall[1][0] - recall[1][1]))
    assert found["eod", "G"] == pytest.approx(np.mean([abs(one - two) for one, two in recall]))
    assert found["spd[c]", "G"] == pytest.approx(abs(rate[2][0] - rate[2][1]))
    assert found["spd", "G"] == pytest.approx(np.mean([abs(one - two) for one, two in rate]))


def test_number_metrics_are_in_the_unit_of_the_target() -> None:
    rng = np.random.default_rng(1)
    task = Task("number", ("a", "b", "c"), centre=50.0, width=10.0)
    true, told = rng.normal(50, 10, 300), rng.normal(50, 10, 300)
    group = rng.integers(2, size=300).astype(np.int16)
    rows = _rows((true - 50) / 10, group)
    found = {v.metric: v.value for v in evaluate_numbers((told - 50) / 10, rows, ["G"], task)}
    assert found["mae"] == pytest.approx(np.abs(told - true).mean(), rel=1e-5)
    assert found["rmse"] == pytest.approx(np.sqrt(((told - true) ** 2).mean()), rel=1e-5)
    means = [(told - true)[group == g].mean() for g in (0, 1)]
    assert found["error_gap"] == pytest.approx(abs(means[1] - means[0]), rel=1e-4)
    assert found["error_gap_signed"] == pytest.approx(means[1] - means[0], rel=1e-4)


def _rows(y: Any, group: Any) -> Rows:
    count = len(y)
    return Rows(
        1, np.zeros((count, 0), np.int32), np.ones((count, 1), np.float32), np.zeros(1, np.int64),
        np.asarray(y, dtype=np.float32), group[None],
    )  # fmt: skip


@pytest.mark.parametrize(("kind", "metric"), [("classes", "macro_f1"), ("number", "r2"), ("binned", "r2")])
def test_a_run_learns_is_tested_and_predicts(kind: str, metric: str, tmp_path: Path) -> None:
    schema = SCHEMAS[kind]
    settings = fw.Training(rounds=6, lr=0.01, replicates=20, evaluate_every=3)
    run = fw.train(frames(), schema, None, settings, output=tmp_path / "run")
    found = {(r.metric, r.attribute): r for r in run.final() if r.rows == "all"}
    assert found[metric, ""].value > 0.7
    assert found[metric, ""].low < found[metric, ""].value < found[metric, ""].high
    again = fw.Run.open(tmp_path / "run")
    table = predict_frame(again, frame(9))
    if kind == "classes":
        assert set(table["prediction"]) <= {"low", "mid", "high"}
        assert (table["prediction"] == frame(9)["K"]).mean() > 0.7
        assert table["probability of mid"].is_between(0, 1).all()
        assert {("eod[mid]", "G"), ("spd", "G")} <= set(found)
    else:
        off = np.abs(table["prediction"].to_numpy() - frame(9)["X"].to_numpy()).mean()
        assert off < 12
        assert ("error_gap", "G") in found
    with pytest.raises(FedwiseError, match="threshold must be left out"):
        predict_frame(again, frame(9), threshold=0.3)


def test_private_training_of_classes_keeps_its_cost() -> None:
    encoder, rows = encoded(CLASSES)
    model = Model.named("logistic", encoder.width, encoder.task)
    update = private_update(
        model, model.initial(0), rows, instruction=Instruction(LocalSettings(lr=0.1)), client="c", round=1,
        noise_multiplier=1.0, seed=0,
    )  # fmt: skip
    assert update.privacy is not None
    assert np.isfinite(update.parameters).all()
    assert math.isnan(update.loss)


def test_strategies_that_compare_groups_of_two_classes_refuse_more() -> None:
    with pytest.raises(FedwiseError, match="strategy fairfed must have a target of two classes"):
        fw.compare(frames(), CLASSES, None, fw.Training(rounds=1, strategy="fairfed"), seeds=[0])


def test_comparisons_of_classes_and_numbers() -> None:
    settings = fw.Training(rounds=1, replicates=0)
    for schema, metric in ((CLASSES, "macro_f1"), (NUMBER, "rmse")):
        found = fw.compare(frames(2), schema, None, settings, seeds=[0])
        assert metric in found.summary()["metric"].to_list()
        assert metric in str(found)


def test_a_module_with_another_number_of_scores_is_refused() -> None:
    encoder, rows = encoded(CLASSES)
    torch = pytest.importorskip("torch")
    model = Model(encoder.width, factory=lambda n: torch.nn.Linear(n, 2), task=encoder.task)
    with pytest.raises(FedwiseError, match="module must give each row 3 scores"):
        predict(model, model.initial(0), rows)


@pytest.mark.parametrize(
    ("text", "metric"),
    [
        ("eod[3]:SEX", Metric("eod", "SEX", "", "3")),
        ("spd[[0,10)]", Metric("spd", "", "", "[0,10)")),
        ("macro_f1", Metric("macro_f1")),
        ("error_gap:SEX", Metric("error_gap", "SEX")),
    ],
)
def test_names_of_metrics(text: str, metric: Metric) -> None:
    assert parse(text) == metric
    assert str(metric) == text


@pytest.mark.parametrize("text", ["auc[3]", "macro_f1@rate", "eod[3]@rate", "rmse:SEX"])
def test_names_that_are_none(text: str) -> None:
    with pytest.raises(FedwiseError):
        parse(text)


@pytest.mark.parametrize("prepared", ["classes", "number"])
def test_rows_with_an_other_target_are_left_out(prepared: str) -> None:
    target = SCHEMAS[prepared].columns[-1]
    import msgspec

    column = msgspec.structs.replace(target, missing="other", unknown="other")
    schema = fw.Schema((*INPUTS, column))
    rows = frame(0).with_columns(
        pl.when(pl.int_range(pl.len()) < 10).then(None).otherwise(pl.col(column.name)).alias(column.name)
    )
    assert sum(len(part) for part in (*prepare({"c": rows}, schema).train.values(),)) < 230
    assert Encoder(schema).encode(rows).y.shape == (230,)


@pytest.mark.parametrize(("kind", "metric"), [("classes", "macro_f1"), ("number", "rmse")])
def test_rehearsals_of_classes_and_numbers(kind: str, metric: str) -> None:
    plan = fw.plan(SCHEMAS[kind], 20.0)
    pool = fw.Pool.of(
        fw.release(plan, rows, client=name, simulated=True, seed=i)
        for i, (name, rows) in enumerate(frames().items())
    )
    settings = fw.Training(rounds=3, lr=0.01, model="8")
    found = fw.rehearse(pool, ["c0", "c1"], settings, random=1, stages=2, judged=500)
    assert metric in found.headline()
    assert math.isfinite(found.value(metric))
    assert "macro" in found.verdict() or "RMSE" in found.verdict()


def test_doubles_of_a_column_with_a_level_called_other() -> None:
    from fedwise.doubling.values import Values

    schema = fw.Schema(
        (fw.Column("R", "feature", levels=("a", "other")), fw.Column("Y", "target", levels=(0, 1)))
    )
    codes = np.array([[0, 0], [1, 1]], dtype=np.int16)
    frame, told = Values(schema).frame(codes, np.random.default_rng(0))
    assert frame["R"].to_list() == ["a", "other"]
    assert np.array_equal(told, codes)
