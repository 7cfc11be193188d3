"""A person's candidates: settling with sealed letters and signed notices, from the ticket.

Joins the state machine with keys and postings; what is sent and fetched is the caller's. The
ticket that `speak` gives is stored before its outbox is posted. SPEC section 15.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from coatcheck.errors import Misuse, Refused
from coatcheck.protocol import letters
from coatcheck.protocol.keys import Contact
from coatcheck.protocol.settling.nearness import Nearness, offsets, reply_size
from coatcheck.protocol.settling.rules import Progress, Settling, cell_of, prf, schedule, word_size
from coatcheck.protocol.terms import Round, SettleTerms
from coatcheck.protocol.ticket import Ticket
from coatcheck.protocol.wire.bulletins import RECIPIENT
from coatcheck.protocol.wire.messages import Answer, Partner


def settle_terms(round_: Round) -> SettleTerms:
    """Give what the terms say of settling, or refuse."""
    found = round_.terms.settle
    if found is UNSET:
        raise Refused("the terms of this round say nothing of settling: ask without it")
    return found


def begin(ticket: Ticket, place: Sequence[float], *, round_: Round, now: float) -> Ticket:
    """Begin to settle from a place, or go on from the ticket."""
    if ticket.settling is not None:
        return ticket
    scale: Any = round_.terms.task.params.get("scale", ())
    cell = cell_of(place, scale=scale, side=settle_terms(round_).cell)
    axes, room, terms = len(cell), round_.terms.letter_size, settle_terms(round_)
    size = (
        word_size(axes) if terms.asks else reply_size(_radius(round_), side=terms.cell, axes=axes)
    )
    if size > room:
        raise Refused(f"letters of this round have {room} bytes, too few to settle by")
    return replace(ticket, settling=Progress(cell=cell, begun=now))


def _radius(round_: Round) -> float:
    found = round_.terms.task.params.get("radius")
    if not isinstance(found, int | float):
        raise Refused("the terms ask who is near, but their task has no radius")
    return float(found)


class Candidates:
    """One person's side of settling, with the ticket as it stands.

    Attributes:
        ticket: to be stored after every change.
        machine: what the person knows and says.
        refused: how many postings to the person were no letters, by reason.
    """

    def __init__(
        self, ticket: Ticket, answer: Answer, *, round_: Round, sizes: Sequence[int]
    ) -> None:
        if ticket.settling is None:
            raise Misuse("settling has not begun: say where you are")
        self.ticket, self._round = ticket, round_
        self.refused: dict[str, int] = {}
        self._keys = ticket.keys
        asks, mine = settle_terms(round_).asks, self._keys.address
        self._contacts: dict[bytes, bytes] = {}
        lists = [self._listed(one, mine) for one in (answer.partners, answer.second)[: len(asks)]]
        few = min(range(len(sizes)), key=sizes.__getitem__)
        secret = prf(ticket.seed, b"secret", round_.digest)
        self.machine: Settling | Nearness
        if asks:
            self.machine = Settling(
                ticket.settling,
                address=mine,
                asks=ticket.group == few,
                lists=lists,
                secret=secret,
                steps=schedule(asks),
            )
        else:
            axes, side = len(ticket.settling.cell), settle_terms(round_).cell
            self.machine = Nearness(
                ticket.settling,
                address=mine,
                candidates=self._listed(answer.partners, mine),
                secret=secret,
                around=offsets(_radius(round_), side=side, axes=axes),
                digest=round_.digest,
            )

    def _listed(self, partners: Sequence[Partner], mine: bytes) -> list[bytes]:
        """Give the addresses of candidates; who is named twice or has no key counts once or not."""
        found = []
        for partner in partners:
            try:
                address = Contact.decode(self._round.suite, partner.contact).address
            except Refused:
                continue
            if address != mine and address not in self._contacts:
                self._contacts[address] = partner.contact
                found.append(address)
        return found

    @property
    def addresses(self) -> tuple[bytes, ...]:
        """Whose postings matter: the person's own, and those of every candidate."""
        return (self.machine.address, *self._contacts)

    @property
    def partners(self) -> tuple[bytes, ...]:
        """The contacts of the partner, or of all who are near, as far as it is certain."""
        return tuple(self._contacts[who] for who in self.machine.partners)

    @property
    def words(self) -> dict[bytes, bytes]:
        """What they wrote at the end, by contact; as far as it has come."""
        written = self.machine.progress.words
        found = {self._contacts[who]: written.get(who.hex(), b"") for who in self.machine.partners}
        return {contact: text for contact, text in found.items() if text}

    def speak(self, words: bytes = b"") -> list[bytes]:
        """Write the postings of the next step; they are in the ticket, which is stored first."""
        progress, outbox = self.machine.progress, list[bytes]()
        for to, body in self.machine.speak(words):
            if to == self.machine.address:
                posting, self.ticket = letters.write_notice(
                    self.ticket, body, round_=self._round, keys=self._keys
                )
            else:
                posting, self.ticket = letters.write(
                    self.ticket, body, to=self._contacts[to], round_=self._round, keys=self._keys
                )
            outbox.append(posting)
        progress.outbox = outbox
        return outbox

    def stamped(self, posting: bytes) -> bytes:
        """Give a posting of the outbox as it is handed in: after its recipient's contact."""
        return self._contacts.get(posting[RECIPIENT], self._keys.contact_raw) + posting

    def hear(self, postings: Iterable[bytes], *, read: int) -> None:
        """Take in postings to these addresses, in the order of the board; `read` is how far."""
        sealed = []
        for raw in postings:
            notice = letters.read_notice(raw, self._round)
            if notice is not None:
                self.machine.notice(notice.sender.address, notice.body)
            elif raw[RECIPIENT] == self.machine.address:
                sealed.append(raw)
        inbox = letters.read(self.ticket, sealed, self._round, settling=True, keys=self._keys)
        for letter in inbox.letters:
            self.machine.receive(letter.sender.address, letter.body)
        for reason, count in inbox.refused.items():
            self.refused[reason] = self.refused.get(reason, 0) + count
        self.machine.progress.read = read
        self.ticket = inbox.ticket
