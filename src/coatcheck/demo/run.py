"""A run: every person of a scenario takes part in one live round, as a client of their own.

The command and the page use this same run. It holds everybody's tickets and the keys of the
services, as only a demo may. SPEC section 12.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from coatcheck.demo.events import Done, Event, Invited, Letter, Pace, Person
from coatcheck.demo.people import CachedClient, SharedHttpCache
from coatcheck.durable_files import write_bytes
from coatcheck.entropy import system
from coatcheck.errors import Misuse, Refused
from coatcheck.protocol import client
from coatcheck.protocol.agreement import accept
from coatcheck.protocol.keys import address_of, read_keys
from coatcheck.protocol.log.signed_notes import LogCheckpoint, Note
from coatcheck.protocol.log.verification import board_note_key
from coatcheck.protocol.server import Opened, Server
from coatcheck.protocol.wire.batches import Batch
from coatcheck.protocol.wire.uploads import Upload
from coatcheck.services.local_cluster import PATIENCE, Cluster
from coatcheck.services.person.session import Session
from coatcheck.services.web.client import body_of
from coatcheck.simulation.round import shuffle_uploads

if TYPE_CHECKING:
    from coatcheck.accounting.amplification import Guarantee
    from coatcheck.demo.people import Crowd
    from coatcheck.demo.scenarios import Scenario
    from coatcheck.protocol.agreement import SignedTerms, TrustedTerms
    from coatcheck.protocol.log.verification import VerifiedBulletin
    from coatcheck.protocol.ticket import Ticket
    from coatcheck.protocol.wire.messages import Answer

# HOUSE-DOC demo.cluster: 'The services of a demo: how they are started, and what only the server is told of the task.'
_INSIGHT: Final = "insight.json"


def demo_cluster(folder: Path) -> Cluster:
    """Make a shuffler, a server and a board for a run, with a relay and a witness."""
    # One worker: a demo's crowd is too small for more to pay.
    insight = {"server": {"insight": _INSIGHT}}
    extra = {"tick": 0.1, "workers": 1}
    return Cluster(folder, relay=True, witnesses=1, extra=extra, role_extra=insight)


def tell_server(cluster: Cluster, scenario: "Scenario") -> None:
    """Write down what only the server knows of the task."""
    known, insight = {}, scenario.insight
    if insight is not None:
        known = {scenario.task.name: {"direction": insight.direction.tolist()}}
    path = cluster.folder / _INSIGHT
    write_bytes(path, msgspec.json.encode(known), secret=True, replace=True)


WRITERS: Final = 200
"""How many write letters; each reader downloads all of them."""
_FEW: Final = 4  # how many join between two pauses of a pace
_BEAT: Final = 0.1
_BETWEEN_STEPS: Final = 1.2
_GLANCE: Final = 0.05
_DELTA: Final = 1e-3
_EXPIRES: Final = 3600  # a page that shows the round may be paused


class Run:
    """One round of a scenario on a cluster; everything that happens is told to an observer.

    Without a pace people join side by side and only the first person waits for a reply. With one
    they come a few at a time, there is a rest after every step, and everybody reads the replies.
    """

    def __init__(
        self,
        scenario: "Scenario",
        cluster: Cluster,
        *,
        crowd: "Crowd",
        observer: Callable[["Run", Event], object],
        pace: Pace | None = None,
    ) -> None:
        self.scenario, self.cluster, self.pace = scenario, cluster, pace
        self.people = scenario.everybody
        self.crowd = crowd
        self._door = CachedClient()
        self._onlooker: Session
        self.url = ""
        self.signed: SignedTerms
        self.round: TrustedTerms
        self.bulletin: VerifiedBulletin | None = None
        self.watched: LogCheckpoint | None = None
        self.seen: Sequence[Opened] = ()
        self.steps: list[dict[str, Any]] = []
        self.guarantees: dict[Person, Guarantee] = {}
        self.tickets: dict[Person, Ticket] = {}
        self.reports: dict[Person, list[int]] = {}
        self.answers: dict[Person, Answer] = {}
        self.letters: list[Letter] = []
        self.settled: dict[Person, list[Person | None]] = {}
        self.posted = 0
        self.noted: list[bytes] = []
        self._whose: dict[bytes, Person] = {}
        self._observer = observer

    async def __aenter__(self) -> Self:
        """Start the services and open a round on them."""
        try:
            await self._start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the services, however it went."""
        self.cluster.end()
        await self.crowd.close()
        await self._door.close()

    def tell(self, kind: str, **details: Any) -> None:
        """Tell the observer of an event."""
        self._observer(self, Event(kind, **details))

    @contextmanager
    def _step(self, kind: str, name: str, *, parts: int, people: int = 0) -> Iterator[None]:
        self.tell(kind, step=name, parts=parts)
        start = time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        before = next((step for step in self.steps if step["name"] == name), None)
        if before is None:
            before = {"name": name, "seconds": 0.0, "people": 0}
            self.steps.append(before)
        before["seconds"] += seconds
        before["people"] += people

    async def _rest(self, seconds: float = _BETWEEN_STEPS) -> None:
        if self.pace is not None:
            await self.pace.rest(seconds)

    def person_at(self, address: bytes) -> Person | None:
        """Tell whose address this is, if somebody's of the scenario."""
        return self._whose.get(address)

    def partners(self, who: Person) -> list[Person | None]:
        """Return whom a person was told of, or settled with; None for somebody in a browser."""
        if self.scenario.settle is not None:
            return self.settled.get(who, [])
        told = (client.address(partner, self.round) for partner in self.answers[who].partners)
        return [self._whose.get(address) for address in told]

    def known_partners(self, who: Person) -> list[Person]:
        """Return the partners who are of the scenario, too."""
        return [partner for partner in self.partners(who) if partner is not None]

    # -- before people come

    async def _start(self) -> None:
        """Start the services, and have a round proposed, counter-signed and opened."""
        names = self.cluster.names
        with self._step("starting", "the roles, a relay and a witness start", parts=len(names)):
            tell_server(self.cluster, self.scenario)
            self.cluster.start_all()
            for name in names:
                await asyncio.to_thread(self.cluster.wait_until_leads, name)
                self.tell("started")
        await self._open_round()

    async def again(self, scenario: "Scenario") -> None:
        """Open the next round of the same people on the same services."""
        self.scenario, self.bulletin, self.watched = scenario, None, None
        self.seen, self.posted = (), 0
        for kept in (self.guarantees, self.tickets, self.reports, self.answers):
            kept.clear()
        for more in (self.settled, self.letters, self.noted, self._whose):
            more.clear()
        tell_server(self.cluster, self.scenario)
        await self._open_round()

    async def _open_round(self) -> None:
        """Have a round proposed, counter-signed and opened, and everybody ready for it."""
        with self._step("opening", "terms are drafted, signed, counter-signed, opened", parts=1):
            # Everybody is the minimum, so the round closes when the last one has joined.
            opened = partial(self.cluster.open_round, closes=1, expires=_EXPIRES)
            self.url = await asyncio.to_thread(opened, self.scenario.draft())
            relay, trusted = self.cluster.url("relay"), self.cluster.trusted
            homes = self.cluster.folder / "people" / self.url.rpartition("/")[2][:16]
            homes.mkdir(mode=0o700, parents=True)
            await self.crowd.invite(
                Invited(
                    url=self.url,
                    relay=relay,
                    trusted=trusted,
                    homes=homes,
                    names=tuple(draft.name for draft in self.scenario.drafts),
                    values={who: self._value(who) for who in self.people},
                    limit=client.Limit(self.scenario.epsilon, _DELTA),
                    lines=self.scenario.lines,
                )
            )
            via = SharedHttpCache(relay, first=self.url, trusted=trusted, door=self._door)
            path = homes / "onlooker"
            self._onlooker = Session(self.url, path=path, trusted=trusted, peers=via)
            self.signed = (await self._onlooker.offer(patience=PATIENCE)).signed
            self.round = accept(self.signed, trusted=trusted)
            self.tell("terms")

    def _value(self, who: Person) -> list[float]:
        value: list[float] = self.scenario.values[who[0]][who[1]].tolist()
        return value

    @property
    def passed(self) -> int:
        """How many sealed requests the people of this process sent through the relay."""
        return self.crowd.people.through.passed if self.crowd.people else 0

    # -- the round

    async def complete(self) -> None:
        """Let everybody take part to the end; stop as soon as one of the services has ended."""
        task = asyncio.ensure_future(self._complete())
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=_GLANCE)
                self.cluster.check()
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _complete(self) -> None:
        everybody = len(self.people)
        await self._rest()
        with self._step("joining", "people join", parts=everybody, people=everybody):
            size = everybody if self.pace is None else _FEW
            for at in range(0, everybody, size):
                await self._join(self.people[at : at + size])
                await self._rest(_BEAT)
        await self._rest()
        with self._step("closing", "the roles shuffle, compute, seal and publish", parts=2):
            bulletin = await self._onlooker.bulletin(patience=_EXPIRES)
        self.seen = await asyncio.to_thread(self._open)
        self.tell("opened")
        await self._rest()
        self.bulletin = bulletin
        self.watched = await self._watched()
        self.tell("published")
        await self._rest()
        with self._step(
            "collecting", "people collect their answers", parts=everybody, people=everybody
        ):
            await self.crowd.do("collect", list(self.tickets), self._collected)
        await self._rest()
        if self.scenario.settle is not None:
            name = "candidates settle by letter"
            with self._step("settling", name, parts=everybody, people=everybody):
                await self.crowd.do("settle", list(self.tickets), self._settled)
        pairs = [who for who in sorted(self.answers) if who[0] == 0 and self.answers[who].partners]
        if pairs and self.scenario.settle is None:
            await self._correspond(pairs[:WRITERS])
            await self._rest()
        self.tell("done")

    def _open(self) -> Sequence[Opened]:
        """Open all uploads with the keys of the services, as the server did.

        The server has deleted its batch and the shuffler its order, so the uploads are shuffled
        once more: as good an order as the one that is forgotten.
        """
        names = (self.cluster.shufflers[0], "server")
        mixing, opening = (read_keys(self.cluster.folder / f"{name}.key").pairs for name in names)
        uploads = [*(ticket.upload for ticket in self.tickets.values()), *self.noted]
        raw = shuffle_uploads(uploads, self.round, keys=[mixing], entropy=system())
        server = Server(self.round, keys=opening, task=self.scenario.task)
        return server.open(Batch.decode(raw, self.round))

    async def _join(self, people: Sequence[Person]) -> None:
        """Let people take part, unless others from browsers have filled the round before."""
        try:
            await self.crowd.do("join", people, self._joined)
        except Refused:
            if not self.noted:
                raise

    def _joined(self, done: Done) -> None:
        if done.ticket is None or done.guarantee is None:
            raise Misuse("whoever has joined has a ticket")
        self.guarantees[done.who], self.reports[done.who] = done.guarantee, done.report
        self.tickets[done.who] = done.ticket
        self._whose[done.ticket.keys.address] = done.who
        self.tell("joined", who=done.who)

    def note(self, raw: bytes) -> None:
        """Keep a copy of what somebody's browser sent through the relay, for the page to count."""
        Upload.decode(raw, self.round)
        if raw not in self.noted:
            self.noted.append(raw)
            self.tell("noted")

    @property
    def at_board(self) -> str:
        """The round's address at the board."""
        return f"{self.round.terms.board.url}/rounds/{self.round.digest.hex()}"

    def _collected(self, done: Done) -> None:
        if done.answer is None:
            raise Misuse("whoever has collected has an answer")
        self.answers[done.who] = done.answer
        self.tell("collected", who=done.who)

    def _settled(self, done: Done) -> None:
        self.settled[done.who] = [self._behind(contact) for contact in done.partners]
        self.letters += self._read(done)
        self.posted = max(self.posted, done.posted)
        self.tell("settled", who=done.who)

    def _behind(self, contact: bytes) -> Person | None:
        return self._whose.get(address_of(self.round.suite, contact))

    def _read(self, done: Done) -> list[Letter]:
        return [Letter(self._behind(contact), done.who, body) for contact, body in done.letters]

    async def _watched(self) -> LogCheckpoint:
        """Ask the witness for the last checkpoint that it cosigned."""
        key = board_note_key(self.round.terms.board.verifying)
        witness = self.cluster.url(self.cluster.witnesses[0])
        log = hashlib.sha256(key.name.encode()).hexdigest()
        url = f"{witness}/{log}/checkpoint"
        raw = body_of(url, await self._door.exchange("GET", url))
        return LogCheckpoint.read(Note.read(raw).text)

    # -- letters

    async def _correspond(self, writers: Sequence[Person]) -> None:
        """Let people of the first group write to their nearest partner, and the partner reply."""
        told = (self.partners(who)[0] for who in writers)
        readers = list(dict.fromkeys(partner for partner in told if partner is not None))
        again = [(0, 0)] if self.pace is None else list(writers)
        parts = len(writers) + len(readers)
        name = "letters between partners"
        with self._step("writing", name, parts=parts + len(again), people=parts):
            await self.crowd.do("write", writers, self._written)
            await self.crowd.do("read", readers, self._letters)
            await self.crowd.do("read", again, self._letters)

    def _written(self, done: Done) -> None:
        self.posted += done.posted
        self.tell("written", who=done.who)

    async def read_letters(self, who: Person) -> None:
        """Let a person read what has come, and reply to all that is no reply itself."""
        await self.crowd.do("read", [who], self._letters)

    def _letters(self, done: Done) -> None:
        read = self._read(done)
        self.letters += read
        self.posted += done.posted
        self.tell("letters", who=done.who, letters=tuple(read))
