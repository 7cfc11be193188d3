"""Contacts side by side: which one-time pairs of a partition are usable, and their addresses.

The rules are those of `keys.Contact`, over whole columns, so that no object is made per person.
SPEC section 4.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from coatcheck.protocol.keys import (
    LOW_ORDER_U,
    MLKEM_SIZE,
    SMALL_ORDER_Y,
    P,
    address_label,
)
from coatcheck.protocol.ordering import first_of_each
from coatcheck.protocol.suites import ADDRESS_SIZE, CLASSICAL, Suite

_Rows = NDArray[np.uint8]
_Mask = NDArray[np.bool_]
_POINT: Final = 32
_WORD: Final = np.dtype("<u8")
_SIGN: Final = np.uint64(1 << 63)
_LATTICE: Final = 1152
"""Bytes of an ML-KEM-768 key that hold coefficients, two in three bytes; a seed follows."""
_Q: Final = 3329


def usable(suite: Suite, rows: _Rows) -> _Mask:
    """Tell of each contact (n, size) whether `Contact.decode` takes it."""
    cut = suite.sealing_size
    good = _points(rows[:, cut - _POINT : cut], refused=LOW_ORDER_U, signed=False)
    good &= _points(rows[:, cut:], refused=SMALL_ORDER_Y, signed=True)
    if suite != CLASSICAL:
        good &= _lattices(rows[:, :MLKEM_SIZE])
    return good


def addresses(suite: Suite, rows: _Rows) -> _Rows:
    """Hash each contact (n, size) to its address (n, 16)."""
    label, raw, size = hashlib.sha256(address_label(suite)), rows.tobytes(), suite.contact_size
    found = bytearray()
    for at in range(0, len(raw), size):
        one = label.copy()
        one.update(raw[at : at + size])
        found += one.digest()[:ADDRESS_SIZE]
    return np.frombuffer(bytes(found), dtype=np.uint8).reshape(-1, ADDRESS_SIZE)


def first_seen(rows: _Rows) -> _Mask:
    """Tell of each address (n, 16) whether no row before it has it too."""
    first = np.zeros(len(rows), dtype=np.bool_)
    first[first_of_each(rows)] = True
    return first


def _points(rows: _Rows, *, refused: Iterable[int], signed: bool) -> _Mask:
    """Tell which numbers of 32 bytes are canonical and none of the refused ones.

    In the highest bit of a signing key stands the sign of x, which is no part of the number.
    """
    words = np.ascontiguousarray(rows).view(_WORD)
    if signed:
        words = words.copy()
        words[:, 3] &= ~_SIGN
    prime = _words(P)
    large = (words[:, 3] > prime[3]) | (
        (words[:, 1:] == prime[1:]).all(axis=1) & (words[:, 0] >= prime[0])
    )
    good = ~large
    for number in refused:
        good &= (words != _words(number)).any(axis=1)
    return np.asarray(good)


def _words(number: int) -> NDArray[np.uint64]:
    return np.frombuffer(number.to_bytes(_POINT, "little"), dtype=_WORD)


def _lattices(rows: _Rows) -> _Mask:
    """Tell which ML-KEM-768 keys have all their coefficients below q (FIPS 203, section 7.2)."""
    triples = rows[:, :_LATTICE].reshape(len(rows), -1, 3).astype(np.uint16)
    low = triples[:, :, 0] | ((triples[:, :, 1] & 15) << 8)
    high = (triples[:, :, 1] >> 4) | (triples[:, :, 2] << 4)
    return np.asarray((np.maximum(low, high) < _Q).all(axis=1))
