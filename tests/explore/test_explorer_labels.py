"""The explorer says of every answer whether what it is made from is private."""

from __future__ import annotations

import math

import msgspec
import pytest

import fedwise as fw
from conftest import SMALL
from fedwise.explore.question import Question
from fedwise.explore.session import Session
from fedwise.objective.pfl import Weights
from reporting.report_kit import charged_release, make_releases, people

NAMES = ("CA", "NY", "TX")


def releases(kind: str) -> list[fw.Release]:
    schema = fw.Schema.parse(SMALL)
    if kind == "not private":
        return list(make_releases(schema, NAMES, epsilon=math.inf, rows=500))
    plan = fw.plan(schema, 1.0)
    real = [charged_release(plan, people(500, i), name) for i, name in enumerate(NAMES)]
    if kind == "uncharged":
        real[-1] = fw.release(plan, people(500, 7), client="TX", uncharged=True)
    if kind == "mixed":
        real[-1] = fw.release(plan, people(500, 7), client="TX", simulated=True, seed=7)
    return real


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        ("not private", "not private"),
        ("mixed", "simulated"),
        ("uncharged", "not charged"),
        ("private", "private"),
    ],
)
def test_label_reaches_the_page_the_answers_and_the_downloads(kind: str, label: str) -> None:
    session = Session(fw.Pool.of(releases(kind)))
    question = Question(k=2, weights=Weights())
    assert session.describe()["privacy"]["label"] == label
    assert session.answer(question)["privacy"] == label
    page = session.report(question)
    assert ('class="stamp"' in page) is (label != "private")
    assert (f'<span class="stamp">{label}</span>' in page) is (label != "private")
    flags = msgspec.json.decode(session.search(question, lambda: False).encode())["flags"]
    assert [flag.partition(":")[0] for flag in flags] == ([label] if label != "private" else [])


def test_sentence_beside_the_label_is_the_reports() -> None:
    said = Session(fw.Pool.of(releases("not private"))).describe()
    assert said["label"].startswith("The releases are exact counts")
    assert said["privacy"]["epsilon"] == "inf"
