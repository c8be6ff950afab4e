"""Masks: every bit of the secret decides them, pairs cancel, and what is sealed for one opens for nobody else."""

from __future__ import annotations

import os

import numpy as np
import pytest

from fedwise.errors import FedwiseError
from fedwise.flower import masks

TRANSCRIPT = bytes(32)


def flip(data, bit):
    out = bytearray(data)
    out[bit // 8] ^= 1 << bit % 8
    return bytes(out)


def test_every_bit_of_the_key_changes_half_of_the_mask():
    """Flower folds the key to 32 bits: flipping bits 0 and 32 together gives the same mask there."""
    key = bytes(range(32))
    plain = masks.expand(key, 64, np.uint32)
    seen = {plain.tobytes()}
    for bit in range(256):
        other = masks.expand(flip(key, bit), 64, np.uint32)
        seen.add(other.tobytes())
        changed = np.unpackbits((plain ^ other).view(np.uint8)).mean()
        # 2048 fair bits: outside these bounds with probability 3e-11, in 256 trials 1e-8.
        assert 0.425 < changed < 0.575
    assert len(seen) == 257
    folded_alike = flip(flip(key, 0), 32)
    assert masks.expand(folded_alike, 64, np.uint32).tobytes() not in seen


def test_the_stream_is_chacha20():
    """RFC 8439, appendix A.1, first vector: key, nonce and counter zero."""
    expected = bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")
    assert masks.expand(bytes(32), 8, np.uint32).astype("<u4").tobytes() == expected


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_masks_of_a_pair_cancel_and_are_uniform(dtype):
    masker = masks.Masker(TRANSCRIPT, 20_000, dtype)
    one, two = masks.new_private(), masks.new_private()
    up = masker.pair(masks.agree(one, masks.public_of(two)), 7, 3)
    down = masker.pair(masks.agree(two, masks.public_of(one)), 3, 7)
    assert up.dtype == dtype
    assert not (up + down).any()
    # Mean of 20,000 uniform numbers: beyond 7 standard errors with probability 3e-12.
    span = float(np.iinfo(dtype).max)
    assert abs(up.mean() / span - 0.5) < 7 / np.sqrt(12 * 20_000)
    # The top of the range is reached: Flower's never is.
    assert up.max() / span > 0.999


def test_keys_of_different_purposes_parties_and_transcripts_differ():
    secret = bytes(32)
    keys = {
        masks.derive(secret, purpose, first, second, transcript)
        for purpose in (b"pair", b"own", b"seal")
        for first, second in ((1, 2), (2, 1), (1, 3), (258, 1), (1, 258))
        for transcript in (bytes(32), bytes(31) + b"\1")
    }
    assert len(keys) == 3 * 5 * 2
    assert all(len(key) == 32 for key in keys)


def test_sealed_shares_open_for_the_receiver_only():
    one, two = masks.new_private(), masks.new_private()
    secret = masks.agree(one, masks.public_of(two))
    assert secret == masks.agree(two, masks.public_of(one))
    sealed = masks.seal(secret, 1, 2, b"share", transcript=TRANSCRIPT)
    assert b"share" not in sealed
    assert masks.unseal(secret, 1, 2, sealed, transcript=TRANSCRIPT) == b"share"
    wrong = [
        (secret, 2, 1, sealed, TRANSCRIPT),
        (secret, 1, 3, sealed, TRANSCRIPT),
        (secret, 1, 2, sealed, b"\1" * 32),
        (secret, 1, 2, flip(sealed, 100), TRANSCRIPT),
        (secret, 1, 2, b"", TRANSCRIPT),
        (os.urandom(32), 1, 2, sealed, TRANSCRIPT),
    ]
    for key, sender, receiver, data, transcript in wrong:
        with pytest.raises(FedwiseError, match="the same cohort"):
            masks.unseal(key, sender, receiver, data, transcript=transcript)


def test_public_keys_have_one_spelling_and_no_known_secret():
    key = masks.public_of(masks.new_private())
    assert masks.is_public(key)
    assert not masks.is_public(flip(key, 255))
    assert not masks.is_public((2**255 - 18).to_bytes(32, "little"))  # another spelling of 1
    assert not masks.is_public(key[:31])
    # The points 0 and 1 have small order: every secret with them would be zero.
    for point in (0, 1):
        with pytest.raises(FedwiseError, match="invalid public key"):
            masks.agree(masks.new_private(), point.to_bytes(32, "little"))
