"""The server as a service: propose terms, take one batch a round, compute, publish.

Knows noisy values and one-time keys in an order that says nothing; never who sent which. All
arithmetic is done by its worker. SPEC section 11.
"""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from coatcheck.errors import BadSignature, Refused, Unavailable
from coatcheck.protocol.agreement import SignedTerms, read_signed, settle, write_signed
from coatcheck.protocol.keyfiles import PublicKeys
from coatcheck.protocol.terms import Round, read_terms
from coatcheck.services import faults
from coatcheck.services.clock import Clock
from coatcheck.services.http.app import Frame
from coatcheck.services.http.client import Peers
from coatcheck.services.http.connections import Receive, Scope, Send, respond
from coatcheck.services.http.deliveries import check_batch, delivery_headers, read_delivery
from coatcheck.services.http.problems import Problem
from coatcheck.services.keyring import Keyring
from coatcheck.services.log import log, place_of
from coatcheck.services.server.jobs import answer, answer_stored, draft
from coatcheck.services.server.routes import ROUTES, Proposal
from coatcheck.services.settings import ServerSettings
from coatcheck.services.workers import Workers
from coatcheck.stores import ServerStore, Sitting, server_store


@dataclass
class Live:
    """A round as this process holds it."""

    round: Round
    stored: Sitting
    opened: bool = False
    again: float = 0.0
    failed: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class ServerService:
    """One server for many rounds."""

    def __init__(
        self,
        settings: ServerSettings,
        *,
        store: ServerStore | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings
        self.store = store or server_store(settings.store_url)
        self.clock = clock or Clock()
        self.keyring = Keyring([settings.path(name) for name in settings.keys])
        self.trusted = settings.trusted_keys()
        self.rounds: dict[bytes, Live] = {}
        self.faulty: set[bytes] = set()
        self.peers = Peers(ca=settings.ca_file, timeout=settings.peer_timeout)
        self.workers = Workers()
        self.frame = Frame("server", settings, self.store, self.step, self.load)
        self.frame.endings += [self._end]
        self.frame.serve(ROUTES, self)

    # -- what the operator and the shufflers ask

    async def propose(self, plan: Proposal) -> Live:
        """Draft and sign terms, have everybody sign them, and open the round.

        A name is proposed once: asking again goes on with what was proposed.
        """
        fence = self.frame.leadership.fence
        known = [one for one in self.rounds.values() if one.stored.name == plan.draft.get("round")]
        if not known:
            times = plan.times(self.clock.now())
            shufflers = [await self._key(url) for url in self.settings.shufflers]
            board = await self._key(self.settings.board)
            raw = await self.workers.run(draft, self.settings, plan.draft, times, shufflers, board)
            round_ = read_terms(read_signed(raw).document.encode())
            fresh = Sitting(round_.digest, round_.terms.round, raw)
            await asyncio.to_thread(self.store.propose, fresh, fence=fence)
            faults.reach("server.proposed")
            await self.refresh()
            known = [one for one in self.rounds.values() if one.stored.name == fresh.name]
            if not known:
                raise Refused("a round of this name is here and cannot be led: take a new name")
        await self.advance(known[0])
        return known[0]

    async def _key(self, where: str) -> PublicKeys:
        """Ask a role for its public keys, which must be known here."""
        url = self.settings.value(where)
        try:
            public = msgspec.json.decode(await self.peers.get(f"{url}/key"), type=PublicKeys)
        except msgspec.MsgspecError:
            raise Unavailable(f"{url} does not tell its key") from None
        if bytes.fromhex(public.verifying) not in self.trusted:
            raise Refused(f"the key of {url} is not among the trusted ones of the settings")
        return public

    async def receive(self, digest: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Take the last shuffler's batch; the same one twice is one."""
        live = self.rounds.get(digest)
        if live is None or live.stored.phase == "proposed":
            raise self.frame.absent("this server has no such round")
        sender = live.round.terms.shufflers[-1].verifying
        limit = self.settings.batch_limit
        raw = await read_delivery(scope, receive, digest=digest, sender=sender, limit=limit)
        fence = self.frame.leadership.fence
        hop = len(live.round.terms.shufflers) - 1
        await asyncio.to_thread(check_batch, raw, live.round, hop=hop)
        faults.reach("server.receive")
        if not await asyncio.to_thread(self.store.receive, digest, raw, fence=fence):
            raise Problem("conflict", "another batch of this round came first, and stays")
        faults.reach("server.received")
        await self.refresh()
        await respond(send, 200, b"{}", media=b"application/json")

    # -- what happens by itself

    async def load(self) -> None:
        """Read the rounds when this process begins to lead."""
        self.rounds.clear()
        self.faulty.clear()
        await self.refresh()

    async def refresh(self) -> None:
        """Read the rounds again."""
        for stored in await asyncio.to_thread(self.store.rounds):
            live = self.rounds.get(stored.digest)
            if live is not None:
                live.stored = stored
            elif stored.digest not in self.faulty:
                self._take_up(stored)
        phases = Counter(live.stored.phase for live in self.rounds.values())
        for phase in ("proposed", "awaiting", "batched", "answered", "refused", "published"):
            self.frame.metrics.rounds.labels(phase).set(phases[phase])

    def _take_up(self, stored: Sitting) -> None:
        """Read the terms of a round; one that cannot be read stops no other."""
        try:
            round_ = read_terms(read_signed(stored.signed).document.encode())
        except Exception as error:  # noqa: BLE001 - the other rounds must outlive whatever it is
            self.faulty.add(stored.digest)
            log.error("round %s is not led: %s", stored.name, place_of(error))
            return
        self.rounds[stored.digest] = Live(round_, stored)

    async def step(self) -> None:
        """Look at every round that is not over."""
        await self.refresh()
        for live in list(self.rounds.values()):
            done = live.stored.phase == "published"
            if not done and not live.turn.locked() and time.monotonic() >= live.again:
                self.frame.spawn(partial(self.advance, live))

    async def advance(self, live: Live) -> None:
        """Have terms signed, open, answer or publish, whatever is due."""
        async with live.turn:
            await self._advance(live)

    async def _advance(self, live: Live) -> None:
        moves = (
            ("proposed", "sign", self._sign),
            ("awaiting", "open", self._open),
            ("batched", "answer", self._answer),
            ("answered", "publish", self._publish),
            ("refused", "publish", self._publish),
        )
        fine = True
        for phase, name, move in moves:
            if fine and live.stored.phase == phase:
                fine = await self.frame.attempt(name, partial(move, live))
                await self.refresh()
        live.failed = 0 if fine else min(live.failed + 1, 6)
        live.again = time.monotonic() + (0 if fine else self.settings.tick * 2**live.failed)

    async def _sign(self, live: Live) -> None:
        """Ask every shuffler in turn for its signature."""
        signed = read_signed(live.stored.signed)
        for where in self.settings.shufflers:
            url = self.settings.value(where)
            raw = await self.peers.send(f"{url}/rounds", write_signed(signed))
            signed = _merged(signed, read_signed(raw))
            faults.reach("server.signed")
        settle(signed)
        fence, digest = self.frame.leadership.fence, live.round.digest
        await asyncio.to_thread(self.store.agree, digest, write_signed(signed), fence=fence)
        faults.reach("server.agreed")
        self._done("signed", live)

    async def _open(self, live: Live) -> None:
        """Open the round everywhere, the first shuffler last: whoever takes uploads can pass on."""
        if live.opened:
            return
        for where in (self.settings.board, *reversed(self.settings.shufflers)):
            url = f"{self.settings.value(where)}/rounds/{live.round.digest.hex()}"
            await self.peers.send(url, live.stored.signed, method="PUT")
            faults.reach("server.opened")
        live.opened = True
        self._done("opened", live)

    async def _answer(self, live: Live) -> None:
        digest, fence, now = live.round.digest, self.frame.leadership.fence, self.clock.now()
        if self.settings.store == "memory:":
            job = asyncio.to_thread(answer, self.store, self.settings, digest, fence, now)
        else:
            job = self.workers.run(answer_stored, self.settings, digest, fence, now)
        self._done(await job, live)

    async def _publish(self, live: Live) -> None:
        digest, fence = live.round.digest, self.frame.leadership.fence
        raw = await asyncio.to_thread(self.store.bulletin, digest)
        keys = self.keyring.of(live.round.terms.server.verifying)
        headers = delivery_headers(raw, digest=digest, signing=keys.signing)
        url = f"{self.settings.value(self.settings.board)}/rounds/{digest.hex()}/bulletin"
        faults.reach("server.publish")
        await self.peers.send(url, raw, headers=headers)
        faults.reach("server.published")
        await asyncio.to_thread(self.store.publish, digest, fence=fence)
        self._done("published", live)

    def _done(self, step: str, live: Live) -> None:
        self.frame.metrics.steps.labels(step).inc()
        log.info("round %s: %s", live.round.terms.round, step)

    async def _end(self) -> None:
        await self.peers.close()
        self.workers.close()


def _merged(mine: SignedTerms, theirs: SignedTerms) -> SignedTerms:
    """Take over what a shuffler added, and nothing else."""
    if (theirs.document, len(theirs.shufflers)) != (mine.document, len(mine.shufflers)):
        raise BadSignature("a shuffler signed other terms than these")
    both: Any = tuple(old or new for old, new in zip(mine.shufflers, theirs.shufflers, strict=True))
    return SignedTerms(mine.document, mine.server, both)
