"""The names of metrics: what they mean, and what is said about those that mean nothing."""

import math

import pytest

from fedwise.errors import FedwiseError
from fedwise.objective.metric import BASES, Metric, every, parse


@pytest.mark.parametrize("text", [*every(), "eod:SEX", "eod:SEX@rate", "spd_signed:RAC1P@best"])
def test_a_name_and_its_parts_are_inverses(text: str) -> None:
    assert str(parse(text)) == text


def test_parts() -> None:
    found = parse("eod:SEX@rate", attributes=["SEX", "RAC1P"])
    assert found == Metric("eod", "SEX", "rate")
    assert found.column == "eod@rate"
    assert found.label == "EOD of SEX, rate-matched"
    assert parse("auc") == Metric("auc")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("eodd@rate", "did you mean 'eod@rate'"),
        ("acuracy", "did you mean 'accuracy'"),
        ("auc@rate", "did you mean"),  # a ranking has no threshold
        ("eod@half", "did you mean"),
        ("eod@", "got 'eod@'"),
        ("eod:", "got 'eod:'"),
        ("", "got ''"),
        ("accuracy:SEX", "write accuracy"),
        ("eod:SEXX", "did you mean 'SEX'"),
    ],
)
def test_what_is_no_name(text: str, message: str) -> None:
    with pytest.raises(FedwiseError, match=r"^subject_to must") as caught:
        parse(text, what="subject_to", attributes=["SEX"])
    assert message in str(caught.value)


def test_only_what_is_to_be_had() -> None:
    assert parse("eod@rate", known=["eod@rate"]).base == "eod"
    with pytest.raises(FedwiseError, match="did you mean 'eod@rate'"):
        parse("eod@best", known=["eod@rate", "auc"])


def test_directions_and_ranges() -> None:
    better = {base for base in BASES if Metric(base).larger_is_better}
    assert better == {
        "auc", "accuracy", "balanced_accuracy", "precision", "recall", "f1", "positive_rate", "macro_f1", "macro_auc",
        "r2",
    }  # fmt: skip
    assert parse("eod@rate").bounds == (0.0, 1.0)
    assert parse("loss").bounds == (0.0, math.inf)
    assert parse("spd_signed").bounds == (-1.0, 1.0)
