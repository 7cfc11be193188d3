"""A performance: every person of a play takes part as a client of their own, side by side.

Each one examines the terms with their own arithmetic, joins with system randomness, uploads,
waits, collects and writes, over whatever stage the roles stand on. This file holds everybody's
tickets, as only a demo may. SPEC sections 6 to 12 in the order of a person's day.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, TypeVar

from coatcheck import client, witness
from coatcheck.agreement import SignedTerms, settle
from coatcheck.amplification import Guarantee
from coatcheck.client import Invitation, Limit
from coatcheck.demo.plays import Play
from coatcheck.errors import Refused
from coatcheck.messages import Answer
from coatcheck.notices import Bulletin
from coatcheck.server import Opened
from coatcheck.terms import Round
from coatcheck.ticket import Ticket

T = TypeVar("T")
AT_ONCE: Final = 48
"""How many people are busy at the same moment."""


class Stage(Protocol):
    """The roles as people meet them, on loopback or anywhere else."""

    @property
    def trusted(self) -> Collection[bytes]:
        """The verifying keys that people know from elsewhere."""

    def open(self, play: Play) -> SignedTerms:
        """Have a round proposed, counter-signed and opened."""

    def upload(self, raw: bytes) -> bytes:
        """Hand in an upload and return the receipt."""

    def close(self) -> None:
        """Let the round close, and wait until its answers are on the board."""

    def bulletin(self) -> bytes:
        """Fetch the whole bulletin."""

    def post(self, posting: bytes) -> None:
        """Post a letter."""

    def letters(self) -> Sequence[bytes]:
        """Fetch every letter of the round."""

    def seen(self, uploads: Sequence[bytes], round_: Round, play: Play) -> Sequence[Opened]:
        """Return what the server saw of each group, which only whoever holds its key can."""


class Watcher(Protocol):
    """Whoever wants to see how far a step is."""

    def begin(self, step: str, total: int) -> None:
        """Start a step of so many parts."""

    def advance(self) -> None:
        """Note that a part is done."""


@dataclass(frozen=True)
class Step:
    """A step of the round and how long it took."""

    name: str
    seconds: float
    people: int = 0


@dataclass(frozen=True)
class Sent:
    """A letter that arrived: from and to whom (group, row), and what it says."""

    sender: tuple[int, int]
    reader: tuple[int, int]
    body: str


@dataclass
class Performance:
    """What happened, from every chair at once."""

    play: Play
    round: Round
    guarantees: tuple[Guarantee, ...]
    tickets: tuple[tuple[Ticket, ...], ...] = ()
    answers: tuple[tuple[Answer, ...], ...] = ()
    bulletin: Bulletin | None = None
    seen: Sequence[Opened] = ()
    letters: list[Sent] = field(default_factory=list)
    posted: int = 0
    steps: list[Step] = field(default_factory=list)

    @contextmanager
    def step(self, name: str, people: int = 0) -> Iterator[None]:
        """Time what is done inside."""
        start = time.perf_counter()
        yield
        self.steps.append(Step(name, time.perf_counter() - start, people))

    def whose(self) -> dict[bytes, tuple[int, int]]:
        """Tell whose each address is: group and row. Only a demo can know."""
        return {
            ticket.keys.address: (group, row)
            for group, tickets in enumerate(self.tickets)
            for row, ticket in enumerate(tickets)
        }

    def partners(self, group: int) -> list[tuple[tuple[int, int], ...]]:
        """Return for each person of a group the partners told of, as (group, row)."""
        whose = self.whose()
        return [
            tuple(whose[client.address(partner, self.round)] for partner in answer.partners)
            for answer in self.answers[group]
        ]


def perform(play: Play, stage: Stage, *, epsilon: float, watcher: Watcher) -> Performance:
    """Play a round: everybody joins, the roles do their work, everybody collects and writes."""
    start = time.perf_counter()
    watcher.begin("terms are drafted, signed and opened", 1)
    signed = stage.open(play)
    invitations = [_invite(signed, draft.name, stage, epsilon) for draft in play.drafts]
    watcher.advance()
    show = Performance(play, settle(signed), tuple(one.guarantee for one in invitations))
    show.steps.append(Step("terms signed, counter-signed, opened", time.perf_counter() - start))
    with show.step("people join over HTTP", play.people):
        show.tickets = _join(show, invitations, stage, watcher)
    with show.step("close, shuffle, open, compute, seal, publish"):
        watcher.begin("the roles shuffle, compute and publish", 1)
        stage.close()
        watcher.advance()
    with show.step("people collect their answers", play.people):
        show.answers = _collect(show, stage, watcher)
    if any(partners for group in range(len(play.values)) for partners in show.partners(group)):
        with show.step("letters between partners"):
            _correspond(show, stage, watcher)
    uploads = [ticket.upload for tickets in show.tickets for ticket in tickets]
    show.seen = stage.seen(uploads, show.round, play)
    return show


def _invite(signed: SignedTerms, group: str, stage: Stage, epsilon: float) -> Invitation:
    limit = Limit(epsilon=epsilon, delta=1e-3)
    return client.examine(
        signed, group=group, trusted=stage.trusted, limit=limit, now=int(time.time())
    )


def _side_by_side(
    work: Sequence[Callable[[], T]], watcher: Watcher, *, at_once: int = AT_ONCE
) -> list[T]:
    """Run everybody's errand, so many at a time; the first failure stops those not begun."""
    with ThreadPoolExecutor(at_once) as pool:
        futures = [pool.submit(errand) for errand in work]
        try:
            for future in as_completed(futures):
                future.result()
                watcher.advance()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]


def _by_group(flat: Sequence[T], sizes: Sequence[int]) -> tuple[tuple[T, ...], ...]:
    ends = [sum(sizes[: n + 1]) for n in range(len(sizes))]
    return tuple(tuple(flat[end - size : end]) for end, size in zip(ends, sizes, strict=True))


def _join(
    show: Performance, invitations: Sequence[Invitation], stage: Stage, watcher: Watcher
) -> tuple[tuple[Ticket, ...], ...]:
    def errand(invitation: Invitation, value: Sequence[float]) -> Ticket:
        ticket = invitation.join(value, ledger=None, clamp=True)
        return client.keep_receipt(ticket, stage.upload(ticket.upload), show.round)

    watcher.begin("people join", show.play.people)
    work = [
        partial(errand, invitation, value)
        for invitation, values in zip(invitations, show.play.values, strict=True)
        for value in values.tolist()
    ]
    return _by_group(_side_by_side(work, watcher), [len(rows) for rows in show.play.values])


def _collect(show: Performance, stage: Stage, watcher: Watcher) -> tuple[tuple[Answer, ...], ...]:
    """Let everybody fetch the whole bulletin, check it and open their own entry."""

    def errand(ticket: Ticket) -> Answer:
        bulletin = witness.check_bulletin(stage.bulletin(), show.round)
        return client.collect(ticket, bulletin, show.round)

    watcher.begin("people collect", show.play.people)
    show.bulletin = witness.check_bulletin(stage.bulletin(), show.round)
    if not show.bulletin.heading.sizes or not any(show.bulletin.heading.sizes):
        raise Refused("the round was not answered: too few good reports were left to hide among")
    work = [partial(errand, ticket) for tickets in show.tickets for ticket in tickets]
    return _by_group(_side_by_side(work, watcher), [len(tickets) for tickets in show.tickets])


def _correspond(show: Performance, stage: Stage, watcher: Watcher) -> None:
    """Let everyone of the first group write to their nearest partner, and the partner reply."""
    first, reply = show.play.lines
    pairs = [(row, told[0]) for row, told in enumerate(show.partners(0)) if told]
    readers = dict.fromkeys(partner for _, partner in pairs)
    watcher.begin("letters are written", len(pairs) + len(readers))
    whose = show.whose()

    def write(row: int) -> None:
        to = show.answers[0][row].partners[0].contact
        raw, _ = client.write(show.tickets[0][row], first.encode(), to=to, round_=show.round)
        stage.post(raw)

    _side_by_side([partial(write, row) for row, _ in pairs], watcher)
    posted = stage.letters()

    def answer(reader: tuple[int, int]) -> list[Sent]:
        ticket = show.tickets[reader[0]][reader[1]]
        inbox = client.read(ticket, posted, show.round)
        for letter in inbox.letters:
            raw, ticket = client.write(
                ticket, reply.encode(), to=letter.sender.raw, round_=show.round
            )
            stage.post(raw)
        return [Sent(whose[one.sender.address], reader, one.body.decode()) for one in inbox.letters]

    found = _side_by_side([partial(answer, reader) for reader in readers], watcher)
    posted = stage.letters()
    show.posted = len(posted)
    hero = client.read(show.tickets[0][0], posted, show.round)
    show.letters = [letter for letters in found for letter in letters]
    show.letters += [
        Sent(whose[one.sender.address], (0, 0), one.body.decode())
        for one in hero.letters
        if whose[one.sender.address] in readers and one.body.decode() == reply
    ]
