"""The witness: what anybody can check of a board with nothing but public keys.

People and monitors follow the board's checkpoints; whoever is shown a log that does not continue
the one before has both signatures as proof. SPEC section 9.
"""

from collections.abc import Sequence

from coatcheck.errors import TwoFaces
from coatcheck.protocol.keys import VerifyingKey
from coatcheck.protocol.merkle import check_consistency, check_inclusion
from coatcheck.protocol.notices import ROUND_LEAF, Bulletin, Checkpoint, Heading
from coatcheck.protocol.terms import Round


def follow(
    raw: bytes, *, board: bytes, before: Checkpoint | None, path: Sequence[bytes] = ()
) -> Checkpoint:
    """Check a new checkpoint under the board's key and against the one seen before.

    Also the way to compare notes: two people follow from one's checkpoint to the other's.
    """
    point = Checkpoint.decode(raw)
    VerifyingKey(board).check(point.signature, point.signed_part())
    if before is None:
        return point
    if point.size < before.size:
        raise TwoFaces("the board shows less than before: keep both checkpoints as proof")
    check_consistency(
        old=before.size, old_root=before.root, new=point.size, new_root=point.root, path=path
    )
    return point


def check_heading(
    heading: Heading, round_: Round, *, point: Checkpoint, place: int, path: Sequence[bytes]
) -> None:
    """Check that the server signed a heading and that the board's log shows it to everybody."""
    key = VerifyingKey(bytes.fromhex(round_.terms.server.verifying))
    key.check(heading.signature, heading.signed_part())
    if heading.digest != round_.digest:
        raise TwoFaces("this heading is for other terms than this round's")
    check_inclusion(
        ROUND_LEAF + heading.encode(), place=place, size=point.size, root=point.root, path=path
    )


def check_bulletin(raw: bytes, round_: Round) -> Bulletin:
    """Read a whole bulletin: order, root and the server's signature."""
    bulletin = Bulletin.decode(raw, round_)
    key = VerifyingKey(bytes.fromhex(round_.terms.server.verifying))
    key.check(bulletin.heading.signature, bulletin.heading.signed_part())
    return bulletin


def check_entry(
    entry: bytes, *, group: int, heading: Heading, place: int, path: Sequence[bytes]
) -> None:
    """Check that a single entry belongs to the bulletin with this (checked) heading."""
    size = sum(heading.sizes)
    check_inclusion(bytes((group,)) + entry, place=place, size=size, root=heading.root, path=path)
