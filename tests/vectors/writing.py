"""How a vector is written down, and how it is sealed so that it comes out the same each time."""

from typing import Any

from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKey

from vectors.kinds import Case, pairs

PEER = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.CHACHA20_POLY1305)


def seal(text: bytes, *, to: int, bound: bytes, number: int) -> bytes:
    """Seal with a fixed ephemeral key; never do this outside of vectors."""
    ephemeral = PEER.kem.derive_key_pair(bytes([number]) * 32)
    public = KEMKey.from_pyca_cryptography_key(pairs(to).opening.public.handle)
    enc, sender = PEER.create_sender_context(public, bound, eks=ephemeral)
    return bytes(enc + sender.seal(text))


def case(name: str, kind: str, given: Any, expect: str = "success", **more: Any) -> Case:
    """Write a case down; `fields` are what a success gives."""
    return {"name": name, "kind": kind, "input": given, **more, "expect": expect}


def wrong(name: str, kind: str, *changes: tuple[str, bytes, str]) -> list[Case]:
    """Write down altered copies of a record with their outcomes."""
    return [
        case(f"{name}: {what}", kind, changed.hex(), expect) for what, changed, expect in changes
    ]


def flip(raw: bytes, at: int) -> bytes:
    """Flip the lowest bit of one byte."""
    changed = bytearray(raw)
    changed[at] ^= 1
    return bytes(changed)
