"""Points of P-256 by their x alone: hash a text to one, multiply by a secret, and undo it.

The group of the private nearness test. Its order is prime and every encoding that is accepted is
on the curve, so nothing of small order gets in. docs/decisions/0011-blinding-on-p256.md.
"""

import hashlib
from functools import lru_cache
from itertools import count
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec

from coatcheck.errors import BadKey

POINT_SIZE: Final = 32
_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_LABEL: Final = b"coatcheck/v1/near/point\0"


@lru_cache(maxsize=4096)
def _point(x: bytes) -> ec.EllipticCurvePublicKey:
    """Find one of the two points with this x: both have the same multiples, by x."""
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), b"\x02" + x)
    except ValueError:
        raise BadKey("these bytes are no point of P-256") from None


def is_point(x: bytes) -> bool:
    """Whether these bytes are the x of a point."""
    try:
        _point(x)
    except BadKey:
        return False
    return True


@lru_cache(maxsize=4096)
def hash_to_point(text: bytes) -> bytes:
    """Hash a text to a point whose logarithm nobody knows: the first digest that is an x."""
    for attempt in count():
        x = hashlib.sha256(_LABEL + attempt.to_bytes(4, "big") + text).digest()
        if is_point(x):
            return x
    raise AssertionError


class Blind:
    """A secret factor; equal texts under equal blinds give equal points, and nothing else shows."""

    def __init__(self, secret: bytes) -> None:
        number = int.from_bytes(hashlib.sha512(secret).digest(), "big") % (_ORDER - 1) + 1
        self._key = ec.derive_private_key(number, ec.SECP256R1())
        self._back = ec.derive_private_key(pow(number, -1, _ORDER), ec.SECP256R1())

    def put(self, x: bytes) -> bytes:
        """Multiply a point."""
        return self._key.exchange(ec.ECDH(), _point(x))

    def take_off(self, x: bytes) -> bytes:
        """Undo it."""
        return self._back.exchange(ec.ECDH(), _point(x))
