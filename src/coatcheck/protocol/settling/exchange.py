"""The exchange between two candidates: a key that both have only if both see the same ring.

Everybody publishes a question, which commits to one cell, and a point for answers. Each person
answers each candidate with a table: the cells in ring r around the person hold a secret token of
the two people, XOR r. The XOR of a person's own token and of the value read in the candidate's
table is a password. Both people have the same password if each is in the same ring of the other,
and nobody can see from a value whether it is a token. An exchange of keys by password (CPace) then
gives both a key; who has no password has no key, and could try one password only. With the key
people exchange sealed boxes: the token in them shows the ring. SPEC section 16,
docs/explanation/letters.md.
"""

import hashlib
import hmac
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from coatcheck.protocol.settling.blinded_sets import (
    POINT_SIZE,
    VALUE_SIZE,
    BlindedSet,
    Factor,
    Question,
    exclusive_or,
    hash_to_point,
    is_point,
    read_point,
)
from coatcheck.protocol.settling.rings import Cell, Rings

_LABEL: Final = b"coatcheck/v1/settle/"
_KEY_LABEL: Final = b"coatcheck/v1/blind/key\0"
_EVEN: Final = b"\2"
_SEAL_SIZE: Final = 16


def prf(key: bytes, label: bytes, data: bytes = b"") -> bytes:
    """Derive 32 bytes for one purpose."""
    return hmac.digest(key, _LABEL + label + b"\0" + data, "sha256")


class Points(NamedTuple):
    """What a person publishes: a question, and a point for answers."""

    question: bytes
    answers: bytes

    def encode(self) -> bytes:
        """Write both."""
        return self.question + self.answers


def read_points(raw: bytes) -> Points | None:
    """Read what a candidate published; None if it is not two points."""
    points = Points(raw[:POINT_SIZE], raw[POINT_SIZE:])
    return points if all(is_point(point) for point in points) else None


def is_share(raw: bytes) -> bool:
    """Return whether these bytes are a point with an even y, as in the exchange of keys."""
    return raw[:1] == _EVEN and is_point(raw)


class Exchange:
    """One person's part in the exchange with each candidate.

    Attributes:
        points: what the person publishes.
        rings: the rings of the round.

    Args:
        secret: 32 bytes that only this person can derive, also after a crash.
        cell: the person's cell.
        address: the person's address.
        digest: that of the round, which makes its points differ from those of other rounds.
        rings: the rings of the terms.
    """

    def __init__(
        self, secret: bytes, cell: Cell, *, address: bytes, digest: bytes, rings: Rings
    ) -> None:
        self._secret, self._address, self._digest = secret, address, digest
        self.rings = rings
        self._question = Question(prf(secret, b"question"), cell, digest=digest)
        self._set = BlindedSet(
            prf(secret, b"set"),
            [tuple(a + b for a, b in zip(cell, o, strict=True)) for o in rings.around],
            digest=digest,
            width=rings.width,
        )
        self.points = Points(self._question.point, self._set.point)
        self._shares: dict[tuple[bytes, bytes | None], bytes] = {}
        self._keys: dict[tuple[bytes, bytes, bytes], bytes] = {}

    def _token(self, name: bytes) -> bytes:
        return prf(self._secret, b"token", name)[:VALUE_SIZE]

    def table(self, name: bytes, points: Points | None) -> bytes:
        """Answer a candidate's question; random bytes if there is none."""
        filler = _random(prf(self._secret, b"table", name), self.rings.table_size)
        if points is None:
            return filler
        token = int.from_bytes(self._token(name), "big")
        return self._set.reply(
            points.question,
            [token ^ ring for ring in self.rings.around.values()],
            asker=name,
            answerer=self._address,
            filler=filler,
        )

    def read(self, name: bytes, points: Points, table: bytes) -> bytes:
        """Read the value of one's own cell in a candidate's table."""
        return self._question.read(
            table,
            point=points.answers,
            asker=self._address,
            answerer=name,
            width=self.rings.width,
        )

    def share(self, name: bytes, value: bytes | None) -> bytes:
        """Return the share of the key of the two; one for no password if there is no value."""
        if (name, value) not in self._shares:
            if value is None:
                password = prf(self._secret, b"password", name)
            else:
                password = exclusive_or(self._token(name), value)
            text = self._digest + self._in_order(name, self._address, name) + password
            self._shares[name, value] = _EVEN + self._factor(name).x_of(hash_to_point(text))
        return self._shares[name, value]

    def key(self, name: bytes, value: bytes, share: bytes) -> bytes:
        """Return the key of the two; the candidate has the same one if the passwords agree."""
        if (name, value, share) not in self._keys:
            secret = self._factor(name).x_of(read_point(share))
            shares = self._in_order(name, self.share(name, value), share)
            text = self._digest + self._in_order(name, self._address, name) + shares + secret
            self._keys[name, value, share] = hashlib.sha256(_KEY_LABEL + text).digest()
        return self._keys[name, value, share]

    def no_key(self, name: bytes) -> bytes:
        """Return a key that only the person has: nobody can open a box under it."""
        return prf(self._secret, b"no key", name)

    def box(self, key: bytes, index: int, name: bytes, content: bytes) -> bytes:
        """Seal the token of the two and more for a step, under their key."""
        return _seal(key, self._address, index, self._token(name) + content)

    def open(self, key: bytes, value: bytes, index: int, sender: bytes, box: bytes) -> "Opened":
        """Open a candidate's box; the ring is 0 if the candidate has not the same key."""
        try:
            text = _cipher(key, sender).decrypt(_nonce(index), box, None)
        except InvalidTag:
            return Opened(0, b"")
        ring = int.from_bytes(exclusive_or(text[:VALUE_SIZE], value), "big")
        if not 1 <= ring <= self.rings.count:
            return Opened(0, b"")
        return Opened(ring, text[VALUE_SIZE:])

    def _factor(self, name: bytes) -> Factor:
        return Factor(prf(self._secret, b"factor", name))

    def _in_order(self, name: bytes, own: bytes, other: bytes) -> bytes:
        """Join something of both people, that of the smaller address first."""
        return own + other if self._address < name else other + own


class Opened(NamedTuple):
    """What a box holds: the ring that the candidate shows, and the content after the token."""

    ring: int
    content: bytes


def _cipher(key: bytes, sender: bytes) -> ChaCha20Poly1305:
    return ChaCha20Poly1305(prf(key, b"box", sender))


def _nonce(index: int) -> bytes:
    return bytes(11) + bytes((index,))


def _seal(key: bytes, sender: bytes, index: int, content: bytes) -> bytes:
    return _cipher(key, sender).encrypt(_nonce(index), content, None)


def _random(key: bytes, size: int) -> bytes:
    """Expand a key to random bytes."""
    return ChaCha20Poly1305(key).encrypt(bytes(12), bytes(size), None)[:size]


def box_size(content: int) -> int:
    """Return the bytes of a box with so many bytes of content after the token."""
    return VALUE_SIZE + content + _SEAL_SIZE
