"""Trainings: each is done once, a stop loses at most the one under way, and a directory holds one question."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import fedwise as fw
from conftest import make_people
from fedwise.rehearsal import trainings as module
from fedwise.rehearsal.judging import GroupRates
from fedwise.rehearsal.trainings import (
    NAME,
    Gaps,
    Scenery,
    Stopped,
    Task,
    Trained,
    Trainings,
    performance,
)
from fedwise.rehearsal.workflow import rehearse

QUICK = fw.Training(rounds=2, lr=5e-3, model="logistic")
SMALL = {"random": 1, "everyone": False, "stages": 2, "records": 60, "judged": 200}


@pytest.fixture(scope="module")
def pool(small_schema) -> fw.Pool:
    plan = fw.plan(small_schema, epsilon=3.0)
    return fw.Pool.of(
        fw.release(plan, make_people(300, seed=i), client=f"c{i}", simulated=True, seed=i) for i in range(4)
    )


def tasks(*federations: tuple[str, ...], stages: int = 1) -> list[Task]:
    return [Task(members, QUICK, stage, 60) for stage in range(stages) for members in federations]


def test_a_stop_loses_nothing_and_the_next_process_goes_on(pool, tmp_path: Path, monkeypatch) -> None:
    scenery = Scenery(pool, judged=200)
    wanted = tasks(("c0", "c1"), ("c2",), ("c3",), stages=2)
    whole = Trainings(scenery).train(wanted)
    calls: list[int] = []
    stopping = Trainings(scenery, folder=tmp_path, stopped=lambda: len(calls) >= 2)
    with pytest.raises(Stopped):
        stopping.train(wanted, lambda *_: calls.append(1))
    kept = (tmp_path / NAME).read_bytes()
    lines = kept.count(b"\n")
    assert 2 <= lines < len(wanted)
    (tmp_path / NAME).write_bytes(kept + b'{"key": "cut short')
    again = Trainings(scenery, folder=tmp_path)
    assert again.train(wanted) == whole
    assert again.made == len(wanted) - lines
    monkeypatch.setattr(module, "simulate", lambda *_: pytest.fail("trained a second time"))
    assert Trainings(scenery, folder=tmp_path).train(wanted) == whole


def test_what_is_not_known_is_read_back_and_a_damaged_file_is_named(pool, tmp_path: Path) -> None:
    made = Trainings(Scenery(pool, judged=200), folder=tmp_path)
    task = tasks(("c0",))[0]
    made._keep(task, Trained({"auc": math.nan, "loss": 0.5}, {"round": (0.0,), "auc": (math.nan,)}))
    found = Trainings(Scenery(pool, judged=200), folder=tmp_path).known(task)
    assert found is not None
    assert math.isnan(found.final["auc"])
    assert found.final["loss"] == 0.5
    assert Trainings(Scenery(pool, judged=201), folder=tmp_path).known(task) is None
    (tmp_path / NAME).write_bytes(b"nonsense\n")
    with pytest.raises(fw.FedwiseError, match="line 1 is no finished training"):
        Trainings(Scenery(pool), folder=tmp_path)


def test_a_run_directory_holds_one_question(pool, tmp_path: Path) -> None:
    first = rehearse(pool, ["c0", "c1"], QUICK, output=tmp_path / "run", **SMALL)
    assert fw.Rehearsed.load(tmp_path / "run" / "rehearsal.json") == first
    assert fw.Plan.load(tmp_path / "run" / "plan.json").digest == pool.plan.digest
    assert rehearse(pool, ["c0", "c1"], QUICK, output=tmp_path / "run", **SMALL) == first
    with pytest.raises(fw.FedwiseError, match="begun with other settings"):
        rehearse(pool, ["c0", "c2"], QUICK, output=tmp_path / "run", **SMALL)
    other = rehearse(pool, ["c0", "c2"], QUICK, output=tmp_path / "run", force=True, **SMALL)
    assert other.federation.clients == ("c0", "c2")
    (tmp_path / "file").write_text("x")
    with pytest.raises(fw.FedwiseError, match="must be a directory"):
        rehearse(pool, ["c0"], QUICK, output=tmp_path / "file", **SMALL)
    with pytest.raises(TypeError, match="no keyword 'outputs'"):
        rehearse(pool, ["c0"], QUICK, outputs="x", **SMALL)  # type: ignore[call-arg]


def test_a_report_reads_a_run_directory(pool, tmp_path: Path) -> None:
    rehearse(pool, ["c0", "c1"], QUICK, output=tmp_path / "run", **SMALL)
    made = fw.report(tmp_path / "run", releases=pool, frontier=False, forecast=False)
    assert made.values.rehearsal is not None
    assert made.values.rehearsal.same
    chosen = fw.select(pool, 2, evidence="none")
    rehearse(pool, chosen, QUICK, output=tmp_path / "chosen", **SMALL)
    assert fw.Selection.load(tmp_path / "chosen" / "selection.json") == chosen


def _rates(value: float) -> tuple[GroupRates, ...]:
    return (GroupRates("sex", "man", "", 0.5, 0.4, value, value, value, 0.8),)


def _one(gap: float, auc: float = 0.7, whole: float | None = None) -> Trained:
    again = None if whole is None else Gaps({"spd:sex": whole}, _rates(whole))
    return Trained({"auc": auc, "spd:sex": gap}, {"round": (1.0,), "auc": (auc,)}, _rates(gap), again)


def test_gaps_are_those_of_trainings_on_the_whole_release_with_the_spread_of_the_stages() -> None:
    stages = {0: _one(0.10, whole=0.20), 1: _one(0.14, auc=0.8, whole=0.16), 2: _one(0.12)}
    found = performance("federation", ("A",), stages)
    # Mean of the stages .12, of the whole release .18: every stage is moved by .06.
    assert found.values["spd:sex"] == pytest.approx((0.16, 0.20, 0.18))
    assert found.values["auc"] == (0.7, 0.8, 0.7)
    assert found.groups[0].positive_rate == pytest.approx(0.18)
    alone = performance("federation", ("A",), {n: _one(one.final["spd:sex"]) for n, one in stages.items()})
    assert alone.values["spd:sex"] == pytest.approx((0.10, 0.14, 0.12))


def test_a_second_training_looks_at_gaps_and_is_found_again(tmp_path: Path, pool: fw.Pool) -> None:
    settings = fw.Training(rounds=2, lr=1e-2)
    plain, both = (Task(("c0", "c1"), settings, 0, 300, whole) for whole in (False, True))
    scenery = Scenery(pool, judged=500)
    made = Trainings(scenery, folder=tmp_path)
    (found,) = made.train([both])
    assert made.known(plain) is None
    assert found.whole is not None
    assert set(found.whole.final) == {name for name in found.final if ":" in name}
    assert found.whole.final != {name: found.final[name] for name in found.whole.final}
    again = Trainings(scenery, folder=tmp_path)
    assert again.known(both) == found
    (without,) = again.train([plain])
    assert without.whole is None
    assert without.final == found.final
