"""Honest people and cheats in a model of a round: their uploads, and the sets that model it.

Every honest report is recognizable: the task echoes the estimate, so an answer is its owner's or
it is not. Rules here are moves of `test_random_moves`, which has the roles and what must hold.
"""

from collections.abc import Callable
from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from coatcheck.errors import Error, Malformed, Refused, Unsealable
from coatcheck.protocol.envelope import Purpose, binding, unseal
from coatcheck.protocol.keys import KeyPairs
from coatcheck.protocol.log.merkle import MemoryKeyValueStore
from coatcheck.protocol.shuffler import Shuffler
from coatcheck.protocol.state_machine import ShufflerPhase
from coatcheck.protocol.ticket import Ticket, read_ticket, write_ticket
from coatcheck.protocol.wire.messages import PayloadFormat, ReportTable, encode_report
from coatcheck.protocol.wire.uploads import REASONS, Upload
from support.rounds import CLOSES, OPENS, SQUARE, SmallRound, upload_of

STAGES = {hops: SmallRound(minimum=3, shufflers=hops, seed=hops) for hops in (1, 2)}
# The same server and shufflers, the same name, other terms: what a splitting server would show.
SPLIT = {hops: SmallRound(minimum=2, shufflers=hops, seed=hops) for hops in (1, 2)}
FORMAT = PayloadFormat.between(SQUARE.low, SQUARE.high)


def refused(call: Callable[[], object], *kinds: type[Error]) -> None:
    """Expect an error of one of these kinds."""
    try:
        call()
    except kinds:
        return
    raise AssertionError(f"expected one of {kinds}")


def report_of(ticket: Ticket, small: SmallRound) -> tuple[float, ...]:
    """Open one's own upload with everybody's keys and return the report that the echo must give."""
    upload = Upload.decode(ticket.upload, small.round)
    opened = [_opened(item, upload, small) for item in upload.items(small.round).values()]
    (text,) = (text for text in opened if text is not None)
    table = ReportTable.read([text], small.round, upload.group)
    reports, _ = FORMAT.decode(table.payloads)
    decode = small.round.terms.groups[upload.group].decode
    return tuple(SQUARE.estimate(reports, decode)[0].tolist())  # type: ignore[arg-type] # a decode


def _opened(item: bytes, upload: Upload, small: SmallRound) -> bytes | None:
    """Open an item to its innermost layer; return None if it is a trap."""
    bound = partial(binding, digest=small.round.digest, group=upload.group)
    try:
        for hop, keys in enumerate(small.roles.shufflers):
            named = bytes(16) if hop else upload.id
            layer = bound(Purpose.LAYER, hop=hop, upload=named)
            item = unseal(item, key=keys.opening, bound=layer)
        return unseal(item, key=small.roles.server.opening, bound=bound(Purpose.REPORT))
    except Unsealable:
        return None


class People(RuleBasedStateMachine):
    """One round as outsiders see it: people who take part, and people who cheat."""

    @initialize(hops=st.sampled_from([1, 1, 2]), size=st.integers(0, 5))
    def begin(self, hops: int, size: int) -> None:
        """Start every role, with some people already there."""
        self.small = STAGES[hops]
        self.split = SPLIT[hops]
        self.shufflers = [self.small.shuffler(hop) for hop in range(hops)]
        self.server = self.small.server()
        self.key_values = MemoryKeyValueStore()
        self.board = self.small.board(self.key_values)
        self.tickets: list[Ticket] = []
        self.receipts: dict[bytes, bytes] = {}
        self.bad = [dict.fromkeys(REASONS, 0) for _ in range(2)]
        self.history: list[bytes] = []
        self.batches: dict[int, bytes] = {}
        self.bulletin = b""
        self.now = OPENS
        self.serial = 0
        self.crowd((size, size))

    # -- helpers of the model

    @property
    def first(self) -> Shuffler:
        """The shuffler that accepts uploads."""
        return self.shufflers[0]

    def name(self) -> bytes:
        """Return a new name."""
        self.serial += 1
        return self.serial.to_bytes(16, "big")

    def sent(self, group: int) -> list[Ticket]:
        """List the honest reports of a group that were accepted."""
        return [t for t in self.tickets if t.group == group and t.upload in self.receipts]

    def cheat(self, text: bytes, group: int, reason: str) -> None:
        """Send an invalid report in valid layers; it must be dropped for this reason."""
        raw = upload_of(text, self.small.round, group=group, name=self.name())
        if self.first.phase is ShufflerPhase.OPEN and self.now < self.small.round.terms.expires:
            self.first.receive(raw, now=self.now)
            self.bad[group][reason] += 1
            self.bad[group]["unopened"] += len(self.shufflers) - 1  # traps that nobody knows
        else:
            refused(lambda: self.first.receive(raw, now=self.now), Refused)

    def text(self, group: int, contact: bytes, payload: bytes | None = None) -> bytes:
        """Return the bytes of a report."""
        payload = FORMAT.encode((0, 0)) if payload is None else payload
        return encode_report(
            self.small.round, group=group, contact=contact, payload=payload, note=b""
        )

    def fresh_contact(self) -> bytes:
        """Draw contact keys that nobody else has."""
        return KeyPairs(self.small.suite, self.name() * 2).contact_raw

    # -- people

    @rule(group=st.integers(0, 1), x=st.floats(0, 1), y=st.floats(0, 1))
    def join(self, group: int, x: float, y: float) -> None:
        """Let one person join and store a ticket in a file."""
        ticket = self.small.join(group, (x, y))
        self.tickets.append(read_ticket(write_ticket(ticket)))

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def upload(self, data: st.DataObject) -> None:
        """Send an upload, perhaps again, perhaps late; expect one receipt or an error."""
        ticket = data.draw(st.sampled_from(self.tickets))
        raw = ticket.upload
        in_time = self.now < self.small.round.terms.expires
        known = self.first.phase is ShufflerPhase.CLOSED and raw in self.receipts
        if in_time and (self.first.phase is ShufflerPhase.OPEN or known):
            self.register(ticket)
            receipt = self.first.receive(raw, now=self.now)
            assert self.receipts.setdefault(raw, receipt)[:84] == receipt[:84]
        else:
            refused(lambda: self.first.receive(raw, now=self.now), Refused)

    def register(self, ticket: Ticket) -> None:
        """Register the traps with the later shufflers, any number of times."""
        for shuffler, raw in zip(self.shufflers[1:], ticket.registrations, strict=True):
            receipts = [shuffler.receive(raw, now=self.now)[:84] for _ in range(2)]
            assert receipts[0] == receipts[1]

    @precondition(lambda self: self.first.phase is ShufflerPhase.OPEN and self.now < CLOSES)
    @rule(sizes=st.tuples(st.integers(1, 4), st.integers(1, 4)))
    def crowd(self, sizes: tuple[int, int]) -> None:
        """Let several people join and send at once."""
        for group, size in enumerate(sizes):
            for _ in range(size):
                ticket = self.small.join(group)
                self.tickets.append(ticket)
                self.register(ticket)
                self.receipts[ticket.upload] = self.first.receive(ticket.upload, now=self.now)

    @precondition(lambda self: self.receipts)
    @rule(data=st.data(), group=st.integers(0, 1))
    def reuse_an_id(self, data: st.DataObject, group: int) -> None:
        """Send a new report under an id that is in use; expect an error."""
        taken = Upload.decode(data.draw(st.sampled_from(list(self.receipts))), self.small.round)
        other = Upload.decode(self.small.join(group).upload, self.small.round)
        raw = Upload(group, taken.digest, taken.id, other.body).encode(self.small.round)
        refused(lambda: self.first.receive(raw, now=self.now), Refused)

    @rule(size=st.integers(0, 600))
    def send_another_size(self, size: int) -> None:
        """Send a truncated, oversized or empty upload; expect an error."""
        raw = (self.small.join(0).upload * 3)[:size]
        if size != self.small.round.upload_sizes[0]:
            refused(lambda: self.first.receive(raw, now=self.now), Malformed, Refused)

    @rule(group=st.integers(0, 1))
    def send_under_split_terms(self, group: int) -> None:
        """Send an upload for other terms of the same round; expect a rejection."""
        ticket = self.split.join(group)
        refused(lambda: self.first.receive(ticket.upload, now=self.now), Malformed, Refused)

    # -- cheats

    @precondition(lambda self: self.tickets)
    @rule(data=st.data(), bit=st.integers(0, 7))
    def tamper(self, data: st.DataObject, bit: int) -> None:
        """Send an altered copy of a body under a new id; it is dropped when it does not open."""
        upload = Upload.decode(data.draw(st.sampled_from(self.tickets)).upload, self.small.round)
        body = bytearray(upload.body)
        body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << bit
        raw = Upload(upload.group, upload.digest, self.name(), bytes(body)).encode(self.small.round)
        if self.first.phase is ShufflerPhase.OPEN and self.now < self.small.round.terms.expires:
            self.first.receive(raw, now=self.now)
            self.bad[upload.group]["unpeeled"] += len(self.shufflers)

    @rule(group=st.integers(0, 1), small=st.booleans())
    def hostile_keys(self, group: int, small: bool) -> None:  # noqa: FBT001 - drawn
        """Send low-order and small-order keys; only their sender loses by it."""
        contact = self.fresh_contact()
        one = (1).to_bytes(32, "little")
        hostile = contact[:32] + one if small else bytes(32) + contact[32:]
        self.cheat(self.text(group, hostile), group, "bad-key")

    @rule(group=st.integers(0, 1))
    def out_of_domain(self, group: int) -> None:
        """Send a payload that no value of the domain can produce; it is dropped."""
        payload = b"\xff" * FORMAT.size
        self.cheat(self.text(group, self.fresh_contact(), payload), group, "out-of-domain")

    @rule(group=st.integers(0, 1))
    def other_version(self, group: int) -> None:
        """Send a report of another version; it is dropped."""
        self.cheat(b"\7" + self.text(group, self.fresh_contact())[1:], group, "malformed")

    @rule(group=st.integers(0, 1), data=st.data())
    def duplicate_address(self, group: int, data: st.DataObject) -> None:
        """Send a second report with the same keys: exactly one of the two stays."""
        sent = self.sent(group)
        if sent:
            keys = data.draw(st.sampled_from(sent)).keys
            self.cheat(self.text(group, keys.contact_raw), group, "duplicate-address")
