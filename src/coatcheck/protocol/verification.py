"""Verification: what anybody can check of a board, with public keys only.

People and monitors follow the board's checkpoints; whoever is shown a log that does not continue
the one before has both signatures as proof. What was checked has a type, and only this file
makes these types. SPEC section 9.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from coatcheck.errors import Malformed, TwoFaces
from coatcheck.protocol.agreement import SettledTerms
from coatcheck.protocol.keys import VerifyingKey
from coatcheck.protocol.merkle import check_consistency, check_inclusion
from coatcheck.protocol.notices import ROUND_LEAF, Bulletin, Checkpoint, Heading


@dataclass(frozen=True)
class VerifiedCheckpoint(Checkpoint):
    """A checkpoint that the board signed, and that continues the one seen before."""


@dataclass(frozen=True, kw_only=True)
class VerifiedHeading(Heading):
    """A heading that the server signed and that the board's log shows to everybody."""

    round: SettledTerms


@dataclass(frozen=True, kw_only=True)
class VerifiedBulletin(Bulletin):
    """A whole bulletin: sorted, with the right root, signed by the server of the round."""

    round: SettledTerms

    def missing(self, group: int) -> int:
        """How many people fewer than promised hid each other in a group."""
        kept = self.heading.tallies[group].kept
        return max(0, self.round.terms.groups[group].minimum - kept)


@dataclass(frozen=True)
class VerifiedEntry:
    """One entry, with a proof that it belongs to the bulletin of the round."""

    round: SettledTerms
    group: int
    raw: bytes


def follow(
    raw: bytes, *, board: bytes, before: Checkpoint | None, path: Sequence[bytes] = ()
) -> VerifiedCheckpoint:
    """Check a new checkpoint under the board's key and against the one seen before.

    Two people compare what they saw in the same way: from the one's checkpoint to the other's.
    """
    point = Checkpoint.decode(raw)
    VerifyingKey(board).check(point.signature, point.signed_part())
    verified = VerifiedCheckpoint(point.size, point.root, point.signature)
    if before is None:
        return verified
    if point.size < before.size:
        raise TwoFaces("the board shows less than before: keep both checkpoints as proof")
    check_consistency(
        old=before.size, old_root=before.root, new=point.size, new_root=point.root, path=path
    )
    return verified


def verify_heading(
    heading: Heading,
    round_: SettledTerms,
    *,
    point: VerifiedCheckpoint,
    place: int,
    path: Sequence[bytes],
) -> VerifiedHeading:
    """Check that the server signed a heading and that the board's log shows it to everybody."""
    _check_signature(heading, round_)
    if heading.digest != round_.digest:
        raise TwoFaces("this heading is for other terms than this round's")
    check_inclusion(
        ROUND_LEAF + heading.encode(), place=place, size=point.size, root=point.root, path=path
    )
    return VerifiedHeading(
        heading.outcome,
        heading.digest,
        heading.tallies,
        heading.root,
        heading.signature,
        round=round_,
    )


def verify_bulletin(raw: bytes, round_: SettledTerms) -> VerifiedBulletin:
    """Read a whole bulletin: order, root and the server's signature."""
    bulletin = Bulletin.decode(raw, round_)
    _check_signature(bulletin.heading, round_)
    return VerifiedBulletin(bulletin.heading, bulletin.entries, round=round_)


def verify_entry(
    raw: bytes, *, group: int, heading: VerifiedHeading, place: int, path: Sequence[bytes]
) -> VerifiedEntry:
    """Check that a single entry has its size and belongs to the bulletin with this heading."""
    if len(raw) != heading.round.entry_size(group):
        raise Malformed("this entry does not have the size of the terms")
    size = sum(heading.sizes)
    check_inclusion(bytes((group,)) + raw, place=place, size=size, root=heading.root, path=path)
    return VerifiedEntry(heading.round, group, raw)


def _check_signature(heading: Heading, round_: SettledTerms) -> None:
    key = VerifyingKey(bytes.fromhex(round_.terms.server.verifying))
    key.check(heading.signature, heading.signed_part())
