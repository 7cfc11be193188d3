"""A person's side of settling: the rules, driven from the ticket with letters and notices.

`Candidates` connects the state machine with keys and postings; its caller sends and fetches the
postings, and stores the ticket after `speak`, before it posts the outbox (S15.27). SPEC section 15.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from coatcheck import tasks
from coatcheck.accounting.guarantee import Disclosure
from coatcheck.errors import UNTRUSTED_DATA_ERRORS, Misuse, Refused
from coatcheck.protocol import letters
from coatcheck.protocol.keys import Contact
from coatcheck.protocol.settling.exchange import prf
from coatcheck.protocol.settling.rings import Rings, cell_of, cell_of_nobody
from coatcheck.protocol.settling.rules import Progress, Settling, least_letter, schedule
from coatcheck.protocol.terms import Round, SettleTerms
from coatcheck.protocol.ticket import Ticket
from coatcheck.protocol.wire.bulletins import RECIPIENT
from coatcheck.protocol.wire.messages import Answer, Partner


def settle_terms(round_: Round) -> SettleTerms:
    """Return the terms of settling; refuse a round without them."""
    settling = round_.terms.settle
    if settling is UNSET:
        raise Refused("the terms of this round have no `settle`: take part without settling")
    return settling


def begin(
    ticket: Ticket, place: Sequence[float] | None, *, round_: Round, now: float, axes: int = 0
) -> Ticket:
    """Begin to settle from a place, or continue from the ticket.

    Without a place nobody is behind the ticket's address: it writes letters like a person's, for
    cells with so many `axes`, and settles with nobody.
    """
    if ticket.settling is not None:
        return ticket
    terms = settle_terms(round_)
    scale: Any = round_.terms.task.params.get("scale", ())
    if place is None:
        cell = cell_of_nobody(_secret(ticket, round_), axes)
    else:
        cell = cell_of(place, scale=scale, side=terms.cell)
    size, most = least_letter(_rings(round_, len(cell))), round_.terms.letter_size
    if size > most:
        raise Refused(
            f"to settle, letters need {size} bytes, but those of this round have {most}: do not"
            " settle here"
        )
    return replace(ticket, settling=Progress(cell=cell, begun=now))


def _secret(ticket: Ticket, round_: Round) -> bytes:
    return prf(ticket.seed, b"secret", round_.digest)


def _rings(round_: Round, axes: int) -> Rings:
    """Return the rings of the terms; refuse terms that no letter has room for."""
    terms = settle_terms(round_)
    try:
        return Rings(terms.rings, side=terms.cell, axes=axes)
    except Misuse as error:
        raise Refused(f"{error}: do not settle in this round") from None


def disclosure(round_: Round, group: int, *, axes: int) -> Disclosure:
    """Return what a person of a group tells candidates; refuse terms that do not bound it."""
    terms = settle_terms(round_)
    return Disclosure(
        candidates=_most_candidates(round_, group),
        cells=len(_rings(round_, axes).around),
        rings=len(terms.rings),
        chooses=bool(terms.asks),
    )


def _most_candidates(round_: Round, group: int) -> int:
    """Return how many candidates an answer of a group names at most, in all its lists."""
    work, groups = round_.terms.task, round_.terms.groups
    try:
        task = tasks.from_params({**work.params, "name": work.name})
        return task.answer_size([1] * len(groups))[group].references
    except UNTRUSTED_DATA_ERRORS as error:
        raise Refused(
            f"the client cannot compute how many candidates an answer names: {error}; do not"
            " settle here"
        ) from None


class Candidates:
    """One person's side of settling, with the current ticket.

    Attributes:
        ticket: the caller stores it after every change.
        machine: the state machine of the rules.
        refused: the number of invalid letters to the person, by reason.
    """

    def __init__(
        self, ticket: Ticket, answer: Answer, *, round_: Round, sizes: Sequence[int]
    ) -> None:
        if ticket.settling is None:
            raise Misuse("settling has not begun: call `begin` with a place first")
        self.ticket, self._round = ticket, round_
        self.refused: dict[str, int] = {}
        self._keys = ticket.keys
        asks, own = settle_terms(round_).asks, self._keys.address
        self._contacts: dict[bytes, bytes] = {}
        named, most = (
            len(answer.partners) + len(answer.second),
            _most_candidates(round_, ticket.group),
        )
        if named > most:
            raise Refused(
                f"this answer names {named} candidates, but those of these terms name at most"
                f" {most}: do not settle"
            )
        passes = (answer.partners, answer.second)[: max(1, len(asks))]
        lists = [self._addresses(partners, own) for partners in passes]
        smaller_group = min(range(len(sizes)), key=sizes.__getitem__)
        self.machine = Settling(
            ticket.settling,
            address=own,
            asks=ticket.group == smaller_group,
            lists=lists,
            secret=_secret(ticket, round_),
            steps=schedule(asks),
            digest=round_.digest,
            rings=_rings(round_, len(ticket.settling.cell)),
            letter_size=round_.terms.letter_size,
        )

    def _addresses(self, partners: Sequence[Partner], own: bytes) -> list[bytes]:
        """Return the addresses of candidates, without repetitions and without invalid keys."""
        addresses = []
        for partner in partners:
            try:
                address = Contact.decode(self._round.suite, partner.contact).address
            except Refused:
                continue
            if address != own and address not in self._contacts:
                self._contacts[address] = partner.contact
                addresses.append(address)
        return addresses

    @property
    def addresses(self) -> tuple[bytes, ...]:
        """The addresses whose postings matter: the person's own and every candidate's."""
        return (self.machine.address, *self._contacts)

    @property
    def partners(self) -> tuple[bytes, ...]:
        """The contacts of the partner, once it is certain, or of all candidates who are near."""
        return tuple(self._contacts[name] for name in self.machine.partners)

    @property
    def words(self) -> dict[bytes, bytes]:
        """The partners' words at the last step, by contact, if they have arrived."""
        written = self.machine.progress.words
        texts = {
            self._contacts[name]: written.get(name.hex(), b"") for name in self.machine.partners
        }
        return {contact: text for contact, text in texts.items() if text}

    def speak(self, words: bytes = b"") -> list[bytes]:
        """Write the postings of the next step; the caller stores the ticket before posting."""
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
        """Return a posting of the outbox with its recipient's contact before it (S9.31)."""
        return self._contacts.get(posting[RECIPIENT], self._keys.contact_raw) + posting

    def hear(self, postings: Iterable[bytes], *, read: int) -> None:
        """Pass postings to the machine, in the order of the board; `read` is their end."""
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
