"""Keys: one 32-byte seed gives a pair to receive with and a pair to sign with.

People draw a new seed for every round, roles keep theirs in key files. Private keys live only in
`OpeningKey` and `SigningKey`, which never print, compare or pickle. Public keys are decoded
strictly, because one hostile key must not stop a round or forge a letter; the server checks the
contacts of a whole partition at once. SPEC section 4.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hpke import MLKEM768X25519PrivateKey, MLKEM768X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import UNSET, Struct, UnsetType
from numpy.typing import NDArray

from coatcheck.durable_files import read_bytes, read_secret
from coatcheck.errors import BadKey, BadSignature, Misuse
from coatcheck.protocol.terms import (
    ADDRESS_SIZE,
    CLASSICAL,
    SIGNATURE_SIZE,
    VERIFYING_SIZE,
    AdmissionTerms,
    Hex,
    Notary,
    Party,
    ShufflerParty,
    Suite,
    Title,
    Url,
    Verifying,
    suite_named,
)
from coatcheck.protocol.wire.encoding import Signed, first_of_each, read_document

SEED_SIZE: Final = 32
_ADDRESS_LABEL: Final = b"coatcheck/v1/address\0"
_OPENING_LABEL: Final = b"coatcheck/v1/opening"
_SIGNING_LABEL: Final = b"coatcheck/v1/signing"
_DECOY_LABEL: Final = b"coatcheck/v1/decoy\0"


def _little(digits: str) -> int:
    return int.from_bytes(bytes.fromhex(digits), "little")


P: Final = 2**255 - 19
"""The prime of Curve25519: an encoding is canonical if it lies below."""
MLKEM_SIZE: Final = 1184
# Points of order 1, 2, 4 and 8, on the curve and its twist, in canonical encoding; the other
# encodings are refused for not being canonical. Sealing to one fails and would stop a round.
LOW_ORDER_U: Final = {
    *(0, 1, P - 1),
    _little("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    _little("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
}
# The y of the eight points of small order, whatever the sign of x: under such a key one fixed
# signature (R = identity, S = 0) passes for every message.
SMALL_ORDER_Y: Final = {
    *(0, 1, P - 1),
    _little("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    _little("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
}


def _curve_point(raw: bytes) -> X25519PublicKey:
    u = int.from_bytes(raw, "little")
    if u >= P:
        raise BadKey("this X25519 key is not in canonical form: ask its owner for a new one")
    if u in LOW_ORDER_U:
        raise BadKey(
            "this X25519 key has low order, so nothing can be sealed to it: ask for a new one"
        )
    return X25519PublicKey.from_public_bytes(raw)


@dataclass(frozen=True)
class SealingKey:
    """A public key to seal to."""

    suite: Suite
    raw: bytes
    handle: X25519PublicKey | MLKEM768X25519PublicKey = field(init=False, repr=False, compare=False)
    """The key as an object of the library that seals."""

    def __post_init__(self) -> None:
        if len(self.raw) != self.suite.sealing_size:
            raise BadKey(
                f"a sealing key of suite {self.suite.name} has {self.suite.sealing_size} bytes,"
                f" this one has {len(self.raw)}"
            )
        object.__setattr__(self, "handle", self._decoded())

    def _decoded(self) -> X25519PublicKey | MLKEM768X25519PublicKey:
        if self.suite == CLASSICAL:
            return _curve_point(self.raw)
        point = _curve_point(self.raw[MLKEM_SIZE:])
        try:
            lattice = MLKEM768PublicKey.from_public_bytes(self.raw[:MLKEM_SIZE])
        except ValueError:
            raise BadKey(
                "this ML-KEM-768 key is out of range, so nothing can be sealed to it"
            ) from None
        return MLKEM768X25519PublicKey(lattice, point)


@dataclass(frozen=True)
class VerifyingKey:
    """A public key that checks signatures."""

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != VERIFYING_SIZE:
            raise BadKey(
                f"a verifying key has {VERIFYING_SIZE} bytes, this one has {len(self.raw)}"
            )
        y = int.from_bytes(self.raw, "little") & ((1 << 255) - 1)
        if y >= P:
            raise BadKey("this Ed25519 key is not in canonical form: ask its owner for a new one")
        if y in SMALL_ORDER_Y:
            raise BadKey("this Ed25519 key has small order, so anyone could sign for it")

    def check(self, signature: bytes, message: bytes) -> None:
        """Raise `BadSignature` unless the key's owner signed this message."""
        if len(signature) != SIGNATURE_SIZE:
            raise BadSignature(
                f"a signature has {SIGNATURE_SIZE} bytes, this one has {len(signature)}"
            )
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except InvalidSignature:
            raise BadSignature("the signature is not valid for these bytes") from None


def check_signed(record: Signed, verifying: str) -> None:
    """Raise `BadSignature` unless a record is signed by this key, in hex as in the terms."""
    VerifyingKey(bytes.fromhex(verifying)).check(record.signature, record.signed_part())


class _Secret:
    """A secret: it does not print, it does not pickle, and it equals only itself."""

    def __reduce__(self) -> NoReturn:
        raise Misuse("a private key cannot be pickled: let the worker load it from its key file")


class OpeningKey(_Secret):
    """The private key that opens what was sealed to its public half.

    Both suites have a secret of 32 bytes; the hybrid one is expanded as in X-Wing.
    """

    def __init__(self, suite: Suite, secret: bytes) -> None:
        self.suite = suite
        self.handle: X25519PrivateKey | MLKEM768X25519PrivateKey
        if suite == CLASSICAL:
            self.handle = X25519PrivateKey.from_private_bytes(secret)
            public = self.handle.public_key().public_bytes_raw()
        else:
            expanded = hashlib.shake_256(secret).digest(96)
            lattice = MLKEM768PrivateKey.from_seed_bytes(expanded[:64])
            point = X25519PrivateKey.from_private_bytes(expanded[64:])
            self.handle = MLKEM768X25519PrivateKey(lattice, point)
            public = lattice.public_key().public_bytes_raw() + point.public_key().public_bytes_raw()
        self.public_raw = public

    @property
    def public(self) -> SealingKey:
        """The public half."""
        return SealingKey(self.suite, self.public_raw)

    def __repr__(self) -> str:
        return f"OpeningKey(public={self.public_raw[:8].hex()}..)"


class SigningKey(_Secret):
    """The private key that signs."""

    def __init__(self, secret: bytes) -> None:
        self._handle = Ed25519PrivateKey.from_private_bytes(secret)
        self.public_raw = self._handle.public_key().public_bytes_raw()

    @property
    def public(self) -> VerifyingKey:
        """The public half."""
        return VerifyingKey(self.public_raw)

    def sign(self, message: bytes) -> bytes:
        """Sign a message that begins with its own label."""
        return self._handle.sign(message)

    def __repr__(self) -> str:
        return f"SigningKey(public={self.public_raw[:8].hex()}..)"


def address_label(suite: Suite) -> bytes:
    """Return the prefix that is hashed with a contact to make its address."""
    return _ADDRESS_LABEL + bytes((suite.number,))


def address_of(suite: Suite, contact: bytes) -> bytes:
    """Hash a contact to its address, the 16 bytes that name it on the board."""
    return hashlib.sha256(address_label(suite) + contact).digest()[:ADDRESS_SIZE]


@dataclass(frozen=True)
class Contact:
    """A public one-time pair, with which partners write to a person and verify their letters."""

    sealing: SealingKey
    verifying: VerifyingKey

    @classmethod
    def decode(cls, suite: Suite, raw: bytes) -> "Contact":
        """Read a pair strictly; raise `BadKey` with the reason if it is invalid."""
        return _contact(suite, raw)

    @cached_property
    def raw(self) -> bytes:
        """The bytes of both keys, sealing key first."""
        return self.sealing.raw + self.verifying.raw

    @cached_property
    def address(self) -> bytes:
        """The 16 bytes that name this pair on the board."""
        return address_of(self.sealing.suite, self.raw)


@lru_cache(maxsize=4096)
def _contact(suite: Suite, raw: bytes) -> Contact:
    """Read a pair; cached, because a partner writes several letters under the same keys."""
    if len(raw) != suite.contact_size:
        raise BadKey(f"a contact has {suite.contact_size} bytes, this one has {len(raw)}")
    cut = suite.sealing_size
    return Contact(SealingKey(suite, raw[:cut]), VerifyingKey(raw[cut:]))


class KeyPairs(_Secret):
    """The two key pairs derived from one seed; the caller stores the seed.

    *Assumes:* the seed is 32 uniform bytes, or derived from such bytes, and used for one round only
    when it is a person's.
    """

    def __init__(self, suite: Suite, seed: bytes) -> None:
        if len(seed) != SEED_SIZE:
            raise Misuse(f"a seed has {SEED_SIZE} bytes, this one has {len(seed)}")
        self.opening = OpeningKey(suite, _derive(seed, _OPENING_LABEL))
        self.signing = SigningKey(_derive(seed, _SIGNING_LABEL))
        self.contact_raw = self.opening.public_raw + self.signing.public_raw
        self.address = address_of(suite, self.contact_raw)

    def __repr__(self) -> str:
        return f"KeyPairs(address={self.address.hex()})"


def decoy_seed(seed: bytes, number: int) -> bytes:
    """Return the seed of the keys of a person's decoy, numbered from 1 (S4.11)."""
    return _derive(seed, _DECOY_LABEL + bytes((number,)))


def _derive(seed: bytes, label: bytes) -> bytes:
    # Two labels give two independent keys, so that no question of joint security arises.
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=label).derive(seed)


_Rows = NDArray[np.uint8]
_Mask = NDArray[np.bool_]
_POINT: Final = 32
_WORD: Final = np.dtype("<u8")
_SIGN: Final = np.uint64(1 << 63)
_LATTICE: Final = 1152
"""Bytes of an ML-KEM-768 key that hold coefficients, two in three bytes; a seed follows."""
_Q: Final = 3329


def usable_contacts(suite: Suite, rows: _Rows) -> _Mask:
    """Return which contacts (n, size) `Contact.decode` accepts."""
    cut = suite.sealing_size
    good = _points(rows[:, cut - _POINT : cut], refused=LOW_ORDER_U, signed=False)
    good &= _points(rows[:, cut:], refused=SMALL_ORDER_Y, signed=True)
    if suite != CLASSICAL:
        good &= _lattices(rows[:, :MLKEM_SIZE])
    return good


def addresses_of(suite: Suite, rows: _Rows) -> _Rows:
    """Hash each contact (n, size) to its address (n, 16)."""
    label, raw, size = hashlib.sha256(address_label(suite)), rows.tobytes(), suite.contact_size
    addresses = bytearray()
    for at in range(0, len(raw), size):
        digest = label.copy()
        digest.update(raw[at : at + size])
        addresses += digest.digest()[:ADDRESS_SIZE]
    return np.frombuffer(bytes(addresses), dtype=np.uint8).reshape(-1, ADDRESS_SIZE)


def first_seen(rows: _Rows) -> _Mask:
    """Return which addresses (n, 16) are in no earlier row."""
    first = np.zeros(len(rows), dtype=np.bool_)
    first[first_of_each(rows)] = True
    return first


def _points(rows: _Rows, *, refused: Iterable[int], signed: bool) -> _Mask:
    """Return which numbers of 32 bytes are canonical and not among the refused ones.

    The highest bit of a verifying key is the sign of x, which is no part of the number.
    """
    words = np.ascontiguousarray(rows).view(_WORD)
    if signed:
        words = words.copy()
        words[:, 3] &= ~_SIGN
    prime = _words(P)
    large = (words[:, 3] > prime[3]) | (
        (words[:, 1:] == prime[1:]).all(axis=1) & (words[:, 0] >= prime[0])
    )
    good = ~large
    for number in refused:
        good &= (words != _words(number)).any(axis=1)
    return np.asarray(good)


def _words(number: int) -> NDArray[np.uint64]:
    return np.frombuffer(number.to_bytes(_POINT, "little"), dtype=_WORD)


def _lattices(rows: _Rows) -> _Mask:
    """Return which ML-KEM-768 keys have all their coefficients below q (FIPS 203, section 7.2)."""
    triples = rows[:, :_LATTICE].reshape(len(rows), -1, 3).astype(np.uint16)
    low = triples[:, :, 0] | ((triples[:, :, 1] & 15) << 8)
    high = (triples[:, :, 1] >> 4) | (triples[:, :, 2] << 4)
    return np.asarray((np.maximum(low, high) < _Q).all(axis=1))


class PublicKeys(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The public key file of a role: its name, its two public keys, and its address.

    Attributes:
        url: its address; absent in the key file of a service, whose settings have it.
    """

    coatcheck: Literal["public/1"] = "public/1"
    name: Title
    suite: str
    verifying: Verifying
    sealing: Hex
    url: Url | UnsetType = UNSET

    @property
    def party(self) -> Party:
        """The server's entry in the terms."""
        return Party(**self._entry_fields(), sealing=self.sealing)

    def shuffler(self, admission: AdmissionTerms) -> ShufflerParty:
        """Return a shuffler's entry in the terms, with this admission."""
        return ShufflerParty(**self._entry_fields(), sealing=self.sealing, admission=admission)

    @property
    def notary(self) -> Notary:
        """The board's entry in the terms."""
        return Notary(**self._entry_fields())

    def _entry_fields(self) -> dict[str, str]:
        if self.url is UNSET:
            raise Misuse(
                f"the public key file of {self.name!r} has no `url`: make its keys with"
                " `keygen --url`, or add `url` to the file"
            )
        return {"name": self.name, "verifying": self.verifying, "url": self.url}


class SecretKeys(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The secret key file of a role: the seed of its keys. Only its owner may read it."""

    coatcheck: Literal["secret/1"] = "secret/1"
    name: Title
    suite: str
    seed: Hex
    url: Url | UnsetType = UNSET

    @property
    def pairs(self) -> KeyPairs:
        """The keys."""
        return KeyPairs(suite_named(self.suite), bytes.fromhex(self.seed))

    @property
    def public(self) -> PublicKeys:
        """The public half."""
        pairs = self.pairs
        return PublicKeys(
            name=self.name,
            suite=self.suite,
            verifying=pairs.signing.public_raw.hex(),
            sealing=pairs.opening.public_raw.hex(),
            url=self.url,
        )

    def __repr__(self) -> str:
        return f"SecretKeys(name={self.name!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Show only the name in rich's output too, which would list all fields."""
        return [("name", self.name)]


def read_keys(path: Path) -> SecretKeys:
    """Read a role's secret key file."""
    return read_document(
        read_secret(path), SecretKeys, f"{path} is not a secret key file", error=Misuse
    )


def read_public(path: Path) -> PublicKeys:
    """Read a role's public key file."""
    return read_document(
        read_bytes(path), PublicKeys, f"{path} is not a public key file", error=Misuse
    )
