"""A small round with real keys, mechanisms and a task that echoes, for tests of the protocol."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from coatcheck.domains import Box
from coatcheck.entropy import seeded, system
from coatcheck.protocol.agreement import SignedTerms, verify_signatures
from coatcheck.protocol.board import Board
from coatcheck.protocol.client import Invitation, Limit, examine, seal_layers
from coatcheck.protocol.drafting import GroupPlan
from coatcheck.protocol.envelope import Purpose, binding, seal
from coatcheck.protocol.keys import KeyPairs, SealingKey, VerifyingKey
from coatcheck.protocol.log.merkle import KeyValueStore
from coatcheck.protocol.server import Server
from coatcheck.protocol.shuffler import Shuffler, fresh_state
from coatcheck.protocol.state_machine import ShufflerPhase
from coatcheck.protocol.terms import Round, suite_named
from coatcheck.protocol.ticket import Ticket
from coatcheck.protocol.wire.bulletins import Posting
from coatcheck.protocol.wire.messages import encode_letter
from coatcheck.protocol.wire.uploads import Upload
from coatcheck.randomizers import MinkowskiResponse
from coatcheck.services.documents import Offer, ShufflerRoundStatus
from coatcheck.simulation.round import CLOSES, OPENS, RoleKeys, simulate
from coatcheck.tasks import Answers, AnswerSize, Floats, Task, Values

__all__ = [
    "CLOSES",
    "OPENS",
    "SQUARE",
    "Echo",
    "SmallRound",
    "draft",
    "posting_counted",
    "signed_blindly",
    "simulate",
    "upload_of",
]

SQUARE = MinkowskiResponse(domain=Box(lo=(0.0, 0.0), hi=(1.0, 1.0)), epsilon=2.0, radius=0.5)


@dataclass(frozen=True)
class Echo:
    """A task that answers each person with their own estimate, which identifies the owner."""

    groups: tuple[str, ...] = ("riders", "drivers")
    name: str = field(default="echo")

    def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
        """Answer each report with itself."""
        return [Values(np.array(group)) for group in estimates]

    def exposed(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Expose nobody."""
        return ((0,) * len(sizes),) * len(sizes)

    def answer_size(self, dimensions: Sequence[int]) -> tuple[AnswerSize, ...]:
        """Return the size of an estimate."""
        return tuple(AnswerSize(numbers=dimension) for dimension in dimensions)

    def params(self) -> dict[str, object]:
        """Return no parameters."""
        return {"name": self.name}


def draft(
    name: str, *, minimum: int = 2, note_size: int = 0, delta: float = 1e-3, decoys: int = 0
) -> GroupPlan:
    """Draft a group on the unit square."""
    return GroupPlan(
        name=name,
        randomizer=SQUARE,
        minimum=minimum,
        delta=delta,
        note_size=note_size,
        decoys=decoys,
    )


class SmallRound:
    """A round of riders and drivers with everything that its tests need.

    A cascade gets a large δ, so that one person more than the minimum is enough for its traps.
    """

    def __init__(
        self,
        *,
        minimum: int = 2,
        suite: str = "x25519",
        shufflers: int = 1,
        seed: int = 1,
        name: str = "example",
        note_size: int = 0,
        task: Task | None = None,
        decoys: int = 0,
    ) -> None:
        self.entropy = seeded(seed)
        self.suite = suite_named(suite)
        self.roles = RoleKeys.draw(suite=self.suite, shufflers=shufflers, entropy=self.entropy)
        self.task: Task = task or Echo()
        self.delta, traps = (1e-3, None) if shufflers == 1 else (0.4, 0.3)
        drafts = [
            draft(g, minimum=minimum, note_size=note_size, delta=self.delta, decoys=decoys)
            for g in self.task.groups
        ]
        self.signed = self.roles.agree(
            drafts, task=self.task, name=name, suite=self.suite, trap_delta=traps
        )
        self.round = verify_signatures(self.signed)
        self.invitations = tuple(self.invite(group) for group in self.task.groups)

    def offer(self, phase: str = "open") -> Offer:
        """Return the first shuffler's offer in a phase."""
        terms, digest = self.round.terms, self.round.digest.hex()
        times = (terms.opens, terms.closes, terms.expires)
        status = ShufflerRoundStatus(terms.round, digest, phase, 0, *times, groups=[])
        return Offer(self.signed, status)

    def invite(self, group: str) -> Invitation:
        """Examine the terms as a member of a group would."""
        limit = Limit(epsilon=10.0, delta=self.delta)
        return examine(
            self.signed,
            group=group,
            trusted=self.roles.trusted,
            limit=limit,
            now=OPENS,
            simulated=True,
        )

    def join(self, group: int, value: Sequence[float] = (0.5, 0.5)) -> Ticket:
        """Take part with a value."""
        return self.invitations[group].join(value, ledger=None, entropy=self.entropy)

    def crowd(self, size: int) -> list[Ticket]:
        """Let this many people of each group join."""
        return [self.join(group) for _ in range(size) for group in (0, 1)]

    def shuffler(self, hop: int = 0) -> Shuffler:
        """Start a shuffler."""
        state = fresh_state(self.entropy, simulated=True)
        return Shuffler(self.round, keys=self.roles.shufflers[hop], state=state)

    def filled(self, tickets: Sequence[Ticket]) -> Shuffler:
        """Return an open first shuffler that holds the uploads of these tickets."""
        shuffler = self.shuffler()
        for ticket in tickets:
            shuffler.receive(ticket.upload, now=OPENS)
        return shuffler

    def server(self) -> Server:
        """Start the server."""
        return Server(self.round, keys=self.roles.server, task=self.task)

    def board(self, key_values: KeyValueStore | None = None) -> Board:
        """Start the board, with the terms in its log."""
        board = Board(sign=self.roles.board.signing.sign, check=check, store=key_values)
        board.log_terms(self.round)
        return board

    def batch(self, tickets: Sequence[Ticket]) -> bytes:
        """Shuffle the uploads of these tickets."""
        raw = b""
        for hop in range(len(self.roles.shufflers)):
            shuffler = self.shuffler(hop)
            self.upload(tickets, shuffler)
            if hop:
                shuffler.accept(raw)
            raw = released(shuffler)
        return raw

    def upload(self, tickets: Sequence[Ticket], shuffler: Shuffler) -> None:
        """Send the uploads of these tickets to a shuffler."""
        for ticket in tickets:
            shuffler.receive((ticket.upload, *ticket.registrations)[shuffler.hop], now=OPENS)


def released(shuffler: Shuffler, *, now: int = CLOSES) -> bytes:
    """Close an open round and release it."""
    if shuffler.phase is ShufflerPhase.OPEN:
        shuffler.close(now=now)
    return shuffler.release()


def upload_of(text: bytes, round_: Round, *, group: int, name: bytes) -> bytes:
    """Wrap a report under a name, whatever its bytes; its traps are not registered anywhere."""
    to = SealingKey(round_.suite, bytes.fromhex(round_.terms.server.sealing))
    bound = binding(Purpose.REPORT, digest=round_.digest, group=group)
    items = [seal_layers(seal(text, to=to, bound=bound), round_, group=group, upload_id=name)]
    for hop in range(1, len(round_.terms.shufflers)):
        trap = system().token(round_.item_size(group, hop + 1))
        items.append(seal_layers(trap, round_, group=group, upload_id=name, last=hop))
    return Upload(group, round_.digest, name, b"".join(items)).encode(round_)


def signed_blindly(
    document: bytes, *, server: KeyPairs, shufflers: Sequence[KeyPairs]
) -> SignedTerms:
    """Sign a document for all parties without checking it."""
    own = server.signing.sign(b"coatcheck/v1/terms/server\0" + document).hex()
    label = b"coatcheck/v1/terms/shuffler\0"
    others = tuple(keys.signing.sign(label + document).hex() for keys in shufflers)
    return SignedTerms(document.decode(), own, others)


def posting_counted(round_: Round, *, writer: KeyPairs, reader: KeyPairs, counter: int) -> bytes:
    """Post a validly signed letter with any counter, as a hostile client can."""
    text = bytearray(
        encode_letter(
            round_,
            sender=writer,
            recipient=reader.address,
            counter=0,
            body=b"hi",
        )
    )
    at = 1 + round_.suite.contact_size
    text[at : at + 8] = counter.to_bytes(8, "big")
    head = b"coatcheck/v1/letter\0" + round_.digest + writer.address + reader.address
    text[-64:] = writer.signing.sign(head + bytes(text[at:-64]))
    bound = binding(Purpose.LETTER, digest=round_.digest, group=0)
    sealed = seal(bytes(text), to=reader.opening.public, bound=bound)
    return Posting(round_.digest, reader.address, sealed).encode()


def check(key: bytes, signature: bytes, message: bytes) -> None:
    """Verify a signature as a board does."""
    VerifyingKey(key).check(signature, message)
