"""How many letters each address of a round has: bounded, because anybody may post them.

Who writes is sealed inside, so only what an address gets can be bounded. Keeps hashes, so that a
letter sent twice is known and counts once. SPEC section 9.
"""

import hashlib
from collections.abc import Iterable
from typing import Self

from coatcheck.errors import Refused
from coatcheck.protocol.notices import Posting
from coatcheck.protocol.terms import Round


class Crowded(Refused):
    """An address has all the letters that it may get in a round."""


class Mail:
    """The letters of a board, counted by round and address."""

    def __init__(self, *, each: int) -> None:
        self._each = each
        self._known: dict[tuple[bytes, bytes], set[bytes]] = {}

    @classmethod
    def of(cls, history: Iterable[tuple[Round, bytes]], *, each: int) -> Self:
        """Count everything a board showed; the first thing of a round is its bulletin."""
        mail = cls(each=each)
        seen: set[bytes] = set()
        for round_, raw in history:
            if round_.digest in seen:
                mail.add(raw, round_)
            seen.add(round_.digest)
        return mail

    def check(self, raw: bytes, round_: Round) -> None:
        """Refuse one letter too many; one that is there already is none."""
        known = self._known.get(_address(raw, round_), set())
        if len(known) >= self._each and _mark(raw) not in known:
            raise Crowded("this address has all the letters that a round allows it")

    def add(self, raw: bytes, round_: Round) -> None:
        """Count a letter that is shown."""
        self._known.setdefault(_address(raw, round_), set()).add(_mark(raw))


def _address(raw: bytes, round_: Round) -> tuple[bytes, bytes]:
    return round_.digest, Posting.decode(raw, round_).recipient


def _mark(raw: bytes) -> bytes:
    return hashlib.sha256(raw).digest()[:16]
