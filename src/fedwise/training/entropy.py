"""Entropy: the random words of private training, from a stream cipher with a key of 256 bits.

Noise and the choice of batches are secret: who can guess one of them can undo the promise. A stream is
ChaCha20 (RFC 8439) under a key of its own from the operating system; torch's and NumPy's generators keep
no more than 32 bits of some seeds, or are not made to be unpredictable, and take no part.
"""

from __future__ import annotations

import hashlib
import os

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError, MissingExtra

#: A key serves this many bytes. ChaCha20's block counter ends at 2³² blocks of 64 bytes.
_KEY_LIMIT = 2**36


class Stream:
    """Uniform random words from ChaCha20.

    Parameters
    ----------
    key
        32 bytes. `system` draws them from the operating system; `simulated` derives them from a seed.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise FedwiseError(f"key of a random stream must have 32 bytes, got {len(key)}")
        self._start(key)

    @classmethod
    def system(cls) -> Stream:
        """A stream nobody can repeat: 256 bits from the operating system."""
        return cls(os.urandom(32))

    @classmethod
    def simulated(cls, *parts: int | str) -> Stream:
        """A stream that the parts decide. For simulations only: who knows the seed knows the noise."""
        return cls(hashlib.sha256(b"fedwise simulated stream" + msgspec.json.encode(parts)).digest())

    def _start(self, key: bytes) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
        except ImportError:
            raise MissingExtra("private training", "train") from None
        self._cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
        self._left = _KEY_LIMIT

    def read(self, size: int) -> bytearray:
        """The next `size` bytes."""
        if size > self._left:
            # The next key is output that was never shown.
            self._start(self._cipher.update(bytes(32)))
        self._left -= size
        return bytearray(self._cipher.update(bytes(size)))

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """`count` uniform 64-bit words."""
        return np.frombuffer(self.read(8 * count), dtype="<u8").astype(np.uint64, copy=False)

    def sample(self, rows: int, rate: float) -> npt.NDArray[np.int64]:
        """Positions of a Poisson sample: each of `rows` is in with probability `rate`, by itself.

        The probability is rounded down to a multiple of 2⁻³², which is more private.
        """
        if rate >= 1:
            return np.arange(rows)
        drawn = np.frombuffer(self.read(4 * rows), dtype="<u4")
        return np.flatnonzero(drawn < np.uint32(int(rate * 2**32)))
