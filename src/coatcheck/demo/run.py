"""A run of a scenario: from starting the services to the last letter.

Every person takes part as a client of their own. The command and the page use this same run. It
holds everybody's tickets and the keys of the services, as only a demo may.
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
from coatcheck.protocol.server import OpenedReports, Server
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

_PRIVATE_TASK_PARAMETERS: Final = "private-task-parameters.json"


def demo_cluster(folder: Path) -> Cluster:
    """Make a shuffler, a server and a board for a run, with a relay and a witness."""
    # One worker: a demo's crowd is too small for more to pay.
    private = {"server": {"private_task_parameters": _PRIVATE_TASK_PARAMETERS}}
    extra = {"tick": 0.1, "workers": 1}
    return Cluster(folder, relay=True, witnesses=1, extra=extra, role_extra=private)


def tell_server(cluster: Cluster, scenario: "Scenario") -> None:
    """Write the setting that only the server has: private parameters of the task."""
    parameters, lesson = {}, scenario.lesson
    if lesson is not None:
        parameters = {scenario.task.name: {"direction": lesson.direction.tolist()}}
    path = cluster.folder / _PRIVATE_TASK_PARAMETERS
    write_bytes(path, msgspec.json.encode(parameters), secret=True, replace=True)


WRITERS: Final = 200
"""How many people write letters; each reader downloads all letters."""
_FEW: Final = 4  # people who join between two pauses of a pace
_BEAT: Final = 0.1
_BETWEEN_STEPS: Final = 1.2
_GLANCE: Final = 0.05
_DELTA: Final = 1e-3
_EXPIRES: Final = 3600  # a page that shows the round may be paused


class Run:
    """One round of a scenario on a cluster; an observer gets every event.

    Without a pace, people join concurrently and only the first person waits for a reply. With a
    pace, a few people join at a time, there is a pause after every step, and everybody reads the
    replies.
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
        self._http = CachedClient()
        self._onlooker: Session
        self.url = ""
        self.signed: SignedTerms
        self.round: TrustedTerms
        self.bulletin: VerifiedBulletin | None = None
        self.watched: LogCheckpoint | None = None
        self.seen: Sequence[OpenedReports] = ()
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
        """End the services, whether the run succeeded or not."""
        self.cluster.end()
        await self.crowd.close()
        await self._http.close()

    def tell(self, kind: str, **details: Any) -> None:
        """Pass an event to the observer."""
        self._observer(self, Event(kind, **details))

    @contextmanager
    def _step(self, kind: str, name: str, *, parts: int, people: int = 0) -> Iterator[None]:
        self.tell(kind, step=name, parts=parts)
        start = time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        step = next((step for step in self.steps if step["name"] == name), None)
        if step is None:
            step = {"name": name, "seconds": 0.0, "people": 0}
            self.steps.append(step)
        step["seconds"] += seconds
        step["people"] += people

    async def _rest(self, seconds: float = _BETWEEN_STEPS) -> None:
        if self.pace is not None:
            await self.pace.rest(seconds)

    def person_at(self, address: bytes) -> Person | None:
        """Return the person with this address, if they are of the scenario."""
        return self._whose.get(address)

    def partners(self, person: Person) -> list[Person | None]:
        """Return a person's partners, by answer or by letter; None for a person in a browser."""
        if self.scenario.settle is not None:
            return self.settled.get(person, [])
        partners = self.answers[person].partners
        return [self._whose.get(client.address(partner, self.round)) for partner in partners]

    def known_partners(self, person: Person) -> list[Person]:
        """Return the person's partners that are of the scenario."""
        return [partner for partner in self.partners(person) if partner is not None]

    # -- before people come

    async def _start(self) -> None:
        """Start the services and open a round."""
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
        for by_person in (self.guarantees, self.tickets, self.reports, self.answers, self.settled):
            by_person.clear()
        for others in (self.letters, self.noted, self._whose):
            others.clear()
        tell_server(self.cluster, self.scenario)
        await self._open_round()

    async def _open_round(self) -> None:
        """Have a round proposed, counter-signed and opened, and prepare everybody for it."""
        with self._step("opening", "terms are drafted, signed, counter-signed, opened", parts=1):
            # The minimum is everybody, so the round closes when the last person has joined.
            open_round = partial(self.cluster.open_round, closes=1, expires=_EXPIRES)
            self.url = await asyncio.to_thread(open_round, self.scenario.draft())
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
                    values={person: self._value(person) for person in self.people},
                    limit=client.Limit(self.scenario.epsilon, _DELTA, self.scenario.disclosures),
                    lines=self.scenario.lines,
                )
            )
            via = SharedHttpCache(relay, first=self.url, trusted=trusted, http=self._http)
            path = homes / "onlooker"
            self._onlooker = Session(self.url, path=path, trusted=trusted, peers=via)
            self.signed = (await self._onlooker.offer(patience=PATIENCE)).signed
            self.round = accept(self.signed, trusted=trusted)
            self.tell("terms")

    def _value(self, person: Person) -> list[float]:
        value: list[float] = self.scenario.values[person[0]][person[1]].tolist()
        return value

    @property
    def passed(self) -> int:
        """How many sealed requests the people of this process sent through the relay."""
        return self.crowd.people.through.sent_requests if self.crowd.people else 0

    # -- the round

    async def complete(self) -> None:
        """Let everybody take part to the end; stop as soon as a service has ended."""
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
        pairs = [
            person
            for person in sorted(self.answers)
            if person[0] == 0 and self.answers[person].partners
        ]
        if pairs and self.scenario.settle is None:
            await self._correspond(pairs[:WRITERS])
            await self._rest()
        self.tell("done")

    def _open(self) -> Sequence[OpenedReports]:
        """Open all uploads with the keys of the services, as the server did.

        The server has deleted its batch and the shuffler its order, so the uploads are shuffled
        once more, into an order that is as good as the deleted one.
        """
        names = (self.cluster.shufflers[0], "server")
        mixing, opening = (read_keys(self.cluster.folder / f"{name}.key").pairs for name in names)
        uploads = [*(ticket.upload for ticket in self.tickets.values()), *self.noted]
        raw = shuffle_uploads(uploads, self.round, keys=[mixing], entropy=system())
        server = Server(self.round, keys=opening, task=self.scenario.task)
        return server.open(Batch.decode(raw, self.round))

    async def _join(self, people: Sequence[Person]) -> None:
        """Let people take part, unless people in browsers have filled the round before."""
        try:
            await self.crowd.do("join", people, self._joined)
        except Refused:
            if not self.noted:
                raise

    def _joined(self, done: Done) -> None:
        if done.ticket is None or done.guarantee is None:
            raise Misuse("the errand `join` must return a ticket and a guarantee")
        self.guarantees[done.person], self.reports[done.person] = done.guarantee, done.report
        self.tickets[done.person] = done.ticket
        self._whose[done.ticket.keys.address] = done.person
        self.tell("joined", person=done.person)

    def note(self, raw: bytes) -> None:
        """Store a copy of an upload that a browser sent to the relay, for the page to count."""
        Upload.decode(raw, self.round)
        if raw not in self.noted:
            self.noted.append(raw)
            self.tell("noted")

    @property
    def at_board(self) -> str:
        """The address of the round at the board."""
        return f"{self.round.terms.board.url}/rounds/{self.round.digest.hex()}"

    def _collected(self, done: Done) -> None:
        if done.answer is None:
            raise Misuse("the errand `collect` must return an answer")
        self.answers[done.person] = done.answer
        self.tell("collected", person=done.person)

    def _settled(self, done: Done) -> None:
        self.settled[done.person] = [self._behind(contact) for contact in done.partners]
        self.letters += self._read(done)
        self.posted = max(self.posted, done.posted)
        self.tell("settled", person=done.person)

    def _behind(self, contact: bytes) -> Person | None:
        return self._whose.get(address_of(self.round.suite, contact))

    def _read(self, done: Done) -> list[Letter]:
        return [Letter(self._behind(contact), done.person, body) for contact, body in done.letters]

    async def _watched(self) -> LogCheckpoint:
        """Return the last checkpoint that the witness cosigned."""
        key = board_note_key(self.round.terms.board.verifying)
        witness = self.cluster.url(self.cluster.witnesses[0])
        log = hashlib.sha256(key.name.encode()).hexdigest()
        url = f"{witness}/{log}/checkpoint"
        raw = body_of(url, await self._http.exchange("GET", url))
        return LogCheckpoint.read(Note.read(raw).text)

    # -- letters

    async def _correspond(self, writers: Sequence[Person]) -> None:
        """Let people of the first group write to their nearest partners, and these reply."""
        partners = (self.partners(person)[0] for person in writers)
        readers = list(dict.fromkeys(partner for partner in partners if partner is not None))
        again = [(0, 0)] if self.pace is None else list(writers)
        parts = len(writers) + len(readers)
        name = "letters between partners"
        with self._step("writing", name, parts=parts + len(again), people=parts):
            await self.crowd.do("write", writers, self._written)
            await self.crowd.do("read", readers, self._letters)
            await self.crowd.do("read", again, self._letters)

    def _written(self, done: Done) -> None:
        self.posted += done.posted
        self.tell("written", person=done.person)

    async def read_letters(self, person: Person) -> None:
        """Let a person read the new letters, and reply to all that are no replies themselves."""
        await self.crowd.do("read", [person], self._letters)

    def _letters(self, done: Done) -> None:
        read = self._read(done)
        self.letters += read
        self.posted += done.posted
        self.tell("letters", person=done.person, letters=tuple(read))
