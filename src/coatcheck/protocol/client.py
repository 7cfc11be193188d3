"""The client: a person's side, which trusts nobody's arithmetic but its own.

Examine the terms, join with one randomized report, keep the ticket, collect your answer, exchange
letters with partners. The value itself is used when a ticket is made and nowhere else. No I/O.
SPEC section 12, paper sections "A Concrete Protocol" and "Post-computation Communication".
"""

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from coatcheck import entropy as sources
from coatcheck import tasks
from coatcheck.accounting.amplification import Guarantee, amplify
from coatcheck.entropy import Entropy
from coatcheck.errors import SHAPELESS, Malformed, Missing, Misuse, Refused
from coatcheck.protocol.agreement import SignedTerms, Trust, TrustedTerms, accept
from coatcheck.protocol.envelope import Purpose, binding, seal, unseal
from coatcheck.protocol.keys import SEED_SIZE, KeyPairs, SealingKey, address_of
from coatcheck.protocol.letters import Inbox, read, write
from coatcheck.protocol.log.verification import SignedOutcome, VerifiedBulletin, VerifiedEntry
from coatcheck.protocol.outcomes import end_due, flaw, words
from coatcheck.protocol.terms import ADDRESS_SIZE, Anybody, GroupTerms, Round
from coatcheck.protocol.ticket import Ticket, TicketStore, keep_receipt, keep_registered, same_round
from coatcheck.protocol.wire.bulletins import ANSWERED, REFUSED
from coatcheck.protocol.wire.messages import (
    Answer,
    Partner,
    PayloadFormat,
    decode_answer,
    encode_report,
)
from coatcheck.protocol.wire.uploads import ID_SIZE, Registration, Upload, commitment
from coatcheck.randomizers import CoinResponse, Randomizer, from_params


# HOUSE-DOC protocol.wrapping: 'Wrapping: a report, and the traps beside it, in the layers of a cascade.\n\nEvery item of an upload looks alike from outside, and their order is drawn afresh: no shuffler can\ntell a trap of a later one from the report. Sees a report only as bytes. SPEC sections 5 and 7.\n'
@dataclass(frozen=True)
class Parcel:
    """What a person hands in.

    Attributes:
        upload: for the first shuffler.
        registrations: for each later one, in order; they go first.
    """

    upload: bytes
    registrations: tuple[bytes, ...]


def wrap(report: bytes, round_: Round, *, group: int, entropy: Entropy) -> Parcel:
    """Seal a report for the server and the cascade, and make one trap for every later shuffler."""
    later = range(1, len(round_.terms.shufflers))
    name = entropy.token(ID_SIZE)
    server = SealingKey(round_.suite, bytes.fromhex(round_.terms.server.sealing))
    bound = binding(Purpose.REPORT, digest=round_.digest, group=group)
    traps = [entropy.token(round_.item_size(group, hop + 1)) for hop in later]
    items = [layered(seal(report, to=server, bound=bound), round_, group=group, name=name)]
    items += [
        layered(trap, round_, group=group, name=name, last=hop)
        for hop, trap in zip(later, traps, strict=True)
    ]
    body = b"".join(_shuffled(items, entropy))
    registrations = tuple(
        Registration(
            hop, group, round_.digest, commitment(trap, digest=round_.digest, group=group, hop=hop)
        ).encode()
        for hop, trap in zip(later, traps, strict=True)
    )
    return Parcel(Upload(group, round_.digest, name, body).encode(round_), registrations)


def layered(
    text: bytes, round_: Round, *, group: int, name: bytes, last: int | None = None
) -> bytes:
    """Seal bytes to each shuffler up to the last, or the one at a place, the first one last."""
    shufflers, digest = round_.terms.shufflers, round_.digest
    for hop in reversed(range(len(shufflers) if last is None else last + 1)):
        to = SealingKey(round_.suite, bytes.fromhex(shufflers[hop].sealing))
        named = bytes(ID_SIZE) if hop else name
        bound = binding(Purpose.LAYER, digest=digest, group=group, hop=hop, upload=named)
        text = seal(text, to=to, bound=bound)
    return text


def _shuffled(items: Sequence[bytes], entropy: Entropy) -> list[bytes]:
    """Put items into a uniformly random order."""
    left, drawn = list(items), []
    while len(left) > 1:
        drawn.append(left.pop(entropy.integer(len(left))))
    return drawn + left


__all__ = [
    "Budget",
    "Inbox",
    "Invitation",
    "Limit",
    "address",
    "collect",
    "examine",
    "keep_receipt",
    "keep_registered",
    "open_entry",
    "read",
    "write",
]

_SLACK = 1e-9  # how far a computed ε may lie above its promise: rounding of the last digits
_promised = lru_cache(maxsize=64)(amplify)  # many people of one machine are promised the same
_WIDEST = 1024  # numbers in a report that is examined: the law of a wider one takes minutes


class Budget(Protocol):
    """What the client needs of a ledger."""

    def spend(self, guarantee: Guarantee, *, round_id: str, digest: bytes, until: int) -> object:
        """Record a round, or refuse it; the same report once more costs nothing.

        From the time `until` on it costs the local ε, unless its end is known by then.
        """

    def record_outcome(self, round_id: str, *, missing: int | None) -> object:
        """Charge what a round cost, now that its end is known; None means the local ε."""


@dataclass(frozen=True)
class Limit:
    """The most that a person lets one round cost."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Invitation:
    """Terms that a person has examined and found within their limit. Made by `examine`."""

    round: TrustedTerms
    group: int
    randomizer: Randomizer
    guarantee: Guarantee
    simulated: bool = False

    @property
    def of(self) -> GroupTerms:
        """The group that one would join."""
        return self.round.terms.groups[self.group]

    def join(
        self,
        value: Any,
        *,
        ledger: Budget | None,
        store: TicketStore | None = None,
        entropy: Entropy | None = None,
        note: bytes = b"",
        clamp: bool = False,
    ) -> Ticket:
        """Return the stored ticket, or randomize once and store a new one; then pay for it.

        The caller sends `ticket.registrations`, then `ticket.upload`, and after a failure the same
        bytes again: fresh noise would be a second report. *Guarantee:* the ticket is stored before
        the ledger is asked, so that no crash loses what was paid for; if the ledger refuses, a new
        ticket is removed.
        """
        kept = store.load() if store else None
        ticket = kept or self._ticket(value, entropy=entropy, note=note, clamp=clamp)
        if (ticket.digest, ticket.group) != (self.round.digest, self.group):
            raise Misuse("this is the ticket of another round or group: choose another name")
        if store and kept is None:
            store.keep(ticket)
        if ledger is None:
            return ticket
        content = hashlib.sha256(ticket.upload).digest()
        try:
            ledger.spend(
                self.guarantee,
                round_id=self.round.name,
                digest=content,
                until=end_due(self.round),
            )
        except Refused:
            if store and kept is None:
                store.discard()
            raise
        return ticket

    def _ticket(self, value: Any, *, entropy: Entropy | None, note: bytes, clamp: bool) -> Ticket:
        """Randomize a value once and seal the report."""
        source = entropy or sources.system()
        if not source.secure and not self.simulated:
            raise Refused("seeded randomness hides nobody: it is for simulations")
        if clamp:
            report = self.randomizer.randomize([value], source, clamp=True)[0].tolist()
        else:
            report = self.randomizer.randomize_one(value, source)
        format_ = PayloadFormat.between(self.randomizer.low, self.randomizer.high)
        seed = source.token(SEED_SIZE)
        text = encode_report(
            self.round,
            group=self.group,
            contact=KeyPairs(self.round.suite, seed).contact_raw,
            payload=format_.encode(report),
            note=note.ljust(self.of.note_size, b"\0"),
        )
        parcel = wrap(text, self.round, group=self.group, entropy=source)
        return Ticket(
            round=self.round.terms.round,
            digest=self.round.digest,
            suite=self.round.terms.suite,
            group=self.group,
            seed=seed,
            upload=parcel.upload,
            registrations=parcel.registrations,
        )


def examine(
    signed: SignedTerms,
    *,
    group: str,
    trusted: Trust,
    limit: Limit,
    now: int,
    simulated: bool = False,
) -> Invitation:
    """Check the terms with your own arithmetic, and refuse what promises less than asked.

    *Guarantee:* whoever joins on the returned invitation hides among at least the group's
    minimum crowd, less the corrupted and exposed of the terms, at no more than the limit. One
    honest shuffler is enough, and δ has the chance that its traps count wrongly.
    """
    round_ = accept(signed, trusted=trusted)
    number = round_.group(group)
    if not round_.terms.opens <= now < round_.terms.expires:
        raise Refused("the round is not open at this time: ask for a newer one")
    of, promise = round_.terms.groups[number], round_.terms.groups[number].promise
    randomizer = _mechanism(of, simulated=simulated)
    _check_exposure(round_, number)
    try:
        guarantee = _promised(
            randomizer.law,
            crowd=of.minimum,
            delta=round_.crowd_delta(number),
            corrupted=promise.corrupted,
            exposed=promise.exposed,
        )
    except SHAPELESS as error:
        raise Refused(f"the terms' mechanism gives no guarantee: {error}") from None
    guarantee = guarantee.with_traps(round_.terms.trap_delta, delta=promise.delta)
    if guarantee.epsilon > promise.epsilon * (1 + _SLACK):
        raise Refused(
            f"the terms promise ε = {promise.epsilon:g}, the crowd of {of.minimum} gives only"
            f" {guarantee.epsilon:.4g}: do not join"
        )
    if guarantee.epsilon > limit.epsilon or promise.delta > limit.delta:
        raise Refused(
            f"the round costs (ε, δ) = ({guarantee.epsilon:.4g}, {promise.delta:g}), your limit is"
            f" ({limit.epsilon:g}, {limit.delta:g}): wait for a larger crowd or raise the limit"
        )
    anybody = any(isinstance(one.admission, Anybody) for one in round_.terms.shufflers)
    guarantee = dataclasses.replace(guarantee, open=anybody)
    return Invitation(round_, number, randomizer, guarantee, simulated)


def _mechanism(of: GroupTerms, *, simulated: bool) -> Randomizer:
    """Read a group's mechanism and refuse what is not safe; nothing here is slow to compute."""
    try:
        randomizer = from_params(of.randomizer)
    except Misuse as error:
        raise Refused(f"the terms name no mechanism that this version knows: {error}") from None
    if not randomizer.exact and not simulated:
        raise Refused(f"{randomizer.name} computes in floats, which leak: it is for simulations")
    if of.decode not in randomizer.decodes:
        raise Refused(f"{randomizer.name} has no decode {of.decode!r}")
    if randomizer.width > _WIDEST:
        raise Refused(f"a report of the terms has {randomizer.width} numbers, at most {_WIDEST}")
    if PayloadFormat.between(randomizer.low, randomizer.high).size != of.payload_size:
        raise Refused("the size of a report in the terms is not the randomizer's")
    return randomizer


def _check_exposure(round_: Round, number: int) -> None:
    """Refuse terms whose answers would give away more people than they say."""
    groups = round_.terms.groups
    corrupted = [group.promise.corrupted for group in groups]
    coins = any(group.randomizer.get("name") == CoinResponse.name for group in groups)
    if not any(corrupted) and not coins:
        return  # answers to honest people are read by nobody else
    work, sizes = round_.terms.task, [group.minimum for group in groups]
    try:
        task = tasks.from_params({**work.params, "name": work.name})
        if coins:
            tasks.check_coin_allowed(task, sizes=sizes)
        each = len(round_.terms.shufflers)
        told = tasks.exposure(task, sizes=sizes, corrupted=corrupted, each=each)[number]
    except SHAPELESS as error:
        raise Refused(f"cannot tell whom the answers expose: {error}") from None
    stated = groups[number].promise.exposed
    if told > stated:
        raise Refused(
            f"answers can expose {told} members of {groups[number].name!r}, the terms admit"
            f" {stated}: their promise is not kept"
        )


def collect(ticket: Ticket, bulletin: VerifiedBulletin, *, ledger: Budget | None = None) -> Answer:
    """Find and open your answer; the ledger is told how the round ended."""
    record_outcome(ticket, bulletin, ledger=ledger)
    mine = ticket.keys.address
    place = bulletin.find(mine, ticket.group)
    if place is None:
        kept = "your receipt proves" if ticket.receipt else "you have no receipt to prove"
        raise Missing(
            f"your address {mine.hex()} is not on the board; {kept} that the shuffler had your"
            " report: show the upload and the receipt, never the ticket, to whoever runs the round"
        )
    return _open(ticket, bulletin.entries[ticket.group][place], bulletin.round)


def record_outcome(ticket: Ticket, shown: SignedOutcome, *, ledger: Budget | None = None) -> None:
    """Tell the ledger how the round ended; refuse a round that has no answers.

    Only a round that was answered with its crowd hid the report among it. For any other the
    report counts as seen by itself.
    """
    same_round(ticket, shown.round)
    wrong = flaw(shown.heading, shown.round) or _unreceived(ticket, shown)
    answered = shown.heading.outcome == ANSWERED and not wrong
    if ledger:
        ledger.record_outcome(shown.round.name, missing=0 if answered else None)
    if wrong:
        raise Refused(
            f"the heading of this round breaks its own numbers: {wrong}; do not rely on it, and"
            " keep the bulletin, which is signed, as the proof"
        )
    if not answered:
        raise Refused(f"{words(shown.heading, shown.round)}; nobody gets an answer")


def _unreceived(ticket: Ticket, shown: SignedOutcome) -> str:
    """Find out whether a heading denies a report for which there is a receipt."""
    denied = shown.heading.outcome == REFUSED and not shown.heading.tallies[ticket.group].received
    if denied and ticket.receipt:
        return "it counts no report of your group, and you have a receipt for yours"
    return ""


def open_entry(ticket: Ticket, entry: VerifiedEntry) -> Answer:
    """Open the single entry that the board gave for your address."""
    same_round(ticket, entry.round)
    if entry.group != ticket.group or entry.raw[:ADDRESS_SIZE] != ticket.keys.address:
        raise Malformed("this entry is not yours")
    return _open(ticket, entry.raw, entry.round)


def _open(ticket: Ticket, entry: bytes, round_: Round) -> Answer:
    bound = binding(Purpose.ANSWER, digest=round_.digest, group=ticket.group)
    return decode_answer(unseal(entry[ADDRESS_SIZE:], key=ticket.keys.opening, bound=bound), round_)


def address(partner: Partner, round_: Round) -> bytes:
    """Return the address under which the board knows a partner."""
    return address_of(round_.suite, partner.contact)
