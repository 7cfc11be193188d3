"""The only source of randomness: the operating system's for people, a seed for simulations.

`system()` is ChaCha20 keyed by the operating system. `seeded(n)` is a numpy generator that repeats;
its `secure` is False, and a client that sends a person's report rejects it. `public(seed, ...)` is
no secret: everybody computes the same random-looking bytes.

No other file may import `secrets`, `random` or `os.urandom` (an import contract).
"""

import hashlib
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import ClassVar, TypeVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

from coatcheck.errors import Misuse

_KEY_BYTES = 32
_POOL_BYTES = 4096
_WORD = 1 << 32
_T = TypeVar("_T")


class Entropy(ABC):
    """A source of uniform bytes, and the unbiased draws made from them."""

    secure: ClassVar[bool]
    """Whether the draws may protect a person; a seeded source says False."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool = b""
        self._used = 0

    @abstractmethod
    def _stream(self, size: int) -> bytes:
        """Return `size` fresh bytes from the generator behind this source."""

    def token(self, size: int) -> bytes:
        """Return `size` uniform bytes, each returned once; small draws share a pool."""
        with self._lock:
            if size > _POOL_BYTES:
                return self._stream(size)
            if self._used + size > len(self._pool):
                self._pool = self._stream(_POOL_BYTES)
                self._used = 0
            start = self._used
            self._used += size
            return self._pool[start : start + size]

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return `size` uniform 64-bit words."""
        return np.frombuffer(self.token(8 * size), dtype="<u8")

    def below(self, bound: int, size: int) -> NDArray[np.int64]:
        """Return `size` integers, each exactly uniform on 0 .. bound - 1.

        The result is the high half of a 32-bit word times the bound. Words that would favor some
        results are drawn again (Lemire 2019), so there is no bias at all.
        """
        if not 1 <= bound <= _WORD:
            raise Misuse(f"`bound` must be from 1 to 2^32, got {bound}; draw singly with integer()")
        product = np.frombuffer(self.token(4 * size), dtype="<u4").astype(np.uint64)
        product *= np.uint64(bound)
        unfair = _WORD % bound
        if unfair:
            low = product.astype(np.uint32)
            again = np.flatnonzero(low < np.uint32(unfair))
            if again.size:
                product[again] = self.below(bound, again.size).astype(np.uint64) << np.uint64(32)
        product >>= np.uint64(32)
        return product.view(np.int64)

    def integer(self, bound: int) -> int:
        """Return one integer exactly uniform on 0 .. bound - 1, for a bound of any size."""
        if bound < 1:
            raise Misuse(f"`bound` of a draw must be at least 1, got {bound}")
        # As in `below`, with many more bits than the bound has, so that few words are drawn again.
        bits = 64 if bound <= _WORD else (bound.bit_length() + 71) & ~7
        while True:
            product = int.from_bytes(self.token(bits >> 3), "little") * bound
            drawn = product >> bits
            low = product - (drawn << bits)
            if low >= bound or low >= (1 << bits) % bound:
                return drawn

    def shuffled(self, items: Sequence[_T]) -> list[_T]:
        """Return items in a uniformly random order."""
        rest, shuffled = list(items), list[_T]()
        while len(rest) > 1:
            shuffled.append(rest.pop(self.integer(len(rest))))
        return shuffled + rest

    def seed(self) -> int:
        """Draw a seed, for a simulation that must make the same draws several times."""
        return self.integer(1 << 63)

    def coins(self, heads: int, size: int) -> NDArray[np.bool_]:
        """Toss `size` coins that each fall heads with probability exactly heads / 2^64."""
        if heads >> 64:
            return np.ones(size, dtype=np.bool_)
        return self.words(size) < np.uint64(heads)

    def coin(self, heads: int) -> bool:
        """Toss one coin that falls heads with probability exactly heads / 2^64."""
        return int.from_bytes(self.token(8), "little") < heads

    def uniforms(self, size: int) -> NDArray[np.float64]:
        """Return `size` floats in the open interval (0, 1), for the inexact baselines only."""
        return ((self.words(size) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


class _System(Entropy):
    """ChaCha20 keyed by the operating system; safe across threads and forks."""

    secure = True

    def __init__(self) -> None:
        self._restart()
        # A forked child would otherwise repeat its parent's noise.
        os.register_at_fork(after_in_child=self._restart)

    def __repr__(self) -> str:
        return "coatcheck.entropy.system()"

    def _restart(self) -> None:
        super().__init__()
        self._key = os.urandom(_KEY_BYTES)

    def _stream(self, size: int) -> bytes:
        # Every stream starts by replacing the key (fast key erasure), so memory read later does
        # not reveal earlier noise, except for the rest of one pool. A key serves one stream only,
        # so the nonce may be constant.
        stream = Cipher(ChaCha20(self._key, bytes(16)), mode=None).encryptor()
        self._key = stream.update(bytes(_KEY_BYTES))
        return stream.update(bytes(size))


class _Seeded(Entropy):
    """A predictable numpy generator that repeats for a seed, for simulations and tests only."""

    secure = False

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed
        self._generator = np.random.Generator(np.random.PCG64DXSM(seed))

    def __repr__(self) -> str:
        return f"coatcheck.entropy.seeded({self._seed})"

    def _stream(self, size: int) -> bytes:
        return self._generator.bytes(size)


def public(seed: str, *, start: int, stop: int) -> bytes:
    """Return bytes start .. stop - 1 of the public stream of a seed, the same on every machine.

    ChaCha20 (RFC 8439) under the key SHA-256(seed) and a nonce of zeros, from block 0 on.
    """
    block, skip = divmod(start, 64)
    place = block.to_bytes(8, "little") + bytes(8)
    key = hashlib.sha256(seed.encode()).digest()
    stream = Cipher(ChaCha20(key, place), mode=None).encryptor()
    return stream.update(bytes(skip + stop - start))[skip:]


@cache
def system() -> Entropy:
    """Return the source that protects people: ChaCha20 keyed by the operating system."""
    return _System()


def seeded(seed: int) -> Entropy:
    """Return a source that repeats for a seed: a SIMULATION, rejected where people are served."""
    if seed < 0:
        raise Misuse(f"`seed` must be a whole number, 0 or more, got {seed}")
    return _Seeded(seed)


def source(entropy: Entropy | int) -> Entropy:
    """Return the source that an argument `entropy` names: itself, or the one of that seed."""
    return seeded(entropy) if isinstance(entropy, int) else entropy
