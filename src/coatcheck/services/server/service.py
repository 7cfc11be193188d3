"""The server as a service: propose terms, take one batch per round, compute, publish.

Knows noisy values and one-time keys in an order that says nothing; never who sent which. All
arithmetic is done by its worker. SPEC section 11.
"""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from coatcheck.errors import BadSignature, Refused, Unavailable
from coatcheck.protocol.agreement import SignedTerms, read_signed, settle, write_signed
from coatcheck.protocol.keyfiles import PublicKeys
from coatcheck.protocol.server import MOVES, Phase
from coatcheck.protocol.terms import read_terms
from coatcheck.services import faults
from coatcheck.services.clock import Clock
from coatcheck.services.http.app import Application
from coatcheck.services.http.client import HttpClient
from coatcheck.services.http.connections import Receive, Scope, Send, respond
from coatcheck.services.http.deliveries import check_batch, delivery_headers, read_delivery
from coatcheck.services.http.problems import Problem
from coatcheck.services.keyring import Keyring, key_files
from coatcheck.services.rounds import LiveRound, Rounds
from coatcheck.services.server.jobs import answer, draft
from coatcheck.services.server.routes import ROUTES, Proposal
from coatcheck.services.settings import ServerSettings
from coatcheck.services.workers import Workers
from coatcheck.stores.server import ServerRound, ServerStore, server_store


@dataclass(kw_only=True)
class ServerLiveRound(LiveRound[ServerRound]):
    """A round as this process holds it; `opened` once this process has opened it everywhere."""

    opened: bool = False


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
        self.keyring = Keyring(key_files(settings))
        self.trusted = settings.trusted_keys()
        self.peers = HttpClient(ca=settings.ca_file, timeout=settings.peer_timeout)
        self.workers = Workers()
        self.app = Application("server", settings, self.store, self.step, self.load)
        self.rounds: Rounds[ServerRound, ServerLiveRound] = Rounds(
            self.app,
            moves=MOVES,
            read=self.store.rounds,
            hold=_hold,
            advance=self._advance,
        )
        self.app.endings += [self._end]
        self.app.serve(ROUTES, self)

    # -- what the operator and the shufflers ask

    async def propose(self, plan: Proposal) -> ServerLiveRound:
        """Draft and sign terms, have everybody sign them, and open the round.

        A name is proposed once: asking again goes on with what was proposed.
        """
        fence = self.app.leadership.fence
        known = [one for one in self.rounds.values() if one.stored.name == plan.draft.get("round")]
        if not known:
            times = plan.times(self.clock.now())
            shufflers = [await self._key(url) for url in self.settings.shufflers]
            board = await self._key(self.settings.board)
            raw = await self.workers.run(draft, self.settings, plan.draft, times, shufflers, board)
            round_ = read_terms(read_signed(raw).document.encode())
            fresh = ServerRound(round_.digest, round_.terms.round, raw)
            await asyncio.to_thread(self.store.propose, fresh, fence=fence)
            faults.reach("server.proposed")
            await self.rounds.refresh()
            known = [one for one in self.rounds.values() if one.stored.name == fresh.name]
            if not known:
                raise Refused("a round of this name is here and cannot be led: take a new name")
        await self.rounds.advance(known[0])
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
        if live is None or live.stored.phase is Phase.PROPOSED:
            raise self.app.absent("this server has no such round")
        sender = live.round.terms.shufflers[-1].verifying
        limit = self.settings.batch_limit
        raw = await read_delivery(scope, receive, digest=digest, sender=sender, limit=limit)
        fence = self.app.leadership.fence
        hop = len(live.round.terms.shufflers) - 1
        await asyncio.to_thread(check_batch, raw, live.round, hop=hop)
        faults.reach("server.receive")
        if not await asyncio.to_thread(self.store.accept, digest, raw, fence=fence):
            raise Problem("conflict", "another batch of this round came first, and stays")
        faults.reach("server.received")
        await self.rounds.refresh()
        await respond(send, 200, b"{}", media=b"application/json")

    # -- what happens by itself

    async def load(self) -> None:
        """Read the rounds when this process begins to lead."""
        await self.rounds.load()

    async def step(self) -> None:
        """Look at every round that is not over."""
        await self.rounds.step()

    async def _advance(self, live: ServerLiveRound) -> None:
        """Have terms signed, open, answer or publish, whatever is due."""
        steps = (
            (Phase.PROPOSED, "sign", self._sign),
            (Phase.AWAITING, "open", self._open),
            (Phase.BATCHED, "answer", self._answer),
            (Phase.ANSWERED, "publish", self._publish),
            (Phase.REFUSED, "publish", self._publish),
        )
        fine = True
        for phase, name, step in steps:
            if fine and live.stored.phase is phase:
                fine = await self.app.attempt(name, partial(step, live))
                await self.rounds.refresh()
        live.tried(done=fine, tick=self.settings.tick)

    async def _sign(self, live: ServerLiveRound) -> None:
        """Ask every shuffler in turn for its signature."""
        signed = read_signed(live.stored.signed)
        for where in self.settings.shufflers:
            url = self.settings.value(where)
            raw = await self.peers.send(f"{url}/rounds", write_signed(signed))
            signed = _merged(signed, read_signed(raw))
            faults.reach("server.signed")
        settle(signed)
        fence, digest = self.app.leadership.fence, live.round.digest
        await asyncio.to_thread(self.store.agree, digest, write_signed(signed), fence=fence)
        faults.reach("server.agreed")
        self.rounds.done(live, "signed")

    async def _open(self, live: ServerLiveRound) -> None:
        """Open the round everywhere, the first shuffler last: whoever takes uploads can pass on."""
        if live.opened:
            return
        for where in (self.settings.board, *reversed(self.settings.shufflers)):
            url = f"{self.settings.value(where)}/rounds/{live.round.digest.hex()}"
            await self.peers.send(url, live.stored.signed, method="PUT")
            faults.reach("server.opened")
        live.opened = True
        self.rounds.done(live, "opened")

    async def _answer(self, live: ServerLiveRound) -> None:
        fence, now = self.app.leadership.fence, self.clock.now()
        given = (self.settings, live.round.digest, fence, now)
        outcome = await self.workers.run_with_store(answer, self.store, server_store, *given)
        self.rounds.done(live, outcome)

    async def _publish(self, live: ServerLiveRound) -> None:
        digest, fence = live.round.digest, self.app.leadership.fence
        raw = await asyncio.to_thread(self.store.bulletin, digest)
        keys = self.keyring.of(live.round.terms.server.verifying)
        headers = delivery_headers(raw, digest=digest, signing=keys.signing)
        url = f"{self.settings.value(self.settings.board)}/rounds/{digest.hex()}/bulletin"
        faults.reach("server.publish")
        await self.peers.send(url, raw, headers=headers)
        faults.reach("server.published")
        await asyncio.to_thread(self.store.publish, digest, fence=fence)
        self.rounds.done(live, "published")

    async def _end(self) -> None:
        await self.peers.close()
        self.workers.close()


def _hold(stored: ServerRound) -> ServerLiveRound:
    round_ = read_terms(read_signed(stored.signed).document.encode())
    return ServerLiveRound(round=round_, stored=stored)


def _merged(mine: SignedTerms, theirs: SignedTerms) -> SignedTerms:
    """Take over what a shuffler added, and nothing else."""
    if (theirs.document, len(theirs.shufflers)) != (mine.document, len(mine.shufflers)):
        raise BadSignature("a shuffler signed other terms than these")
    both: Any = tuple(old or new for old, new in zip(mine.shufflers, theirs.shufflers, strict=True))
    return SignedTerms(mine.document, mine.server, both)
