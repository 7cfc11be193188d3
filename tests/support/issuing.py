"""An issuer of Privacy Pass tokens for tests: a fixed key, and signatures by plain integers.

Not constant-time and not blind: what a blind signature comes out as is all that matters here.
"""

import hashlib
import math
from functools import cache

from coatcheck.protocol import privacy_pass
from coatcheck.protocol.terms import PrivacyPass, Round

_PREFIX = (
    "30820152303d06092a864886f70d01010a3030a00d300b0609608648016503040202a11a301806092a864886f70d"
    "010108300b0609608648016503040202a2030201300382010f003082010a0282010100"
)
_EXPONENT = 65_537
_HASH = 48
_FOUND = {b"issuer p": 890, b"issuer q": 1_490}  # where the search ends: it takes a second
_SMALL = math.prod(n for n in range(3, 2_000, 2) if all(n % m for m in range(3, n, 2)))


@cache
def prime(label: bytes) -> int:
    """Derive a prime of 1,024 bits from a label."""
    found = int.from_bytes(hashlib.shake_256(label).digest(128), "big") | (3 << 1022) | 1
    found += _FOUND.get(label, 0)
    while found % _EXPONENT == 1 or not _is_prime(found):
        found += 2
    return found


def _is_prime(number: int) -> bool:
    """Test primality by Fermat and Miller-Rabin for fixed bases; the number is not adversarial."""
    if math.gcd(number, _SMALL) != 1:
        return False
    twos = ((number - 1) & -(number - 1)).bit_length() - 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        x = pow(base, (number - 1) >> twos, number)
        if x in {1, number - 1}:
            continue
        for _ in range(twos - 1):
            x = x * x % number
            if x == number - 1:
                break
        else:
            return False
    return True


class TestIssuer:
    """A token issuer whose key is derived from its name."""

    __test__ = False

    def __init__(self, name: bytes = b"issuer") -> None:
        p, q = prime(name + b" p"), prime(name + b" q")
        self.modulus = p * q
        self._secret = pow(_EXPONENT, -1, (p - 1) * (q - 1))
        self.key = f"{_PREFIX}{self.modulus:0512x}0203010001"
        self.terms = PrivacyPass(issuer="issuer.example", key=self.key)

    def token(
        self, round_: Round, *, hop: int = 0, nonce: bytes = bytes(32), salt: int = 48
    ) -> bytes:
        """Sign a token for a shuffler of a round."""
        digest = hashlib.sha256(privacy_pass.challenge(round_, hop)).digest()
        return self.sign(nonce, digest, salt=salt)

    def sign(self, nonce: bytes, digest: bytes, *, salt: int = 48) -> bytes:
        """Sign a token for a challenge of this digest."""
        text = b"\0\2" + nonce + digest + hashlib.sha256(bytes.fromhex(self.key)).digest()
        return self.signed(text, salt=salt)

    def signed(self, text: bytes, *, salt: int = 48) -> bytes:
        """Append a signature to any text."""
        padded = int.from_bytes(_pss(text, bytes(range(salt))), "big")
        return text + pow(padded, self._secret, self.modulus).to_bytes(256, "big")


def _pss(text: bytes, salt: bytes) -> bytes:
    """Encode a text as RFC 8017, section 9.1.1 does, with SHA-384."""
    mark = hashlib.sha384(bytes(8) + hashlib.sha384(text).digest() + salt).digest()
    block = (b"\1" + salt).rjust(256 - _HASH - 1, b"\0")
    mask = b"".join(
        hashlib.sha384(mark + counter.to_bytes(4, "big")).digest() for counter in range(5)
    )
    masked = bytearray(a ^ b for a, b in zip(block, mask, strict=False))
    masked[0] &= 0x7F
    return bytes(masked) + mark + b"\xbc"
