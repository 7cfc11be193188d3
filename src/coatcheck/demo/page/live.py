"""A round played live for the page: people come at the page's pace, and every step is an event.

Each person is a real client with system randomness; the roles are whatever stage they stand on.
This file knows everybody's places and tickets, as only a demo may; what an adversary would not
see is veiled by the page. SPEC sections 6 to 12 in the order of a person's day.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from coatcheck.demo.page.score import Event, History, Pace
from coatcheck.demo.page.stage import Stage
from coatcheck.demo.plays import Floats, Play
from coatcheck.errors import Error, Misuse, Refused
from coatcheck.protocol import client, verification
from coatcheck.protocol.agreement import settle
from coatcheck.protocol.client import Invitation, Limit
from coatcheck.protocol.notices import Posting
from coatcheck.randomizers import Decode, Randomizer

if TYPE_CHECKING:
    from coatcheck.domains import Box
    from coatcheck.protocol.messages import Answer
    from coatcheck.protocol.ticket import Ticket

_CHUNK: Final = 4
_BEAT: Final = 0.1
_SCENE: Final = 1.2
_LIMIT: Final = Limit(epsilon=64.0, delta=1e-2)
Person = tuple[int, int]


class _Noting:
    """A person's randomizer that remembers the one report it gave, to be shown on the page."""

    def __init__(self, inner: Randomizer) -> None:
        self._inner = inner
        self.report: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def randomize(self, values: Any, entropy: Any, *, clamp: bool = False) -> Any:
        """Randomize as the inner one does."""
        reports = self._inner.randomize(values, entropy, clamp=clamp)
        self.report = [int(number) for number in reports[0]]
        return reports


class Live:
    """One round on a stage, told as events; `start` plays it in a thread of its own."""

    def __init__(self, play: Play, stage: Stage, *, pace: Pace | None = None) -> None:
        if play.box is None:
            raise Misuse("the page shows places on a map: choose the taxi or the friends demo")
        self.play, self.stage = play, stage
        self.box: Box = play.box
        self.pace = pace or Pace()
        self.history = History()
        self.signed = stage.open(play)
        self.round = settle(self.signed)
        self.tickets: dict[Person, Ticket] = {}
        self.answers: dict[Person, Answer] = {}
        self.published = threading.Event()
        self._whose: dict[bytes, Person] = {}
        self._relayed: list[bytes] = []
        self._read = 0
        self._letters = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="live-round", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End the round where it stands."""
        self.pace.stop()
        self._thread.join(timeout=10)

    def unit(self, places: Floats) -> list[list[float]]:
        """Return places (latitude, longitude) as shares (right, up) of the box."""
        low, high = np.array(self.box.lo), np.array(self.box.hi)
        shares = (np.asarray(places, dtype=np.float64) - low) / (high - low)
        found: list[list[float]] = np.round(shares[:, ::-1], 5).tolist()
        return found

    # -- the scenes

    def _run(self) -> None:
        try:
            for scene in (self._introduce, self._gather, self._answer, self._collect, self._write):
                scene()
                if not self.pace.rest(_SCENE):
                    return
            self.history.tell("done")
        except Error as error:
            self.history.tell("failed", sentence=str(error))

    def _introduce(self) -> None:
        terms, round_ = self.round.terms, self.round
        groups = [
            {
                "name": group.name,
                "people": len(values),
                "minimum": group.minimum,
                "mechanism": group.randomizer["name"],
                "local": draft.randomizer.epsilon,
                "epsilon": group.promise.epsilon,
                "delta": group.promise.delta,
                "upload_bytes": round_.upload_size(number),
                "entry_bytes": round_.entry_size(number),
            }
            for number, (group, draft, values) in enumerate(
                zip(terms.groups, self.play.drafts, self.play.values, strict=True)
            )
        ]
        self.history.tell(
            "terms",
            round=terms.round,
            digest=round_.digest.hex(),
            task=terms.task.name,
            shufflers=len(terms.shufflers),
            groups=groups,
            metres=(2 * self.box.scale[::-1]).tolist(),
            places=[self.unit(values) for values in self.play.values],
        )

    def _gather(self) -> None:
        invitations = [
            client.examine(
                self.signed,
                group=draft.name,
                trusted=self.stage.trusted,
                limit=_LIMIT,
                now=int(time.time()),
            )
            for draft in self.play.drafts
        ]
        joined: list[Event] = []
        for person in _by_turns([len(values) for values in self.play.values]):
            joined += self._join(invitations[person[0]], person)
            if len(joined) >= _CHUNK:
                self.history.tell("joined", people=joined)
                joined = []
                if not self.pace.rest(_BEAT):
                    return
        self.history.tell("joined", people=joined)

    def _join(self, invitation: Invitation, person: Person) -> list[Event]:
        """Let a person take part, unless people from browsers have filled the round before."""
        group, row = person
        noting = _Noting(invitation.randomizer)
        mine = replace(invitation, randomizer=cast("Randomizer", noting))
        ticket = mine.join(self.play.values[group][row].tolist(), ledger=None, clamp=True)
        try:
            receipt = self.stage.upload(ticket.upload)
        except Refused:
            if not self._relayed:
                raise
            return []
        self.tickets[person] = client.keep_receipt(ticket, receipt, self.round)
        address = ticket.keys.address
        self._whose[address] = person
        reports = np.array([noting.report])
        return [
            {
                "who": person,
                "address": address.hex(),
                "report": noting.report,
                "sent": self._places(group, reports, "raw")[0],
                "thought": self._places(group, reports)[0],
            }
        ]

    def relay(self, raw: bytes) -> bytes:
        """Hand the sealed bytes of somebody's browser to the shuffler and return the receipt."""
        receipt = self.stage.upload(raw)
        if raw not in self._relayed:
            self._relayed.append(raw)
            self.history.tell("relayed", count=len(self._relayed))
        return receipt

    def _places(self, group: int, reports: Any, how: str | None = None) -> list[list[float]]:
        """Return reports as places: read as the terms say, or in another way."""
        decode = cast("Decode", how or self.round.terms.groups[group].decode)
        return self.unit(self.play.drafts[group].randomizer.estimate(reports, decode))

    def _answer(self) -> None:
        self.history.tell("closing")
        self.stage.close()
        uploads = [*(ticket.upload for ticket in self.tickets.values()), *self._relayed]
        seen = self.stage.seen(uploads, self.round, self.play)
        self.history.tell(
            "opened",
            groups=[
                {
                    "addresses": [contact.address.hex() for contact in opened.contacts],
                    "places": self._places(group, opened.reports, "raw"),
                    "dropped": opened.tally.received - opened.tally.kept,
                }
                for group, opened in enumerate(seen)
            ],
        )
        self.pace.rest(_SCENE)
        bulletin = self.bulletin()
        self.published.set()
        self.history.tell(
            "published",
            entries=bulletin.heading.sizes,
            root=bulletin.heading.root.hex(),
            bytes=len(bulletin.encode()),
        )

    def bulletin(self) -> verification.VerifiedBulletin:
        """Fetch the bulletin and check it as a person does."""
        return verification.verify_bulletin(self.stage.bulletin(), self.round)

    def _collect(self) -> None:
        bulletin = self.bulletin()
        found: list[Event] = []
        for person, ticket in self.tickets.items():
            answer = client.collect(ticket, bulletin)
            self.answers[person] = answer
            partners = [client.address(partner, self.round) for partner in answer.partners]
            found.append(
                {
                    "who": person,
                    "partners": [address.hex() for address in partners],
                    "them": [self._whose.get(address) for address in partners],
                }
            )
        self.history.tell("collected", people=found)

    def _write(self) -> None:
        """Let everyone of the first group write to the nearest partner; partners reply."""
        for person, answer in self.answers.items():
            if person[0] == 0 and answer.partners:
                self._send(person, self.play.lines[0], to=answer.partners[0].contact)
        self.deliver()

    def _send(self, person: Person, body: str, *, to: bytes) -> None:
        raw, after = client.write(self.tickets[person], body.encode(), to=to, round_=self.round)
        self.tickets[person] = after
        self.stage.post(raw)

    def partners(self) -> dict[Person, list[Person]]:
        """Tell whom each person of the demo was given, as far as they are of the demo, too."""
        found: dict[Person, list[Person]] = {}
        for person, answer in self.answers.copy().items():
            told = (client.address(partner, self.round) for partner in answer.partners)
            found[person] = [self._whose[address] for address in told if address in self._whose]
        return found

    # -- letters, also from browsers

    def deliver(self) -> None:
        """Let the people of the demo read what has come for them, and reply to a first letter."""
        with self._letters:
            posted = list(self.stage.letters())
            fresh, self._read = posted[self._read :], len(posted)
            arrived = [event for raw in fresh for event in self._arrived(raw)]
            if arrived:
                self.history.tell("letters", letters=arrived)
        if any(event["reply"] for event in arrived):
            self.deliver()

    def _arrived(self, raw: bytes) -> list[Event]:
        reader = self._whose.get(Posting.decode(raw, self.round).recipient)
        if reader is None:
            return []
        inbox = client.read(self.tickets[reader], [raw], self.round)
        self.tickets[reader] = inbox.ticket
        events = []
        for letter in inbox.letters:
            first = letter.body.decode(errors="replace") != self.play.lines[1]
            if first:
                self._send(reader, self.play.lines[1], to=letter.sender.raw)
            events.append(
                {
                    "to": reader,
                    "from": self._whose.get(letter.sender.address),
                    "body": letter.body.decode(errors="replace"),
                    "reply": first,
                }
            )
        return events


def _by_turns(sizes: Sequence[int]) -> Iterator[Person]:
    """Yield everybody, the groups in turn, as people come."""
    for row, turn in enumerate(zip_longest(*(range(size) for size in sizes))):
        yield from ((group, row) for group, there in enumerate(turn) if there is not None)
