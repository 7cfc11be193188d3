"""Shared parts of all byte layouts: record heads, signed records, strict JSON, sorted rows.

A record has a head of fixed size, and perhaps a signature at the end. Knows neither keys nor what
a record is about. SPEC sections 2 and 7.
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
_DECODERS_LOCK: Final = threading.Lock()
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
            raise Malformed(f"this {self._name} is truncated")
        version, *fields = self._struct.unpack_from(raw)
        if version != VERSION or not raw.startswith(self._zeros, self._blank):
            raise Malformed(f"this {self._name} has another version")
        return fields


@dataclass(frozen=True)
class Signed:
    """A record that ends in the signature of its author.

    Attributes:
        label: the beginning of what is signed, so that a signature fits no other kind of record.
    """

    label: ClassVar[bytes]
    signature: bytes = field(default=b"", kw_only=True)

    def body(self) -> bytes:
        """Write everything but the signature."""
        raise NotImplementedError

    @property
    def context(self) -> bytes:
        """The beginning of what is signed in this record."""
        return self.label

    def signed_part(self) -> bytes:
        """Return the signed bytes."""
        return self.context + self.body()

    def encode(self) -> bytes:
        """Write the record."""
        return self.body() + self.signature

    def sign(self, sign: Callable[[bytes], bytes]) -> bytes:
        """Sign the record and write it."""
        body = self.body()
        return body + sign(self.context + body)


def cut(raw: bytes, start: int, counts: list[tuple[int, int]]) -> tuple[tuple[bytes, ...], ...]:
    """Cut bytes from `start` on into groups, each with a count of items of one size."""
    groups = []
    for count, size in counts:
        end = start + count * size
        groups.append(tuple(raw[at : at + size] for at in range(start, end, size)))
        start = end
    return tuple(groups)


def read_document(raw: bytes, kind: type[_T], what: str, *, error: type[Error] = Malformed) -> _T:
    """Read a JSON document strictly; `what` begins the message of the error."""
    try:
        return _decoder(kind).decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as cause:
        raise error(f"{what}: {cause}") from None


def _decoder(kind: type[_T]) -> msgspec.json.Decoder[_T]:
    """Return the decoder of a type; a lock, because two threads that make one crash Python."""
    with _DECODERS_LOCK:
        if kind not in _decoders:
            _decoders[kind] = msgspec.json.Decoder(kind)
        decoder: msgspec.json.Decoder[_T] = _decoders[kind]
        return decoder


def document(value: object) -> bytes:
    """Write a struct as an indented JSON document."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


_Rows = NDArray[np.uint8]


def in_order(rows: _Rows) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Sort rows of 16 bytes: return their places in order, and which differ from the one before.

    Equal rows stay in their order. Because there are millions, this sorts one number per row: its
    leading bits, followed by its place. Only rows with equal leading bits are compared in full.
    """
    words, count = np.ascontiguousarray(rows).view(">u8").astype(np.uint64), len(rows)
    width = np.uint64(count.bit_length())  # of a place
    packed = words[:, 0] >> width << width | np.arange(count, dtype=np.uint64)
    packed.sort()
    order = (packed & ((np.uint64(1) << width) - np.uint64(1))).astype(np.intp)
    packed >>= width
    is_new = np.ones(count, np.bool_)
    alike = np.flatnonzero(packed[1:] == packed[:-1])
    if len(alike):
        at = np.union1d(alike, alike + 1)
        tied = order[at]
        tied = tied[np.lexsort((tied, words[tied, 1], words[tied, 0]))]
        order[at] = tied
        is_new[at[1:]] = (words[tied[1:]] != words[tied[:-1]]).any(axis=1)
    return order, is_new


def first_of_each(rows: _Rows) -> NDArray[np.intp]:
    """Return the places of the first of all equal rows, in the order of their bytes."""
    order, is_new = in_order(rows)
    return order[is_new]
