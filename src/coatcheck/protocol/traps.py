"""Traps: how a later shuffler of a cascade counts the people behind a batch.

A trap is random bytes under the layers of the shufflers up to one of them, handed in beside the
report, in random order. That shuffler knows its commitment from the person directly. Whoever drops
reports on the way drops traps as often, and the count shows it. Sees no report. SPEC section 10;
the theorem and its proof are in docs/explanation/a-crowd-that-is-counted.md.
"""

import hashlib
from collections.abc import Callable
from functools import lru_cache
from math import ceil, comb, log, sqrt
from typing import Final

from coatcheck.errors import Misuse

_LABEL: Final = b"coatcheck/v1/trap\0"
_EXACT: Final = 1 << 16
"""Traps lost up to which the slack is exact; the exact sum takes minutes where it is millions."""


def commitment(trap: bytes, *, digest: bytes, group: int, hop: int) -> bytes:
    """Give what a person registers of a trap: it says nothing about the trap's bytes."""
    return committing(digest=digest, group=group, hop=hop)(trap)


def committing(*, digest: bytes, group: int, hop: int) -> Callable[[bytes], bytes]:
    """Give what makes commitments of a group and hop: with many, what they share is hashed once."""
    begun = hashlib.sha256(_LABEL + bytes((hop, group)) + digest)

    def made(trap: bytes) -> bytes:
        found = begun.copy()
        found.update(trap)
        return found.digest()

    return made


@lru_cache(maxsize=64)
def slack(lost: int, delta: float) -> int:
    """Bound how many reports fewer than traps can have arrived when so many traps were lost.

    U(lost) - 2 lost, where U(j) is the largest m with P(Bin(m, 1/2) <= j) > delta, in integers. For
    very many lost traps it is Hoeffding's bound on the same number, which is larger.
    """
    if not 0 < delta < 0.5:
        raise Misuse(f"the chance of a wrong count lies between 0 and 1/2, not at {delta!r}")
    if lost > _EXACT:
        nats = log(1 / delta)
        return ceil((nats + sqrt(nats * nats + 4 * lost * nats)) * (1 + 1e-12))
    top, bottom = delta.as_integer_ratio()
    # P(Bin(m, 1/2) <= lost) = below / 2^m. At m = 2 lost + 1 it is 1/2, and it falls from there.
    m = 2 * lost + 1
    below, at = 1 << (m - 1), comb(m, lost)
    while below * bottom > top << m:
        below, at = 2 * below - at, at * (m + 1) // (m + 1 - lost)
        m += 1
    return m - 1 - 2 * lost


def people(*, counted: int, registered: int, delta: float) -> int:
    """Give how many people's reports a batch holds at least, by the traps that were counted in it.

    *Guarantee:* fewer reports of registered, honest people arrived than this, less those traps of
    corrupted people that were counted, with a chance of at most `delta`.
    """
    return counted - slack(registered - counted, delta)
