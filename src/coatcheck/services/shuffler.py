"""The shuffler as a service: uploads in, one batch out, nothing else ever.

Knows who uploads and what is sealed to this shuffler; writes neither address nor time down.
Uploads are acknowledged after they are on the disk. SPEC section 10.
"""

import asyncio
import hashlib
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

from coatcheck.agreement import countersign, read_signed, settle, write_signed
from coatcheck.entropy import system
from coatcheck.errors import Malformed, Misuse, Refused, TwoFaces
from coatcheck.keys import KeyPairs
from coatcheck.parcels import RECEIPT_SIZE, Batch
from coatcheck.services import faults
from coatcheck.services.clock import Clock
from coatcheck.services.commit import GroupCommit
from coatcheck.services.delivery import delivery_headers, read_delivery
from coatcheck.services.frame import Frame, log
from coatcheck.services.keyring import Keyring
from coatcheck.services.peers import Peers
from coatcheck.services.problems import Problem
from coatcheck.services.settings import ShufflerSettings
from coatcheck.services.shuffler_jobs import release, release_stored, restore
from coatcheck.services.shuffler_routes import add_routes
from coatcheck.services.wire import Receive, Scope, Send, header, read_body, respond
from coatcheck.services.workers import Workers
from coatcheck.shuffler import SECRET_SIZE, Shuffler
from coatcheck.stores import Gathering, Parcel, ShufflerStore, Verdict, shuffler_store
from coatcheck.terms import Round, read_terms

_GRACE = 86_400
"""Seconds that a later shuffler waits for a batch: one before it may have released at the end."""
_RECEIPT = {
    "type": "http.response.start",
    "status": 201,
    "headers": [
        (b"content-type", b"application/octet-stream"),
        (b"content-length", b"%d" % RECEIPT_SIZE),
    ],
}
_TOLD = {
    Verdict.CONFLICT: Problem("conflict", "other bytes came under this id: re-send your ticket's"),
    Verdict.SPENT: Problem("forbidden", "this enrolment token was used for another upload"),
    Verdict.CLOSED: Problem("closed", "the round takes no more uploads"),
}


@dataclass
class Live:
    """A round as this process holds it."""

    round: Round
    role: Shuffler
    stored: Gathering
    largest: int
    crowd: Counter[int] = field(default_factory=Counter)
    short: Counter[int] | None = None
    again: float = 0.0
    failed: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class ShufflerService:
    """One shuffler for many rounds."""

    def __init__(
        self,
        settings: ShufflerSettings,
        *,
        store: ShufflerStore | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings
        self.store = store or shuffler_store(settings.store_url)
        self.clock = clock or Clock()
        self.keyring = Keyring([settings.path(name) for name in settings.keys])
        self.trusted = settings.trusted_keys()
        self.rounds: dict[bytes, Live] = {}
        self.peers = Peers(ca=settings.ca_file, timeout=settings.peer_timeout)
        self.workers = None if settings.store == "memory:" else Workers()
        self._tokens = _tokens(settings)
        self.frame = Frame("shuffler", settings, self.store, self.step, self.load)
        self.commits = GroupCommit(self._commit, queue=settings.queue)
        self.frame.loops += [self.commits.run]
        self.frame.endings += [self._end]
        self.frame.bare |= {"uploads": self.upload, "batch": self.accept}
        add_routes(self)

    # -- what people and roles ask

    async def upload(self, digest: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Take an upload: check it, have it written, then acknowledge it with a receipt."""
        live = self.rounds.get(digest)
        self.frame.leadership.fence  # noqa: B018 - a process that stands by takes nothing
        if live is None:
            raise self.frame.absent("this shuffler has no such round")
        raw = await read_body(scope, receive, limit=live.largest)
        if live.stored.phase in {"released", "abandoned"}:
            raise _TOLD[Verdict.CLOSED]
        token = self._enrolled(scope)
        try:
            upload = live.role.vet(raw, now=self.clock.now())
        except Malformed:
            raise Problem("malformed", "this is no upload of this round: see its terms") from None
        except (Refused, Misuse):
            raise Problem("closed", "the round takes no uploads at this time") from None
        verdict = await self.commits.add(
            Parcel(digest, upload.group, upload.id, upload.body, token)
        )
        if verdict is Verdict.NEW:
            live.crowd[upload.group] += 1
        elif verdict is not Verdict.KNOWN:
            raise _TOLD[verdict]
        faults.reach("shuffler.acknowledge")
        # Signed here and not by the writer: a thread that signs would fight for the interpreter
        # with this one at every signature.
        await send(_RECEIPT)
        await send({"type": "http.response.body", "body": live.role.receipt(raw, upload)})

    def _enrolled(self, scope: Scope) -> bytes | None:
        """Check an enrolment token, if the round asks for one; only its hash is kept."""
        if not self._tokens:
            return None
        given = hashlib.sha256(header(scope, b"coatcheck-token")).digest()
        # A look-up by hash: how long it takes says nothing about the token itself.
        if given not in self._tokens:
            raise Problem("forbidden", "this shuffler asks for an enrolment token")
        return given

    def _commit(self, parcels: list[Parcel]) -> list[Verdict]:
        """Write a group of uploads, off the event loop."""
        begun = time.perf_counter()
        faults.reach("shuffler.upload")
        verdicts = self.store.put(parcels, fence=self.frame.leadership.fence)
        faults.reach("shuffler.uploaded")
        metrics = self.frame.metrics
        metrics.commit.observe(time.perf_counter() - begun)
        metrics.group.observe(len(parcels))
        for verdict, count in Counter(verdicts).items():
            metrics.taken.labels(verdict.value).inc(count)
        return verdicts

    async def accept(self, digest: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Take the batch of the shuffler before; the same one twice is one."""
        live = self.rounds.get(digest)
        if live is None:
            raise self.frame.absent("this shuffler has no such round")
        if not live.role.hop:
            raise Problem("refused", "the first shuffler takes uploads, not batches")
        sender = live.round.terms.shufflers[live.role.hop - 1].verifying
        limit = self.settings.batch_limit
        raw = await read_delivery(scope, receive, digest=digest, sender=sender, limit=limit)
        Batch.decode(raw, live.round)
        fence = self.frame.leadership.fence
        if not await asyncio.to_thread(self.store.accept, digest, raw, fence=fence):
            raise Problem("conflict", "another batch of this round came first, and stays")
        await self.refresh()
        await respond(send, 200, b"{}", media=b"application/json")

    async def sign(self, raw: bytes) -> bytes:
        """Counter-sign terms, once a name."""
        signed = read_signed(raw)
        fence = self.frame.leadership.fence
        memory: dict[str, bytes] = {}
        answer = countersign(signed, keys=self._signer(signed.document), pledged=memory)
        ((name, digest),) = memory.items()
        if await asyncio.to_thread(self.store.pledge, name, digest, fence=fence) != digest:
            raise TwoFaces(f"round {name!r} is already signed with other terms: use a new name")
        return write_signed(answer)

    async def open(self, digest: bytes, raw: bytes) -> None:
        """Open a round on terms that everybody signed."""
        signed = read_signed(raw)
        round_ = settle(signed)
        if round_.digest != digest:
            raise Problem("malformed", "these terms are of another round than the address says")
        self._signer(signed.document)
        if await asyncio.to_thread(self._pledge, round_) != digest:
            raise TwoFaces("this name is pledged to other terms")
        secret = system().token(SECRET_SIZE)
        fresh = Gathering(digest, round_.terms.round, write_signed(signed), secret)
        fence = self.frame.leadership.fence
        await asyncio.to_thread(self.store.begin, fresh, fence=fence)
        faults.reach("shuffler.opened")
        await self.refresh()

    def _pledge(self, round_: Round) -> bytes:
        fence = self.frame.leadership.fence
        return self.store.pledge(round_.terms.round, round_.digest, fence=fence)

    def _signer(self, document: str) -> KeyPairs:
        """Find the own key in terms, and refuse those of a server that is not known here."""
        terms = read_terms(document.encode()).terms
        if bytes.fromhex(terms.server.verifying) not in self.trusted:
            raise Problem("forbidden", "this shuffler does not know the server of these terms")
        mine = [party for party in terms.shufflers if self.keyring.has(party.verifying)]
        if len(mine) != 1:
            raise Problem("refused", "these terms name another shuffler, or this one twice")
        return self.keyring.of(mine[0].verifying)

    # -- what happens by itself

    async def load(self) -> None:
        """Read the rounds, and count their crowds, when this process begins to lead."""
        self.rounds.clear()
        await self.refresh()

    async def refresh(self) -> None:
        """Read the rounds again; those that are new are counted."""
        for stored in await asyncio.to_thread(self.store.rounds):
            live = self.rounds.get(stored.digest)
            if live is None:
                self.rounds[stored.digest] = await asyncio.to_thread(self._live, stored)
            else:
                live.stored = stored
        phases = Counter(live.stored.phase for live in self.rounds.values())
        for phase in ("open", "closed", "released", "abandoned"):
            self.frame.metrics.rounds.labels(phase).set(phases[phase])

    def _live(self, stored: Gathering) -> Live:
        round_ = settle(read_signed(stored.signed))
        largest = max(round_.upload_size(group) for group in range(len(round_.terms.groups)))
        crowd = Counter(self.store.crowd(stored.digest))
        return Live(round_, restore(round_, stored, self.keyring), stored, largest, crowd)

    async def step(self) -> None:
        """Look at every round that is not over."""
        await self.refresh()
        self.frame.metrics.waiting.set(self.commits.waiting)
        for live in list(self.rounds.values()):
            over = live.stored.phase in {"released", "abandoned"} and not live.stored.waiting
            if not over and not live.turn.locked():
                self.frame.spawn(partial(self.advance, live))

    async def advance(self, live: Live) -> None:
        """Close, release, deliver or abandon, whatever is due."""
        async with live.turn:
            await self._advance(live)

    async def _advance(self, live: Live) -> None:
        phase, now, terms = live.stored.phase, self.clock.now(), live.round.terms
        if phase == "open" and not live.role.hop and now >= terms.closes and self.enough(live):
            await self.frame.attempt("close", lambda: self._close(live))
        elif phase == "open" and now >= terms.expires + (_GRACE if live.role.hop else 0):
            await self.frame.attempt("abandon", lambda: self.abandon(live))
        if live.stored.phase == "closed":
            await self.frame.attempt("release", lambda: self._release(live))
        if live.stored.waiting and time.monotonic() >= live.again:
            done = await self.frame.attempt("deliver", lambda: self._deliver(live))
            live.failed = 0 if done else min(live.failed + 1, 6)
            live.again = time.monotonic() + (0 if done else self.settings.tick * 2**live.failed)

    def enough(self, live: Live) -> bool:
        """Tell whether every group has its crowd, and more than when it last fell short."""
        groups = enumerate(live.round.terms.groups)
        full = all(live.crowd[number] >= group.minimum for number, group in groups)
        return full and live.crowd != live.short

    async def _close(self, live: Live) -> None:
        faults.reach("shuffler.close")
        fence = self.frame.leadership.fence
        await asyncio.to_thread(self.store.close_round, live.round.digest, fence=fence)
        faults.reach("shuffler.closed")
        await self.refresh()

    async def _release(self, live: Live) -> None:
        digest, fence, now = live.round.digest, self.frame.leadership.fence, self.clock.now()
        if self.workers is None:
            job = asyncio.to_thread(release, self.store, self.settings, digest, fence, now)
        else:
            job = self.workers.run(release_stored, self.settings, digest, fence, now)
        if await job:
            self._done("released", live)
        elif not live.role.hop and now < live.round.terms.expires:
            live.short = Counter(live.crowd)
            await asyncio.to_thread(self.store.reopen, digest, fence=fence)
            self._done("reopened", live)
        else:
            await self.abandon(live)
        await self.refresh()

    async def abandon(self, live: Live) -> None:
        """Give a round up: nothing of it leaves, everything of it is forgotten."""
        fence = self.frame.leadership.fence
        await asyncio.to_thread(self.store.abandon, live.round.digest, fence=fence)
        self._done("abandoned", live)
        await self.refresh()

    async def _deliver(self, live: Live) -> None:
        digest, fence = live.round.digest, self.frame.leadership.fence
        raw = await asyncio.to_thread(self.store.batch, digest)
        mine = live.round.terms.shufflers[live.role.hop].verifying
        headers = delivery_headers(raw, digest=digest, signing=self.keyring.of(mine).signing)
        faults.reach("shuffler.deliver")
        url = f"{self.settings.value(self.settings.next)}/rounds/{digest.hex()}/batch"
        await self.peers.send(url, raw, headers=headers)
        faults.reach("shuffler.delivered")
        await asyncio.to_thread(self.store.forget, digest, fence=fence)
        self._done("delivered", live)
        await self.refresh()

    def _done(self, step: str, live: Live) -> None:
        self.frame.metrics.steps.labels(step).inc()
        log.info("round %s: %s", live.round.terms.round, step)

    async def _end(self) -> None:
        await self.peers.close()
        if self.workers is not None:
            self.workers.close()


def _tokens(settings: ShufflerSettings) -> frozenset[bytes]:
    if not settings.enrolment:
        return frozenset()
    lines = settings.path(settings.enrolment).read_text(encoding="ascii").split()
    return frozenset(bytes.fromhex(line) for line in lines)
