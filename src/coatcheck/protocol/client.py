"""The client role: check terms, join with one randomized report, open the answer.

Three steps of a person. `examine` verifies the terms, computes their promise again, refuses terms
that promise too little or cost too much, and returns an `Invitation`. Its `join` randomizes the
value once, seals the report with its decoys and traps, and stores the ticket before the ledger is
charged; `wrap` lays out what is sealed. `collect` opens the answer, and `read` and `write` exchange
letters with partners.

No I/O: the in-memory simulation, the commands over files and `services.person` drive these same
functions. Only `join` sees the value. SPEC section 12; paper sections "A Concrete Protocol" and
"Post-computation Communication".
"""

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from msgspec import UNSET

from coatcheck import entropy as sources
from coatcheck import tasks
from coatcheck.accounting.guarantee import Disclosure, Guarantee
from coatcheck.accounting.reference_bound import ROUNDING, examined
from coatcheck.entropy import Entropy
from coatcheck.errors import UNTRUSTED_DATA_ERRORS, Malformed, Missing, Misuse, Refused
from coatcheck.protocol.agreement import SignedTerms, Trust, TrustedTerms, accept
from coatcheck.protocol.envelope import Purpose, binding, seal, unseal
from coatcheck.protocol.keys import SEED_SIZE, KeyPairs, SealingKey, address_of, decoy_seed
from coatcheck.protocol.letters import Inbox, read, write
from coatcheck.protocol.log.verification import SignedOutcome, VerifiedBulletin, VerifiedEntry
from coatcheck.protocol.outcomes import inconsistency, outcome_due, outcome_text
from coatcheck.protocol.terms import ADDRESS_SIZE, Anybody, GroupTerms, Round
from coatcheck.protocol.ticket import (
    Correspondence,
    Ticket,
    TicketStore,
    keep_receipt,
    keep_registered,
    same_round,
)
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

__all__ = [
    "Budget",
    "Inbox",
    "Invitation",
    "Limit",
    "address",
    "collect",
    "decoy_answers",
    "examine",
    "keep_receipt",
    "keep_registered",
    "open_entry",
    "read",
    "write",
]

_MOST_NUMBERS = 1024  # of a report: to compute the law of a wider one takes minutes
_examined = lru_cache(maxsize=64)(examined)  # many clients on one machine compute the same promise


class Budget(Protocol):
    """The part of a ledger that the client uses; `coatcheck.Ledger` has it, or an app's own."""

    def spend(self, guarantee: Guarantee, *, round_id: str, digest: bytes, until: int) -> object:
        """Record a round, or refuse it; the same report again costs nothing.

        From the time `until` on its local ε is set aside, until its outcome is recorded.
        """

    def record_outcome(self, round_id: str, *, answered: bool) -> object:
        """Record how a round ended; one without an answer to its whole crowd costs its local ε."""


@dataclass(frozen=True)
class Limit:
    """The highest cost of one round that a person accepts.

    Attributes:
        epsilon: the most that the promise of the round may state.
        delta: the same for the chance that the promise fails.
        disclosures: the most candidates who may learn an answer by letter; 0 for somebody who does
            not settle.
    """

    epsilon: float
    delta: float
    disclosures: int = 40


@dataclass(frozen=True)
class Invitation:
    """Terms that `examine` found valid and within the person's limit."""

    round: TrustedTerms
    group: int
    randomizer: Randomizer
    guarantee: Guarantee
    simulated: bool = False

    @property
    def group_terms(self) -> GroupTerms:
        """The terms of the group to join."""
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
        """Return the stored ticket, or randomize once and store a new one; then charge the ledger.

        The caller sends `ticket.registrations`, then `ticket.upload`, and after a failure the same
        bytes again: fresh noise would be a second report. *Guarantee:* the ticket is stored before
        the ledger is charged, so that no crash loses a report that was paid for; if the ledger
        refuses, a new ticket is removed.
        """
        stored = store.load() if store else None
        ticket = stored or self._ticket(value, entropy=entropy, note=note, clamp=clamp)
        if ticket.digest != self.round.digest:
            raise Misuse("the stored ticket is of another round: choose another name for this one")
        if ticket.group != self.group:
            raise Misuse("the stored ticket is of another group: choose another name for this one")
        if store and stored is None:
            store.keep(ticket)
        if ledger is None:
            return ticket
        content = hashlib.sha256(ticket.upload).digest()
        try:
            ledger.spend(
                self.guarantee,
                round_id=self.round.name,
                digest=content,
                until=outcome_due(self.round),
            )
        except Refused:
            if store and stored is None:
                store.discard()
            raise
        return ticket

    def _ticket(self, value: Any, *, entropy: Entropy | None, note: bytes, clamp: bool) -> Ticket:
        """Randomize a value once and seal the report."""
        source = entropy or sources.system()
        if not source.secure and not self.simulated:
            raise Refused(
                "seeded randomness hides nobody and is for simulations only: leave `entropy` out"
            )
        if clamp:
            report = self.randomizer.randomize([value], source, clamp=True)[0].tolist()
        else:
            report = self.randomizer.randomize_one(value, source)
        decoys = range(1, 1 + self.group_terms.decoys)
        payload = PayloadFormat.between(self.randomizer.low, self.randomizer.high)
        seed = source.token(SEED_SIZE)
        seeds = [seed, *(decoy_seed(seed, number) for number in decoys)]
        drawn = [report, *(self.randomizer.decoy(source) for _ in decoys)]
        plain = [
            encode_report(
                self.round,
                group=self.group,
                contact=KeyPairs(self.round.suite, own).contact_raw,
                payload=payload.encode(numbers),
                note=note.ljust(self.group_terms.note_size, b"\0"),
            )
            for own, numbers in zip(seeds, drawn, strict=True)
        ]
        sealed = wrap(plain, self.round, group=self.group, entropy=source)
        return Ticket(
            round=self.round.terms.round,
            digest=self.round.digest,
            suite=self.round.terms.suite,
            group=self.group,
            seed=seed,
            upload=sealed.upload,
            registrations=sealed.registrations,
            decoys=tuple(Correspondence() for _ in decoys),
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
    """Verify the terms, compute their promise again, and refuse terms above the limit.

    *Guarantee:* a person who joins on the returned invitation hides among at least the group's
    minimum crowd, less the corrupted and exposed of the terms, at no more than the limit. One
    honest shuffler is enough, and δ includes the chance that its traps count wrongly.
    """
    round_ = accept(signed, trusted=trusted)
    number = round_.group(group)
    if now < round_.terms.opens:
        raise Refused("the round is not open yet: try again when `opens` of its terms has passed")
    if now >= round_.terms.expires:
        raise Refused("the round has expired: join a newer one")
    own_group, promise = round_.terms.groups[number], round_.terms.groups[number].promise
    randomizer = _mechanism(own_group, simulated=simulated)
    _check_exposure(round_, number)
    try:
        guarantee = _examined(
            randomizer.law,
            promise=promise.epsilon,
            crowd=own_group.minimum,
            delta=round_.crowd_delta(number),
            corrupted=promise.corrupted,
            exposed=promise.exposed,
            decoys=own_group.decoys,
        )
    except UNTRUSTED_DATA_ERRORS as error:
        raise Refused(
            f"the mechanism of the terms gives no guarantee: {error}; do not join"
        ) from None
    guarantee = guarantee.with_traps(round_.terms.trap_delta, delta=promise.delta)
    if guarantee.epsilon > promise.epsilon * (1 + ROUNDING):
        raise Refused(
            f"the terms promise ε = {promise.epsilon:g}, but a crowd of {own_group.minimum} gives"
            f" only ε = {guarantee.epsilon:.4g}: do not join"
        )
    if guarantee.epsilon > limit.epsilon or promise.delta > limit.delta:
        raise Refused(
            f"the round costs (ε, δ) = ({guarantee.epsilon:.4g}, {promise.delta:g}), your limit is"
            f" ({limit.epsilon:g}, {limit.delta:g}): wait for a round with a larger crowd, or raise"
            " the limit"
        )
    is_open = any(isinstance(party.admission, Anybody) for party in round_.terms.shufflers)
    letters = _disclosure(round_, number, randomizer, most=limit.disclosures)
    guarantee = dataclasses.replace(guarantee, open=is_open, letters=letters)
    return Invitation(round_, number, randomizer, guarantee, simulated)


def _disclosure(
    round_: Round, number: int, randomizer: Randomizer, *, most: int
) -> Disclosure | None:
    """Return what letters may tell candidates; refuse terms by which more than `most` are told."""
    if most == 0 or round_.terms.settle is UNSET:
        return None
    from coatcheck.protocol.settling.candidates import disclosure  # noqa: PLC0415 - loads curves

    letters = disclosure(round_, number, axes=randomizer.domain.dimension)
    if letters.candidates > most:
        raise Refused(
            f"by letters of this round up to {letters.candidates} candidates may learn an answer"
            f" about your place, your limit is {most}: raise `disclosures`, or set it to 0 and take"
            " part without settling"
        )
    return letters


def _mechanism(group: GroupTerms, *, simulated: bool) -> Randomizer:
    """Return a group's mechanism, or refuse an unsafe one; nothing here is slow to compute."""
    try:
        randomizer = from_params(group.randomizer)
    except Misuse as error:
        raise Refused(
            f"this version cannot use a mechanism of the terms ({error}): update coatcheck, or do"
            " not join"
        ) from None
    if not randomizer.exact and not simulated:
        raise Refused(
            f"{randomizer.name} computes in floats, which leak: it is for simulations only,"
            " do not join"
        )
    if group.decode not in randomizer.decodes:
        raise Refused(
            f"{randomizer.name} has no decode {group.decode!r}, only"
            f" {', '.join(randomizer.decodes)}: do not join"
        )
    if group.decoys and not randomizer.takes_decoys:
        raise Refused(f"{randomizer.name} has no decoys, but the terms ask for them: do not join")
    if randomizer.width > _MOST_NUMBERS:
        raise Refused(
            f"a report of these terms has {randomizer.width} numbers, but a client examines at most"
            f" {_MOST_NUMBERS}: do not join"
        )
    if PayloadFormat.between(randomizer.low, randomizer.high).size != group.payload_size:
        raise Refused(
            "`payload_size` of the terms is not the size of the randomizer's reports: do not join"
        )
    return randomizer


def _check_exposure(round_: Round, number: int) -> None:
    """Refuse terms whose answers can expose more people than the terms state."""
    groups = round_.terms.groups
    corrupted = [group.promise.corrupted for group in groups]
    coins = any(group.randomizer.get("name") == CoinResponse.name for group in groups)
    if not any(corrupted) and not coins:
        return  # only honest people read answers, each their own
    work, sizes = round_.terms.task, [group.minimum for group in groups]
    try:
        task = tasks.from_params({**work.params, "name": work.name})
        if coins:
            tasks.check_coin_allowed(task, sizes=sizes)
        exposed = tasks.exposure(
            task,
            sizes=sizes,
            corrupted=corrupted,
            shufflers=len(round_.terms.shufflers),
            decoys=[group.decoys for group in groups],
        )[number]
    except UNTRUSTED_DATA_ERRORS as error:
        raise Refused(
            f"the client cannot compute whom the answers expose: {error}; do not join"
        ) from None
    stated = groups[number].promise.exposed
    if exposed > stated:
        raise Refused(
            f"answers can expose {exposed} reports of {groups[number].name!r}, but the terms state"
            f" {stated}: their promise does not hold; do not join"
        )


# -- sealing a report, and the decoys and traps beside it


@dataclass(frozen=True)
class SealedUpload:
    """The bytes that a person sends.

    Attributes:
        upload: for the first shuffler.
        registrations: one for each later shuffler, in order; the client sends them first.
    """

    upload: bytes
    registrations: tuple[bytes, ...]


def wrap(reports: Sequence[bytes], round_: Round, *, group: int, entropy: Entropy) -> SealedUpload:
    """Seal the report and its decoys for the server, beside one trap for every later shuffler.

    All items look alike from outside and their order is random, so that no shuffler can tell the
    report from a decoy or from a trap of a later one. SPEC sections 5 and 7.
    """
    later = range(1, len(round_.terms.shufflers))
    upload_id = entropy.token(ID_SIZE)
    server = SealingKey(round_.suite, bytes.fromhex(round_.terms.server.sealing))
    bound = binding(Purpose.REPORT, digest=round_.digest, group=group)
    traps = [entropy.token(round_.item_size(group, hop + 1)) for hop in later]
    items = [
        seal_layers(seal(report, to=server, bound=bound), round_, group=group, upload_id=upload_id)
        for report in reports
    ]
    items += [
        seal_layers(trap, round_, group=group, upload_id=upload_id, last=hop)
        for hop, trap in zip(later, traps, strict=True)
    ]
    body = b"".join(entropy.shuffled(items))
    registrations = tuple(
        Registration(
            hop, group, round_.digest, commitment(trap, digest=round_.digest, group=group, hop=hop)
        ).encode()
        for hop, trap in zip(later, traps, strict=True)
    )
    return SealedUpload(Upload(group, round_.digest, upload_id, body).encode(round_), registrations)


def seal_layers(
    text: bytes, round_: Round, *, group: int, upload_id: bytes, last: int | None = None
) -> bytes:
    """Seal bytes to the shufflers from `last` (by default the cascade's last) back to the first."""
    shufflers, digest = round_.terms.shufflers, round_.digest
    for hop in reversed(range(len(shufflers) if last is None else last + 1)):
        to = SealingKey(round_.suite, bytes.fromhex(shufflers[hop].sealing))
        upload = bytes(ID_SIZE) if hop else upload_id
        bound = binding(Purpose.LAYER, digest=digest, group=group, hop=hop, upload=upload)
        text = seal(text, to=to, bound=bound)
    return text


# -- collecting


def collect(ticket: Ticket, bulletin: VerifiedBulletin, *, ledger: Budget | None = None) -> Answer:
    """Open the answer to this ticket's report and record the round's outcome in the ledger."""
    record_outcome(ticket, bulletin, ledger=ledger)
    answer = _find(ticket, bulletin)
    if answer is None:
        own = ticket.keys.address
        proof = "your receipt proves" if ticket.receipt else "you have no receipt to prove"
        raise Missing(
            f"your address {own.hex()} is not on the board; {proof} that the shuffler had your"
            " report: show the upload and the receipt, never the ticket, to the round's operators"
        )
    return answer


def decoy_answers(ticket: Ticket, bulletin: VerifiedBulletin) -> tuple[Answer | None, ...]:
    """Open the answer to each decoy, for its letters; None for one that is not on the board."""
    return tuple(_find(decoy, bulletin) for decoy in ticket.decoy_tickets())


def _find(ticket: Ticket, bulletin: VerifiedBulletin) -> Answer | None:
    place = bulletin.find(ticket.keys.address, ticket.group)
    if place is None:
        return None
    return _open(ticket, bulletin.entries[ticket.group][place], bulletin.round)


def record_outcome(ticket: Ticket, shown: SignedOutcome, *, ledger: Budget | None = None) -> None:
    """Record the round's outcome in the ledger; refuse a round that has no answers.

    Only an answered round hid the report in a crowd. After any other outcome the ledger charges
    the local ε, as if the server had seen the report alone.
    """
    same_round(ticket, shown.round)
    contradiction = inconsistency(shown.heading, shown.round) or _denial(ticket, shown)
    answered = shown.heading.outcome == ANSWERED and not contradiction
    if ledger:
        ledger.record_outcome(shown.round.name, answered=answered)
    if contradiction:
        raise Refused(
            f"the heading of this round is inconsistent: {contradiction}; do not rely on it, and"
            " keep the signed bulletin as the proof"
        )
    if not answered:
        raise Refused(f"{outcome_text(shown.heading, shown.round)}; nobody gets an answer")


def _denial(ticket: Ticket, shown: SignedOutcome) -> str:
    """Say how a heading denies a report that has a receipt (S9.9); empty if it does not."""
    denied = shown.heading.outcome == REFUSED and not shown.heading.tallies[ticket.group].received
    if denied and ticket.receipt:
        return "it counts no report of your group, but you have a receipt for yours"
    return ""


def open_entry(ticket: Ticket, entry: VerifiedEntry) -> Answer:
    """Open the single entry that the board returned for the ticket's address."""
    same_round(ticket, entry.round)
    if entry.group != ticket.group or entry.raw[:ADDRESS_SIZE] != ticket.keys.address:
        raise Malformed("the board returned another person's entry: do not rely on it")
    return _open(ticket, entry.raw, entry.round)


def _open(ticket: Ticket, entry: bytes, round_: Round) -> Answer:
    bound = binding(Purpose.ANSWER, digest=round_.digest, group=ticket.group)
    return decode_answer(unseal(entry[ADDRESS_SIZE:], key=ticket.keys.opening, bound=bound), round_)


def address(partner: Partner, round_: Round) -> bytes:
    """Return the address of a partner on the board."""
    return address_of(round_.suite, partner.contact)
