"""Nearness: candidates find out by letters whether they are near each other, and nothing else.

Each person learns whether their cell is among the cells around the other's. Points of P-256, each
given by its x alone, are blinded twice, so that a letter shows neither a place nor a guess that
could be checked offline; a person who cheats gets one guess per letter. A reply names its cells by
hashes for one asker and one answerer, so that nobody can appear near by passing on a person's own
letters. `Nearness` has the same interface as `rules.Settling`. The group's order is prime and every
accepted encoding is on the curve, so nothing of small order gets in
(docs/decisions/0011-blinding-on-p256.md). SPEC section 16.
"""

import hashlib
from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import count, islice
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec

from coatcheck.errors import BadKey, Misuse
from coatcheck.protocol.settling.rules import MARK, Cell, Kind, Progress, Step, prf

POINT_SIZE: Final = 32
_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_POINT_LABEL: Final = b"coatcheck/v1/near/point\0"


@lru_cache(maxsize=4096)
def _point(x: bytes) -> ec.EllipticCurvePublicKey:
    """Find one of the two points with this x: both have the same multiples, by x."""
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), b"\x02" + x)
    except ValueError:
        raise BadKey("these bytes are not the x of a point of P-256") from None


def is_point(x: bytes) -> bool:
    """Return whether these bytes are the x of a point."""
    try:
        _point(x)
    except BadKey:
        return False
    return True


@lru_cache(maxsize=4096)
def hash_to_point(text: bytes) -> bytes:
    """Hash a text to a point of unknown logarithm: the first digest that is an x (S16.13)."""
    for attempt in count():
        x = hashlib.sha256(_POINT_LABEL + attempt.to_bytes(4, "big") + text).digest()
        if is_point(x):
            return x
    raise AssertionError


class Blind:
    """A secret factor for points: equal points stay equal, and nothing else can be seen."""

    def __init__(self, secret: bytes) -> None:
        number = int.from_bytes(hashlib.sha512(secret).digest(), "big") % (_ORDER - 1) + 1
        self._key = ec.derive_private_key(number, ec.SECP256R1())
        self._inverse = ec.derive_private_key(pow(number, -1, _ORDER), ec.SECP256R1())

    def blind(self, x: bytes) -> bytes:
        """Multiply a point."""
        return self._key.exchange(ec.ECDH(), _point(x))

    def unblind(self, x: bytes) -> bytes:
        """Undo `blind`."""
        return self._inverse.exchange(ec.ECDH(), _point(x))


STEPS: Final = (Step(Kind.BLIND, 0), Step(Kind.REPLY, 0), Step(Kind.WORDS, 0))
NAME_SIZE: Final = 16
"""Bytes of a cell's name in a reply."""
MOST_CELLS: Final = 6
"""The most cells that a radius may span: a reply holds no more."""
_MOST_NAMES: Final = 253
"""The most names that the longest letter holds, after its head and a point."""
_CELL_LABEL: Final = b"coatcheck/v1/near/cell\0"
_SHARE: Final = 0.9  # of the radius: most pairs of cells this far apart are within it


def offsets(radius: float, *, side: float, axes: int) -> list[Cell]:
    """Return the offsets of the cells that count as near, by their distance (S16.17)."""
    if radius > MOST_CELLS * side:
        raise Misuse(
            f"a radius may span at most {MOST_CELLS} cells, this one spans {radius / side:.3g}"
        )
    reach, most = int(_SHARE * radius / side), (_SHARE * radius) ** 2
    offsets: list[Cell] = [()]
    # Axis by axis, so that terms with many axes cost no more than a letter has room for.
    for _ in range(axes):
        longer = ((*offset, n) for offset in offsets for n in range(-reach, reach + 1))
        near = (o for o in longer if sum(n * n for n in o) * side * side <= most)
        offsets = list(islice(near, _MOST_NAMES + 1))
        if len(offsets) > _MOST_NAMES:
            raise Misuse(f"a letter names at most {_MOST_NAMES} cells: make cells larger")
    return offsets


def reply_size(radius: float, *, side: float, axes: int) -> int:
    """Return the bytes of the body of a reply, the longest of all."""
    return 2 + _content(len(offsets(radius, side=side, axes=axes)))


def _content(cells: int) -> int:
    """Return the bytes of a point and the names of `cells` cells."""
    return POINT_SIZE + NAME_SIZE * cells


class Nearness:
    """One person's side of the test with every candidate of one mutual list.

    Attributes:
        address: the person's own address.
        lists: one list, the addresses of the candidates.
        secret: 32 bytes that only this person can derive, also after a crash.
        around: the offsets of the cells that count as near.
        digest: that of the round, which makes its points differ from those of other rounds.
    """

    steps = STEPS

    def __init__(
        self,
        progress: Progress,
        *,
        address: bytes,
        candidates: Sequence[bytes],
        secret: bytes,
        around: Sequence[Cell],
        digest: bytes,
    ) -> None:
        if not around:
            raise Misuse("no cell counts as near: make `cell` smaller than the radius")
        self.progress, self.address = progress, address
        self.lists = (tuple(candidates),)
        self._secret, self._around, self._digest = secret, around, digest
        self._first = Blind(prf(secret, b"first"))
        self._second = Blind(prf(secret, b"second"))
        self._tested: dict[bytes, bool] = {}

    @property
    def done(self) -> bool:
        """Whether the person has nothing more to write."""
        return self.progress.step >= len(STEPS)

    def ready(self, *, late: bool = False) -> bool:
        """Return whether the next step may begin: all have written, or it is late."""
        before = self.progress.step - 1
        return (
            late
            or before < 0
            or all(name.hex() in self._received[before] for name in self.lists[0])
        )

    def speak(self, words: bytes = b"") -> list[tuple[bytes, bytes]]:
        """Advance one step; return the recipients and bodies of its letters.

        `words` go to the candidates who are near.
        """
        index = self.progress.step
        self.progress.step += 1
        head, near = bytes((MARK, index)), self.near if index == 2 else ()
        if index == 0:
            body = self._first.blind(self._hashed(self.progress.cell))
            return [(name, head + body) for name in self.lists[0]]
        if index == 1:
            return [(name, head + self._reply(name)) for name in self.lists[0]]
        return [(name, head + (words if name in near else b"")) for name in self.lists[0]]

    def _reply(self, name: bytes) -> bytes:
        """Blind a candidate's point, or a random one if it is missing; append the cell names."""
        point = self.progress.points.get(name.hex())
        blinded = self._second.blind(point or hash_to_point(prf(self._secret, b"nobody", name)))
        return blinded + b"".join(
            sorted(self._cell_name(name, self.address, point) for point in self._blinded_cells)
        )

    @cached_property
    def _blinded_cells(self) -> list[bytes]:
        """The blinded cells around the person's."""
        own = self.progress.cell
        cells = (tuple(a + b for a, b in zip(own, o, strict=True)) for o in self._around)
        return [self._second.blind(self._hashed(cell)) for cell in cells]

    def _cell_name(self, asker: bytes, answerer: bytes, point: bytes) -> bytes:
        """Name a blinded cell in the reply of one person to one other."""
        return hashlib.sha256(_CELL_LABEL + self._digest + asker + answerer + point).digest()[
            :NAME_SIZE
        ]

    def _hashed(self, cell: Cell) -> bytes:
        return hash_to_point(
            self._digest + b"".join(n.to_bytes(4, "big", signed=True) for n in cell)
        )

    @property
    def _received(self) -> tuple[dict[str, bytes], ...]:
        return self.progress.points, self.progress.replies, self.progress.words

    def receive(self, sender: bytes, body: bytes) -> bool:
        """Take in a candidate's letter; drop and count one that does not belong here."""
        reason = self._wrong(sender, body)
        if reason:
            self.progress.dropped[reason] = self.progress.dropped.get(reason, 0) + 1
            return False
        self._received[body[1]][sender.hex()] = body[2:]
        return True

    def _wrong(self, sender: bytes, body: bytes) -> str:
        """Say why these bytes are no letter that counts now; empty if they are one."""
        if sender not in self.lists[0]:
            return "sender"
        if len(body) < 2 or body[0] != MARK:
            return "size"
        return self._stale(sender, body[1], body[2:]) if body[1] < len(STEPS) else "step"

    def _stale(self, sender: bytes, index: int, content: bytes) -> str:
        if sender.hex() in self._received[index]:
            return "repeated"
        if self.steps[index].kind is Kind.WORDS:
            return ""
        if len(content) != _content(len(self._around) if index else 0):
            return "size"
        if self.progress.step > index + 1:
            return "late"
        return "" if is_point(content[:POINT_SIZE]) else "point"

    def notice(self, sender: bytes, body: bytes) -> bool:  # noqa: ARG002 - there are none here
        """Drop a public notice: nearness has none."""
        self.progress.dropped["step"] = self.progress.dropped.get("step", 0) + 1
        return False

    @property
    def partners(self) -> tuple[bytes, ...]:
        """The candidates who are near, according to the replies so far."""
        return self.near

    @property
    def near(self) -> tuple[bytes, ...]:
        """The candidates whose replies name the person's cell."""
        return tuple(name for name in self.lists[0] if self._names_own_cell(name))

    def _names_own_cell(self, name: bytes) -> bool:
        """Return whether a candidate's reply names the person's cell (S16.20), tested once."""
        reply = self.progress.replies.get(name.hex(), b"")
        if not reply:
            return False
        if name not in self._tested:
            own = self._cell_name(self.address, name, self._first.unblind(reply[:POINT_SIZE]))
            names = (reply[at : at + NAME_SIZE] for at in range(POINT_SIZE, len(reply), NAME_SIZE))
            self._tested[name] = own in names
        return self._tested[name]
