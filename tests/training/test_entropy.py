"""The random stream of private training: ChaCha20, keys, Poisson samples."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
from scipy import stats

from fedwise.errors import FedwiseError
from fedwise.training import entropy
from fedwise.training.entropy import Stream

ALARM = 1e-9


def test_it_is_chacha20() -> None:
    """First block of RFC 8439, section A.1: key, nonce and counter zero."""
    found = bytes(Stream(bytes(32)).read(64))
    assert found.hex().startswith("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")


def test_two_streams_of_the_system_differ_and_a_seed_repeats() -> None:
    assert Stream.system().read(32) != Stream.system().read(32)
    first = Stream.simulated(0, 1, "A").read(32)
    assert first == Stream.simulated(0, 1, "A").read(32)
    for other in ((0, 1, "B"), (0, 2, "A"), (1, 1, "A"), (0, "1", "A"), (0, 1, "A", "")):
        assert first != Stream.simulated(*other).read(32)


def test_a_system_key_has_256_bits_of_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def urandom(size: int) -> bytes:
        asked.append(size)
        return bytes(range(size))

    monkeypatch.setattr(entropy.os, "urandom", urandom)
    assert Stream.system().read(8) == Stream(bytes(range(32))).read(8)
    assert asked == [32]
    with pytest.raises(FedwiseError, match="must have 32 bytes, got 16"):
        Stream(bytes(16))


def test_a_key_is_replaced_before_the_block_counter_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entropy, "_KEY_LIMIT", 100)
    short = Stream(bytes(32))
    before, after = bytes(short.read(64)), bytes(short.read(64))
    whole = Stream(bytes(32))
    monkeypatch.undo()
    assert before == bytes(whole.read(64))
    # The next 32 bytes are the new key and are never shown.
    assert after == bytes(Stream(bytes(whole.read(32))).read(64))


def test_words_are_uniform() -> None:
    """Chi-square over the highest and the lowest byte, by a stream of the system; false alarm 10⁻⁹."""
    drawn = Stream.system().words(200_000)
    for byte in (drawn >> np.uint64(56), drawn & np.uint64(255)):
        assert stats.chisquare(np.bincount(byte.astype(np.int64), minlength=256)).pvalue > ALARM


@pytest.mark.parametrize("rate", [0.003, 0.2, 0.75])
def test_a_sample_takes_each_row_by_itself(rate: float) -> None:
    """Batch sizes and each row's count are binomial: chi-square and 6.2 standard errors."""
    stream, rows, times = Stream.system(), 400, 2000
    counts, sizes = np.zeros(rows), []
    for _ in range(times):
        chosen = stream.sample(rows, rate)
        assert (np.diff(chosen) > 0).all()
        counts[chosen] += 1
        sizes.append(len(chosen))
    spread = float(np.sum((counts - times * rate) ** 2) / (times * rate * (1 - rate)))
    assert ALARM < stats.chi2.sf(spread, rows) < 1 - ALARM
    variance = rows * rate * (1 - rate)
    assert abs(np.mean(sizes) - rows * rate) < 6.2 * math.sqrt(variance / times)
    excess = (1 - 6 * rate * (1 - rate)) / variance
    assert abs(np.var(sizes) / variance - 1) < 6.2 * math.sqrt((2 + excess) / times)


def test_a_rate_of_one_takes_all_and_a_tiny_one_rounds_down() -> None:
    stream = Stream.system()
    assert stream.sample(5, 1.0).tolist() == [0, 1, 2, 3, 4]
    assert stream.sample(1000, 2.0**-33).tolist() == []
    assert stream.sample(0, 0.5).tolist() == []


def test_the_seeded_key_is_pinned() -> None:
    """A simulation repeats from version to version; the key is a hash of all parts."""
    key = hashlib.sha256(b'fedwise simulated stream[7,2,"A"]').digest()
    assert Stream.simulated(7, 2, "A").read(16) == Stream(key).read(16)
