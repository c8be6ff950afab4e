"""Tuning: good settings win, a stop goes on as it would have, and the best is a file that training takes."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedwise as fw
from conftest import make_people
from fedwise.errors import Infeasible
from fedwise.rehearsal import tuning

BASE = fw.Training(rounds=1, batch=64, model="logistic", lr=1e-5)
SPACE = fw.Space(strategy=("fedavg", "fedadam"), lr=(1e-5, 0.1), epochs=(), batch=(), model=())
SMALL = {"space": SPACE, "settings": BASE, "stages": 1, "records": 100}


@pytest.fixture(scope="module")
def pool(small_schema) -> fw.Pool:
    plan = fw.plan(small_schema, epsilon=3.0)
    return fw.Pool.of(
        fw.release(plan, make_people(300, seed=i), client=f"c{i}", simulated=True, seed=i) for i in range(4)
    )


@pytest.fixture(scope="module")
def found(pool, tmp_path_factory) -> tuple[fw.Tuned, Path]:
    folder = tmp_path_factory.mktemp("tuning") / "run"
    return fw.tune(pool, ["c0", "c1"], trials=6, output=folder, **SMALL), folder


def test_the_best_is_kept_as_a_file_and_a_study(found) -> None:
    import optuna

    tuned, folder = found
    assert len(tuned.tried) == 6
    assert tuned.baseline == tuned.tried[0].value
    assert tuned.value == max(one.value for one in tuned.tried) > tuned.baseline
    assert tuned.settings.lr > 1e-5
    best = fw.Training.load(folder / "best.toml")
    assert best == tuned.settings
    assert best.rounds == 1
    study = optuna.load_study(study_name="fedwise", storage=tuned.storage)
    assert study.best_value == tuned.value
    assert study.best_params == tuned.best.point
    assert tuned.to_frame().height == 6
    assert "best settings" in str(tuned)


def test_a_study_goes_on_as_it_would_have(pool, found, tmp_path, monkeypatch) -> None:
    calls: list[int] = []

    def stop(done: int, _total: int, _best: float) -> None:
        calls.append(done)
        if done == 3:
            raise KeyboardInterrupt

    half = fw.tune(pool, ["c0", "c1"], trials=6, output=tmp_path / "run", progress=stop, **SMALL)
    assert half.interrupted
    assert len(half.tried) == 3
    whole = fw.tune(pool, ["c0", "c1"], trials=6, output=tmp_path / "run", **SMALL)
    assert [one.point for one in whole.tried] == [one.point for one in found[0].tried]
    assert not whole.interrupted
    monkeypatch.setattr(tuning._Work, "_rehearse", lambda *_: pytest.fail("rehearsed again"))
    assert fw.tune(pool, ["c0", "c1"], trials=6, output=tmp_path / "run", **SMALL).value == whole.value


def test_a_study_stopped_or_killed_in_a_trial_goes_on_as_it_would_have(
    pool, found, tmp_path, monkeypatch
) -> None:
    """The first trial again, with the settings tuning began with; a trial that was killed is ended, not counted."""
    import optuna

    small = {"trials": 6, "output": tmp_path / "run", **SMALL}
    rehearse = tuning._Work._rehearse

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning._Work, "_rehearse", stopped)
    with pytest.raises(fw.FedwiseError, match="before its first trial"):
        fw.tune(pool, ["c0", "c1"], **small)
    monkeypatch.setattr(tuning._Work, "_rehearse", rehearse)
    half = fw.tune(pool, ["c0", "c1"], **{**small, "trials": 2})
    assert half.baseline == found[0].baseline
    study = optuna.load_study(study_name="fedwise", storage=half.storage)
    study.ask()  # as a process leaves it that is killed
    whole = fw.tune(pool, ["c0", "c1"], **small)
    assert [one.point for one in whole.tried] == [one.point for one in found[0].tried]
    states = [trial.state.name for trial in study.get_trials()]
    assert states.count("COMPLETE") == 6
    assert "RUNNING" not in states


def test_sizes_several_federations_and_limits(pool) -> None:
    sizes = fw.tune(
        pool, trials=2, space=fw.Space(strategy=(), epochs=(), batch=(), model=(), k=(2, 3)), settings=BASE, stages=1,
        records=60,
    )  # fmt: skip
    assert len(sizes.clients) == sizes.best.point["k"]
    several = fw.tune(pool, [["c0"], ["c1", "c2"]], trials=1, **SMALL)
    assert several.clients == ("c0",)
    with pytest.raises(Infeasible, match=r"no settings tried keep auc at 0\.999; the nearest miss has"):
        fw.tune(pool, ["c0"], trials=1, subject_to={"auc": 0.999}, maximise="balanced_accuracy", **SMALL)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"federations": None}, "federations must be named"),
        ({"trials": 0}, "trials must be at least 1"),
        ({"subject_to": {"eod": "random"}}, "must be a number when tuning"),
        ({"federations": ["c9"]}, "no client 'c9'"),
    ],
)
def test_mistakes(pool, options, message) -> None:
    with pytest.raises(fw.FedwiseError, match=message):
        fw.tune(pool, options.pop("federations", ["c0"]), **{**SMALL, **options})
    with pytest.raises(fw.FedwiseError, match="lr must be a range"):
        fw.Space(lr=(1e-2, 1e-5))


def test_settings_files(tmp_path) -> None:
    made = fw.Training(rounds=3, strategy="fedprox", strategy_options={"mu": 0.1}, model="64-32")
    made.save(tmp_path / "s.toml", beside={"tuned": {"goal": "auc"}})
    assert fw.Training.load(tmp_path / "s.toml") == made
    for text, message in (
        ("x = 1", "table .training."),
        ("[training]\nround = 3", "unknown setting 'round'; did you mean 'rounds'"),
        ("[training]\nrounds = 'many'", "is not valid"),
    ):
        (tmp_path / "bad.toml").write_text(text)
        with pytest.raises(fw.FedwiseError, match=message):
            fw.Training.load(tmp_path / "bad.toml")
