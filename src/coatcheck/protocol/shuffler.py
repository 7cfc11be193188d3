"""The shuffler: gather equal-sized parcels, wait for a crowd, peel a layer, permute, release once.

It knows who handed in what parcel and can open its own layer only. What lies beneath is sealed
to others, and this file cannot import what would decode it. A cascade runs this same object
several times in a row; a later one holds registrations instead of uploads, and counts traps.
SPEC section 10, paper section "A Concrete Protocol" (the shuffle functionality).
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from coatcheck.entropy import Entropy, system
from coatcheck.errors import Misuse, Refused
from coatcheck.protocol.envelope import Bulk, Purpose, binding
from coatcheck.protocol.keys import KeyPairs, OpeningKey
from coatcheck.protocol.log.verification import verify_batch, verify_outcome
from coatcheck.protocol.outcomes import (
    FEW_REPORTS,
    FEW_TRAPS,
    LATE,
    NO_REASON,
    OPERATOR,
    abandoned,
    due,
)
from coatcheck.protocol.state_machine import SHUFFLER_TRANSITIONS, ShufflerPhase
from coatcheck.protocol.terms import Round
from coatcheck.protocol.ticket import Receipt, issue
from coatcheck.protocol.wire.batches import Batch, Manifest, Part, bits_of
from coatcheck.protocol.wire.encoding import first_of_each, in_order
from coatcheck.protocol.wire.uploads import (
    ID_SIZE,
    Registration,
    Tally,
    Upload,
    committing,
    content_id,
    items_of,
    people,
    slack,
)

# HOUSE-DOC protocol.peeling: 'Peeling: how a shuffler opens its layer and puts the items into their new order, part by part.\n\nA part of what came in is peeled by itself: each item gets its rank, and a name by which equal ones\nand traps are found. All names of a group are sifted together. Then each partition of the batch is\ngathered from the items whose rank begins with its number. So any number of processes can do it, in\nany order, and the bytes are the same. Sees no report. SPEC section 10.\n'
RANK: Final = 16
_TOLD: Final = RANK + ID_SIZE
_NONE: Final = bytes(ID_SIZE)
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Peeled:
    """What became of a part of a group, one row for each item.

    Attributes:
        told: rank and name of everything that came in; the name is zero if it did not open.
        items: rank and item of what opened, by rank.
    """

    told: Bytes
    items: Bytes

    def dealt(self, bits: int) -> list[Bytes]:
        """Deal the items to the partitions by the leading bits of their ranks."""
        return _dealt(self.items, bits)


@dataclass(frozen=True)
class Sifted:
    """What stays of a group: the count, and the ranks of opened items that are left out."""

    tally: Tally
    out: Bytes

    def dealt(self, bits: int) -> list[Bytes]:
        """Deal the ranks to the partitions."""
        return _dealt(self.out, bits)


class Peeler:
    """What a shuffler at one place of the cascade does with a part of a group.

    *Guarantee:* it gives the same bytes for the same part and secret, wherever it runs.
    """

    def __init__(
        self, round_: Round, *, hop: int, key: OpeningKey, secret: bytes, bulk: Bulk | None = None
    ) -> None:
        self._round = round_
        self._hop = hop
        self._key = key
        self._bulk = bulk or Bulk()
        self._ranked = hashlib.blake2b(key=secret, digest_size=RANK, person=b"coatcheck order")

    def peel(self, group: int, sealed: Mapping[bytes, bytes]) -> Peeled:
        """Open this shuffler's layer of items, given by their ids."""
        bounds = self._bounds(group, sealed)
        opened = self._bulk.unseal_each(list(sealed.values()), key=self._key, bounds=bounds)
        ranks = [self.rank(group, name) for name in sealed]
        # Every item is hashed, so that a trap takes no other time than a report.
        named = committing(digest=self._round.digest, group=group, hop=self._hop)
        names = [named(item)[:ID_SIZE] if item else _NONE for item in opened]
        told = np.concatenate([rows(b"".join(ranks), RANK), rows(b"".join(names), ID_SIZE)], axis=1)
        kept = rows(b"".join(rank for rank, item in zip(ranks, opened, strict=True) if item), RANK)
        items = rows(b"".join(filter(None, opened)), self._round.item_size(group, self._hop + 1))
        order, _ = in_order(kept)
        return Peeled(told, np.concatenate([kept[order], items[order]], axis=1))

    def rank(self, group: int, name: bytes) -> bytes:
        """Give an item's place in the new order."""
        # A keyed hash, not a drawn permutation: a retry after a crash gives the same order, and
        # without the secret the order says nothing. Ids are unique, so ties do not occur.
        keyed = self._ranked.copy()
        keyed.update(bytes((group,)) + self._round.digest + name)
        return keyed.digest()

    def _bounds(self, group: int, names: Collection[bytes]) -> list[bytes]:
        """Spell out what this shuffler's layer of each item is bound to."""
        digest, hop = self._round.digest, self._hop
        if hop:
            return [binding(Purpose.LAYER, digest=digest, group=group, hop=hop)] * len(names)
        head = binding(Purpose.LAYER, digest=digest, group=group, upload=b"")
        return [head + name[:ID_SIZE] for name in names]


def sift(tally: Tally, told: Iterable[Bytes], *, traps: Bytes) -> Sifted:
    """Count what of a group did not open, is repeated, or is one of the traps, and leave it out.

    Of equal items the first one in the new order stays. A trap counts once: the same bytes a second
    time are a repetition.
    """
    every = np.concatenate([np.zeros((0, _TOLD), np.uint8), *told])
    every = every[first_of_each(every[:, :RANK])]
    opened = every[every[:, RANK:].any(axis=1)]
    ranks, names = np.ascontiguousarray(opened[:, :RANK]), opened[:, RANK:]
    stays = np.zeros(len(opened), np.bool_)
    stays[first_of_each(names)] = True
    caught = stays & np.isin(_keys(names), _keys(traps))
    tally = tally.drop("repeated", tally.kept - len(every) + int((~stays).sum()))
    tally = tally.drop("unpeeled", len(every) - len(opened)).drop("trap", int(caught.sum()))
    return Sifted(tally, ranks[~stays | caught])


def gather(pieces: Iterable[Bytes], out: Bytes) -> bytes:
    """Make a partition of its pieces of all parts: in the order of rank, without those left out."""
    found = np.concatenate(list(pieces))
    found = found[first_of_each(found[:, :RANK])]
    stays = ~np.isin(_keys(found[:, :RANK]), _keys(out))
    return found[stays, RANK:].tobytes()


def rows(raw: bytes, width: int) -> Bytes:
    """Read rows of one width."""
    return np.frombuffer(raw, np.uint8).reshape(-1, width)


def _keys(columns: Bytes) -> NDArray[Any]:
    """Give rows as values that are compared byte by byte."""
    flat = np.ascontiguousarray(columns)
    return flat.view(np.dtype((np.void, columns.shape[1]))).ravel()


def _dealt(ranked: Bytes, bits: int) -> list[Bytes]:
    """Cut rows that begin with their rank, in order of rank, where the leading bits change."""
    if not bits:
        return [ranked]
    leading = np.ascontiguousarray(ranked[:, :8]).view(">u8").ravel() >> np.uint64(64 - bits)
    ends = np.searchsorted(leading, np.arange(1, 1 << bits, dtype=np.uint64))
    return np.split(ranked, ends)


SECRET_SIZE: Final = 32


class ShufflerState(Struct):
    """What a shuffler must not lose in a crash: plain data for a driver to store.

    Attributes:
        secret: the key of the order; zeros once it is wiped.
        held: group and body of each upload by its id at the first shuffler; at a later one group
            and commitment of each registration.
        incoming: the batch of the shuffler before, at a later one.
        accepted: the hash of its manifest, which stays when the batch is wiped.
        batch: what was released, until it is delivered.
        end: the signed end of a round that was given up.
    """

    secret: bytearray
    held: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)
    phase: ShufflerPhase = ShufflerPhase.OPEN
    incoming: bytes = b""
    accepted: bytes = b""
    batch: bytes = b""
    end: bytes = b""

    def __repr__(self) -> str:
        return f"ShufflerState({self.phase.value}, held={len(self.held)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Print only the phase in rich terminals too; the default would print every field."""
        return [("phase", self.phase.value)]


def fresh_state(entropy: Entropy, *, simulated: bool = False) -> ShufflerState:
    """Begin a round: nothing held, a new secret for the order.

    A seeded secret tells the order to whoever knows the seed: it is refused unless `simulated`.
    """
    if not entropy.secure and not simulated:
        raise Refused("seeded randomness hides no order: it is for simulations; use system()")
    return ShufflerState(bytearray(entropy.token(SECRET_SIZE)))


class Shuffler:
    """One shuffler of one round.

    *Guarantee:* nothing leaves before every group has its minimum crowd, at a later shuffler by the
    traps that it counts, whatever those before it do. The order of what leaves
    depends on the round's secret alone, and a retry gives the same order. The secret and the
    parcels are gone once the batch is made.
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
    def phase(self) -> ShufflerPhase:
        """Where the round stands."""
        return self.state.phase

    @property
    def crowd(self) -> tuple[int, ...]:
        """How many people of each group have handed something in here."""
        counts = Counter(group for group, _ in self.state.held.values())
        return tuple(counts[number] for number in range(len(self.round.terms.groups)))

    def receive(self, raw: bytes, *, now: int) -> bytes:
        """Take an upload or, later in a cascade, a registration, and return the signed receipt.

        The same bytes get a receipt again.
        """
        upload = self.vet(raw, now=now)
        known = self.state.held.get(upload.id)
        if known is None:
            self.state.phase = SHUFFLER_TRANSITIONS.after(self.phase, "receive")
            self.state.held[upload.id] = (upload.group, upload.body)
        elif known != (upload.group, upload.body):
            raise Refused("other bytes came in under this id: re-send the bytes of your ticket")
        return self.receipts([Receipt.body_of(raw, upload)])[0]

    def vet(self, raw: bytes, *, now: int) -> Upload:
        """Check the form and time of an upload or a registration without holding it.

        A driver whose store holds the parcels calls this, and its store asks for the move.
        """
        if self.hop:
            upload = Registration.decode(raw, self.round, hop=self.hop).held
        else:
            upload = Upload.decode(raw, self.round)
        if not self.round.terms.opens <= now < self.round.terms.expires:
            raise Refused("the round is not open at this time: your report stays with you")
        return upload

    def receipts(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Sign once for all that is held, and will be after a crash; a receipt for each."""
        return issue(bodies, self._keys.signing.sign, entropy=system())

    def accept(self, raw: bytes) -> None:
        """Take the batch of the shuffler before this one; the same batch twice is one batch."""
        if self.state.accepted:
            if Batch.decode(raw, self.round).manifest.content != self.state.accepted:
                raise Refused("another batch came in for this round before: keep the first")
            return
        after = SHUFFLER_TRANSITIONS.after(self.phase, "accept")
        self.state.accepted = verify_batch(raw, self.round, hop=self.hop - 1).manifest.content
        self.state.incoming, self.state.phase = raw, after

    def close(self, *, now: int) -> None:
        """Take no more uploads, once it is time and every group is large enough."""
        after = SHUFFLER_TRANSITIONS.after(self.phase, "close")
        reason = self.why_open(now=now, crowd=self.crowd)
        if reason:
            raise Refused(reason)
        self.state.phase = after

    def why_open(self, *, now: int, crowd: Sequence[int]) -> str:
        """Say why a round with this crowd cannot close yet; empty if it can."""
        if self.hop:
            return "the batch of the shuffler before this one has not come yet"
        if now < self.round.terms.closes:
            return "the round is still open: it is released when its time is over"
        return self._shortage(crowd)

    def reopen(self, *, now: int) -> None:
        """Take uploads again: too few were left after peeling, and more can still come."""
        after = SHUFFLER_TRANSITIONS.after(self.phase, "reopen")
        if self.expired(now=now):
            raise Refused("no more reports can come to this round: let it expire")
        self.state.phase = after

    def expired(self, *, now: int) -> bool:
        """Tell whether a round that is not released has to be given up."""
        return bool(self.overdue(now=now))

    def is_late(self, *, now: int) -> bool:
        """Tell whether the next role has stopped waiting for the batch."""
        return now >= due(self.round, self.hop + 1)

    def overdue(self, *, now: int) -> int:
        """Give the reason for which the round must be given up now; 0 if more can come of it.

        No more reports come to the first shuffler when time is over, and to a later one when its
        one batch came.
        """
        if self.is_late(now=now):
            return LATE
        if self.phase is ShufflerPhase.RELEASED:
            return NO_REASON
        if self.hop and not self.state.accepted:
            return LATE if now >= due(self.round, self.hop) else NO_REASON
        if self.hop:
            return FEW_TRAPS
        return FEW_REPORTS if now >= self.round.terms.expires else NO_REASON

    def release(self) -> bytes:
        """Peel, permute and pass on what is held; again, the same bytes.

        Refused if too few are left after peeling, or if traps show too few people: then nothing
        has changed, and the round is reopened, or expires.
        """
        if self.state.batch:
            return self.state.batch
        after = SHUFFLER_TRANSITIONS.after(self.phase, "release")
        earlier, given = self._given()
        peeler = self.peeler
        groups, listed = [], []
        for number, (tally, parts) in enumerate(given):
            peeled = [peeler.peel(number, part) for part in parts]
            sifted = sift(tally, (part.told for part in peeled), traps=self._traps(number))
            bits = bits_of(tally.received, self.round.item_size(number, self.hop + 1))
            dealt = zip(*(part.dealt(bits) for part in peeled), strict=True)
            groups.append(sifted.tally)
            listed.append([gather(*pair) for pair in zip(dealt, sifted.dealt(bits), strict=True)])
        self.check_people(groups, [tally for tally, _ in given], self.crowd)
        found = [
            [Part.of(raw, size=self.round.item_size(number, self.hop + 1)) for raw in group]
            for number, group in enumerate(listed)
        ]
        manifest = self.manifest(groups, found, earlier=earlier)
        self.state.batch = manifest + b"".join(raw for group in listed for raw in group)
        self._wipe(after)
        return self.state.batch

    @property
    def peeler(self) -> Peeler:
        """What peels parts, with this shuffler's key and the round's secret."""
        key, secret = self._keys.opening, bytes(self.state.secret)
        return Peeler(self.round, hop=self.hop, key=key, secret=secret, bulk=self._bulk)

    def check_people(
        self, tallies: Sequence[Tally], before: Sequence[Tally], registered: Sequence[int]
    ) -> None:
        """Refuse a release that leaves too few people to hide among, by what was counted."""
        shortage = self._shortage(self._people(tallies, before, registered))
        if shortage:
            raise Refused(shortage)

    def manifest(
        self,
        tallies: Sequence[Tally],
        parts: Sequence[Sequence[Part]],
        *,
        earlier: Sequence[bytes] = (),
    ) -> bytes:
        """Sign for the partitions of a batch whose people were counted."""
        draft = Manifest.compose(parts, tallies, digest=self.round.digest, earlier=earlier)
        return draft.sign(self._keys.signing.sign)

    def abandon(self) -> bytes:
        """Give up the round: forget every parcel, release nothing, ever; return the signed end."""
        return self._give_up(SHUFFLER_TRANSITIONS.after(self.phase, "abandon"), self.end(OPERATOR))

    def expire(self, *, now: int) -> bytes:
        """Give up a round whose time is over; return the signed end."""
        after, reason = SHUFFLER_TRANSITIONS.after(self.phase, "expire"), self.overdue(now=now)
        if not reason:
            raise Refused("more reports can still come to this round: wait, or abandon it")
        return self._give_up(after, self.end(reason))

    def hear(self, raw: bytes) -> bytes:
        """Give up a round that a shuffler before this one gave up, and pass its word on."""
        after = SHUFFLER_TRANSITIONS.after(self.phase, "hear")
        verify_outcome(raw, self.round, before=self.hop)
        return self._give_up(after, raw)

    def tell(self) -> None:
        """Note that the board has an end of the round."""
        self.state.phase = SHUFFLER_TRANSITIONS.after(self.phase, "tell")

    def end(self, reason: int) -> bytes:
        """Sign that this shuffler gives the round up."""
        word = abandoned(self.round, reason=reason, who=self.hop)
        return word.signed(self._keys.signing.sign).encode()

    def _give_up(self, after: ShufflerPhase, end: bytes) -> bytes:
        self.state.batch, self.state.end = b"", end
        self._wipe(after)
        return end

    def forget(self) -> None:
        """Drop the batch after the next one has it."""
        self.state.phase = SHUFFLER_TRANSITIONS.after(self.phase, "forget")
        self.state.batch = b""

    def _traps(self, group: int) -> Bytes:
        """Give the names of the traps of a group that are registered here."""
        held = self.state.held.items() if self.hop else ()
        return rows(b"".join(name for name, (number, _) in held if number == group), ID_SIZE)

    def _people(
        self, tallies: Sequence[Tally], before: Sequence[Tally], crowd: Sequence[int]
    ) -> list[int]:
        """Count the people of each group: at a later shuffler, as many as traps show for sure."""
        if not self.hop:
            return [tally.kept // len(self.round.terms.shufflers) for tally in tallies]
        delta = self.round.terms.trap_delta
        return [
            people(counted=after.traps - earlier.traps, registered=registered, delta=delta)
            for after, earlier, registered in zip(tallies, before, crowd, strict=True)
        ]

    def _shortage(self, sizes: Sequence[int]) -> str:
        delta = self.round.terms.trap_delta
        # Without these the shufflers after the first would count too few.
        spare = slack(0, delta) if delta and not self.hop else 0
        for group, size in zip(self.round.terms.groups, sizes, strict=True):
            least = group.minimum + spare
            if size < least:
                return (
                    f"group {group.name!r} has {max(0, size)} of the {least} it needs: fewer"
                    " would not hide anyone; wait for more, or abandon the round"
                )
        return ""

    def _given(self) -> tuple[Sequence[bytes], list[tuple[Tally, list[dict[bytes, bytes]]]]]:
        """Give the earlier roots, and for each group earlier counts and the sealed items by id."""
        groups: list[list[dict[bytes, bytes]]] = [[] for _ in self.round.terms.groups]
        if self.hop:
            batch = Batch.decode(self.state.incoming, self.round)
            for number, items in batch.listed():
                groups[number].append({content_id(item): item for item in items})
            return batch.roots, list(zip(batch.tallies, groups, strict=True))
        sealed: list[dict[bytes, bytes]] = [{} for _ in groups]
        for upload, (number, body) in self.state.held.items():
            sealed[number] |= items_of(upload, body, self.round)
        return (), [(Tally(len(items)), [items]) for items in sealed]

    def _wipe(self, phase: ShufflerPhase) -> None:
        self.state.secret[:] = bytes(len(self.state.secret))
        self.state.held, self.state.incoming = {}, b""
        self.state.phase = phase
