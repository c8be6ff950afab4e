"""Masks: the secrets two clients agree on, and the random numbers that hide an update behind them.

A mask is the ChaCha20 stream of a 32-byte key, so all 256 bits of the secret decide it. Keys come from
X25519 through HKDF-SHA256; every key is bound to its purpose, to the two parties and to a transcript (the
whole cohort with its public keys, and the content that was trained on). Parties that were told different
things derive different keys, and their masks do not cancel.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ..errors import FedwiseError

#: Unsigned integers; their arithmetic is exact modulo 2³² or 2⁶⁴.
Words = npt.NDArray[Any]

_DOMAIN = b"fedwise.secagg.1"
_PRIME = 2**255 - 19
_NONCE = 12


def new_private() -> bytes:
    """A private X25519 key from the operating system's entropy."""
    return X25519PrivateKey.generate().private_bytes_raw()


def new_seed() -> bytes:
    """256 bits for a client's private mask."""
    return os.urandom(32)


def public_of(private: bytes) -> bytes:
    """The public half of a private key."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def is_public(key: bytes) -> bool:
    """Whether a public key is written the one canonical way, so that equal keys are equal bytes."""
    return len(key) == 32 and int.from_bytes(key, "little") < _PRIME


def agree(private: bytes, public: bytes) -> bytes:
    """The secret two clients share.

    Raises
    ------
    FedwiseError
        The public key is not one that a client would make: it forces a known secret.
    """
    try:
        return X25519PrivateKey.from_private_bytes(private).exchange(
            X25519PublicKey.from_public_bytes(public)
        )
    except ValueError:
        raise FedwiseError("secure aggregation met an invalid public key; restart the round") from None


@dataclass(frozen=True)
class Masker:
    """Masks of one round: `size` words of type `dtype`, bound to a transcript."""

    transcript: bytes
    size: int
    dtype: npt.DTypeLike

    def pair(self, secret: bytes, own: int, other: int) -> Words:
        """What client `own` adds for client `other`; the two masks of a pair sum to zero."""
        low, high = min(own, other), max(own, other)
        mask = expand(derive(secret, b"pair", low, high, self.transcript), self.size, self.dtype)
        return mask if own > other else np.negative(mask)

    def own(self, seed: bytes, own: int) -> Words:
        """What client `own` adds for itself; removed only with the help of a threshold of clients."""
        return expand(derive(seed, b"own", own, own, self.transcript), self.size, self.dtype)


def derive(secret: bytes, purpose: bytes, first: int, second: int, transcript: bytes) -> bytes:
    """A 32-byte key for one purpose between two parties (RFC 5869)."""
    parties = first.to_bytes(8, "little") + second.to_bytes(8, "little")
    info = b"|".join([_DOMAIN, purpose, parties])
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=transcript, info=info).derive(secret)


def expand(key: bytes, size: int, dtype: npt.DTypeLike) -> Words:
    """`size` uniform words from the whole key.

    The nonce is constant: `derive` gives every key to one purpose, one pair and one round.
    """
    kind = np.dtype(dtype)
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(size * kind.itemsize)), dtype=kind.newbyteorder("<")).astype(
        kind
    )


def seal(secret: bytes, sender: int, receiver: int, plain: bytes, *, transcript: bytes) -> bytes:
    """Encrypt and authenticate what one client sends another through the server."""
    nonce = os.urandom(_NONCE)
    cipher = ChaCha20Poly1305(derive(secret, b"seal", sender, receiver, transcript))
    return nonce + cipher.encrypt(nonce, plain, transcript)


def unseal(secret: bytes, sender: int, receiver: int, sealed: bytes, *, transcript: bytes) -> bytes:
    """The inverse of `seal`.

    Raises
    ------
    FedwiseError
        Somebody else sent it, to somebody else, or under another list of clients.
    """
    cipher = ChaCha20Poly1305(derive(secret, b"seal", sender, receiver, transcript))
    try:
        return cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], transcript)
    except (InvalidTag, ValueError):
        raise FedwiseError(
            "secure aggregation must show every client the same cohort, got shares sealed for another one; "
            "restart the round"
        ) from None
