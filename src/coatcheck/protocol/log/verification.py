"""Verification of boards and batches with public keys only, for people and monitors.

A reader follows the board's checkpoints; if a log does not continue the one before, the reader
holds two signatures as proof. Verified data has types that only this file makes. SPEC section 9.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from coatcheck.errors import BadSignature, Equivocation, Malformed, Unavailable
from coatcheck.protocol.agreement import AgreedTerms
from coatcheck.protocol.keys import check_signed
from coatcheck.protocol.log.merkle import check_consistency, check_inclusion
from coatcheck.protocol.log.signed_notes import COSIGNATURE, LogCheckpoint, Note, NoteKey
from coatcheck.protocol.log.witness_policy import Quorum
from coatcheck.protocol.outcomes import check_consistent, is_outcome, signer_of
from coatcheck.protocol.terms import Round
from coatcheck.protocol.wire.batches import Batch, Manifest
from coatcheck.protocol.wire.bulletins import (
    ABANDONED,
    ROUND_LEAF,
    TERMS_LEAF,
    Bulletin,
    Checkpoint,
    Heading,
)


@dataclass(frozen=True)
class VerifiedCheckpoint(Checkpoint):
    """A checkpoint that the board signed, and that continues the one seen before."""


class SignedOutcome:
    """The signed outcome of a round; it may contradict itself (`outcomes.inconsistency`)."""

    heading: Heading
    round: AgreedTerms


@dataclass(frozen=True)
class VerifiedHeading(SignedOutcome):
    """A heading that is signed and that the board's log shows to everybody."""

    heading: Heading
    round: AgreedTerms


@dataclass(frozen=True, kw_only=True)
class VerifiedBulletin(Bulletin, SignedOutcome):
    """A whole bulletin: sorted, with the right root, and signed."""

    round: AgreedTerms


@dataclass(frozen=True)
class VerifiedEntry:
    """One entry, with a proof that it belongs to the bulletin of the round."""

    round: AgreedTerms
    group: int
    raw: bytes


def follow(
    raw: bytes, *, board: str, before: Checkpoint | None, path: Sequence[bytes] = ()
) -> VerifiedCheckpoint:
    """Check a new checkpoint under the board's key, in hex, and against the one seen before.

    Two people compare the logs that they saw in the same way: `before` is then the other's.
    """
    point = Checkpoint.decode(raw)
    check_signed(point, board)
    verified = VerifiedCheckpoint(point.size, point.root, signature=point.signature)
    if before is None:
        return verified
    if point.size < before.size:
        raise Equivocation(
            "the board shows a shorter log than before: keep both checkpoints as the proof"
        )
    check_consistency(
        old=before.size, old_root=before.root, new=point.size, new_root=point.root, path=path
    )
    return verified


def check_heading(heading: Heading, round_: AgreedTerms) -> None:
    """Check that the signer of an outcome signed it, and that it is of this round."""
    check_signed(heading, signer_of(heading, round_).verifying)
    if not heading.is_of(round_):
        raise Equivocation("this heading is for other terms than this round's")


def board_note_key(verifying: str) -> NoteKey:
    """Return the key, with the origin as its name, of a board's checkpoints as notes."""
    return NoteKey(f"coatcheck.example/board/{verifying}", bytes.fromhex(verifying))


def follow_watched(
    raw: bytes,
    *,
    board: str,
    witnesses: Quorum,
    before: LogCheckpoint | None,
    path: Sequence[bytes] = (),
) -> VerifiedCheckpoint:
    """Check a checkpoint that is a note: the board signed it, and enough witnesses cosigned it.

    With the cosignature of one honest witness, even the first request gets the log that this
    witness has seen grow.
    """
    note, key = Note.read(raw), board_note_key(board)
    point = LogCheckpoint.read(note.text)
    if point.origin != key.name or not note.signers([key]):
        raise BadSignature("this checkpoint is not signed by the board that the terms name")
    names = {name for name, _, _ in note.signatures}

    def cosigned(keys: frozenset[bytes]) -> bool:
        note_keys = [NoteKey(name, key, COSIGNATURE) for name in names for key in keys]
        return bool(note.signers(note_keys))

    if not witnesses.reached(cosigned):
        raise Unavailable(
            f"{witnesses.count(cosigned)} of your witnesses (or groups of them) have cosigned the"
            f" board's log, but you demand {witnesses.least}: try later"
        )
    if before is not None:
        if point.size < before.size:
            raise Equivocation(
                "the board shows a shorter log than before: keep both checkpoints as the proof"
            )
        check_consistency(
            old=before.size, old_root=before.root, new=point.size, new_root=point.root, path=path
        )
    return VerifiedCheckpoint(point.size, point.root)


def verify_heading(
    heading: Heading,
    round_: AgreedTerms,
    *,
    point: VerifiedCheckpoint,
    place: int,
    path: Sequence[bytes],
) -> VerifiedHeading:
    """Check that a heading is signed and that the board's log shows it to everybody."""
    check_heading(heading, round_)
    check_inclusion(
        ROUND_LEAF + heading.encode(), place=place, size=point.size, root=point.root, path=path
    )
    return VerifiedHeading(heading, round_)


def check_logged(
    round_: AgreedTerms, *, point: VerifiedCheckpoint, place: int, path: Sequence[bytes]
) -> None:
    """Check that the board's log has the terms of a round, where everybody can see them."""
    leaf = TERMS_LEAF + round_.digest
    check_inclusion(leaf, place=place, size=point.size, root=point.root, path=path)


def verify_bulletin(raw: bytes, round_: AgreedTerms) -> VerifiedBulletin:
    """Read a whole bulletin and verify its order, its root and its signature."""
    bulletin = Bulletin.decode(raw, round_)
    check_signed(bulletin.heading, signer_of(bulletin.heading, round_).verifying)
    return VerifiedBulletin(bulletin.heading, bulletin.entries, round=round_)


def verify_outcome(raw: bytes, round_: Round, *, before: int) -> None:
    """Check that a shuffler before this place of the cascade signed that it abandons the round."""
    if not is_outcome(raw, round_):
        raise Malformed("an outcome without entries has another size in this round")
    heading = Bulletin.decode(raw, round_).heading
    if heading.outcome != ABANDONED or heading.signer >= before:
        raise Malformed("only a shuffler before this role can abandon the round here")
    check_consistent(heading, round_)
    check_signed(heading, signer_of(heading, round_).verifying)


def verify_entry(
    raw: bytes, *, group: int, heading: VerifiedHeading, place: int, path: Sequence[bytes]
) -> VerifiedEntry:
    """Check that a single entry has its size and belongs to the bulletin with this heading."""
    if len(raw) != heading.round.entry_size(group):
        raise Malformed("this entry does not have the size that the terms state")
    size, root = sum(heading.heading.sizes), heading.heading.root
    check_inclusion(bytes((group,)) + raw, place=place, size=size, root=root, path=path)
    return VerifiedEntry(heading.round, group, raw)


def verify_manifest(raw: bytes, round_: Round, *, hop: int) -> Manifest:
    """Read a manifest, and check that the shuffler at this place of the cascade signed it."""
    manifest = Manifest.decode(raw, round_)
    _check_signer(manifest, round_, hop)
    return manifest


def verify_batch(raw: bytes, round_: Round, *, hop: int) -> Batch:
    """Read a batch, and check that the shuffler at this place of the cascade signed it."""
    batch = Batch.decode(raw, round_)
    _check_signer(batch.manifest, round_, hop)
    return batch


def _check_signer(manifest: Manifest, round_: Round, hop: int) -> None:
    if manifest.hop != hop:
        raise Malformed(
            f"this batch is of the shuffler at hop {manifest.hop}, but that of hop {hop} is due"
        )
    check_signed(manifest, round_.terms.shufflers[hop].verifying)
