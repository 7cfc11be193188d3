"""A whole round in memory: the same objects that ship, driven with arrays in and arrays out.

Knows everybody's values and secrets, which is why nothing here serves people: randomness may be
seeded, and the clients are told that it is a simulation. Also shows what an adversary in each
chair sees. SPEC section 1, paper section "A Concrete Protocol".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from coatcheck import tasks
from coatcheck.accounting.amplification import Guarantee
from coatcheck.entropy import Entropy, seeded
from coatcheck.errors import Misuse
from coatcheck.protocol import client, witness
from coatcheck.protocol.agreement import SignedTerms, countersign, propose, settle
from coatcheck.protocol.board import Board
from coatcheck.protocol.client import Invitation, Limit, examine
from coatcheck.protocol.drafting import GroupDraft, draft_groups, draft_work, notary, party
from coatcheck.protocol.keys import KeyPairs, VerifyingKey
from coatcheck.protocol.messages import Answer
from coatcheck.protocol.notices import Bulletin
from coatcheck.protocol.parcels import Batch, Tally
from coatcheck.protocol.server import Opened, Server
from coatcheck.protocol.shuffler import Shuffler, fresh_state
from coatcheck.protocol.suites import Suite, suite_named
from coatcheck.protocol.terms import Round, Terms
from coatcheck.protocol.ticket import Ticket
from coatcheck.protocol.trust import Trust

OPENS, CLOSES, EXPIRES = 1_000, 2_000, 3_000
_NO_LIMIT: Final = Limit(epsilon=1e6, delta=1.0)


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """The people of one group, with what they would otherwise keep to themselves.

    Attributes:
        values: one row a person, in the user's units.
        minimum: the crowd to wait for; everybody by default.
        notes: one note a person, if the task reads notes.
    """

    draft: GroupDraft
    values: Any
    notes: Sequence[bytes] = ()
    clamp: bool = False


@dataclass(frozen=True)
class Cast:
    """The keys of everyone who runs a round."""

    server: KeyPairs
    shufflers: tuple[KeyPairs, ...]
    board: KeyPairs

    @classmethod
    def draw(cls, *, suite: Suite, shufflers: int, entropy: Entropy) -> "Cast":
        """Draw fresh keys."""
        keys = [KeyPairs(suite, entropy.token(32)) for _ in range(2 + shufflers)]
        return cls(keys[0], tuple(keys[2:]), keys[1])

    @property
    def trusted(self) -> Trust:
        """The verifying keys that a person would know from elsewhere."""
        everyone = [("server", self.server), ("board", self.board)]
        everyone += [("shuffler", keys) for keys in self.shufflers]
        return Trust.of((role, [keys.signing.public_raw]) for role, keys in everyone)

    def agree(
        self, drafts: Sequence[GroupDraft], *, task: tasks.Task, name: str, suite: Suite
    ) -> SignedTerms:
        """Draft terms, sign them and have every shuffler sign them."""
        terms = Terms(
            round=name,
            suite=suite.name,  # type: ignore[arg-type] # the suites are the two of the terms
            groups=draft_groups(drafts, task=task, suite=suite),
            task=draft_work(task),
            server=party("server", self.server),
            shufflers=tuple(
                party(f"shuffler {n}", keys) for n, keys in enumerate(self.shufflers, start=1)
            ),
            board=notary("board", self.board),
            opens=OPENS,
            closes=CLOSES,
            expires=EXPIRES,
        )
        signed = propose(terms, keys=self.server)
        for keys in self.shufflers:
            signed = countersign(signed, keys=keys, pledged={})
        return signed


@dataclass(frozen=True)
class Outcome:
    """What a simulated round came to, for everybody at once.

    Attributes:
        tickets: for each group one ticket a person, in the order of the values.
        answers: for each group what each ticket opened.
        guarantees: what each group was promised.
    """

    round: Round
    cast: Cast
    tickets: tuple[tuple[Ticket, ...], ...]
    answers: tuple[tuple[Answer, ...], ...]
    guarantees: tuple[Guarantee, ...]
    bulletin: Bulletin
    board: Board
    batch: bytes
    uploads: tuple[bytes, ...]
    task: tasks.Task

    @property
    def tallies(self) -> tuple[Tally, ...]:
        """What was counted of each group."""
        return self.bulletin.heading.tallies

    @cached_property
    def whose(self) -> dict[bytes, tuple[int, int]]:
        """Whose each address is: group and row. Only a simulation can know."""
        return {
            ticket.keys.address: (group, row)
            for group, tickets in enumerate(self.tickets)
            for row, ticket in enumerate(tickets)
        }

    def values(self, group: int) -> NDArray[np.float64]:
        """Return the numbers that each person of a group was told, one row a person."""
        return np.array([answer.values for answer in self.answers[group]], dtype=np.float64)

    def partners(self, group: int) -> list[tuple[tuple[int, int], ...]]:
        """Return for each person of a group the partners told of, as (group, row)."""
        return [
            tuple(self.whose[client.address(partner, self.round)] for partner in answer.partners)
            for answer in self.answers[group]
        ]


def simulate(
    crowds: Sequence[Crowd],
    *,
    task: tasks.Task,
    entropy: Entropy | int = 0,
    suite: str = "x25519",
    shufflers: int = 1,
    name: str = "simulation",
) -> Outcome:
    """Run a round of the real roles in memory and return what everybody got.

    `entropy` is a source, or the seed of one that repeats; seals stay fresh either way.
    """
    source = seeded(entropy) if isinstance(entropy, int) else entropy
    kind = suite_named(suite)
    cast = Cast.draw(suite=kind, shufflers=shufflers, entropy=source)
    signed = cast.agree([crowd.draft for crowd in crowds], task=task, name=name, suite=kind)
    round_ = settle(signed)
    invitations = [_invite(signed, crowd.draft.name, cast) for crowd in crowds]
    tickets = tuple(
        _join(invitation, crowd, source)
        for invitation, crowd in zip(invitations, crowds, strict=True)
    )
    uploads = tuple(ticket.upload for group in tickets for ticket in group)
    batch = _shuffle(uploads, round_, cast=cast, entropy=source)
    raw = Server(round_, keys=cast.server, task=task).answer(batch)
    board = Board(sign=cast.board.signing.sign, check=_check)
    board.publish(raw, round_)
    bulletin = witness.check_bulletin(board.bulletin(round_.digest), round_)
    answers = tuple(
        tuple(client.collect(ticket, bulletin, round_) for ticket in group) for group in tickets
    )
    guarantees = tuple(invitation.guarantee for invitation in invitations)
    return Outcome(
        round_, cast, tickets, answers, guarantees, bulletin, board, batch, uploads, task
    )


@dataclass(frozen=True)
class View:
    """What an adversary holds after a round.

    Attributes:
        reports: for each group the opened reports in the batch's order; empty for an onlooker.
        addresses: for each group the addresses; the batch's order, or the board's for an onlooker.
        linked: rows of `reports` whose owner the adversary knows, as (group, row) to person.
        told: the addresses that the corrupted people's answers gave away.
    """

    reports: tuple[NDArray[np.int64], ...]
    addresses: tuple[tuple[bytes, ...], ...]
    linked: dict[tuple[int, int], tuple[int, int]]
    told: frozenset[bytes]


def view(outcome: Outcome, chair: str, *, corrupted: Sequence[tuple[int, int]] = ()) -> View:
    """Sit in an adversary's chair: `server` (with corrupted people if given) or `onlooker`."""
    if chair == "onlooker":
        shown = tuple(tuple(entry[:16] for entry in group) for group in outcome.bulletin.entries)
        return View((), shown, {}, frozenset())
    if chair != "server":
        raise Misuse(f"there is no chair {chair!r}: choose server or onlooker")
    server = Server(outcome.round, keys=outcome.cast.server, task=outcome.task)
    batch = Batch.decode(outcome.batch, outcome.round)
    return _linked(server.open(batch), outcome, corrupted)


def _linked(
    opened: Sequence[Opened], outcome: Outcome, corrupted: Sequence[tuple[int, int]]
) -> View:
    addresses = tuple(tuple(contact.address for contact in group.contacts) for group in opened)
    mine = {outcome.tickets[g][row].keys.address: (g, row) for g, row in corrupted}
    linked = {
        (group, row): mine[address]
        for group, listed in enumerate(addresses)
        for row, address in enumerate(listed)
        if address in mine
    }
    told = frozenset(
        client.address(partner, outcome.round)
        for g, row in corrupted
        for partner in outcome.answers[g][row].partners
    )
    return View(tuple(group.reports for group in opened), addresses, linked, told)


def _invite(signed: SignedTerms, group: str, cast: Cast) -> Invitation:
    return examine(
        signed, group=group, trusted=cast.trusted, limit=_NO_LIMIT, now=OPENS, simulated=True
    )


def _join(invitation: Invitation, crowd: Crowd, entropy: Entropy) -> tuple[Ticket, ...]:
    notes = crowd.notes or (b"",) * len(crowd.values)
    return tuple(
        invitation.join(value, ledger=None, entropy=entropy, note=note, clamp=crowd.clamp)
        for value, note in zip(crowd.values, notes, strict=True)
    )


def _shuffle(uploads: Sequence[bytes], round_: Round, *, cast: Cast, entropy: Entropy) -> bytes:
    batch = b""
    for hop, keys in enumerate(cast.shufflers):
        shuffler = Shuffler(round_, keys=keys, state=fresh_state(entropy, simulated=True))
        if hop:
            shuffler.accept(batch)
        else:
            for upload in uploads:
                shuffler.receive(upload, now=OPENS)
            shuffler.close(now=CLOSES)
        batch = shuffler.release()
    return batch


def _check(key: bytes, signature: bytes, message: bytes) -> None:
    VerifyingKey(key).check(signature, message)
