"""Binary HTTP (RFC 9292), known length: requests and responses as bytes, read strictly.

Knows neither what a message is about nor how it travels. Informational responses are read and left
out; messages of indeterminate length are refused. Padding is zeros at the end. SPEC section 17.
"""

import re
from dataclasses import dataclass
from typing import Final

from coatcheck.errors import Malformed, Misuse

_REQUEST: Final = 0
_RESPONSE: Final = 1
_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE: Final = re.compile(rb"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")
_SCHEME: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*")
_AUTHORITY: Final = re.compile(rb"[!-~]*")
_PATH: Final = re.compile(rb"/[!-~]*|\*?")
_SHORT: Final = "this Binary HTTP message is cut off"

Fields = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True)
class Request:
    """A request; `path` has the query, too."""

    method: bytes
    scheme: bytes
    authority: bytes
    path: bytes
    headers: Fields = ()
    content: bytes = b""
    trailers: Fields = ()

    def encode(self, size: int = 0) -> bytes:
        """Write the request, with zeros after it up to a size."""
        control = (self.method, self.scheme, self.authority, self.path)
        head = _varint(_REQUEST) + b"".join(map(_sized, control))
        return _padded(head + _rest(self.headers, self.content, self.trailers), size)

    @classmethod
    def decode(cls, raw: bytes) -> "Request":
        """Read a request strictly."""
        reader = _Reader(raw)
        reader.expect(_REQUEST)
        method, scheme, authority, path = (reader.sized() for _ in range(4))
        if not _TOKEN.fullmatch(method) or not _SCHEME.fullmatch(scheme):
            raise Malformed("this request's method or scheme is none of HTTP's")
        if not _AUTHORITY.fullmatch(authority) or not _PATH.fullmatch(path):
            raise Malformed("this request's authority or path is none of HTTP's")
        return cls(method, scheme, authority, path, *reader.rest())


@dataclass(frozen=True)
class Response:
    """A final response."""

    status: int
    headers: Fields = ()
    content: bytes = b""
    trailers: Fields = ()

    def encode(self, size: int = 0) -> bytes:
        """Write the response, with zeros after it up to a size."""
        head = _varint(_RESPONSE) + _varint(self.status)
        return _padded(head + _rest(self.headers, self.content, self.trailers), size)

    @classmethod
    def decode(cls, raw: bytes) -> "Response":
        """Read a response strictly."""
        reader = _Reader(raw)
        reader.expect(_RESPONSE)
        while 100 <= (status := reader.varint()) < 200:
            reader.fields()
        if not 200 <= status < 600:
            raise Malformed("this response's status is none of HTTP's")
        return cls(status, *reader.rest())


class _Reader:
    """Reads a message from the front."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def expect(self, kind: int) -> None:
        """Read the framing indicator."""
        if self.varint() != kind:
            raise Malformed("this is no Binary HTTP message of the kind and known length asked for")

    def varint(self) -> int:
        """Read an integer of QUIC (RFC 9000, section 17); longer forms than needed are allowed."""
        if self._at >= len(self._raw):
            raise Malformed(_SHORT)
        first = self._raw[self._at]
        self._at += 1
        if first < 64:
            return first
        rest = self._take((1 << (first >> 6)) - 1)
        return (first & 0x3F) << 8 * len(rest) | int.from_bytes(rest, "big")

    def sized(self) -> bytes:
        """Read bytes after their length."""
        return self._take(self.varint())

    def fields(self) -> Fields:
        """Read a section of fields."""
        inside = _Reader(self.sized())
        found = []
        while not inside.ended:
            name, value = inside.sized(), inside.sized()
            if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
                raise Malformed("a field of this message is none of HTTP's, or not in lower case")
            found.append((name, value))
        return tuple(found)

    def rest(self) -> tuple[Fields, bytes, Fields]:
        """Read headers, content and trailers; a message may end before each that is empty."""
        headers = () if self.ended else self.fields()
        content = b"" if self.ended else self.sized()
        trailers = () if self.ended else self.fields()
        if self._raw.count(0, self._at) != len(self._raw) - self._at:
            raise Malformed("this message is followed by something else than zeros")
        return headers, content, trailers

    @property
    def ended(self) -> bool:
        """Whether everything is read."""
        return self._at == len(self._raw)

    def _take(self, size: int) -> bytes:
        start, end = self._at, self._at + size
        if end > len(self._raw):
            raise Malformed(_SHORT)
        self._at = end
        return self._raw[start:end]


def _varint(number: int) -> bytes:
    if number < 64:
        return bytes((number,))
    power = next((power for power in range(4) if number < 1 << (8 << power) - 2), None)
    if power is None:
        raise Misuse(f"{number} is too large for a Binary HTTP message")
    return (number | power << (8 << power) - 2).to_bytes(1 << power, "big")


def _sized(raw: bytes) -> bytes:
    return _varint(len(raw)) + raw


def _rest(headers: Fields, content: bytes, trailers: Fields) -> bytes:
    return _section(headers) + _sized(content) + _section(trailers)


def _section(fields: Fields) -> bytes:
    return _sized(b"".join(_sized(name) + _sized(value) for name, value in fields))


def _padded(raw: bytes, size: int) -> bytes:
    if size and len(raw) > size:
        raise Misuse(f"this message has {len(raw)} bytes and cannot be padded to {size}")
    return raw.ljust(size, b"\0")
