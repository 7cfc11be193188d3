"""The two ways of sealing, as numbers: what every role must agree on before any cryptography.

Knows sizes and identifiers, holds no key and no code that encrypts, so that terms, shuffler and
board can compute lengths without being able to open anything. SPEC section 3.
"""

from dataclasses import dataclass

from coatcheck.errors import Refused

VERIFYING_SIZE = 32
SIGNATURE_SIZE = 64
ADDRESS_SIZE = 16
DIGEST_SIZE = 32


@dataclass(frozen=True, kw_only=True)
class Suite:
    """One HPKE suite (RFC 9180, base mode, single shot) by its public numbers.

    Attributes:
        name: how terms call it.
        number: the byte that stands for it on the wire.
        kem: the KEM's registered identifier; KDF 0x0001 and AEAD 0x0003 go with both.
        sealing_size: bytes of a public key that one seals to.
        overhead: bytes that sealing adds (encapsulated key and tag).
    """

    name: str
    number: int
    kem: int
    sealing_size: int
    overhead: int

    @property
    def contact_size(self) -> int:
        """Bytes of a one-time public pair: the sealing key, then the verifying key."""
        return self.sealing_size + VERIFYING_SIZE


CLASSICAL = Suite(name="x25519", number=1, kem=0x0020, sealing_size=32, overhead=48)
# Boards are public for ever, so what is sealed today must outlast today's curves.
HYBRID = Suite(name="mlkem768-x25519", number=2, kem=0x647A, sealing_size=1216, overhead=1136)

SUITES = {suite.name: suite for suite in (CLASSICAL, HYBRID)}


def suite_named(name: str) -> Suite:
    """Find a suite by its name in the terms."""
    if name not in SUITES:
        raise Refused(f"unknown suite {name!r}: this version speaks {', '.join(SUITES)}")
    return SUITES[name]
