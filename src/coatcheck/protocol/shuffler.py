"""The shuffler role: receive uploads, wait for a crowd, peel a layer, permute, release once.

A shuffler can link every upload to its sender, but opens only its own layer: what lies beneath is
sealed to others, and this file cannot import what would decode it. Every shuffler of a cascade is
a `Shuffler`; a later one takes registrations instead of uploads, and counts traps.

A release handles a group part by part. `Peeler.peel` gives each item its rank in the new order and
a name by which equal items and traps are recognized. `sift` compares all names of a group.
`gather` makes a partition of the batch from the items whose ranks begin with its number. Any
number of processes can do this in any order, and the bytes are the same.

No I/O: the in-memory simulation and the commands over files call `release`, which does all of it;
`services.shuffler.pipeline` runs the same methods as stages over files. SPEC section 10; paper
section "A Concrete Protocol" (the shuffle functionality).
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
    abandonment,
    due,
)
from coatcheck.protocol.state_machine import SHUFFLER_TRANSITIONS, ShufflerPhase
from coatcheck.protocol.terms import Round
from coatcheck.protocol.ticket import Receipt, issue_receipts
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

RANK_SIZE: Final = 16
_RANKED: Final = RANK_SIZE + ID_SIZE
_NONE: Final = bytes(ID_SIZE)
SECRET_SIZE: Final = 32
Bytes = NDArray[np.uint8]


class ShufflerState(Struct):
    """The state of a round that a shuffler stores, so that a crash does not lose it.

    Attributes:
        secret: the key of the order; zeros once it is erased.
        held: at the first shuffler, group and body of each upload by its id; at a later one, group
            and commitment of each registration.
        incoming: at a later shuffler, the batch of the shuffler before.
        accepted: the hash of that batch's manifest, which outlives the batch.
        batch: the released batch, until it is delivered.
        outcome: the signed outcome of an abandoned round.
    """

    secret: bytearray
    held: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)
    phase: ShufflerPhase = ShufflerPhase.OPEN
    incoming: bytes = b""
    accepted: bytes = b""
    batch: bytes = b""
    outcome: bytes = b""

    def __repr__(self) -> str:
        return f"ShufflerState({self.phase.value}, held={len(self.held)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Print only the phase in rich terminals too; the default would print every field."""
        return [("phase", self.phase.value)]


def fresh_state(entropy: Entropy, *, simulated: bool = False) -> ShufflerState:
    """Return the state of a new round: no uploads, and a new secret for the order.

    Seeded randomness is refused unless `simulated` (S2.9): the seed gives the secret, and so the
    order, to everyone who knows it.
    """
    if not entropy.secure and not simulated:
        raise Refused(
            "seeded randomness hides no order and is for simulations only: use `system()`"
        )
    return ShufflerState(bytearray(entropy.token(SECRET_SIZE)))


class Shuffler:
    """One shuffler of one round.

    *Guarantee:* nothing leaves before every group has its minimum crowd. A later shuffler counts
    that crowd by traps, whatever the shufflers before it do. The order of a batch depends on the
    round's secret alone, and a retry gives the same order. The secret and the uploads are erased
    once the batch is made.
    """

    def __init__(
        self, round_: Round, *, keys: KeyPairs, state: ShufflerState, bulk: Bulk | None = None
    ) -> None:
        verifying_keys = [party.verifying for party in round_.terms.shufflers]
        own = keys.signing.public_raw.hex()
        if own not in verifying_keys:
            raise Misuse(
                "the terms name no shuffler with this key: use the key file that they name"
            )
        self.hop = verifying_keys.index(own)
        if round_.terms.shufflers[self.hop].sealing != keys.opening.public_raw.hex():
            raise Misuse(
                "the terms name this shuffler's verifying key with another sealing key: use the"
                " key file that they name"
            )
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
        """The number of people in each group with an upload or a registration."""
        counts = Counter(group for group, _ in self.state.held.values())
        return tuple(counts[number] for number in range(len(self.round.terms.groups)))

    def receive(self, raw: bytes, *, now: int) -> bytes:
        """Take an upload or, at a later shuffler, a registration, and return the signed receipt.

        The same bytes get a receipt again (S10.17).
        """
        upload = self.check(raw, now=now)
        held = self.state.held.get(upload.id)
        if held is None:
            self.state.phase = SHUFFLER_TRANSITIONS.after(self.phase, "receive")
            self.state.held[upload.id] = (upload.group, upload.body)
        elif held != (upload.group, upload.body):
            raise Refused(
                "the shuffler holds other bytes under this id: resend those of the ticket"
            )
        return self.receipts([Receipt.body_of(raw, upload)])[0]

    def check(self, raw: bytes, *, now: int) -> Upload:
        """Check the form and time of an upload or a registration without holding it.

        A driver that stores uploads itself calls this, and its store makes the transition.
        """
        if self.hop:
            upload = Registration.decode(raw, self.round, hop=self.hop).held
        else:
            upload = Upload.decode(raw, self.round)
        if now < self.round.terms.opens:
            raise Refused("the round is not open yet: keep the ticket and resend its bytes later")
        if now >= self.round.terms.expires:
            raise Refused("the round has expired and takes no uploads: join a newer one")
        return upload

    def receipts(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Sign once for uploads that are stored durably, and return a receipt for each (S10.19)."""
        return issue_receipts(bodies, self._keys.signing.sign, entropy=system())

    def accept(self, raw: bytes) -> None:
        """Take the batch of the shuffler before this one; the same batch again changes nothing."""
        if self.state.accepted:
            if Batch.decode(raw, self.round).manifest.content != self.state.accepted:
                raise Refused(
                    "this round has another batch already, and the first one stays (S10.23)"
                )
            return
        after = SHUFFLER_TRANSITIONS.after(self.phase, "accept")
        self.state.accepted = verify_batch(raw, self.round, hop=self.hop - 1).manifest.content
        self.state.incoming, self.state.phase = raw, after

    def close(self, *, now: int) -> None:
        """Stop taking uploads, once `closes` has passed and every group has its minimum crowd."""
        after = SHUFFLER_TRANSITIONS.after(self.phase, "close")
        reason = self.why_open(now=now, crowd=self.crowd)
        if reason:
            raise Refused(reason)
        self.state.phase = after

    def why_open(self, *, now: int, crowd: Sequence[int]) -> str:
        """Say why a round with this crowd cannot close yet; empty if it can."""
        if self.hop:
            return "the batch of the shuffler before this one has not arrived"
        if now < self.round.terms.closes:
            return "the round is open until `closes` of its terms: close it then"
        return self._shortage(crowd)

    def reopen(self, *, now: int) -> None:
        """Take uploads again: too few were left after peeling, but more can still come."""
        after = SHUFFLER_TRANSITIONS.after(self.phase, "reopen")
        if self.expired(now=now):
            raise Refused("no more uploads can come to this round: let it expire")
        self.state.phase = after

    def expired(self, *, now: int) -> bool:
        """Return whether a round that is not released has to be abandoned."""
        return bool(self.overdue(now=now))

    def is_late(self, *, now: int) -> bool:
        """Return whether the next role has stopped waiting for the batch."""
        return now >= due(self.round, self.hop + 1)

    def overdue(self, *, now: int) -> int:
        """Return the reason for which the round must be abandoned now; `NO_REASON` if it need not.

        The first shuffler gets no more uploads after `expires`, and a later one gets one batch.
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
        """Peel and permute the items, and return the signed batch; again, the same bytes.

        Refused if too few items are left after peeling, or if traps show too few people: then
        nothing has changed, and the round is reopened or expires.
        """
        if self.state.batch:
            return self.state.batch
        after = SHUFFLER_TRANSITIONS.after(self.phase, "release")
        earlier, incoming = self._incoming()
        tallies, partitions = [], []
        for group, (tally, parts) in enumerate(incoming):
            peeled = [self.peeler.peel(group, part) for part in parts]
            sifted = sift(tally, (part.ranks for part in peeled), traps=self._traps(group))
            bits = bits_of(tally.received, self.round.item_size(group, self.hop + 1))
            shares = zip(*(part.shares(bits) for part in peeled), strict=True)
            tallies.append(sifted.tally)
            partitions.append(
                [gather(*pair) for pair in zip(shares, sifted.shares(bits), strict=True)]
            )
        self.check_people(tallies, [tally for tally, _ in incoming], self.crowd)
        described = [
            [Part.of(raw, size=self.round.item_size(group, self.hop + 1)) for raw in raws]
            for group, raws in enumerate(partitions)
        ]
        manifest = self.manifest(tallies, described, earlier=earlier)
        self.state.batch = manifest + b"".join(raw for raws in partitions for raw in raws)
        self._erase(after)
        return self.state.batch

    @property
    def peeler(self) -> "Peeler":
        """A peeler with this shuffler's key and the round's secret."""
        key, secret = self._keys.opening, bytes(self.state.secret)
        return Peeler(self.round, hop=self.hop, key=key, secret=secret, bulk=self._bulk)

    def check_people(
        self, tallies: Sequence[Tally], before: Sequence[Tally], registered: Sequence[int]
    ) -> None:
        """Refuse a release whose counts leave too few people to hide among."""
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
        """Return the signed manifest of a batch that `check_people` has passed."""
        draft = Manifest.compose(parts, tallies, digest=self.round.digest, earlier=earlier)
        return draft.sign(self._keys.signing.sign)

    def abandon(self) -> bytes:
        """Abandon the round: erase every upload, release nothing; return the signed outcome."""
        return self._abandon(
            SHUFFLER_TRANSITIONS.after(self.phase, "abandon"), self.outcome(OPERATOR)
        )

    def expire(self, *, now: int) -> bytes:
        """Abandon a round whose time is over; return the signed outcome."""
        after, reason = SHUFFLER_TRANSITIONS.after(self.phase, "expire"), self.overdue(now=now)
        if not reason:
            raise Refused("this round can still be released: wait, or abandon it")
        return self._abandon(after, self.outcome(reason))

    def hear(self, raw: bytes) -> bytes:
        """Abandon a round that an earlier shuffler abandoned; return its signed outcome."""
        after = SHUFFLER_TRANSITIONS.after(self.phase, "hear")
        verify_outcome(raw, self.round, before=self.hop)
        return self._abandon(after, raw)

    def tell(self) -> None:
        """Record that the board has an outcome of the round."""
        self.state.phase = SHUFFLER_TRANSITIONS.after(self.phase, "tell")

    def outcome(self, reason: int) -> bytes:
        """Return this shuffler's signed outcome of a round that it abandons."""
        draft = abandonment(self.round, reason=reason, signer=self.hop)
        return draft.signed(self._keys.signing.sign).encode()

    def _abandon(self, after: ShufflerPhase, outcome: bytes) -> bytes:
        self.state.batch, self.state.outcome = b"", outcome
        self._erase(after)
        return outcome

    def forget(self) -> None:
        """Erase the batch, once the next role has it."""
        self.state.phase = SHUFFLER_TRANSITIONS.after(self.phase, "forget")
        self.state.batch = b""

    def _traps(self, group: int) -> Bytes:
        """Return the names of the traps of a group that are registered here."""
        held = self.state.held.items() if self.hop else ()
        return as_rows(b"".join(name for name, (number, _) in held if number == group), ID_SIZE)

    def _people(
        self, tallies: Sequence[Tally], before: Sequence[Tally], crowd: Sequence[int]
    ) -> list[int]:
        """Count the people of each group; at a later shuffler, those that the traps prove."""
        if not self.hop:
            return [tally.kept // self.round.items_each(n) for n, tally in enumerate(tallies)]
        delta = self.round.terms.trap_delta
        groups = enumerate(zip(tallies, before, crowd, strict=True))
        return [
            people(
                counted=after.traps - earlier.traps,
                registered=registered,
                delta=delta,
                reports=self.round.reports_each(number),
            )
            for number, (after, earlier, registered) in groups
        ]

    def _shortage(self, sizes: Sequence[int]) -> str:
        delta = self.round.terms.trap_delta
        for group, size in zip(self.round.terms.groups, sizes, strict=True):
            # Without this slack the later shufflers would count too few people (S10.31).
            spare = slack(0, delta, reports=1 + group.decoys) if delta and not self.hop else 0
            least = group.minimum + spare
            if size < least:
                return (
                    f"group {group.name!r} has {max(0, size)} of the {least} people it needs; fewer"
                    " would hide nobody: wait for more, or abandon the round"
                )
        return ""

    def _incoming(self) -> tuple[Sequence[bytes], list[tuple[Tally, list[dict[bytes, bytes]]]]]:
        """Return the earlier roots, and for each group its earlier tally and sealed items by id."""
        groups: list[list[dict[bytes, bytes]]] = [[] for _ in self.round.terms.groups]
        if self.hop:
            batch = Batch.decode(self.state.incoming, self.round)
            for number, items in batch.items_by_partition():
                groups[number].append({content_id(item): item for item in items})
            return batch.roots, list(zip(batch.tallies, groups, strict=True))
        sealed: list[dict[bytes, bytes]] = [{} for _ in groups]
        for upload, (number, body) in self.state.held.items():
            sealed[number] |= items_of(upload, body, count=self.round.items_each(number))
        return (), [(Tally(len(items)), [items]) for items in sealed]

    def _erase(self, phase: ShufflerPhase) -> None:
        self.state.secret[:] = bytes(len(self.state.secret))
        self.state.held, self.state.incoming = {}, b""
        self.state.phase = phase


# -- peeling a part of a group, and gathering the partitions of the batch


@dataclass(frozen=True)
class Peeled:
    """A peeled part of a group, one row for each item.

    Attributes:
        ranks: rank and name of every item; the name is zero if the item did not open.
        items: rank and content of the items that opened, by rank.
    """

    ranks: Bytes
    items: Bytes

    def shares(self, bits: int) -> list[Bytes]:
        """Divide the items among the partitions by the leading bits of their ranks."""
        return _shares(self.items, bits)


@dataclass(frozen=True)
class Sifted:
    """The tally of a group, and the ranks of opened items that the batch leaves out."""

    tally: Tally
    dropped: Bytes

    def shares(self, bits: int) -> list[Bytes]:
        """Divide the dropped ranks among the partitions."""
        return _shares(self.dropped, bits)


class Peeler:
    """A worker that opens a shuffler's layer of the items in a part of a group.

    *Guarantee:* it gives the same bytes for the same part and secret, wherever it runs.
    """

    def __init__(
        self, round_: Round, *, hop: int, key: OpeningKey, secret: bytes, bulk: Bulk | None = None
    ) -> None:
        self._round = round_
        self._hop = hop
        self._key = key
        self._bulk = bulk or Bulk()
        self._ranked = hashlib.blake2b(key=secret, digest_size=RANK_SIZE, person=b"coatcheck order")

    def peel(self, group: int, sealed: Mapping[bytes, bytes]) -> Peeled:
        """Open this shuffler's layer of items, given by their ids."""
        bounds = self._bounds(group, sealed)
        opened = self._bulk.unseal_each(list(sealed.values()), key=self._key, bounds=bounds)
        ranks = as_rows(b"".join(self.rank(group, name) for name in sealed), RANK_SIZE)
        # Every item is hashed, so that a trap takes no other time than a report.
        commit = committing(digest=self._round.digest, group=group, hop=self._hop)
        names = b"".join(commit(item)[:ID_SIZE] if item else _NONE for item in opened)
        items = as_rows(b"".join(filter(None, opened)), self._round.item_size(group, self._hop + 1))
        item_ranks = ranks[np.fromiter(map(bool, opened), np.bool_, len(opened))]
        order, _ = in_order(item_ranks)
        return Peeled(
            np.concatenate([ranks, as_rows(names, ID_SIZE)], axis=1),
            np.concatenate([item_ranks[order], items[order]], axis=1),
        )

    def rank(self, group: int, name: bytes) -> bytes:
        """Return an item's rank in the batch: the permutation is the order of these ranks."""
        # A keyed hash, not a random permutation: a retry after a crash gives the same order
        # (S10.39), and without the secret the order reveals nothing. Ids are unique, so no two
        # items have the same rank.
        keyed = self._ranked.copy()
        keyed.update(bytes((group,)) + self._round.digest + name)
        return keyed.digest()

    def _bounds(self, group: int, names: Collection[bytes]) -> list[bytes]:
        """Return what this shuffler's layer of each item is bound to."""
        digest, hop = self._round.digest, self._hop
        if hop:
            return [binding(Purpose.LAYER, digest=digest, group=group, hop=hop)] * len(names)
        head = binding(Purpose.LAYER, digest=digest, group=group, upload=b"")
        return [head + name[:ID_SIZE] for name in names]


def sift(tally: Tally, ranked: Iterable[Bytes], *, traps: Bytes) -> Sifted:
    """Count and drop the items of a group that did not open, are repeated, or are traps.

    `ranked` are the ranks and names of all parts. Of equal items the first one in the new order
    is_kept. A trap counts once: the same bytes a second time are a repetition.
    """
    rows = np.concatenate([np.zeros((0, _RANKED), np.uint8), *ranked])
    rows = rows[first_of_each(rows[:, :RANK_SIZE])]
    opened = rows[rows[:, RANK_SIZE:].any(axis=1)]
    ranks, names = np.ascontiguousarray(opened[:, :RANK_SIZE]), opened[:, RANK_SIZE:]
    is_kept = np.zeros(len(opened), np.bool_)
    is_kept[first_of_each(names)] = True
    are_traps = is_kept & np.isin(_keys(names), _keys(traps))
    tally = tally.drop("repeated", tally.kept - len(rows) + int((~is_kept).sum()))
    tally = tally.drop("unpeeled", len(rows) - len(opened)).drop("trap", int(are_traps.sum()))
    return Sifted(tally, ranks[~is_kept | are_traps])


def gather(shares: Iterable[Bytes], dropped: Bytes) -> bytes:
    """Make a partition of its shares of all parts: in order of rank, without the dropped items."""
    rows = np.concatenate(list(shares))
    rows = rows[first_of_each(rows[:, :RANK_SIZE])]
    is_kept = ~np.isin(_keys(rows[:, :RANK_SIZE]), _keys(dropped))
    return rows[is_kept, RANK_SIZE:].tobytes()


def as_rows(raw: bytes, width: int) -> Bytes:
    """Read rows of one width."""
    return np.frombuffer(raw, np.uint8).reshape(-1, width)


def _keys(columns: Bytes) -> NDArray[Any]:
    """Return rows as values that are compared byte by byte."""
    flat = np.ascontiguousarray(columns)
    return flat.view(np.dtype((np.void, columns.shape[1]))).ravel()


def _shares(ranked: Bytes, bits: int) -> list[Bytes]:
    """Cut rows that begin with their rank, in order of rank, where the leading bits change."""
    if not bits:
        return [ranked]
    leading = np.ascontiguousarray(ranked[:, :8]).view(">u8").ravel() >> np.uint64(64 - bits)
    ends = np.searchsorted(leading, np.arange(1, 1 << bits, dtype=np.uint64))
    return np.split(ranked, ends)
