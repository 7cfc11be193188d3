"""The four roles in a world of drops, replays, forgeries and restarts.

The machine draws moves in any order: those of `people`, and here time, crashes and operators.
What must hold is checked after each of them, and at the end ticket by ticket.
"""

from collections import Counter
from typing import Any

import msgspec
import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from coatcheck.errors import BadSignature, Malformed, Missing, Refused
from coatcheck.protocol import client
from coatcheck.protocol.log.verification import VerifiedBulletin, verify_bulletin
from coatcheck.protocol.server import Server
from coatcheck.protocol.shuffler import Shuffler, ShufflerState
from coatcheck.protocol.state_machine import ServerPhase, ServerState, ShufflerPhase
from coatcheck.protocol.ticket import Ticket
from coatcheck.protocol.wire.uploads import REASONS, slack
from support.people import People, refused, report_of
from support.rounds import CLOSES

ENDS = Counter[str]()


class World(People):
    """One round, driven by an adversary."""

    @property
    def needed(self) -> int:
        """The crowd of a group that the first shuffler waits for: traps take one more."""
        return 3 if len(self.shufflers) == 1 else 3 + slack(0, self.small.round.terms.trap_delta)

    # -- time, crashes, operators

    @rule(step=st.sampled_from([0, 300, 1_000]))
    def wait(self, step: int) -> None:
        """Move time forward."""
        self.now += step

    @rule(role=st.integers(0, 4))
    def restart(self, role: int) -> None:
        """Restart a role from its stored state, as after a crash."""
        round_, roles = self.small.round, self.small.roles
        if role < len(self.shufflers):
            raw = msgspec.msgpack.encode(self.shufflers[role].state)
            state = msgspec.msgpack.decode(raw, type=ShufflerState)
            self.shufflers[role] = Shuffler(round_, keys=roles.shufflers[role], state=state)
        elif role == 3:
            raw = msgspec.msgpack.encode(self.server.state)
            stored = msgspec.msgpack.decode(raw, type=ServerState)
            self.server = Server(round_, keys=roles.server, task=self.small.task, state=stored)
        else:
            self.board.save()
            self.board = self.small.board(self.key_values)

    @rule()
    def close_at_any_time(self) -> None:
        """Try to close at the first shuffler; a closed round stays closed until its release."""
        self.close(patient=False)

    def close(self, *, patient: bool) -> None:
        """Try to close; too early or too few changes nothing."""
        self.now = max(self.now, CLOSES) if patient else self.now
        before = msgspec.msgpack.encode(self.first.state)
        try:
            self.first.close(now=self.now)
        except Refused:
            if self.first.phase is ShufflerPhase.OPEN:
                assert self.now < CLOSES or min(self.first.crowd) < self.needed
            assert msgspec.msgpack.encode(self.first.state) == before

    @rule(patient=st.booleans())
    def release(self, patient: bool) -> None:  # noqa: FBT001 - drawn
        """Try to release at the first shuffler; with too small a crowd it goes on or expires."""
        if patient:
            self.close(patient=True)
        before = msgspec.msgpack.encode(self.first.state)
        try:
            raw = self.first.release()
        except Refused:
            assert msgspec.msgpack.encode(self.first.state) == before
            if self.first.phase is ShufflerPhase.CLOSED:
                assert min(self.good_at_shuffler()) < self.needed
                self.give_back()
            return
        assert min(self.good_at_shuffler()) >= self.needed
        assert self.batches.setdefault(0, raw) == raw

    def give_back(self) -> None:
        """Reopen a round with too small a crowd, or let it expire, depending on the time."""
        if self.first.expired(now=self.now):
            refused(lambda: self.first.reopen(now=self.now), Refused)
            self.first.expire(now=self.now)
        else:
            refused(lambda: self.first.expire(now=self.now), Refused)
            self.first.reopen(now=self.now)

    @precondition(lambda self: len(self.shufflers) > 1)
    @rule()
    def pass_on(self) -> None:
        """Give the second shuffler the batch, perhaps again, and release."""
        second = self.shufflers[1]
        if 0 not in self.batches:
            refused(second.release, Refused)
            return
        second.accept(self.batches[0])
        if min(len(self.sent(group)) for group in (0, 1)) < self.needed:
            refused(second.release, Refused)  # cheats are no crowd: none of them registered
            return
        raw = second.release()
        assert self.batches.setdefault(1, raw) == raw

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        """Give the server a batch: forged, of the wrong hop, or the right one, once or again."""
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
        """Publish the bulletin on the board, once however often it is sent."""
        self.board.publish(self.bulletin, self.small.round)
        if not self.history:
            self.history.append(self.bulletin)

    def good_at_shuffler(self) -> list[int]:
        """Count what the first shuffler can peel: honest uploads, and cheats beneath the layer."""
        hops = len(self.shufflers)
        bad = [sum(n for why, n in self.bad[g].items() if why != "unpeeled") for g in (0, 1)]
        return [len(self.sent(g)) + bad[g] // hops for g in (0, 1)]

    @rule(rare=st.integers(0, 9))
    def abandon(self, rare: int) -> None:
        """Abandon a round sometimes; a released one cannot be abandoned."""
        if rare:
            return
        if self.first.phase in {ShufflerPhase.OPEN, ShufflerPhase.CLOSED}:
            self.first.abandon()
        else:
            refused(self.first.abandon, Refused)

    @precondition(lambda self: self.history and self.tickets)
    @rule(data=st.data())
    def letters(self, data: st.DataObject) -> None:
        """Exchange a letter between two answered people; a third reads nothing."""
        here = [t for g in (0, 1) for t in self.sent(g) if self.found(t) is not None]
        if len(here) < 3:
            return
        writer, reader, other = data.draw(
            st.lists(st.sampled_from(here), min_size=3, max_size=3, unique_by=id)
        )
        round_ = self.small.round
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

    def shown(self) -> VerifiedBulletin:
        """Read the board as anyone can."""
        return verify_bulletin(self.board.bulletin(self.small.round.digest), self.small.round)

    def found(self, ticket: Ticket) -> Any:
        """Return the answer that a ticket opens, or None."""
        try:
            return client.collect(ticket, self.shown())
        except (Missing, Refused):
            return None

    # -- what must always hold

    @invariant()
    def phases_agree(self) -> None:
        """Check that only released rounds are answered and no abandoned one is released."""
        if not hasattr(self, "small"):
            return
        if self.history:
            assert self.first.phase is ShufflerPhase.RELEASED
            assert self.server.phase is not ServerPhase.AWAITING
        if self.first.phase not in {ShufflerPhase.OPEN, ShufflerPhase.CLOSED}:
            assert self.first.crowd == (0, 0)
            assert not any(self.first.state.secret)

    @invariant()
    def every_drop_has_its_reason(self) -> None:
        """Check that the tallies on the board are the model's counts, reason by reason."""
        if not getattr(self, "history", None):
            return
        heading = self.shown().heading
        for group, tally in enumerate(heading.tallies):
            honest, hops = len(self.sent(group)), len(self.shufflers)
            expected = {**self.bad[group], "trap": (hops - 1) * honest}
            assert dict(zip(REASONS, tally.dropped, strict=True)) == expected
            assert tally.received == hops * honest + sum(self.bad[group].values())
        enough = all(len(self.sent(group)) >= 3 for group in (0, 1))
        assert (heading.outcome == 1) == enough

    def finish(self) -> None:
        """Move a released round to its end."""
        if 0 in self.batches:
            if len(self.shufflers) > 1:
                self.pass_on()
            last = self.batches.get(len(self.shufflers) - 1)
            if last is not None:
                self.bulletin = self.server.answer(last)
                self.publish()

    def teardown(self) -> None:
        """Check that each ticket opens its own entry or none, and no address is answered twice."""
        if not hasattr(self, "small"):
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
            elif not np.allclose(answer.values, report_of(ticket, self.small)):
                strange += 1  # a cheat used this person's keys and was drawn first
        assert strange <= cheated


def test_the_invariants_hold() -> None:
    """No order of moves breaks a promise; a good part of the runs ends with a bulletin."""
    run_state_machine_as_test(
        World, settings=settings(max_examples=120, stateful_step_count=40, deadline=None)
    )
    assert ENDS["answered"] >= 8
