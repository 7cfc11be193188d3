"""Blinded sets: an asker learns the value that an answerer's set gives to one cell, and no more.

The asker hides one cell in a point (`Question.point`): any cell could be in it. The answerer's
reply (`BlindedSet.reply`) is a table with one slot per residue of cells; the slot of each cell of
the set holds that cell's value under a mask, the other slots hold random bytes. The asker can
compute the mask of one cell (`Question.read`), and cannot tell a value from random bytes: nothing
in a reply shows which cells are in the set, nor whether the asker's is. The answerer learns
nothing. Whoever could read two cells of one reply could solve Diffie-Hellman on P-256
(docs/explanation/letters.md, docs/decisions/0011-blinding-on-p256.md). SPEC section 16.
"""

import hashlib
from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, count
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec

from coatcheck.errors import BadKey, Misuse

POINT_SIZE: Final = 33
VALUE_SIZE: Final = 3
_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_PRIME: Final = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
_A: Final = _PRIME - 3
_B: Final = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
_POINT_LABEL: Final = b"coatcheck/v1/blind/point\0"
_MASK_LABEL: Final = b"coatcheck/v1/blind/mask\0"


class Point(NamedTuple):
    """A point of P-256, in coordinates."""

    x: int
    y: int

    @property
    def key(self) -> ec.EllipticCurvePublicKey:
        """The point for the library, which checks that it is on the curve."""
        raw = b"\4" + self.x.to_bytes(32, "big") + self.y.to_bytes(32, "big")
        return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), raw)

    def negated(self) -> "Point":
        """Return the point's negative."""
        return Point(self.x, _PRIME - self.y)

    def encoded(self) -> bytes:
        """Write the point in 33 bytes (SEC 1, compressed)."""
        return bytes((2 + (self.y & 1),)) + self.x.to_bytes(32, "big")


@lru_cache(maxsize=4096)
def read_point(raw: bytes) -> Point:
    """Read a point of 33 bytes; refuse anything else."""
    message = "these bytes are no point of P-256 in 33 bytes"
    if len(raw) != POINT_SIZE:
        raise BadKey(message)
    try:
        key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), raw)
    except ValueError:
        raise BadKey(message) from None
    numbers = key.public_numbers()
    return Point(numbers.x, numbers.y)


def is_point(raw: bytes) -> bool:
    """Return whether these bytes are a point."""
    try:
        read_point(raw)
    except BadKey:
        return False
    return True


@lru_cache(maxsize=4096)
def hash_to_point(text: bytes) -> Point:
    """Hash a text to a point of unknown logarithm: the first digest that is an x."""
    for attempt in count():
        raw = hashlib.sha256(_POINT_LABEL + attempt.to_bytes(4, "big") + text).digest()
        if is_point(b"\2" + raw):
            return read_point(b"\2" + raw)
    raise AssertionError


class Factor:
    """A secret number from 1 to q - 2, derived from secret bytes."""

    def __init__(self, secret: bytes) -> None:
        number = int.from_bytes(hashlib.sha512(secret).digest(), "big") % (_ORDER - 2) + 1
        self._key = ec.derive_private_key(number, ec.SECP256R1())
        self._next = number + 1

    @cached_property
    def point(self) -> Point:
        """This many times the group's generator."""
        numbers = self._key.public_key().public_numbers()
        return Point(numbers.x, numbers.y)

    def x_of(self, point: Point) -> bytes:
        """Return the x of a multiple of a point."""
        return self._key.exchange(ec.ECDH(), point.key)

    @cached_property
    def _one_more(self) -> ec.EllipticCurvePrivateKey:
        return ec.derive_private_key(self._next, ec.SECP256R1())

    def times(self, point: Point) -> Point:
        """Return a multiple of a point, with its y.

        The library gives the x of a multiple alone. With the x of the next multiple it determines
        y (Brier and Joye, PKC 2002, proposition 3).
        """
        (x, y), key = point, point.key
        x1, x2 = (
            int.from_bytes(one.exchange(ec.ECDH(), key), "big")
            for one in (self._key, self._one_more)
        )
        y1 = 2 * _B + (_A + x * x1) * (x + x1) - x2 * (x - x1) ** 2
        return Point(x1, y1 * pow(2 * y, -1, _PRIME) % _PRIME)


def _add(pairs: Sequence[tuple[Point, Point]]) -> list[Point | None]:
    """Add pairs of points, with one inversion for all; None for a pair with the same x."""
    products, product = list[int](), 1
    for one, other in pairs:
        products.append(product)
        product = product * ((other.x - one.x) or 1) % _PRIME
    inverse = pow(product, -1, _PRIME)
    sums = list[Point | None]()
    for (one, other), before in zip(reversed(pairs), reversed(products), strict=True):
        apart = other.x - one.x
        slope = (other.y - one.y) * before * inverse % _PRIME
        inverse = inverse * (apart or 1) % _PRIME
        x = (slope * slope - one.x - other.x) % _PRIME
        sums.append(Point(x, (slope * (one.x - x) - one.y) % _PRIME) if apart else None)
    return sums[::-1]


def _certain(sums: Sequence[Point | None]) -> list[Point]:
    """Return sums of points that are independent: the same x twice is a chance of 2^-255."""
    if None in sums:
        raise AssertionError
    return [one for one in sums if one is not None]


def _sum_xs(one: Point, others: Sequence[Point]) -> list[int]:
    """Return the x of the sum of a point with each of others; -1 for one with the same x."""
    x0, y0 = one
    gaps = [(x - x0) % _PRIME or 1 for x, _ in others]
    products = list(accumulate(gaps, lambda a, b: a * b % _PRIME))
    inverse = pow(products[-1], -1, _PRIME)
    xs = [-1] * len(others)
    for at in range(len(others) - 1, -1, -1):
        x, y = others[at]
        slope = (y - y0) * (inverse * products[at - 1] if at else inverse) % _PRIME
        inverse = inverse * gaps[at] % _PRIME
        if x != x0:
            xs[at] = (slope * slope - x0 - x) % _PRIME
    return xs


def write_cell(cell: Sequence[int]) -> bytes:
    """Write a cell: one signed 32-bit number per axis."""
    return b"".join(number.to_bytes(4, "big", signed=True) for number in cell)


def _axis_point(digest: bytes, axis: int, number: int) -> Point:
    return hash_to_point(digest + axis.to_bytes(4, "big") + number.to_bytes(4, "big", signed=True))


def _add_axes(rows: Sequence[Sequence[Point]]) -> list[Point]:
    """Add up each row's points, one per axis."""
    sums = [row[0] for row in rows]
    for axis in range(1, len(rows[0])):
        sums = _certain(_add([(one, row[axis]) for one, row in zip(sums, rows, strict=True)]))
    return sums


def point_of_cell(digest: bytes, cell: Sequence[int]) -> Point:
    """Return the point of a cell: the sum of those of its numbers."""
    points = [_axis_point(digest, axis, number) for axis, number in enumerate(cell)]
    return _add_axes([points])[0]


def slot_of(cell: Sequence[int], width: int) -> int:
    """Return the slot of a cell, equal for cells that differ by multiples of `width`."""
    slot: int = 0
    for number in cell:
        slot = slot * width + number % width
    return slot


def table_size(width: int, axes: int) -> int:
    """Return the bytes of a reply's table."""
    size: int = VALUE_SIZE * width**axes
    return size


def exclusive_or(one: bytes, other: bytes) -> bytes:
    """Return the exclusive or of two values."""
    mixed = int.from_bytes(one, "big") ^ int.from_bytes(other, "big")
    return mixed.to_bytes(VALUE_SIZE, "big")


class Question:
    """One cell that a person asks about, the same cell for all who answer.

    Attributes:
        point: what the asker sends; it hides the cell perfectly.
    """

    def __init__(self, secret: bytes, cell: Sequence[int], *, digest: bytes) -> None:
        self._factor, self._cell, self._digest = Factor(secret), cell, digest
        hidden = _certain(_add([(self._factor.point, point_of_cell(digest, cell))]))
        self.point = hidden[0].encoded()

    def read(
        self, table: bytes, *, point: bytes, asker: bytes, answerer: bytes, width: int
    ) -> bytes:
        """Return the value of the cell; random bytes if the answerer's set does not have it.

        `point` is the answerer's.
        """
        at = VALUE_SIZE * slot_of(self._cell, width)
        context = self._digest + asker + answerer + self.point + point
        text = write_cell(self._cell) + self._factor.x_of(read_point(point))
        mask = hashlib.sha256(_MASK_LABEL + context + text).digest()[:VALUE_SIZE]
        return exclusive_or(table[at : at + VALUE_SIZE], mask)


class BlindedSet:
    """A set of cells of one person, for everybody who asks.

    The cells must have different slots: on each axis they lie within `width` numbers in a row.

    Attributes:
        point: what the answerer sends to everybody; it says nothing about the set.
    """

    def __init__(
        self, secret: bytes, cells: Sequence[Sequence[int]], *, digest: bytes, width: int
    ) -> None:
        self._digest, self._cells = digest, cells
        slots = [slot_of(cell, width) for cell in cells]
        self._places = [
            (VALUE_SIZE * slot, write_cell(cell)) for slot, cell in zip(slots, cells, strict=True)
        ]
        if len(set(slots)) != len(cells):
            raise Misuse(f"cells of a set must differ modulo {width}")
        self._factor = Factor(secret)
        self.point = self._factor.point.encoded()

    @cached_property
    def _multiples(self) -> list[Point]:
        """The negative of each cell's point times the factor: the same for everybody who asks."""
        # Axis by axis: a set has far fewer numbers than cells.
        numbers = {one for cell in self._cells for one in enumerate(cell)}
        multiples = {
            (axis, number): self._factor.times(_axis_point(self._digest, axis, number)).negated()
            for axis, number in numbers
        }
        return _add_axes([[multiples[one] for one in enumerate(cell)] for cell in self._cells])

    def reply(
        self,
        point: bytes,
        values: Sequence[int],
        *,
        asker: bytes,
        answerer: bytes,
        filler: bytes,
    ) -> bytes:
        """Answer a question with the values of the cells, numbers of 3 bytes, in the cells' order.

        `filler` is a table of random bytes: they stay in the slots of no cell, and in that of a
        cell that was asked for with the factor 0, as such a question has no answer.
        """
        context = self._digest + asker + answerer + point + self.point
        table, start = bytearray(filler), hashlib.sha256(_MASK_LABEL + context)
        xs = _sum_xs(self._factor.times(read_point(point)), self._multiples)
        for (at, cell), value, x in zip(self._places, values, xs, strict=True):
            if x >= 0:
                digest = start.copy()
                digest.update(cell + x.to_bytes(32, "big"))
                mask = int.from_bytes(digest.digest()[:VALUE_SIZE], "big")
                table[at : at + VALUE_SIZE] = (value ^ mask).to_bytes(VALUE_SIZE, "big")
        return bytes(table)
