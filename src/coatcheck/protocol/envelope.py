"""Seals of reports, layers, answers and letters: seal to a public key, open with the private one.

The library does HPKE (RFC 9180, base mode, single shot). This file binds each seal to its purpose,
the roles of sealer and opener, the digest of the terms and the group, so that bytes of one round,
group or step open in no other. SPEC section 5.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM
from cryptography.hazmat.primitives.hpke import Suite as Hpke

from coatcheck.errors import Unsealable
from coatcheck.protocol.keys import OpeningKey, SealingKey
from coatcheck.protocol.terms import CLASSICAL, HYBRID, Suite

_HPKE: Final = {
    CLASSICAL: Hpke(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305),
    HYBRID: Hpke(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305),
}
_NO_ID: Final = bytes(16)


class Purpose(Enum):
    """The purpose of a seal: label, role of the sealer, role of the opener."""

    REPORT = (b"report", b"P", b"S")
    LAYER = (b"layer", b"P", b"M")
    ANSWER = (b"answer", b"S", b"P")
    LETTER = (b"letter", b"P", b"P")


def binding(
    purpose: Purpose, *, digest: bytes, group: int, hop: int = 0, upload: bytes = _NO_ID
) -> bytes:
    """Return what a seal is bound to, as HPKE's `info`.

    `hop` is the shuffler's place in the cascade and `upload` the upload's id, for the first
    layer only: a copied body under another id does not open.
    """
    label, sealer, opener = purpose.value
    head = b"coatcheck/v1/" + label + b"\0" + sealer + opener
    return head + bytes((hop, group)) + digest + upload


def seal(plaintext: bytes, *, to: SealingKey, bound: bytes) -> bytes:
    """Seal bytes so that only the key's owner, under the same binding, can open them.

    *Guarantee:* two seals of equal length do not show which content or which key they have. The
    length shows: callers pad.
    """
    return _HPKE[to.suite].encrypt(plaintext, to.handle, bound)


def unseal(sealed: bytes, *, key: OpeningKey, bound: bytes) -> bytes:
    """Open a seal, or raise `Unsealable`, whatever the cause (S2.11)."""
    try:
        return _HPKE[key.suite].decrypt(sealed, key.handle, bound)
    except InvalidTag:
        raise Unsealable(
            "this seal does not open: it is for another key, round or group, or was altered"
        ) from None


class Bulk:
    """Seals and opens many items in turn; a driver may pass one that uses more processes.

    HPKE holds the interpreter's lock, so threads do not help: processes do.
    """

    def unseal_each(
        self, sealed: Sequence[bytes], *, key: OpeningKey, bounds: Sequence[bytes]
    ) -> list[bytes | None]:
        """Open each item under its own binding; None stands for one that does not open."""
        opened: list[bytes | None] = []
        decrypt, handle = _HPKE[key.suite].decrypt, key.handle  # looked up once: there are millions
        for item, bound in zip(sealed, bounds, strict=True):
            try:
                opened.append(decrypt(item, handle, bound))
            except InvalidTag:
                opened.append(None)
        return opened

    def seal_each(
        self, plain: Sequence[bytes], *, to: Sequence[bytes], suite: Suite, bound: bytes
    ) -> list[bytes]:
        """Seal each to its own key, given as bytes, all under one binding."""
        encrypt = _HPKE[suite].encrypt
        return [
            encrypt(text, SealingKey(suite, key).handle, bound)
            for text, key in zip(plain, to, strict=True)
        ]
