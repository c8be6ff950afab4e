"""Questions: read strictly, and turned into a command line that a shell reads back."""

from __future__ import annotations

import json
import shlex

import pytest

import fedwise as fw
from fedwise.explore.question import MAX_BYTES, Question
from fedwise.objective.pfl import Weights

GOOD = '{"k": 3, "weights": {"alpha": 2.0, "beta": 1.0, "gamma": 0.0, "lam": 1.0}}'


def test_a_question_is_read() -> None:
    found = Question.decode(GOOD)
    assert found.k == 3
    assert found.weights.gamma == 0.0
    assert found.constraints == {}


def test_groups_and_costs_count_with_their_limit_only() -> None:
    held = {"k": 2, "weights": {}, "groups": {"CA": "west"}, "costs": {"CA": 3.0}}
    assert Question.decode(json.dumps(held)).constraints == {}
    whole = Question.decode(json.dumps({**held, "max_per_group": 1, "budget": 5}))
    assert whole.constraints == {
        "groups": {"CA": "west"}, "max_per_group": 1, "costs": {"CA": 3.0}, "budget": 5.0,
    }  # fmt: skip
    lines = whole.command("r/", method="exact", plan_weights=Weights(), seed=0, flagged=False).splitlines()
    assert lines[0] == "printf '%s\\n' client,group CA,west > groups.csv"
    assert "--group-file groups.csv" in lines[2]
    assert "--max-per-group 1" in lines[2]
    assert "--budget 5" in lines[2]


def test_a_metric_as_objective_is_in_the_command() -> None:
    found = Question(
        k=2, weights=Weights(), maximise="auc", subject_to={"eod:SEX@rate": 0.1}, exclude_suspect=True
    )
    line = words(found)
    assert line[line.index("--maximise") + 1] == "auc"
    assert line[line.index("--subject-to") + 1] == "eod:SEX@rate=0.1"
    assert "--exclude-suspect" in line


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("{", "cut off"),
        ("[" * 100_000, "nested too deeply"),
        ('{"k": 3}', "no weights"),
        ('{"k": "3", "weights": {}}', "a text for a number"),
        ('{"k": 3, "weights": {"alpha": -1}}', "a negative weight"),
        ('{"k": 3, "weights": {"alpha": 0, "beta": 0, "gamma": 0, "lam": 0}}', "nothing to minimise"),
        ('{"k": 3, "weights": {"alpha": NaN}}', "not a number"),
        ('{"k": 3, "weights": {}, "seed": 4}', "an unknown key"),
        ('{"k": 3, "weights": {}, "min_records": 1e999}', "an infinite minimum"),
        ('{"k": 3, "weights": {}, "include": "CA"}', "a text for a list"),
        ("x" * (MAX_BYTES + 1), "too long"),
    ],
)
def test_nonsense_is_refused_with_a_sentence(text: str, why: str) -> None:
    with pytest.raises(fw.FedwiseError, match=r"question|min_records"):
        Question.decode(text)


def words(question: Question, **changes: object) -> list[str]:
    settings = {"method": "annealing", "plan_weights": Weights(), "seed": 0, "flagged": False, **changes}
    return shlex.split(question.command("my releases/", **settings), comments=True)  # type: ignore[arg-type]


def test_defaults_are_left_out_of_the_command() -> None:
    line = words(Question(k=5, weights=Weights()))
    assert line[:5] == ["fedwise", "select", "my releases/", "-k", "5"]
    assert line[5:] == ["--method", "annealing", "--seed", "0", "-o", "selection.json"]


def test_everything_else_is_in_it() -> None:
    weights = Weights(alpha=0.1 + 0.2)
    question = Question(
        k=5, weights=weights, include=("CA", "O'Brien; rm -rf ~"), exclude=("$HOME",), min_records=1e6
    )
    line = words(question, flagged=True)
    assert float(line[line.index("--alpha") + 1]) == weights.alpha
    assert line[line.index("--include") + 1] == "CA,O'Brien; rm -rf ~"
    assert line[line.index("--exclude") + 1] == "$HOME"
    assert float(line[line.index("--min-records") + 1]) == 1e6
    assert "--accept-flagged" in line


def test_a_comma_in_a_name_is_said_aloud() -> None:
    question = Question(k=1, weights=Weights(), include=("Doe, Jane",))
    assert "comma" in question.command("r", method="exact", plan_weights=Weights(), seed=0, flagged=False)
