"""The four roles in a world of drops, replays, forgeries and restarts.

Every honest report is recognizable: the task echoes the estimate, so an answer is its owner's or
it is not. The machine draws moves in any order; the model beside it is a few sets.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from coatcheck import client
from coatcheck.board import Board
from coatcheck.envelope import Purpose, binding, unseal
from coatcheck.errors import BadSignature, Error, Malformed, Missing, Refused
from coatcheck.keys import KeyPairs
from coatcheck.messages import PayloadFormat, ReportTable, encode_report
from coatcheck.notices import Bulletin
from coatcheck.parcels import REASONS, Upload
from coatcheck.server import Phase as ServerPhase
from coatcheck.server import Server, ServerState
from coatcheck.shuffler import Phase, Shuffler, ShufflerState
from coatcheck.ticket import Ticket, read_ticket, write_ticket
from coatcheck.witness import check_bulletin
from rounds import CLOSES, OPENS, SQUARE, Stage, check

STAGES = {hops: Stage(minimum=3, shufflers=hops, seed=hops) for hops in (1, 2)}
# The same server and shufflers, the same name, other terms: what a splitting server would show.
SPLIT = {hops: Stage(minimum=2, shufflers=hops, seed=hops) for hops in (1, 2)}
ENDS = Counter[str]()
FORMAT = PayloadFormat.between(SQUARE.low, SQUARE.high)


def refused(call: Callable[[], object], *kinds: type[Error]) -> None:
    """Expect a refusal of one of these kinds."""
    try:
        call()
    except kinds:
        return
    raise AssertionError(f"expected one of {kinds}")


def report_of(ticket: Ticket, stage: Stage) -> tuple[float, ...]:
    """Open one's own upload with everybody's keys: what the echo must say."""
    upload = Upload.decode(ticket.upload, stage.round)
    body, digest = upload.body, stage.round.digest
    for hop, keys in enumerate(stage.cast.shufflers):
        named = upload.id if hop == 0 else bytes(16)
        bound = binding(Purpose.LAYER, digest=digest, group=upload.group, hop=hop, upload=named)
        body = unseal(body, key=keys.opening, bound=bound)
    bound = binding(Purpose.REPORT, digest=digest, group=upload.group)
    text = unseal(body, key=stage.cast.server.opening, bound=bound)
    table = ReportTable.read([text], stage.round, upload.group)
    reports, _ = FORMAT.decode(table.payloads)
    decode = stage.round.terms.groups[upload.group].decode
    return tuple(SQUARE.estimate(reports, decode)[0].tolist())  # type: ignore[arg-type] # a decode


class World(RuleBasedStateMachine):
    """One round, driven by whoever wishes it ill."""

    @initialize(hops=st.sampled_from([1, 1, 2]), size=st.integers(0, 5))
    def begin(self, hops: int, size: int) -> None:
        """Start every role, with some people there already."""
        self.stage = STAGES[hops]
        self.split = SPLIT[hops]
        self.shufflers = [self.stage.shuffler(hop) for hop in range(hops)]
        self.server = self.stage.server()
        self.board = self.stage.board()
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
        """The shuffler that takes uploads."""
        return self.shufflers[0]

    def name(self) -> bytes:
        """Name something new."""
        self.serial += 1
        return self.serial.to_bytes(16, "big")

    def sent(self, group: int) -> list[Ticket]:
        """List the honest reports of a group that were taken."""
        return [t for t in self.tickets if t.group == group and t.upload in self.receipts]

    def cheat(self, text: bytes, group: int, reason: str) -> None:
        """Send a bad report in a good wrapping; it must be dropped for this reason."""
        raw = client._wrap(text, self.stage.round, group=group, name=self.name())
        if self.first.phase is Phase.OPEN and self.now < self.stage.round.terms.expires:
            self.first.receive(raw, now=self.now)
            self.bad[group][reason] += 1
        else:
            refused(lambda: self.first.receive(raw, now=self.now), Refused)

    def text(self, group: int, contact: bytes, payload: bytes | None = None) -> bytes:
        """Write a report by hand."""
        payload = FORMAT.encode((0, 0)) if payload is None else payload
        return encode_report(
            self.stage.round, group=group, contact=contact, payload=payload, note=b""
        )

    def fresh_contact(self) -> bytes:
        """Draw keys that nobody else has."""
        return KeyPairs(self.stage.suite, self.name() * 2).contact_raw

    # -- people

    @rule(group=st.integers(0, 1), x=st.floats(0, 1), y=st.floats(0, 1))
    def join(self, group: int, x: float, y: float) -> None:
        """Somebody joins and keeps a ticket, through a file."""
        ticket = self.stage.join(group, (x, y))
        self.tickets.append(read_ticket(write_ticket(ticket)))

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def upload(self, data: st.DataObject) -> None:
        """Somebody sends, perhaps again, perhaps late: one receipt or a refusal."""
        raw = data.draw(st.sampled_from(self.tickets)).upload
        if self.first.phase is Phase.OPEN and self.now < self.stage.round.terms.expires:
            receipt = self.first.receive(raw, now=self.now)
            assert self.receipts.setdefault(raw, receipt) == receipt
        else:
            refused(lambda: self.first.receive(raw, now=self.now), Refused)

    @precondition(lambda self: self.first.phase is Phase.OPEN and self.now < CLOSES)
    @rule(sizes=st.tuples(st.integers(1, 4), st.integers(1, 4)))
    def crowd(self, sizes: tuple[int, int]) -> None:
        """Several people join and send at once."""
        for group, size in enumerate(sizes):
            for _ in range(size):
                ticket = self.stage.join(group)
                self.tickets.append(ticket)
                self.receipts[ticket.upload] = self.first.receive(ticket.upload, now=self.now)

    @precondition(lambda self: self.receipts)
    @rule(data=st.data(), group=st.integers(0, 1))
    def reuse_an_id(self, data: st.DataObject, group: int) -> None:
        """Fresh noise under an id that is taken is refused."""
        taken = Upload.decode(data.draw(st.sampled_from(list(self.receipts))), self.stage.round)
        other = Upload.decode(self.stage.join(group).upload, self.stage.round)
        raw = Upload(group, taken.digest, taken.id, other.body).encode(self.stage.round)
        refused(lambda: self.first.receive(raw, now=self.now), Refused)

    @rule(size=st.integers(0, 600))
    def send_another_size(self, size: int) -> None:
        """Cut off, oversized or empty: not taken."""
        raw = (self.stage.join(0).upload * 3)[:size]
        if size != self.stage.round.upload_size(0):
            refused(lambda: self.first.receive(raw, now=self.now), Malformed, Refused)

    @rule(group=st.integers(0, 1))
    def send_under_split_terms(self, group: int) -> None:
        """Whoever was shown other terms of the round is turned away, not mixed in."""
        ticket = self.split.join(group)
        refused(lambda: self.first.receive(ticket.upload, now=self.now), Malformed, Refused)

    # -- cheats

    @precondition(lambda self: self.tickets)
    @rule(data=st.data(), bit=st.integers(0, 7))
    def tamper(self, data: st.DataObject, bit: int) -> None:
        """A copied and altered body, under a new id, is dropped when it does not open."""
        upload = Upload.decode(data.draw(st.sampled_from(self.tickets)).upload, self.stage.round)
        body = bytearray(upload.body)
        body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << bit
        raw = Upload(upload.group, upload.digest, self.name(), bytes(body)).encode(self.stage.round)
        if self.first.phase is Phase.OPEN and self.now < self.stage.round.terms.expires:
            self.first.receive(raw, now=self.now)
            self.bad[upload.group]["unpeeled"] += 1

    @rule(group=st.integers(0, 1), small=st.booleans())
    def hostile_keys(self, group: int, small: bool) -> None:  # noqa: FBT001 - drawn
        """Low-order and small-order keys cost their sender only."""
        contact = self.fresh_contact()
        one = (1).to_bytes(32, "little")
        hostile = contact[:32] + one if small else bytes(32) + contact[32:]
        self.cheat(self.text(group, hostile), group, "bad-key")

    @rule(group=st.integers(0, 1))
    def out_of_domain(self, group: int) -> None:
        """A payload that no value can give is dropped."""
        payload = b"\xff" * FORMAT.size
        self.cheat(self.text(group, self.fresh_contact(), payload), group, "out-of-domain")

    @rule(group=st.integers(0, 1))
    def other_version(self, group: int) -> None:
        """A report of another version is dropped."""
        self.cheat(b"\7" + self.text(group, self.fresh_contact())[1:], group, "malformed")

    @rule(group=st.integers(0, 1), data=st.data())
    def duplicate_address(self, group: int, data: st.DataObject) -> None:
        """Two reports with one pair of keys: one of them stays, whoever sent the other."""
        sent = self.sent(group)
        if sent:
            keys = data.draw(st.sampled_from(sent)).keys
            self.cheat(self.text(group, keys.contact_raw), group, "duplicate-address")

    # -- time, crashes, operators

    @rule(step=st.sampled_from([0, 300, 1_000]))
    def wait(self, step: int) -> None:
        """Time passes."""
        self.now += step

    @rule(role=st.integers(0, 4))
    def restart(self, role: int) -> None:
        """A role crashes and comes back from what it stored."""
        round_, cast = self.stage.round, self.stage.cast
        if role < len(self.shufflers):
            raw = msgspec.msgpack.encode(self.shufflers[role].state)
            state = msgspec.msgpack.decode(raw, type=ShufflerState)
            self.shufflers[role] = Shuffler(round_, keys=cast.shufflers[role], state=state)
        elif role == 3:
            raw = msgspec.msgpack.encode(self.server.state)
            stored = msgspec.msgpack.decode(raw, type=ServerState)
            self.server = Server(round_, keys=cast.server, task=self.stage.task, state=stored)
        else:
            self.board = Board.restore(
                [(round_, raw) for raw in self.history], sign=cast.board.signing.sign, check=check
            )

    @rule(patient=st.booleans())
    def release(self, patient: bool) -> None:  # noqa: FBT001 - drawn
        """The first shuffler tries to release; too early or too few changes nothing."""
        self.now = max(self.now, CLOSES) if patient else self.now
        before = msgspec.msgpack.encode(self.first.state)
        try:
            raw = self.first.release(now=self.now)
        except Refused:
            if self.first.phase is not Phase.ABANDONED:
                assert self.now < CLOSES or min(self.good_at_shuffler()) < 3
            assert msgspec.msgpack.encode(self.first.state) == before
            return
        assert min(self.good_at_shuffler()) >= 3
        assert self.batches.setdefault(0, raw) == raw

    @precondition(lambda self: len(self.shufflers) > 1)
    @rule()
    def pass_on(self) -> None:
        """The second shuffler takes the batch, perhaps again, and releases; or has none yet."""
        second = self.shufflers[1]
        if 0 not in self.batches:
            refused(lambda: second.release(now=self.now), Refused)
            return
        if second.phase is Phase.OPEN:
            second.accept(self.batches[0])
        raw = second.release(now=self.now)
        assert self.batches.setdefault(1, raw) == raw

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        """The server gets a batch: forged, of the wrong hop, or the right one, once or again."""
        last = len(self.shufflers) - 1
        hop = data.draw(st.sampled_from(sorted(self.batches)))
        raw = self.batches[hop]
        forged = bytearray(raw)
        forged[data.draw(st.integers(0, len(raw) - 1))] ^= 1
        refused(lambda: self.server.answer(bytes(forged)), BadSignature, Malformed, Refused)
        if hop != last:
            refused(lambda: self.server.answer(raw), BadSignature, Malformed, Refused)
            return
        bulletin = self.server.answer(raw)
        assert self.bulletin in {b"", bulletin}
        self.bulletin = bulletin

    @precondition(lambda self: self.bulletin)
    @rule()
    def publish(self) -> None:
        """The board shows the bulletin, once, however often it is handed in."""
        self.board.publish(self.bulletin, self.stage.round)
        if not self.history:
            self.history.append(self.bulletin)

    def good_at_shuffler(self) -> list[int]:
        """Count what the first shuffler can peel: honest ones, and cheats beneath the layer."""
        return [
            len(self.sent(g)) + sum(n for why, n in self.bad[g].items() if why != "unpeeled")
            for g in (0, 1)
        ]

    @rule(rare=st.integers(0, 9))
    def abandon(self, rare: int) -> None:
        """Once in a while an operator gives up; an already released round cannot be."""
        if rare:
            return
        if self.first.phase is Phase.RELEASED:
            refused(self.first.abandon, Refused)
        else:
            self.first.abandon()

    @precondition(lambda self: self.history and self.tickets)
    @rule(data=st.data())
    def letters(self, data: st.DataObject) -> None:
        """Two people who were answered exchange a letter; a third reads nothing."""
        here = [t for g in (0, 1) for t in self.sent(g) if self.found(t) is not None]
        if len(here) < 3:
            return
        writer, reader, other = data.draw(
            st.lists(st.sampled_from(here), min_size=3, max_size=3, unique_by=id)
        )
        round_ = self.stage.round
        raw, after = client.write(writer, b"hello", to=reader.keys.contact_raw, round_=round_)
        self.tickets[self.tickets.index(writer)] = after
        self.board.post(raw, round_)
        self.board.post(raw, round_)
        if raw not in self.history:
            self.history.append(raw)
        inbox = client.read(reader, [raw, raw], round_)
        assert [letter.body for letter in inbox.letters] == [b"hello"]
        assert inbox.refused == {"Replayed": 1}
        assert client.read(other, [raw], round_).letters == ()

    def shown(self) -> Bulletin:
        """Read the board as anybody does."""
        return check_bulletin(self.board.bulletin(self.stage.round.digest), self.stage.round)

    def found(self, ticket: Ticket) -> Any:
        """Return what a ticket opens, or None."""
        try:
            return client.collect(ticket, self.shown(), self.stage.round)
        except (Missing, Refused):
            return None

    # -- what must always hold

    @invariant()
    def phases_agree(self) -> None:
        """Nothing is answered that was not released, nothing released that was abandoned."""
        if not hasattr(self, "stage"):
            return
        if self.history:
            assert self.first.phase is Phase.RELEASED
            assert self.server.phase is not ServerPhase.AWAITING
        if self.first.phase is not Phase.OPEN:
            assert self.first.crowd == (0, 0)
            assert not any(self.first.state.secret)

    @invariant()
    def every_drop_has_its_reason(self) -> None:
        """The tallies on the board are the model's counts, reason by reason."""
        if not getattr(self, "history", None):
            return
        heading = self.shown().heading
        for group, tally in enumerate(heading.tallies):
            assert dict(zip(REASONS, tally.dropped, strict=True)) == self.bad[group]
            assert tally.received == len(self.sent(group)) + sum(self.bad[group].values())
        enough = all(len(self.sent(group)) >= 3 for group in (0, 1))
        assert (heading.outcome == 1) == enough

    def finish(self) -> None:
        """Whatever was released goes the rest of its way."""
        if 0 in self.batches:
            if len(self.shufflers) > 1:
                self.pass_on()
            self.bulletin = self.server.answer(self.batches[len(self.shufflers) - 1])
            self.publish()

    def teardown(self) -> None:
        """Each ticket opens its own entry or none, and no address is answered twice."""
        if not hasattr(self, "stage"):
            return
        self.finish()
        ENDS["answered" if self.history else "open"] += 1
        if not self.history:
            return
        bulletin = self.shown()
        addresses = [entry[:16] for group in bulletin.entries for entry in group]
        assert len(set(addresses)) == len(addresses)
        cheated = sum(bad["duplicate-address"] for bad in self.bad)
        strange = 0
        for ticket in self.tickets:
            answer = self.found(ticket)
            if ticket.upload not in self.receipts or bulletin.heading.outcome == 2:
                assert answer is None
            elif not np.allclose(answer.values, report_of(ticket, self.stage)):
                strange += 1  # a cheat used this person's keys and was drawn first
        assert strange <= cheated


def test_the_world_holds() -> None:
    """No order of moves breaks a promise; a good part of the worlds ends with a bulletin."""
    run_state_machine_as_test(
        World, settings=settings(max_examples=120, stateful_step_count=40, deadline=None)
    )
    assert ENDS["answered"] >= 8
