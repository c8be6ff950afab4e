"""Certificates: what people read, from this version and from files of 0.1.0."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedwise.certificate import Assumption, Certificate, in_words, noise_sentence
from fedwise.search import Selection

OLD = sorted((Path(__file__).parent / "compatibility/v0_1_0/selections").glob("*.json"))


@pytest.mark.parametrize(
    ("chance", "words"),
    [
        (0.0, "below 5%"),
        (0.049, "below 5%"),
        (0.05, "about 5%"),
        (0.583, "about 60%"),
        (0.95, "about 95%"),
        (0.951, "above 95%"),
        (1.0, "above 95%"),
    ],
)
def test_chances_are_rounded_to_what_they_can_bear(chance, words):
    assert in_words(chance) == words


def test_the_sentence_about_noise():
    assert noise_sentence(0.61, 0.0021, 0.0064) == (
        "Some single swap is truly better with a chance of about 60%; the expected loss above the best swap is "
        "0.0021, with a chance of 90% at most 0.0064."
    )
    assert "chance below 5%" in noise_sentence(0.01, 0.0, 0.0)
    assert "nothing is lost" in noise_sentence(0.01, 0.0, 0.0)


def test_what_was_not_asked_for_is_not_said():
    bare = Certificate(statement="found", noise_statement="open")
    assert bare.paper == ()
    assert str(bare) == "found\nopen"


def test_assumptions_stand_in_front():
    certificate = Certificate(
        statement="found",
        noise_statement="open",
        local_bound=0.2,
        mu=0.1,
        global_bound=0.05,
        loss_spread=0.3,
        assumptions=(Assumption("clear cells", False, "20% are"), Assumption("known error", True, "given")),
    )
    assert certificate.paper == (
        "assumptions not met: clear cells (20% are)",
        "local bound: the best single swap is truly better with probability at most 0.2",
        "global bound: the true loss is within 0.1 of the best, except with probability 0.05",
    )


@pytest.mark.parametrize(
    "empty",
    [
        {"local_bound": 0.5},
        {"local_bound": 1.0},
        {"mu": 0.3, "global_bound": 0.05, "loss_spread": 0.3},
        {"mu": 0.1, "global_bound": 1.0, "loss_spread": 0.3},
        {"mu": 0.1, "global_bound": 0.05},
    ],
)
def test_an_empty_bound_is_no_number(empty):
    (line,) = Certificate(statement="", noise_statement="", **empty).paper
    assert "says nothing here" in line
    assert not re.search(r"\d", line)


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_files_of_0_1_0_are_read_in_the_new_words(path):
    """Their sentences promised numbers that excluded nothing: they are not repeated."""
    certificate = Selection.load(path).certificate
    if certificate.mu:
        assert "probability" in certificate.noise_statement
        assert "Not measured" in certificate.left_open
    else:
        assert certificate.left_open == certificate.noise_statement
    assert certificate.statement in str(certificate)
