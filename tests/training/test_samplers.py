"""Samplers: the conformance suite, and each against a hand-worked example of five rounds."""

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from fedwise.errors import FedwiseError
from fedwise.training.samplers import (
    SAMPLERS,
    ClusterFl,
    FedSampling,
    Full,
    PowerOfChoice,
    Sampler,
    Threshold,
    UcbCs,
    Uniform,
    make_sampler,
)

# Tests are imported by path, so the suite next to this file is too.
_spec = importlib.util.spec_from_file_location(
    "sampler_conformance", Path(__file__).with_name("sampler_conformance.py")
)
_suite = importlib.util.module_from_spec(_spec)
sys.modules["sampler_conformance"] = _suite
_spec.loader.exec_module(_suite)


class TestFull(_suite.SamplerConformance):
    kind = Full


class TestUniform(_suite.SamplerConformance):
    kind = Uniform


class TestUcbCs(_suite.SamplerConformance):
    kind = UcbCs


class TestThreshold(_suite.SamplerConformance):
    kind = Threshold

    def bounds(self, sampler: Sampler, round: int) -> tuple[int, int]:
        return (len(sampler.clients), len(sampler.clients)) if round == 1 else (1, len(sampler.clients))


class TestFedSampling(_suite.SamplerConformance):
    kind = FedSampling


class TestPowerOfChoice(_suite.SamplerConformance):
    kind = PowerOfChoice


class TestClusterFl(_suite.SamplerConformance):
    kind = ClusterFl


def test_every_sampler_has_a_suite() -> None:
    tested = {suite.kind.name for suite in _suite.SamplerConformance.__subclasses__()}
    assert tested == set(SAMPLERS)


RNG = np.random.default_rng  # short in the examples below


def test_ucb_cs_five_rounds_by_hand() -> None:
    """Three clients, one a round. Score: decayed mean loss + √(ln t / N)."""
    sampler = UcbCs(["A", "B", "C"], fraction=0.3)
    assert sampler.count == 1
    loss = {"A": 0.9, "B": 0.5, "C": 0.1}
    first = []
    for number in (1, 2, 3):  # everyone once, in random order: never tried comes first
        (chosen,) = sampler.choose(number, RNG(number))
        first.append(chosen)
        sampler.observe({chosen: loss[chosen]})
    assert sorted(first) == ["A", "B", "C"]
    # Round 4: each was chosen once, a single loss decays in sum and weight alike: loss + √ln 4.
    np.testing.assert_allclose(sampler.scores(4), np.array([0.9, 0.5, 0.1]) + math.sqrt(math.log(4)))
    assert sampler.choose(4, RNG(4)) == ("A",)
    sampler.observe({"A": 0.2})
    # Round 5: A's losses 0.9 (seen at round s, now γ^(4−s)) and 0.2 (γ⁰), chosen twice.
    old = 0.9 ** (4 - (first.index("A") + 1))
    mean = (0.9 * old + 0.2) / (old + 1)
    expected = [mean + math.sqrt(math.log(5) / 2), 0.5 + math.sqrt(math.log(5)), 0.1 + math.sqrt(math.log(5))]
    np.testing.assert_allclose(sampler.scores(5), expected)
    assert sampler.choose(5, RNG(5)) == ("B",)


def test_ucb_cs_does_not_wait_for_a_silent_client() -> None:
    sampler = UcbCs(["A", "B"], fraction=0.5)
    chosen = []
    for number in range(1, 9):
        (client,) = sampler.choose(number, RNG(number))
        chosen.append(client)
        if client == "A":
            sampler.observe({"A": 1.0})
        else:
            sampler.observe({})
    assert chosen.count("A") >= 3


def test_threshold_five_rounds_by_hand() -> None:
    """Four clients, percentile 50, θ = ½."""
    sampler = Threshold(list("ABCD"))
    assert sampler.choose(1, RNG(0)) == ("A", "B", "C", "D")
    sampler.observe({"A": 1.0, "B": 2.0, "C": 3.0, "D": 4.0})
    assert sampler.choose(2, RNG(0)) == ("C", "D")  # above the median 2.5
    sampler.observe({"C": 1.0, "D": 2.0})  # mean 1.5: A 1 → 1.25, B 2 → 1.75
    np.testing.assert_allclose(sampler.estimates, [1.25, 1.75, 1.0, 2.0])
    assert sampler.choose(3, RNG(0)) == ("B", "D")  # above the median 1.5
    sampler.observe({"B": 0.5, "D": 0.5})  # mean 0.5: A 0.875, C 0.75
    np.testing.assert_allclose(sampler.estimates, [0.875, 0.5, 0.75, 0.5])
    assert sampler.choose(4, RNG(0)) == ("A", "C")  # above the median 0.625
    sampler.observe({"A": 0.5})  # C is silent: mean 0.5, C 0.625, B and D stay at the mean
    np.testing.assert_allclose(sampler.estimates, [0.5, 0.5, 0.625, 0.5])
    assert sampler.choose(5, RNG(0)) == ("C",)  # median 0.5


def test_threshold_with_equal_estimates_takes_everyone() -> None:
    sampler = Threshold(list("AB"))
    sampler.observe({"A": 1.0, "B": 1.0})
    assert sampler.choose(2, RNG(0)) == ("A", "B")


def test_fed_sampling_draws_in_proportion_to_size() -> None:
    sampler = FedSampling(list("ABC"), sizes={"A": 1.0, "B": 2.0, "C": 7.0}, fraction=0.3)
    drawn = [sampler.choose(t, RNG((1, t)))[0] for t in range(1500)]
    # Three binomials at 1500 draws: 4.5 sigma, a false alarm once in about 50,000.
    for client, p in (("A", 0.1), ("B", 0.2), ("C", 0.7)):
        assert abs(drawn.count(client) / 1500 - p) < 4.5 * math.sqrt(p * (1 - p) / 1500)


def test_fed_sampling_five_rounds_without_replacement() -> None:
    """Two of three: P(B and C) = P(B)·P(C|B) + P(C)·P(B|C) = 0.2·7/8 + 0.7·2/3."""
    sampler = FedSampling(list("ABC"), sizes={"A": 1.0, "B": 2.0, "C": 7.0}, fraction=0.6)
    drawn = [sampler.choose(t, RNG((2, t))) for t in range(1500)]
    p = 0.2 * 7 / 8 + 0.7 * 2 / 3
    assert abs(drawn.count(("B", "C")) / 1500 - p) < 4.5 * math.sqrt(p * (1 - p) / 1500)
    assert all(len(set(pair)) == 2 for pair in drawn[:5])


def test_clients_of_size_zero_come_last() -> None:
    sampler = FedSampling(list("ABC"), sizes={"A": 0.0, "B": 1.0, "C": 1.0}, fraction=0.6)
    assert {sampler.choose(t, RNG(t)) for t in range(20)} == {("B", "C")}
    sampler = FedSampling(list("ABC"), sizes={"A": 0.0, "B": 0.0, "C": 1.0}, fraction=0.6)
    assert all("C" in sampler.choose(t, RNG(t)) for t in range(20))


def test_uniform_is_uniform() -> None:
    sampler = Uniform(list("ABCD"))
    drawn = [sampler.choose(t, RNG((3, t))) for t in range(1500)]
    for client in "ABCD":
        assert abs(sum(client in pair for pair in drawn) / 1500 - 0.5) < 4.5 * math.sqrt(0.25 / 1500)


def test_power_of_choice_five_rounds_by_hand() -> None:
    """d = 3 of 4 candidates, the two highest losses of those asked."""
    sampler = PowerOfChoice(list("ABCD"), fraction=0.5)
    assert (sampler.count, sampler.d) == (2, 3)
    for number in range(1, 6):
        loss = {"A": 0.1 * number, "B": 0.3, "C": 0.2, "D": 0.25}
        rng = RNG(number)
        asked = sampler.candidates(number, rng)
        assert len(asked) == 3
        sampler.observe({client: loss[client] for client in asked})
        expected = sorted(sorted(asked, key=lambda c: -loss[c])[:2])
        assert list(sampler.choose(number, rng)) == expected


def test_power_of_choice_prefers_candidates_that_answer() -> None:
    sampler = PowerOfChoice(list("ABCD"), fraction=0.5, d=4)
    sampler.candidates(1, RNG(0))
    sampler.observe({"A": 0.1, "D": 0.2, "C": 0.05})
    assert sampler.choose(1, RNG(0)) == ("A", "D")
    sampler.candidates(2, RNG(0))
    sampler.observe({"C": 0.2})  # old answers do not count
    assert "C" in sampler.choose(2, RNG(0))


def test_power_of_choice_without_asking_uses_the_last_losses() -> None:
    sampler = PowerOfChoice(list("ABCD"), fraction=0.25, d=4)
    sampler.observe({"A": 0.5, "B": 0.9, "C": 0.1})
    assert sampler.choose(1, RNG(0)) == ("D",)  # never heard of
    sampler.observe({"D": 0.2})
    assert sampler.choose(2, RNG(0)) == ("B",)


def test_cluster_fl_five_rounds_by_hand() -> None:
    """Two clear directions: every round takes one client of each, once both are known."""
    sampler = ClusterFl(list("ABCD"), fraction=0.5)
    updates = {"A": [1.0, 0.0], "B": [2.0, 0.1], "C": [0.0, 3.0], "D": [-0.1, 1.0]}
    seen: set[str] = set()
    for number in range(1, 6):
        chosen = sampler.choose(number, RNG(number))
        assert len(chosen) == 2
        if len(seen) == 4:
            assert sampler.clusters() == [("A", "B"), ("C", "D")]
            assert len(set(chosen) & {"A", "B"}) == 1
        else:
            assert set(chosen) - seen  # unknown clients are visited first
        sampler.observe({}, {client: np.array(updates[client]) for client in chosen})
        seen |= set(chosen)
    assert len(seen) == 4


def test_cluster_fl_ignores_useless_updates() -> None:
    sampler = ClusterFl(list("ABC"), fraction=0.6)
    sampler.observe({}, {"A": np.zeros(2), "B": np.array([np.nan, 1.0]), "Z": np.ones(2), "C": np.ones(2)})
    assert sampler.clusters() == [("C",)]


@pytest.mark.parametrize(
    ("clients", "fraction", "count"), [(5, 0.5, 3), (10, 0.5, 5), (10, 0.1, 1), (3, 1.0, 3), (2, 0.01, 1)]
)
def test_the_share_is_rounded_up(clients: int, fraction: float, count: int) -> None:
    assert Uniform([str(i) for i in range(clients)], fraction=fraction).count == count


def test_unknown_names_and_options_suggest() -> None:
    with pytest.raises(FedwiseError, match=r"got 'ucb'"):
        make_sampler("ucb", ["A"])
    with pytest.raises(
        FedwiseError, match=r"sampler threshold has no option 'tetha'; did you mean 'theta'\?"
    ):
        make_sampler("threshold", ["A"], tetha=1)
    with pytest.raises(FedwiseError, match="fraction must be above 0"):
        make_sampler("uniform", ["A"], fraction=0.0)
    with pytest.raises(FedwiseError, match="d must be between 2 and 4, got 5"):
        make_sampler("power_of_choice", list("ABCD"), d=5)
