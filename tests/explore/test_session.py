"""Answers: quick, right, and the same as the command line gives."""

from __future__ import annotations

import shlex
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import fedwise as fw
from conftest import SMALL
from fedwise.cli.select import select as command
from fedwise.errors import Infeasible
from fedwise.estimation import estimate
from fedwise.explore.question import Question
from fedwise.explore.rows import SharedRows
from fedwise.explore.session import Session, Stale
from fedwise.objective.pfl import Weights, loss, terms
from fedwise.pool.screen import Alert
from fedwise.search.problem import PFL, Problem
from fedwise.search.selection import Selection
from reporting.report_kit import make_releases

STATES = ("CA", "CO", "MD", "NY", "TX", "VA", "WA", "WY")
WEIGHTS = [
    Weights(),
    Weights(alpha=0.0, beta=0.0, gamma=1.0, lam=0.5),
    Weights(alpha=4.0, beta=3.0, gamma=0.0, lam=0.1),
]


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("k", [1, 3, 7, 8])
def test_quick_answer_is_a_swap_local_optimum(session: Session, weights: Weights, k: int) -> None:
    answer = session.answer(Question(k=k, weights=weights))
    estimates = session.estimates
    members = {estimates.clients.index(name) for name in answer["clients"]}
    assert len(members) == k
    assert answer["loss"] == pytest.approx(loss(estimates, sorted(members), weights), abs=1e-9)
    found = terms(estimates, sorted(members))
    assert answer["terms"] == pytest.approx(
        {name: getattr(found, name) for name in answer["terms"]}, abs=1e-9
    )
    for out in members:
        for into in set(range(len(STATES))) - members:
            assert loss(estimates, sorted(members - {out} | {into}), weights) >= answer["loss"] - 1e-9
    assert answer["proven"]


def test_full_answer_is_the_optimum(session: Session) -> None:
    weights = Weights(alpha=1.0)
    selection = session.search(Question(k=3, weights=weights), lambda: False)
    best = min(loss(session.estimates, group, weights) for group in combinations(range(8), 3))
    assert selection.loss == pytest.approx(best, abs=1e-9)


def test_constraints_are_kept(session: Session) -> None:
    question = Question(k=3, weights=Weights(), include=("WY",), exclude=("MD", "VA"), min_records=0)
    for clients in (session.answer(question)["clients"], session.search(question, lambda: False).clients):
        assert "WY" in clients
        assert not {"MD", "VA"} & set(clients)


@pytest.mark.parametrize(
    ("question", "kind", "what"),
    [
        (Question(k=9, weights=Weights()), fw.FedwiseError, "between 1 and the 8"),
        (Question(k=0, weights=Weights()), fw.FedwiseError, "between 1 and the 8"),
        (Question(k=2, weights=Weights(), include=("CA",), exclude=("CA",)), Infeasible, "both"),
        (Question(k=2, weights=Weights(), min_records=1e9), Infeasible, "min_records"),
        (Question(k=2, weights=Weights(), include=("Cal",)), fw.FedwiseError, "Cal"),
    ],
)
def test_impossible_questions_are_explained(
    session: Session, question: Question, kind: type, what: str
) -> None:
    with pytest.raises(kind, match=what):
        session.answer(question)


def test_frontier_marks_the_size_and_skips_the_impossible(session: Session) -> None:
    found = session.frontier(Question(k=3, weights=Weights(), include=("CA", "NY")), lambda: False)
    assert [point["k"] for point in found["points"]] == [2, 3, 4, 5, 6, 7, 8]
    assert [point["k"] for point in found["points"] if point["chosen"]] == [3]
    assert found["spec"]["data"]["values"][0]["k"] == 2
    answer = session.answer(Question(k=3, weights=Weights(), include=("CA", "NY")))
    assert next(p for p in found["points"] if p["chosen"])["loss"] == answer["loss"]


def test_overtaken_work_gives_up(session: Session) -> None:
    session.note("page", 5)
    assert session.overtaken("page", 4)()
    assert not session.overtaken("page", 5)()
    assert not session.overtaken("another", 1)()
    for work in (session.frontier, session.search):
        with pytest.raises(Stale):
            work(Question(k=3, weights=Weights()), session.overtaken("page", 4))


def test_forecast_is_of_the_federation_on_the_screen(session: Session) -> None:
    from fedwise.forecasting import predict

    question = Question(k=2, weights=Weights(alpha=1.7))
    found = {m.metric: m for m in session.forecast(question, lambda: False)}
    assert {"auc", "balanced_accuracy", "f1", "spd", "eod", "eod@rate"} <= set(found)
    wanted = predict(session.estimates, session.answer(question)["clients"], draws=0).metrics
    for name, measure in found.items():
        assert measure.value == pytest.approx(wanted.value(name))
        assert measure.low <= measure.value <= measure.high
    with pytest.raises(Stale):
        session.forecast(question, lambda: True)


def test_a_button_rehearses_the_federation_on_the_screen(session: Session, monkeypatch) -> None:
    from fedwise.rehearsal import quick

    for name, value in {"RECORDS": 50, "JUDGED": 200, "RANDOM": 2, "STAGES": 2}.items():
        monkeypatch.setattr(quick, name, value)
    question = Question(k=2, weights=Weights(alpha=1.7))
    with pytest.raises(Stale):
        session.rehearse(question, lambda: True)
    found = session.rehearse(question, lambda: False)
    assert found["clients"] == list(session.answer(question)["clients"])
    assert found["verdict"].startswith("Rehearsed beside 2 random federations of 2")
    assert {"auc", "loss"} <= {row["metric"] for row in found["rows"]}
    monkeypatch.setattr(quick, "rehearse", lambda *_, **__: pytest.fail("rehearsed again"))
    assert session.rehearse(question, lambda: False) == found


def test_pages_that_went_away_are_forgotten(session: Session) -> None:
    for number in range(100):
        session.note(f"page {number}", 1)
    assert len(session._newest) <= 32
    assert session.overtaken("page 99", 0)()


def test_shared_rows_equal_fresh_ones(pool: fw.Pool) -> None:
    estimates = estimate(pool)
    shared = SharedRows(estimates)
    rng = np.random.default_rng(0)
    for weights in (*WEIGHTS, Weights(alpha=0, beta=1, gamma=0, lam=0), *WEIGHTS):
        fresh, reused = Problem.of(estimates, PFL(weights)), shared.problem(weights)
        assert np.array_equal(fresh.rows, reused.rows)
        for _ in range(5):
            members = rng.choice(8, size=3, replace=False)
            assert fresh.loss(members) == reused.loss(members)
    assert len(shared._rows) <= 3


def test_shared_rows_of_plain_estimates(pool: fw.Pool) -> None:
    estimates = estimate(pool, "plain")
    shared = SharedRows(estimates)
    for weights in WEIGHTS:
        assert shared.problem(weights).loss([0, 3]) == Problem.of(estimates, PFL(weights)).loss([0, 3])


def test_description_holds_only_estimates(session: Session, pool: fw.Pool) -> None:
    found = session.describe()
    assert [row["client"] for row in found["clients"]] == list(STATES)
    assert found["privacy"]["label"] == "simulated"
    assert all(row["tile"] for row in found["clients"])
    assert found["clients"][0]["records"] == round(float(session.estimates.totals[0]))
    # The noise of an average cell shrinks as a client grows.
    noise = [row["noise"] * row["records"] for row in found["clients"]]
    assert noise == pytest.approx([noise[0]] * 8, rel=1e-3)


def test_alerts_are_shown_beside_their_client(pool: fw.Pool) -> None:
    odd = [Alert("NY", "it is far larger", 9.0, "size"), Alert("NY", "it is odd", 8.0, "association")]
    seen = fw.Pool(pool.clients, pool.plan, pool.matrix, simulated=True, alerts=odd)
    shown = {row["client"]: row["alert"] for row in Session(seen).describe()["clients"]}
    assert shown.pop("NY") == "it is far larger; it is odd"
    assert set(shown.values()) == {None}


def test_command_line_gives_what_is_on_the_screen(tmp_path: Path, small_schema: fw.Schema) -> None:
    folder = tmp_path / "my releases"
    for found in make_releases(fw.Schema.parse(SMALL), STATES):
        found.save(folder / f"{found.client}.release.json")
    session = Session(fw.Pool.load(folder), releases=str(folder))
    question = Question(k=3, weights=Weights(alpha=3.21, lam=0.7), include=("TX",), exclude=("CA",))
    full = session.search(question, lambda: False)
    app = typer.Typer()
    app.command()(command)
    line = shlex.split(session.command(question))
    output = tmp_path / "selection.json"
    done = CliRunner().invoke(app, [*line[2:-1], str(output)])
    assert done.exit_code == 0, done.exception
    again = Selection.load(output)
    assert again.clients == full.clients
    assert again.loss == full.loss
    assert again.frequency == full.frequency


def test_report_of_the_screen(session: Session) -> None:
    page = session.report(Question(k=2, weights=Weights()))
    assert page.startswith("<!doctype html>")
    assert "fedwise select releases/ -k 2" in page


def test_a_pool_of_one_client(small_schema: fw.Schema) -> None:
    lonely = Session(fw.Pool.of(make_releases(small_schema, ("only",))))
    lonely.warm()
    assert lonely.answer(Question(k=1, weights=Weights()))["clients"] == ["only"]
