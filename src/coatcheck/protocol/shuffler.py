"""The shuffler: gather equal-sized parcels, wait for a crowd, peel a layer, permute, release once.

It knows who handed in what parcel and can open its own layer only; what lies beneath is sealed
to others, and this file cannot import what would decode it. A cascade runs this same object in
a row. SPEC section 10, paper section "A Concrete Protocol" (the shuffle functionality).

    OPEN --receive, accept--> OPEN --release--> RELEASED --forget--> RELEASED
                                   --abandon--> ABANDONED
"""

import hashlib
from enum import Enum
from typing import Any, Final

from msgspec import Struct, field

from coatcheck.entropy import Entropy
from coatcheck.errors import Malformed, Misuse, Refused
from coatcheck.protocol.envelope import Bulk, Purpose, binding
from coatcheck.protocol.keys import KeyPairs, VerifyingKey
from coatcheck.protocol.parcels import Batch, Receipt, Tally, Upload, content_id
from coatcheck.protocol.terms import Round

SECRET_SIZE: Final = 32


class Phase(Enum):
    """Where a round stands at this shuffler."""

    OPEN = "open"
    RELEASED = "released"
    ABANDONED = "abandoned"


MOVES: Final = {
    (Phase.OPEN, "receive"): Phase.OPEN,
    (Phase.OPEN, "accept"): Phase.OPEN,
    (Phase.OPEN, "release"): Phase.RELEASED,
    (Phase.OPEN, "abandon"): Phase.ABANDONED,
    (Phase.RELEASED, "release"): Phase.RELEASED,  # the same batch once more
    (Phase.RELEASED, "forget"): Phase.RELEASED,
    (Phase.ABANDONED, "abandon"): Phase.ABANDONED,
}
"""What may be done when, and where it leads; everything else is refused and changes nothing."""


class ShufflerState(Struct):
    """What a shuffler must not lose in a crash: plain data for a driver to store.

    Attributes:
        secret: the key of the order; zeros once it is wiped.
        held: for each group the parcels by id.
        tallies: what earlier hops counted; empty at the first.
        batch: what was released, until it is delivered.
    """

    secret: bytearray
    held: list[dict[bytes, bytes]]
    phase: Phase = Phase.OPEN
    tallies: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    accepted: bytes = b""
    batch: bytes = b""

    def __repr__(self) -> str:
        return f"ShufflerState({self.phase.value}, held={[len(group) for group in self.held]})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Print as the phase in rich terminals too: theirs would list every field."""
        return [("phase", self.phase.value)]


def fresh_state(round_: Round, entropy: Entropy, *, simulated: bool = False) -> ShufflerState:
    """Begin a round: nothing held, a new secret for the order.

    A seeded secret tells the order to whoever knows the seed: it is refused unless `simulated`.
    """
    if not entropy.secure and not simulated:
        raise Refused("seeded randomness hides no order: it is for simulations; use system()")
    secret = bytearray(entropy.token(SECRET_SIZE))
    return ShufflerState(secret, [{} for _ in round_.terms.groups])


class Shuffler:
    """One shuffler of one round.

    *Guarantee:* nothing leaves before every group has its minimum crowd; what leaves is in an
    order that depends on the round's secret alone, the same after a retry, and the secret and
    the parcels are gone once the batch is made.
    """

    def __init__(
        self, round_: Round, *, keys: KeyPairs, state: ShufflerState, bulk: Bulk | None = None
    ) -> None:
        places = [party.verifying for party in round_.terms.shufflers]
        mine = keys.signing.public_raw.hex()
        if mine not in places:
            raise Misuse("this key is none of the shufflers' keys of the terms")
        self.hop = places.index(mine)
        if round_.terms.shufflers[self.hop].sealing != keys.opening.public_raw.hex():
            raise Misuse("the terms name another sealing key for this shuffler")
        self.round = round_
        self._keys = keys
        self._bulk = bulk or Bulk()
        self.state = state

    @property
    def phase(self) -> Phase:
        """Where the round stands."""
        return self.state.phase

    @property
    def crowd(self) -> tuple[int, ...]:
        """How many parcels of each group are held."""
        return tuple(len(group) for group in self.state.held)

    def receive(self, raw: bytes, *, now: int) -> bytes:
        """Take an upload and return the signed receipt; the same bytes get the same receipt."""
        upload = self.vet(raw, now=now)
        for number, group in enumerate(self.state.held):
            known = group.get(upload.id)
            if known is not None and (number, known) != (upload.group, upload.body):
                raise Refused(
                    "another report came in under this id: re-send the bytes of your ticket"
                )
        self.state.held[upload.group][upload.id] = upload.body
        return self.receipt(raw, upload)

    def vet(self, raw: bytes, *, now: int) -> Upload:
        """Check an upload without holding it, for a driver whose store holds the parcels."""
        self._may("receive")
        if self.hop:
            raise Misuse("uploads go to the first shuffler of the terms")
        upload = Upload.decode(raw, self.round)
        if not self.round.terms.opens <= now < self.round.terms.expires:
            raise Refused("the round is not open at this time: your report stays with you")
        return upload

    def receipt(self, raw: bytes, upload: Upload) -> bytes:
        """Sign for an upload that is held, and will be after a crash."""
        receipt = Receipt.of(raw, upload)
        return receipt.encode() + self._keys.signing.sign(receipt.signed_part())

    def accept(self, raw: bytes) -> None:
        """Take the batch of the shuffler before this one; the same batch twice is one batch."""
        self._may("accept")
        batch = Batch.decode(raw, self.round)
        if batch.hop != self.hop - 1:
            raise Malformed("this batch is for another shuffler of the cascade")
        before = bytes.fromhex(self.round.terms.shufflers[batch.hop].verifying)
        VerifyingKey(before).check(batch.signature, batch.signed_part())
        content = hashlib.sha256(raw).digest()
        if self.state.accepted not in {b"", content}:
            raise Refused("another batch came in for this round before: keep the first")
        self.state.accepted = content
        self.state.tallies = [(tally.received, tally.dropped) for tally in batch.tallies]
        self.state.held = [{content_id(item): item for item in group} for group in batch.items]

    def release(self, *, now: int) -> bytes:
        """Peel, permute and pass on, once every group is large enough; again, the same bytes."""
        self._may("release")
        if self.phase is Phase.RELEASED:
            if not self.state.batch:
                raise Refused("this batch was delivered and forgotten")
            return self.state.batch
        if self.hop == 0 and now < self.round.terms.closes:
            raise Refused("the round is still open: it is released when its time is over")
        if self.hop and not self.state.accepted:
            raise Refused("the batch of the shuffler before this one has not come yet")
        self._check_crowd(self.crowd)
        peeled = [self._peel(number) for number in range(len(self.state.held))]
        tallies = tuple(tally for tally, _ in peeled)
        self._check_crowd(tuple(tally.kept for tally in tallies))
        batch = Batch(self.round.digest, self.hop, tallies, tuple(items for _, items in peeled))
        self.state.batch = batch.encode() + self._keys.signing.sign(batch.signed_part())
        self._wipe(Phase.RELEASED)
        return self.state.batch

    def abandon(self) -> None:
        """Give up the round: forget every parcel, release nothing, ever."""
        self._may("abandon")
        self._wipe(Phase.ABANDONED)

    def forget(self) -> None:
        """Drop the batch after the next one has it."""
        self._may("forget")
        self.state.batch = b""

    def _may(self, move: str) -> None:
        if (self.phase, move) not in MOVES:
            raise Refused(f"a round that is {self.phase.value} cannot {move} any more")

    def _check_crowd(self, sizes: tuple[int, ...]) -> None:
        for group, size in zip(self.round.terms.groups, sizes, strict=True):
            if size < group.minimum:
                raise Refused(
                    f"group {group.name!r} has {size} of the {group.minimum} it needs: fewer"
                    " would not hide anyone; wait for more, or abandon the round"
                )

    def _rank(self, group: int, upload: bytes) -> bytes:
        # A keyed hash, not a drawn permutation: a retry after a crash gives the same order, and
        # without the secret the order says nothing. Ids are unique, so ties do not occur.
        keyed = hashlib.blake2b(key=self.state.secret, digest_size=16, person=b"coatcheck order")
        keyed.update(bytes((group,)) + self.round.digest + upload)
        return keyed.digest()

    def _peel(self, number: int) -> tuple[Tally, tuple[bytes, ...]]:
        """Open this shuffler's layer of a group in the new order; drop what fails, with a count."""
        held = self.state.held[number]
        tally = Tally(*self.state.tallies[number]) if self.hop else Tally(len(held))
        if self.hop:
            tally = tally.drop("repeated", tally.kept - len(held))
        items: dict[bytes, None] = {}
        order = sorted(held, key=lambda upload: self._rank(number, upload))
        bounds = [self._bound(number, upload) for upload in order]
        sealed = [held[upload] for upload in order]
        for item in self._bulk.unseal_each(sealed, key=self._keys.opening, bounds=bounds):
            if item is None:
                tally = tally.drop("unpeeled")
            elif item in items:
                tally = tally.drop("repeated")
            else:
                items[item] = None
        return tally, tuple(items)

    def _bound(self, group: int, upload: bytes) -> bytes:
        named = upload if self.hop == 0 else bytes(len(upload))
        digest = self.round.digest
        return binding(Purpose.LAYER, digest=digest, group=group, hop=self.hop, upload=named)

    def _wipe(self, phase: Phase) -> None:
        self.state.secret[:] = bytes(len(self.state.secret))
        self.state.held = [{} for _ in self.state.held]
        self.state.phase = phase
