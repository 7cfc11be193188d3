"""Records and documents: what all layouts of bytes share, and how JSON is read.

A record has a head of fixed size, and perhaps a signature at the end. Knows neither keys nor what
a record is about. SPEC section 7.
"""

import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from coatcheck.errors import Error, Malformed

VERSION: Final = 1
_T = TypeVar("_T")
_ONE_BY_ONE: Final = threading.Lock()
_decoders: Final[dict[type, Any]] = {}


class Layout:
    """The head of a record: its version, then fields of fixed sizes, with zeros between them.

    Attributes:
        size: its bytes.
    """

    def __init__(self, name: str, form: str) -> None:
        self._name = name
        self._struct = struct.Struct(form)
        self._zeros = bytes(form.count("x"))
        self._blank = struct.calcsize(form.partition("x")[0])
        self.size = self._struct.size

    def pack(self, *fields: Any) -> bytes:
        """Write the fields after the version."""
        return self._struct.pack(VERSION, *fields)

    def unpack(self, raw: bytes) -> list[Any]:
        """Read the fields at the beginning of a record; the version and the zeros are checked."""
        if len(raw) < self.size:
            raise Malformed(f"this {self._name} is cut off")
        version, *fields = self._struct.unpack_from(raw)
        if version != VERSION or not raw.startswith(self._zeros, self._blank):
            raise Malformed(f"this {self._name} is of another version")
        return fields


@dataclass(frozen=True)
class Signed:
    """A record that ends in the signature of whoever wrote it.

    Attributes:
        label: what the signature begins with, so that it holds for no other kind of record.
    """

    label: ClassVar[bytes]
    signature: bytes = field(default=b"", kw_only=True)

    def body(self) -> bytes:
        """Write everything but the signature."""
        raise NotImplementedError

    @property
    def context(self) -> bytes:
        """What the signature begins with in this record."""
        return self.label

    def signed_part(self) -> bytes:
        """What is signed."""
        return self.context + self.body()

    def encode(self) -> bytes:
        """Write the record."""
        return self.body() + self.signature

    def sign(self, sign: Callable[[bytes], bytes]) -> bytes:
        """Sign the record and write it."""
        body = self.body()
        return body + sign(self.context + body)


def cut(raw: bytes, start: int, counts: list[tuple[int, int]]) -> tuple[tuple[bytes, ...], ...]:
    """Cut bytes from a place on into groups, each of so many items of one size, to the end."""
    groups = []
    for count, size in counts:
        end = start + count * size
        groups.append(tuple(raw[at : at + size] for at in range(start, end, size)))
        start = end
    return tuple(groups)


def read_document(raw: bytes, kind: type[_T], what: str, *, error: type[Error] = Malformed) -> _T:
    """Read a JSON document strictly; `what` begins the sentence that says what is wrong."""
    try:
        return _decoder(kind).decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise error(f"{what}: {wrong}") from None


def _decoder(kind: type[_T]) -> msgspec.json.Decoder[_T]:
    """Give the decoder of a type, made by one thread: two that make one at once crash Python."""
    with _ONE_BY_ONE:
        if kind not in _decoders:
            _decoders[kind] = msgspec.json.Decoder(kind)
        found: msgspec.json.Decoder[_T] = _decoders[kind]
        return found


def document(value: object) -> bytes:
    """Write a struct as an indented JSON document."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


# HOUSE-DOC protocol.ordering: 'Ordering: rows of 16 bytes, such as ranks and addresses, in the order of their bytes.\n\nMillions of them are sorted in one process, so it is done with one sort of numbers: the leading\nbits of a row, and its place behind them. Rows whose leading bits are alike are compared in whole.\n'
_Rows = NDArray[np.uint8]


def in_order(rows: _Rows) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Give the places of rows in order, and which of them differ from the one before.

    Equal rows stay in the order in which they are.
    """
    words, count = np.ascontiguousarray(rows).view(">u8").astype(np.uint64), len(rows)
    room = np.uint64(count.bit_length())
    packed = words[:, 0] >> room << room | np.arange(count, dtype=np.uint64)
    packed.sort()
    order = (packed & ((np.uint64(1) << room) - np.uint64(1))).astype(np.intp)
    packed >>= room
    is_new = np.ones(count, np.bool_)
    alike = np.flatnonzero(packed[1:] == packed[:-1])
    if len(alike):
        at = np.union1d(alike, alike + 1)
        some = order[at]
        some = some[np.lexsort((some, words[some, 1], words[some, 0]))]
        order[at] = some
        is_new[at[1:]] = (words[some[1:]] != words[some[:-1]]).any(axis=1)
    return order, is_new


def first_of_each(rows: _Rows) -> NDArray[np.intp]:
    """Give the place of the first of all equal rows, in the order of their bytes."""
    order, is_new = in_order(rows)
    return order[is_new]
