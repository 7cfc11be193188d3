"""The envelope against published vectors, another implementation and tampering."""

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.bindings._rust import openssl
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from hypothesis import given, settings
from hypothesis import strategies as st
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKey

from coatcheck.errors import Unsealable
from coatcheck.protocol import envelope
from coatcheck.protocol.envelope import Purpose, binding, seal, unseal
from coatcheck.protocol.keys import KeyPairs, OpeningKey, SealingKey
from coatcheck.protocol.terms import CLASSICAL, SUITES, Suite

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "hpke.json").read_text())
PAIRS = {name: KeyPairs(suite, bytes(range(32))) for name, suite in SUITES.items()}
BOUND = binding(Purpose.REPORT, digest=bytes(32), group=0)
suites = pytest.mark.parametrize("suite", SUITES.values(), ids=list(SUITES))


def hexed(vector: dict[str, Any], name: str) -> bytes:
    """Decode one field of a vector."""
    return bytes.fromhex(vector[name])


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v['kem_id']:#06x}")
def test_published_vectors_open(vector: dict[str, Any]) -> None:
    """The published key, encapsulation and ciphertext open to the published text.

    The published ciphertexts have associated data, which we never use: they go through the same
    suite objects by the library's own test door, and the published key and nonce then say what
    the ciphertext without associated data is; that one goes through `unseal`.
    """
    suite = next(suite for suite in SUITES.values() if suite.kem == vector["kem_id"])
    key = OpeningKey(suite, hexed(vector, "skRm"))
    assert key.public.raw == hexed(vector, "pkRm")
    inner = vector["encryption"]
    text, data = hexed(inner, "pt"), hexed(inner, "aad")
    info, enc = hexed(vector, "info"), hexed(vector, "enc")
    opened = openssl.hpke._decrypt_with_aad(
        envelope._HPKE[suite], enc + hexed(inner, "ct"), key.handle, info, data
    )
    assert opened == text
    aead = ChaCha20Poly1305(hexed(vector, "key"))
    assert aead.encrypt(hexed(vector, "base_nonce"), text, data) == hexed(inner, "ct")
    plain = aead.encrypt(hexed(vector, "base_nonce"), text, b"")
    assert unseal(enc + plain, key=key, bound=info) == text


@settings(max_examples=25, deadline=None)
@given(text=st.binary(max_size=300), bound=st.binary(max_size=120))
def test_an_independent_implementation_agrees_in_both_directions(text: bytes, bound: bytes) -> None:
    """What we seal pyhpke opens, and what it seals we open, byte for byte."""
    pairs = PAIRS["x25519"]
    peer = CipherSuite.new(
        KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.CHACHA20_POLY1305
    )
    sealed = seal(text, to=pairs.opening.public, bound=bound)
    private = KEMKey.from_pyca_cryptography_key(pairs.opening.handle)
    assert peer.create_recipient_context(sealed[:32], private, bound).open(sealed[32:]) == text
    public = KEMKey.from_pyca_cryptography_key(pairs.opening.public.handle)
    enc, sender = peer.create_sender_context(public, bound)
    assert unseal(enc + sender.seal(text), key=pairs.opening, bound=bound) == text


@suites
def test_sealing_adds_exactly_the_stated_overhead(suite: Suite) -> None:
    """Sealing adds the sizes that the terms count with."""
    pairs = PAIRS[suite.name]
    for size in (0, 1, 128, 1000):
        assert len(seal(bytes(size), to=pairs.opening.public, bound=BOUND)) == size + suite.overhead


@suites
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_change_closes_the_seal(suite: Suite, data: st.DataObject) -> None:
    """One flipped bit, a cut or an added byte gives always the same error."""
    pairs = PAIRS[suite.name]
    sealed = bytearray(seal(b"a report", to=pairs.opening.public, bound=BOUND))
    cut = data.draw(st.integers(0, len(sealed)))
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    for wrong in (bytes(sealed), bytes(sealed[:cut]), bytes(sealed) + b"\0"):
        with pytest.raises(Unsealable, match="does not open"):
            unseal(wrong, key=pairs.opening, bound=BOUND)


def test_a_seal_opens_in_its_own_place_only() -> None:
    """A seal binds purpose, hop, group, digest and upload id; no two bindings are equal."""
    pairs = PAIRS["x25519"]
    places = [
        binding(purpose, digest=digest, group=group, hop=hop, upload=upload)
        for purpose in Purpose
        for digest in (bytes(32), b"\1" * 32)
        for group in (0, 1)
        for hop in (0, 1)
        for upload in (bytes(16), b"\1" * 16)
    ]
    assert len(set(places)) == len(places)
    sealed = seal(b"x", to=pairs.opening.public, bound=places[0])
    assert unseal(sealed, key=pairs.opening, bound=places[0]) == b"x"
    for other in places[1:]:
        with pytest.raises(Unsealable):
            unseal(sealed, key=pairs.opening, bound=other)


def test_another_persons_key_opens_nothing() -> None:
    """A seal opens under its recipient's key only."""
    sealed = seal(b"x", to=SealingKey(CLASSICAL, PAIRS["x25519"].opening.public_raw), bound=BOUND)
    with pytest.raises(Unsealable):
        unseal(sealed, key=KeyPairs(CLASSICAL, bytes(32)).opening, bound=BOUND)
