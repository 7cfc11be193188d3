"""Binary HTTP (RFC 9292), known length: requests and responses as bytes, read strictly.

Knows neither what a message is about nor how it travels. Informational responses are read and left
out; messages of indeterminate length are refused. Padding is zeros at the end. SPEC section 17.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from coatcheck.errors import Malformed, Misuse

_REQUEST: Final = 0
_RESPONSE: Final = 1
_CONTROL: Final = (
    re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"),
    re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*"),
    re.compile(rb"[!-~]*"),
    re.compile(rb"/[!-~]*|\*?"),
)
"""What method, scheme, authority and path look like."""
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE: Final = re.compile(rb"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")
_SHORT: Final = "this Binary HTTP message is cut off"
_SAME: Final = 1024
"""The most bytes of a part that is remembered: nearly all messages of a round begin alike."""

Fields = tuple[tuple[bytes, bytes], ...]


class Request(NamedTuple):
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
        control = reader.sized(), reader.sized(), reader.sized(), reader.sized()
        if not all(map(re.Pattern.fullmatch, _CONTROL, control)):
            raise Malformed("this request's method, scheme, authority or path is none of HTTP's")
        return cls(*control, *reader.rest())


class Response(NamedTuple):
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
        rest = self._raw[self._at : self._at + (1 << (first >> 6)) - 1]
        self._at += len(rest)
        if len(rest) < (1 << (first >> 6)) - 1:
            raise Malformed(_SHORT)
        return (first & 0x3F) << 8 * len(rest) | int.from_bytes(rest, "big")

    def sized(self) -> bytes:
        """Read bytes after their length, which is nearly always a single byte."""
        raw, at = self._raw, self._at
        if at < len(raw) and raw[at] < 64:
            size, at = raw[at], at + 1
        else:
            size, at = self.varint(), self._at
        end = at + size
        if end > len(raw):
            raise Malformed(_SHORT)
        self._at = end
        return raw[at:end]

    def fields(self) -> Fields:
        """Read a section of fields."""
        section = self.sized()
        return _same_fields(section) if len(section) <= _SAME else _fields(section)

    def rest(self) -> tuple[Fields, bytes, Fields]:
        """Read headers, content and trailers; a message may end before each that is empty."""
        headers = () if self.ended else self.fields()
        content = b"" if self.ended else self.sized()
        trailers = () if self.ended else self.fields()
        if self._raw[self._at :] != bytes(len(self._raw) - self._at):
            raise Malformed("this message is followed by something else than zeros")
        return headers, content, trailers

    @property
    def ended(self) -> bool:
        """Whether everything is read."""
        return self._at == len(self._raw)


def _fields(section: bytes) -> Fields:
    inside = _Reader(section)
    found = []
    while not inside.ended:
        name, value = inside.sized(), inside.sized()
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise Malformed("a field of this message is none of HTTP's, or not in lower case")
        found.append((name, value))
    return tuple(found)


_same_fields: Final = lru_cache(maxsize=256)(_fields)


def _varint(number: int) -> bytes:
    if number < 64:
        return bytes((number,))
    if number < 1 << 14:
        return (number | 1 << 14).to_bytes(2, "big")
    power = next((power for power in range(2, 4) if number < 1 << (8 << power) - 2), None)
    if power is None:
        raise Misuse(f"{number} is too large for a Binary HTTP message")
    return (number | power << (8 << power) - 2).to_bytes(1 << power, "big")


def _sized(raw: bytes) -> bytes:
    return _varint(len(raw)) + raw


def _rest(headers: Fields, content: bytes, trailers: Fields) -> bytes:
    return _section(headers) + _sized(content) + (_section(trailers) if trailers else b"\0")


@lru_cache(maxsize=256)
def _section(fields: Fields) -> bytes:
    return _sized(b"".join(_sized(name) + _sized(value) for name, value in fields))


def _padded(raw: bytes, size: int) -> bytes:
    if size and len(raw) > size:
        raise Misuse(f"this message has {len(raw)} bytes and cannot be padded to {size}")
    return raw.ljust(size, b"\0")
