"""Receipts: one signature per commit, a path for each upload, and nothing about the others."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck.entropy import seeded, system
from coatcheck.errors import BadSignature, Misuse
from coatcheck.protocol.keys import KeyPairs
from coatcheck.protocol.terms import CLASSICAL
from coatcheck.protocol.ticket import MOST, RECEIPT_SIZE, Receipt, issue_receipts

KEYS = KeyPairs(CLASSICAL, b"s" * 32)


def bodies(count: int) -> list[bytes]:
    """Return the bodies for this many receipts."""
    names = [number.to_bytes(16, "big") for number in range(count)]
    return [Receipt(b"d" * 32, name, name * 2).body() for name in names]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40) | st.sampled_from([127, 128, 1000, MOST]))
def test_each_receipt_holds_for_its_own_bytes(count: int) -> None:
    """One signature is made; each receipt verifies for its body and no other."""
    signed: list[bytes] = []

    def sign(message: bytes) -> bytes:
        signed.append(message)
        return KEYS.signing.sign(message)

    given = bodies(count)
    issued = issue_receipts(given, sign, entropy=system())
    assert (len(signed), {len(raw) for raw in issued}) == (1, {RECEIPT_SIZE})
    for body, raw in zip(given, issued, strict=True):
        receipt = Receipt.decode(raw)
        assert receipt.body() == body
        receipt.check(KEYS.signing.public)
    foreign = Receipt.decode(bodies(count + 1)[-1] + issued[0][84:])
    with pytest.raises(BadSignature):
        foreign.check(KEYS.signing.public)


def test_one_body_twice_in_a_commit_is_one_leaf() -> None:
    """A person who sends twice at once gets two valid receipts."""
    issued = issue_receipts(bodies(2) * 2, KEYS.signing.sign, entropy=system())
    assert issued[:2] == issued[2:]
    for raw in issued:
        Receipt.decode(raw).check(KEYS.signing.public)


def test_a_place_says_nothing_about_the_order_or_the_number() -> None:
    """Alone or among many, early or late: every bit of the place is uniform, and none repeats.

    600 places of ten bits with p = 1/2: each count lies from 225 to 375, but for 1e-9 each.
    """
    entropy = seeded(1)
    for count in (1, 3):
        found = [
            Receipt.decode(issue_receipts(bodies(count), KEYS.signing.sign, entropy=entropy)[0])
            for _ in range(600)
        ]
        for level in range(2 if count > 1 else 0, 10):
            assert 225 <= sum(one.place >> level & 1 for one in found) <= 375
        assert len({one.path[-32:] for one in found}) == 600


def test_the_order_of_a_commit_is_that_of_the_hashes() -> None:
    """The same bodies have the same places in any order of arrival."""
    given = bodies(8)
    once = dict(
        zip(given, issue_receipts(given, KEYS.signing.sign, entropy=seeded(3)), strict=True)
    )
    back = issue_receipts(given[::-1], KEYS.signing.sign, entropy=seeded(3))
    assert [once[body] for body in given[::-1]] == back


def test_a_commit_has_one_to_1024_receipts() -> None:
    """An empty commit, or more bodies than the path can distinguish, is refused."""
    for count in (0, MOST + 1):
        with pytest.raises(Misuse, match="1 to 1024"):
            issue_receipts(bodies(count), KEYS.signing.sign, entropy=system())
