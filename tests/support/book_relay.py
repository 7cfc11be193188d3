"""Oblivious HTTP for the client written from SPEC alone (section 17; RFC 9458 and RFC 9292)."""

import hmac
import time
import urllib.request
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKey

SUITE = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.AES128_GCM)
DAY = 86_400


def number(value: int) -> bytes:
    """Write an integer of Binary HTTP (RFC 9000, section 16)."""
    for power, size in enumerate((1, 2, 4, 8)):
        if value < 1 << 8 * size - 2:
            return (value | power << 8 * size - 2).to_bytes(size, "big")
    raise ValueError(value)


def text(value: bytes) -> bytes:
    """Write bytes after their length."""
    return number(len(value)) + value


class Reader:
    """Reads the same."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def number(self) -> int:
        """Read an integer."""
        size = 1 << (self.raw[self.at] >> 6)
        value = int.from_bytes(self.raw[self.at : self.at + size], "big")
        self.at += size
        return value & (1 << 8 * size - 2) - 1

    def text(self) -> bytes:
        """Read bytes after their length."""
        size = self.number()
        self.at += size
        return self.raw[self.at - size : self.at]


@dataclass
class Relay:
    """Sends a person's requests through the relay at this address, and nothing another way."""

    url: str
    trusted: dict[str, list[str]]
    lists: dict[str, bytes] = field(default_factory=dict)

    def send(
        self, url: str, *, role: str, body: bytes | None = None, token: str = ""
    ) -> tuple[int, bytes]:
        """Send a request, and return the status and body inside the answer."""
        parts = urlsplit(url)
        gateway = f"{self.url}/gateways/{parts.netloc}"
        config = self._keys(gateway, role)
        header = config[:3] + b"\0\1\0\1"  # HKDF-SHA256, AES-128-GCM
        key = KEMKey.from_pyca_cryptography_key(X25519PublicKey.from_public_bytes(config[3:35]))
        enc, context = SUITE.create_sender_context(key, b"message/bhttp request\0" + header)
        fields = {b"coatcheck-token": token.encode()} if token else {}
        fields[b"coatcheck-padding"] = b"65536"  # S17.29
        message = b"\0" + text(b"GET" if body is None else b"POST") + text(parts.scheme.encode())
        message += text(parts.netloc.encode()) + text(parts.path.encode())
        message += text(b"".join(text(name) + text(value) for name, value in fields.items()))
        message += text(body or b"") + number(0)
        sealed = enc + context.seal(message.ljust(self._padded(len(message)), b"\0"))
        request = urllib.request.Request(  # noqa: S310 - the person's relay
            gateway, header + sealed, {"content-type": "message/ohttp-req"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - as above
            raw = answer.read()
        secret = context.export(b"message/bhttp response", 16)
        prk = hmac.digest(enc + raw[:16], secret, "sha256")
        opening = hmac.digest(prk, b"key\1", "sha256")[:16]
        nonce = hmac.digest(prk, b"nonce\1", "sha256")[:12]
        return self._read(AESGCM(opening).decrypt(nonce, raw[16:], None))

    def _padded(self, size: int) -> int:
        """S17.28: the whole request has 4,096 * 4^k bytes; header, key and tag have 55 of them."""
        return min(room for k in range(5) if (room := (4096 << 2 * k) - 55) >= size)

    def _read(self, raw: bytes) -> tuple[int, bytes]:
        reader = Reader(raw)
        if reader.number() != 1:
            raise ValueError("no response of known length")
        status = reader.number()
        reader.text()
        return status, reader.text()

    def _keys(self, gateway: str, role: str) -> bytes:
        """S17.3, S17.20: one list per period, signed by a trusted key of the role."""
        if gateway not in self.lists:
            with urllib.request.urlopen(gateway, timeout=60) as answer:  # noqa: S310 - as above
                keys = answer.read()
                until = int(answer.headers["coatcheck-until"])
                signatures = answer.headers["coatcheck-signatures"].split(", ")
            if until % DAY or not until - DAY - 3600 < time.time() < until + 3600:
                raise ValueError("S17.20: the period")
            signed = b"coatcheck/v1/gateway\0" + until.to_bytes(8, "big") + keys
            if not any(
                _verifies(key, signature, signed)
                for key in self.trusted[role]
                for signature in signatures
            ):
                raise ValueError("S17.20: nobody trusted signed the keys")
            self.lists[gateway] = keys[2 : 2 + int.from_bytes(keys[:2], "big")]
        return self.lists[gateway]


def _verifies(key: str, signature: str, signed: bytes) -> bool:
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        public.verify(bytes.fromhex(signature), signed)
    except InvalidSignature:
        return False
    return True
