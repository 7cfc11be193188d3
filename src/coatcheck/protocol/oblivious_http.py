"""Oblivious HTTP (RFC 9458) over binary HTTP (RFC 9292).

A client seals a request to a gateway and opens the one answer to it. HPKE in base mode (RFC 9180)
is here with its exporter, which the library that seals does not offer
(docs/decisions/0014-oblivious-http.md). Messages have one of a few sizes, so that a relay cannot
tell them apart by size. Binary HTTP is read strictly: known length only, informational responses
are skipped, and padding is zeros at the end. SPEC section 17.
"""

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from coatcheck.entropy import system
from coatcheck.errors import BadSignature, Malformed, Misuse, Unsealable
from coatcheck.protocol.keys import OpeningKey, SealingKey, VerifyingKey
from coatcheck.protocol.terms import CLASSICAL
from coatcheck.protocol.wire.bulletins import PERIOD, KeyList

_REQUEST: Final = 0
_RESPONSE: Final = 1
_CONTROL: Final = (
    re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"),
    re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*"),
    re.compile(rb"[!-~]*"),
    re.compile(rb"/[!-~]*|\*?"),
)
"""The patterns of method, scheme, authority and path."""
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE: Final = re.compile(rb"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")
_TRUNCATED: Final = "this Binary HTTP message is truncated"
_CACHED_SIZE: Final = 1024
"""The most bytes of a header section that is cached: most messages of a round have the same."""

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
            raise Malformed("this request has no valid HTTP method, scheme, authority or path")
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
            raise Malformed(f"an HTTP status must be from 200 to 599, got {status}")
        return cls(status, *reader.rest())


class _Reader:
    """Reads a message from the front."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def expect(self, kind: int) -> None:
        """Read the framing indicator."""
        if self.varint() != kind:
            raise Malformed(
                "this is not a Binary HTTP message of the expected kind and known length"
            )

    def varint(self) -> int:
        """Read an integer of QUIC (RFC 9000, section 17); longer forms than needed are allowed."""
        if self._at >= len(self._raw):
            raise Malformed(_TRUNCATED)
        first = self._raw[self._at]
        self._at += 1
        if first < 64:
            return first
        rest = self._raw[self._at : self._at + (1 << (first >> 6)) - 1]
        self._at += len(rest)
        if len(rest) < (1 << (first >> 6)) - 1:
            raise Malformed(_TRUNCATED)
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
            raise Malformed(_TRUNCATED)
        self._at = end
        return raw[at:end]

    def fields(self) -> Fields:
        """Read a section of fields."""
        section = self.sized()
        return _cached_fields(section) if len(section) <= _CACHED_SIZE else _fields(section)

    def rest(self) -> tuple[Fields, bytes, Fields]:
        """Read headers, content and trailers; a message may end before each that is empty."""
        headers = () if self.ended else self.fields()
        content = b"" if self.ended else self.sized()
        trailers = () if self.ended else self.fields()
        if self._raw[self._at :] != bytes(len(self._raw) - self._at):
            raise Malformed("this message is followed by bytes other than zeros")
        return headers, content, trailers

    @property
    def ended(self) -> bool:
        """Whether everything is read."""
        return self._at == len(self._raw)


def _fields(section: bytes) -> Fields:
    inside = _Reader(section)
    fields = []
    while not inside.ended:
        name, value = inside.sized(), inside.sized()
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise Malformed("a field of this message is not a valid HTTP field in lower case")
        fields.append((name, value))
    return tuple(fields)


_cached_fields: Final = lru_cache(maxsize=256)(_fields)


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
        raise Misuse(f"this message has {len(raw)} bytes, more than the padded size {size}")
    return raw.ljust(size, b"\0")


KEYS_MEDIA: Final = "application/ohttp-keys"
REQUEST_MEDIA: Final = "message/ohttp-req"
RESPONSE_MEDIA: Final = "message/ohttp-res"
GATEWAY_PATH: Final = "/.well-known/ohttp-gateway"

_X25519: Final = 0x0020
_SHA256: Final = 1
_AEADS: Final[dict[int, tuple[Callable[[bytes], Any], int]]] = {
    1: (AESGCM, 16),
    3: (ChaCha20Poly1305, 32),
}
"""The supported ciphers, the preferred one first, with the bytes of their keys."""
_HEADER: Final = struct.Struct(">BHHH")
_CONFIG: Final = struct.Struct(">BH32sH")
_PUBLIC: Final = 32
_NONCE: Final = 12
_TAG: Final = 16
OVERHEAD: Final = _HEADER.size + _PUBLIC + _TAG
"""The bytes that sealing adds to a request."""
_REQUEST_LABEL: Final = b"message/bhttp request\0"
_RESPONSE_LABEL: Final = b"message/bhttp response"
_KEM_ID: Final = b"KEM" + _X25519.to_bytes(2, "big")
_DOES_NOT_OPEN: Final = "this request does not open: it is sealed to another key or was altered"

SIZES: Final = tuple(4096 << 2 * step for step in range(5))
"""The sizes of encapsulated messages: 4 KiB, then four times as much per step (S17.28)."""


def message_size(size: int, *, overhead: int) -> int:
    """Return the size to which a message is padded, so that sealed it has one of `SIZES`."""
    for padded in SIZES:
        if size + overhead <= padded:
            return padded - overhead
    raise Misuse(f"a message of {size} bytes is too long for a relay: request a part of it")


# -- the keys of a gateway


@dataclass(frozen=True)
class GatewayConfig:
    """The key of a gateway, as a client needs it."""

    number: int
    key: SealingKey
    aead: int = 1

    @property
    def header(self) -> bytes:
        """The beginning of a request."""
        return _HEADER.pack(self.number, _X25519, _SHA256, self.aead)


class GatewayKey:
    """The private key of a gateway, which opens requests and nothing else; it never prints."""

    def __init__(self, number: int, secret: bytes) -> None:
        self.number = number
        self._opening = OpeningKey(CLASSICAL, secret)

    def config(self) -> bytes:
        """Write the public half, with the supported ciphers (RFC 9458, section 3.1)."""
        ciphers = b"".join(struct.pack(">HH", _SHA256, aead) for aead in _AEADS)
        public = self._opening.public_raw
        return _CONFIG.pack(self.number, _X25519, public, len(ciphers)) + ciphers

    def open(self, raw: bytes) -> "OpenedRequest":
        """Open a request, or raise `Unsealable`, whatever the cause (S2.11)."""
        if not OVERHEAD < len(raw) <= SIZES[-1]:
            raise Malformed(
                f"an encapsulated request has {OVERHEAD + 1} to {SIZES[-1]} bytes, got {len(raw)}"
            )
        number, kem, kdf, aead = _HEADER.unpack_from(raw)
        if (number, kem, kdf) != (self.number, _X25519, _SHA256) or aead not in _AEADS:
            raise Unsealable(_DOES_NOT_OPEN)
        header, enc = raw[: _HEADER.size], raw[_HEADER.size : _HEADER.size + _PUBLIC]
        try:
            # A key of low order is refused by the exchange itself.
            sender = X25519PublicKey.from_public_bytes(enc)
            shared = self._opening.handle.exchange(sender)  # type: ignore[union-attr]
            context = _Context(shared, enc, self._opening.public_raw, header)
            text = context.cipher.decrypt(context.nonce, raw[_HEADER.size + _PUBLIC :], None)
        except (InvalidTag, ValueError):
            raise Unsealable(_DOES_NOT_OPEN) from None
        return OpenedRequest(text, context)


def write_keys(keys: Sequence[GatewayKey]) -> bytes:
    """Write the configurations of keys, the preferred first, as `application/ohttp-keys`."""
    configs = [key.config() for key in keys]
    return b"".join(len(config).to_bytes(2, "big") + config for config in configs)


def read_keys(raw: bytes) -> GatewayConfig:
    """Read configurations and return the first supported one; any error refuses all."""
    configs, at = list[GatewayConfig](), 0
    while at < len(raw):
        end = at + 2 + int.from_bytes(raw[at : at + 2], "big")
        if end > len(raw):
            raise Malformed("these gateway keys are truncated")
        configs += _read_config(raw[at + 2 : end])
        at = end
    if not configs:
        raise Malformed("this version supports none of these gateway keys: update the client")
    return configs[0]


def _read_config(raw: bytes) -> list[GatewayConfig]:
    if len(raw) < 3:
        raise Malformed("these gateway keys are truncated")
    if int.from_bytes(raw[1:3], "big") != _X25519:
        return []  # another kind of key, whose length is not known here
    if len(raw) < _CONFIG.size:
        raise Malformed("these gateway keys are truncated")
    number, _, public, length = _CONFIG.unpack_from(raw)
    ciphers = raw[_CONFIG.size :]
    if length != len(ciphers) or length < 4 or length % 4:
        raise Malformed("these gateway keys do not have their stated length")
    pairs = {struct.unpack_from(">HH", ciphers, at) for at in range(0, length, 4)}
    supported = [aead for aead in _AEADS if (_SHA256, aead) in pairs]
    return [GatewayConfig(number, SealingKey(CLASSICAL, public), aead) for aead in supported[:1]]


# -- requests and responses


class _Context:
    """The secrets that both sides of an exchange derive (RFC 9180, section 5.1, base mode)."""

    __slots__ = ("_aead", "_enc", "cipher", "nonce", "secret")

    def __init__(self, shared: bytes, enc: bytes, public: bytes, header: bytes) -> None:
        self._enc, self._aead = enc, int.from_bytes(header[-2:], "big")
        make, key_size = _AEADS[self._aead]
        extracted = _mac(_BLANK, _EAE + shared)
        shared = _mac(_key(extracted), _SHARED + enc + public + b"\1")
        labels = _labels(header)
        key = _key(_mac(_key(shared), labels.secret))
        self.cipher = make(_mac(key, labels.key)[:key_size])
        self.nonce = _mac(key, labels.nonce)[:_NONCE]
        exporter = _key(_mac(key, labels.exporter))
        self.secret = _mac(exporter, labels.response)[: max(key_size, _NONCE)]

    def answer(self, salt: bytes) -> tuple[Any, bytes]:
        """Return cipher and nonce of the response (RFC 9458, section 4.4)."""
        make, key_size = _AEADS[self._aead]
        extracted = _key(_mac(_key(self._enc + salt), self.secret))
        return make(_mac(extracted, b"key\1")[:key_size]), _mac(extracted, b"nonce\1")[:_NONCE]


class OpenedRequest:
    """A request that a gateway opened; `answer` seals the one response."""

    __slots__ = ("_context", "text")

    def __init__(self, text: bytes, context: _Context) -> None:
        self.text = text
        self._context = context

    @property
    def overhead(self) -> int:
        """The bytes that sealing adds to a response."""
        return len(self._context.secret) + _TAG

    def answer(self, text: bytes, *, salt: bytes | None = None) -> bytes:
        """Seal the response; only tests pass a salt."""
        salt = system().token(len(self._context.secret)) if salt is None else salt
        cipher, nonce = self._context.answer(salt)
        return bytes(salt + cipher.encrypt(nonce, text, None))


class SealedRequest:
    """A sealed request; `open` opens the one response to it."""

    __slots__ = ("_context", "raw")

    def __init__(self, raw: bytes, context: _Context) -> None:
        self.raw = raw
        self._context = context

    def open(self, raw: bytes) -> bytes:
        """Open the response to this request."""
        cut = len(self._context.secret)
        cipher, nonce = self._context.answer(raw[:cut])
        try:
            return bytes(cipher.decrypt(nonce, raw[cut:], None))
        except InvalidTag:
            raise Unsealable(
                "the gateway's answer does not open: it belongs to another request or was altered"
            ) from None


def seal_request(
    text: bytes, config: GatewayConfig, *, secret: bytes | None = None
) -> SealedRequest:
    """Seal a request; only tests pass the secret of the one-time key."""
    ephemeral = X25519PrivateKey.from_private_bytes(secret or system().token(32))
    enc = ephemeral.public_key().public_bytes_raw()
    shared = ephemeral.exchange(config.key.handle)  # type: ignore[arg-type] # of the classical suite
    context = _Context(shared, enc, config.key.raw, config.header)
    sealed = context.cipher.encrypt(context.nonce, text, None)
    return SealedRequest(config.header + enc + sealed, context)


# -- the key schedule


@dataclass(frozen=True)
class _Labels:
    """The texts of the key schedule, which depend on the header of a request alone."""

    secret: bytes
    key: bytes
    nonce: bytes
    exporter: bytes
    response: bytes


@lru_cache(maxsize=256)
def _labels(header: bytes) -> _Labels:
    suite, size = b"HPKE" + header[1:], _AEADS[int.from_bytes(header[-2:], "big")][1]
    blank = _mac(_BLANK, _extracted(suite, b"psk_id_hash"))
    info = _mac(_BLANK, _extracted(suite, b"info_hash") + _REQUEST_LABEL + header)
    context = b"\0" + blank + info + b"\1"
    return _Labels(
        secret=_extracted(suite, b"secret"),
        key=_expanded(suite, b"key", size) + context,
        nonce=_expanded(suite, b"base_nonce", _NONCE) + context,
        exporter=_expanded(suite, b"exp", 32) + context,
        response=_expanded(suite, b"sec", max(size, _NONCE)) + _RESPONSE_LABEL + b"\1",
    )


def _extracted(suite: bytes, label: bytes) -> bytes:
    return b"HPKE-v1" + suite + label


def _expanded(suite: bytes, label: bytes, size: int) -> bytes:
    # One block of SHA-256 is enough for every size here; its number, 1, comes at the end.
    return size.to_bytes(2, "big") + b"HPKE-v1" + suite + label


# HMAC with SHA-256 (RFC 2104) for keys of up to a block. Most keys here are used several times,
# but `hmac.digest` would prepare them again each time and take twice as long.
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))


def _key(raw: bytes) -> tuple[bytes, bytes]:
    block = raw.ljust(64, b"\0")
    return block.translate(_INNER), block.translate(_OUTER)


def _mac(key: tuple[bytes, bytes], text: bytes) -> bytes:
    return sha256(key[1] + sha256(key[0] + text).digest()).digest()


_BLANK: Final = _key(b"")
_EAE: Final = _extracted(_KEM_ID, b"eae_prk")
_SHARED: Final = _expanded(_KEM_ID, b"shared_secret", 32)


# -- the keys of a gateway, signed by its role

UNTIL: Final = "coatcheck-until"
SIGNATURES: Final = "coatcheck-signatures"
PADDING: Final = "coatcheck-padding"
"""The least bytes of an encapsulated answer, which a request may name."""
SLACK: Final = 3_600
"""Seconds by which a clock may differ before a list counts as early or ended (S17.20)."""
_SECONDS: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_SIGNATURE: Final = re.compile(r"([0-9a-f]{2})*", re.ASCII)


@dataclass(frozen=True)
class SignedKeys:
    """The keys of a gateway for the period that ends at `until`, with the role's signatures."""

    keys: bytes
    until: int
    signatures: tuple[bytes, ...]

    @property
    def headers(self) -> dict[str, str]:
        """The headers of an answer with the keys: expiry and signatures."""
        signatures = ", ".join(signature.hex() for signature in self.signatures)
        return {UNTIL: str(self.until), SIGNATURES: signatures}

    @classmethod
    def read(cls, keys: bytes, headers: Mapping[str, str]) -> "SignedKeys":
        """Read the answer of a gateway or a relay; no signature is checked yet."""
        until, listed = headers.get(UNTIL, ""), headers.get(SIGNATURES, "").split(", ")
        if not _SECONDS.fullmatch(until) or not all(map(_SIGNATURE.fullmatch, listed)):
            raise Malformed(
                "these gateway keys are not signed: check that this is the address of a role"
            )
        if int(until) % PERIOD:
            raise Malformed("these gateway keys are not for a day of UTC: update the role")
        return cls(keys, int(until), tuple(map(bytes.fromhex, listed)))

    def covers(self, now: float) -> bool:
        """Return whether the period has begun and has not ended, by a clock that may be off."""
        return self.until - PERIOD - SLACK <= now < self.until + SLACK

    def is_same_list(self, other: "SignedKeys") -> bool:
        """Return whether both are one list of one period, whichever keys of the role signed."""
        return (self.until, self.keys) == (other.until, other.keys)

    def is_signed_by(self, verifying: bytes) -> bool:
        """Return whether the owner of this key signed the keys and their expiry."""
        return self.listing(verifying) is not None

    def listing(self, verifying: bytes) -> KeyList | None:
        """Return the list as a board logs it under a verifying key; None if it did not sign."""
        key, message = VerifyingKey(verifying), KeyList.signed_part(self.keys, self.until)
        for signature in self.signatures:
            with suppress(BadSignature):
                key.check(signature, message)
                return KeyList(verifying, self.until, signature, self.keys)
        return None
