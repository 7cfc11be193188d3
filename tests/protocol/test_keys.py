"""Keys: derivation from a seed, rejection of invalid keys, and no printing of secrets."""

import pickle

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from coatcheck.errors import BadKey, BadSignature, Misuse
from coatcheck.protocol.keys import (
    Contact,
    KeyPairs,
    OpeningKey,
    SealingKey,
    SigningKey,
    VerifyingKey,
)
from coatcheck.protocol.terms import CLASSICAL, HYBRID, SUITES, Suite

P = 2**255 - 19
ORDER_8 = (
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
)
LOW_ORDER = [
    *(n.to_bytes(32, "little") for n in (0, 1, P - 1, P, P + 1)),
    *map(bytes.fromhex, ORDER_8),
]
SMALL_ORDER = [
    *(n.to_bytes(32, "little") for n in (0, 1, P - 1, P, P + 1, 1 << 255, (1 << 255) + 1)),
    *(
        bytes.fromhex(text)
        for text in (
            "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
            "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
        )
    ),
]
suites = pytest.mark.parametrize("suite", SUITES.values(), ids=list(SUITES))


@suites
def test_one_seed_gives_the_same_pairs_twice(suite: Suite) -> None:
    """A ticket that stores the seed restores the keys and the address."""
    first, again = KeyPairs(suite, bytes(range(32))), KeyPairs(suite, bytes(range(32)))
    assert first.contact_raw == again.contact_raw
    assert first.address == again.address
    assert Contact.decode(suite, first.contact_raw).address == first.address
    assert len(first.contact_raw) == suite.contact_size


def test_receiving_and_signing_keys_differ() -> None:
    """The two labels give unrelated keys in each suite."""
    pairs = KeyPairs(CLASSICAL, bytes(32))
    assert pairs.opening.public_raw != pairs.signing.public_raw
    assert KeyPairs(HYBRID, bytes(32)).address != pairs.address


@pytest.mark.parametrize("raw", LOW_ORDER, ids=bytes.hex)
def test_low_order_sealing_keys_are_refused(raw: bytes) -> None:
    """A key to which sealing would fail is refused when it is decoded, not when it is used."""
    with pytest.raises(ValueError, match=r"."):
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(raw))
    with pytest.raises(BadKey):
        SealingKey(CLASSICAL, raw)
    honest = KeyPairs(HYBRID, bytes(32)).opening.public_raw
    with pytest.raises(BadKey):
        SealingKey(HYBRID, honest[:-32] + raw)


@pytest.mark.parametrize("raw", SMALL_ORDER, ids=bytes.hex)
def test_small_order_verifying_keys_are_refused(raw: bytes) -> None:
    """A key for which anyone can sign is refused when it is decoded."""
    with pytest.raises(BadKey):
        VerifyingKey(raw)


def test_the_universal_forgery_is_real_and_excluded() -> None:
    """The library accepts (identity, 0) for any message under the key 01 00..00; we do not."""
    identity = (1).to_bytes(32, "little")
    Ed25519PublicKey.from_public_bytes(identity).verify(identity + bytes(32), b"any message")
    with pytest.raises(BadKey):
        Contact.decode(CLASSICAL, KeyPairs(CLASSICAL, bytes(32)).opening.public_raw + identity)


def test_other_encodings_of_a_key_are_refused() -> None:
    """One key has one address: a set top bit and values past p do not decode."""
    raw = bytearray(KeyPairs(CLASSICAL, bytes(32)).opening.public_raw)
    raw[31] |= 0x80
    with pytest.raises(BadKey):
        SealingKey(CLASSICAL, bytes(raw))
    with pytest.raises(BadKey):
        VerifyingKey((P + 5).to_bytes(32, "little"))


def test_an_mlkem_key_out_of_range_is_refused() -> None:
    """Coefficients of 4095 are not in a valid ML-KEM key."""
    honest = KeyPairs(HYBRID, bytes(32)).opening.public_raw
    with pytest.raises(BadKey):
        SealingKey(HYBRID, b"\xff" * 1184 + honest[1184:])


@suites
@pytest.mark.parametrize("change", [-1, 1])
def test_a_key_of_another_length_is_refused(suite: Suite, change: int) -> None:
    """A byte short and a byte more are both errors."""
    with pytest.raises(BadKey):
        Contact.decode(suite, bytes(suite.contact_size + change))
    with pytest.raises(BadKey):
        SealingKey(suite, bytes(suite.sealing_size + change))
    with pytest.raises(BadKey):
        VerifyingKey(bytes(32 + change))
    with pytest.raises(Misuse):
        KeyPairs(suite, bytes(32 + change))


def test_signatures_hold_for_their_message_only() -> None:
    """A flipped bit in message, signature or length is a bad signature."""
    key = SigningKey(bytes(32))
    signature = key.sign(b"message")
    key.public.check(signature, b"message")
    for wrong, message in ((signature, b"massage"), (signature[:-1], b"message")):
        with pytest.raises(BadSignature):
            key.public.check(wrong, message)


@suites
def test_secrets_neither_print_nor_pickle(suite: Suite) -> None:
    """No text form of a private key contains a byte of its secret."""
    secret = bytes(range(100, 132))
    pairs = KeyPairs(suite, secret)
    for thing in (pairs, pairs.opening, pairs.signing, OpeningKey(suite, secret)):
        text = f"{thing!r} {thing}"
        assert secret.hex()[:8] not in text
        assert repr(secret[:4])[2:-1] not in text
        with pytest.raises(Misuse, match="cannot be pickled"):
            pickle.dumps(thing)
