"""The server as a service: propose terms, take one batch per round, compute, publish.

Knows noisy values and one-time keys in an order that says nothing; never who sent which. All
arithmetic is done by its worker. SPEC section 11.
"""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec import Struct

from coatcheck.errors import BadSignature, Forgotten, Refused, Unavailable
from coatcheck.protocol.agreement import SignedTerms, read_signed, verify_signatures, write_signed
from coatcheck.protocol.keys import PublicKeys
from coatcheck.protocol.outcomes import OPERATOR, answer_due, due, outcome_without_batch
from coatcheck.protocol.state_machine import SERVER_TRANSITIONS, ServerPhase
from coatcheck.protocol.terms import AdmissionTerms, Second, ShufflerParty, read_terms
from coatcheck.protocol.wire.encoding import read_document
from coatcheck.services import clock
from coatcheck.services.batch_transfer import BATCHES
from coatcheck.services.rounds import LiveRound, RoundService, StageCount
from coatcheck.services.server.drafts import Schedule
from coatcheck.services.server.pipeline import answer, draft, publish, refuse
from coatcheck.services.server.store import ServerRound, ServerStore
from coatcheck.services.settings import ServerSettings
from coatcheck.services.web.connections import Wire
from coatcheck.services.web.routing import ROUND, Digest, Nothing, Problem, Route


class Proposal(Struct, frozen=True, forbid_unknown_fields=True):
    """What an organizer asks for: a draft as in `coatcheck terms propose`, and the times.

    A time below 10^9 is a number of seconds from now.
    """

    draft: dict[str, Any]
    opens: Second = 0
    closes: Second = 3600
    expires: Second = 7200

    def times(self, now: int) -> tuple[int, int, int]:
        """Give the times in seconds since 1970."""
        asked = (self.opens, self.closes, self.expires)
        opens, closes, expires = (at if at >= 10**9 else now + at for at in asked)
        return opens, closes, expires


class ServerRoundStatus(Struct, frozen=True):
    """Where a round stands at the server, and how far an answer is."""

    round: str
    digest: str
    phase: str
    outcome: str
    opened: bool
    closes: int
    expires: int
    url: str
    stages: list[StageCount]


@dataclass(kw_only=True)
class ServerLiveRound(LiveRound[ServerRound]):
    """A round as this process holds it; `opened` once this process has opened it everywhere."""

    opened: bool = False


class ServerService(RoundService[ServerSettings, ServerStore, ServerLiveRound]):
    """One server for many rounds."""

    role = "server"
    moves = SERVER_TRANSITIONS
    settings_type = ServerSettings
    store_type = ServerStore

    def __init__(self, settings: ServerSettings, store: ServerStore | None = None) -> None:
        super().__init__(settings, store)
        asked, suite = settings.schedule, self.keyring.public.suite
        self.schedule = Schedule(settings, asked, suite=suite) if asked else None
        self._scheduling = asyncio.Lock()

    # -- what the operator and the shufflers ask

    def _status(self, live: ServerLiveRound) -> ServerRoundStatus:
        terms, phase = live.round.terms, live.stored.phase
        return ServerRoundStatus(
            round=terms.round,
            digest=live.round.digest.hex(),
            phase=phase.value,
            outcome=live.stored.outcome,
            opened=live.opened or phase not in {ServerPhase.PROPOSED, ServerPhase.AWAITING},
            closes=terms.closes,
            expires=terms.expires,
            url=live.round.address,
            stages=live.stages,
        )

    async def list_rounds(self) -> list[ServerRoundStatus]:
        """List the rounds."""
        return [self._status(live) for live in self.listed()]

    async def round_status(self, digest: Digest) -> ServerRoundStatus:
        """Say where a round stands."""
        return self._status(self.found(digest))

    async def terms(self, digest: Digest) -> SignedTerms:
        """Give the terms with the signatures there are so far."""
        return read_signed(self.found(digest).stored.signed)

    def batched(self, digest: str) -> tuple[ServerLiveRound, int]:
        """Find a round that takes a batch, and the place of the shuffler that makes it."""
        live = self.found(digest)
        if live.stored.phase is ServerPhase.PROPOSED:
            raise self.absent("this server has no such round")
        return live, len(live.round.terms.shufflers) - 1

    async def hear(self, digest: Digest, wire: Wire) -> Nothing:
        """Take the word of a shuffler that it gave the round up; again, nothing changes."""
        live = self.found(digest)
        raw = await self.receive_end(live, wire, before=len(live.round.terms.shufflers))
        if live.stored.outcome == "abandoned":
            return Nothing()
        if live.stored.phase is not ServerPhase.AWAITING:
            raise Problem("conflict", "this server has the batch of the round, and goes on")
        await self._abandon(live, raw)
        return Nothing()

    async def propose(self, body: Proposal) -> ServerRoundStatus:
        """Propose a round, have it signed, and open it; asking again goes on where it stopped."""
        self.leadership.check()
        live = await self._begun(body.draft, body.times(self.clock.now()))
        await self.advance(live)
        return self._status(live)

    async def _begun(
        self, plan: dict[str, Any], times: tuple[int, int, int], density: bytes = b""
    ) -> ServerLiveRound:
        """Find the round of this name, or draft it and keep it, before anybody signs it."""
        known = self.rounds.named(plan.get("round"))
        if known is None:
            drafted = partial(
                draft,
                url=self.url,
                shufflers=[await self._shuffler(where) for where in self.settings.shufflers],
                board=(await self._key(self.settings.board)).notary,
                density=density,
            )
            raw = await self.workers.run(drafted, self.settings, plan, times)
            round_ = read_terms(read_signed(raw).document.encode())
            fresh = ServerRound(round_.digest, round_.terms.round, raw)
            await self.write(self.store.begin, fresh)
            clock.reach("server.proposed")
            await self.refresh()
            known = self.rounds.named(fresh.name)
            if known is None:
                raise Refused("a round of this name is here and cannot be led: take a new name")
        return known

    async def _key(self, where: str) -> PublicKeys:
        """Ask a role for its public keys, which must be known here."""
        url = self.settings.value(where)
        raw = await self.peers.get(f"{url}/key")
        public = read_document(raw, PublicKeys, f"{url} does not tell its key", error=Unavailable)
        if bytes.fromhex(public.verifying) not in self.trusted:
            raise Refused(f"the key of {url} is not among the trusted ones of the settings")
        if public.url != url:
            raise Refused(f"what is at {url} calls itself {public.url}: name it so in the settings")
        return public

    async def _shuffler(self, where: str) -> ShufflerParty:
        """Ask a shuffler for its public keys, and whom it admits."""
        public = await self._key(where)
        raw, wrong = await self.peers.get(f"{public.url}/admission"), "does not say whom it admits"
        kind: Any = AdmissionTerms
        admission = read_document(raw, kind, f"{public.url} {wrong}", error=Unavailable)
        return public.shuffler(admission)

    # -- what happens by itself

    async def step(self) -> None:
        """Look at every round that is not over, and open the scheduled one that is due."""
        await super().step()
        if self.schedule and not self._scheduling.locked():
            self.spawn(partial(self._keep, self.schedule))

    async def _keep(self, schedule: Schedule) -> None:
        """Open the round of the schedule that is due; one attempt at a time."""
        async with self._scheduling:
            slot = schedule.due(self.clock.now())
            if slot is None:
                return
            known = self.rounds.named(slot.name)
            if known is not None and known.opened:
                await asyncio.to_thread(schedule.announce, known.round.address)
            if known is not None:
                return
            density = b""
            if schedule.learns_from(slot):
                density = await asyncio.to_thread(self.store.density)
            plan = {**schedule.draft, "round": slot.name}
            with schedule.trying():
                await self._begun(plan, (slot.opens, slot.closes, slot.expires), density)

    def hold(self, stored: ServerRound) -> ServerLiveRound:
        """Make a live round of its record."""
        round_ = read_terms(read_signed(stored.signed).document.encode())
        return ServerLiveRound(round=round_, stored=stored)

    async def lose(self, live: ServerLiveRound) -> None:
        """Give up a batch or a bulletin whose key is gone: the next step finds that it is."""
        await self.advance(live)

    async def _sign(self, live: ServerLiveRound) -> None:
        """Ask every shuffler in turn for its signature, until nobody could join any more."""
        if self.clock.now() >= live.round.terms.expires:
            await self.write(self.store.finish, live.round.digest, "lapse")
            await self.done(live, "lapsed", ", because not everybody signed its terms")
            return
        signed = read_signed(live.stored.signed)
        for url in (party.url for party in live.round.terms.shufflers):
            raw = await self.peers.send(f"{url}/rounds", write_signed(signed))
            signed = read_signed(raw)
            if signed.document.encode() != live.round.document:
                raise BadSignature(f"{url} signed other terms than these")
            clock.reach("server.signed")
        verify_signatures(signed)
        await self.write(self.store.agree, live.round.digest, write_signed(signed))
        clock.reach("server.agreed")
        await self.done(live, "signed")

    async def _open(self, live: ServerLiveRound) -> None:
        """Open the round everywhere, the first shuffler last: it takes uploads when all can."""
        if live.opened:
            return
        terms = live.round.terms
        for party in (terms.board, *reversed(terms.shufflers)):
            url = f"{party.url}/rounds/{live.round.digest.hex()}"
            await self.peers.send(url, live.stored.signed, method="PUT")
            clock.reach("server.opened")
        live.opened = True
        await self.done(live, "opened")

    async def _wait(self, live: ServerLiveRound) -> None:
        """End a round whose batch has not come in time."""
        if self.clock.now() < due(live.round, len(live.round.terms.shufflers)):
            return
        keys = self.keyring.of(live.round.terms.server.verifying)
        await self._abandon(live, outcome_without_batch(live.round, sign=keys.signing.sign))

    async def _abandon(self, live: ServerLiveRound, end: bytes, *, move: str = "abandon") -> None:
        await self.write(self.store.answer, live.round.digest, move, end)
        clock.reach("server.abandoned")
        await self.done(live, "abandoned")

    async def _answer(self, live: ServerLiveRound) -> None:
        """Answer a round; when its time is over, refuse it, so that people are told."""
        end = answer_due(live.round)
        if self.clock.now() < end:
            outcome = await self.within(end, self.work(answer, live))
        else:
            given = (self.settings, live.round.digest, self.leadership.fence)
            outcome = await asyncio.to_thread(refuse, self.store, *given)
        await self.done(live, outcome)

    async def _publish(self, live: ServerLiveRound) -> None:
        """Hand the round's end to the board; if another one is there, forget it."""
        terms, digest, move = live.round.terms, live.round.digest, "publish"
        keys = self.keyring.of(terms.server.verifying)
        sending = partial(publish, self.store, digest, to=terms.board.url, peers=self.peers)
        try:
            await sending(signing=keys.signing)
        except Forgotten:
            # The key of its entries is gone. If no end is on the board, people are told; to sign
            # another one than the board has would look like two faces.
            shown = await self.shown(live)
            if not shown:
                end = outcome_without_batch(live.round, sign=keys.signing.sign, reason=OPERATOR)
                await self._abandon(live, end, move="lose")
                return
            mine = await asyncio.to_thread(self.store.kept, digest, "bulletin")
            move = "publish" if shown == mine else "yield"
        except Unavailable:
            if not self.is_given_up(live):
                raise
            move = "yield"
        except Refused:
            if not await self.shown(live) and not self.is_given_up(live):
                raise
            move = "yield"
        await self.write(self.store.finish, live.round.digest, move)
        await self.done(live, "published" if move == "publish" else "overtaken")

    steps = (
        (ServerPhase.PROPOSED, "sign", _sign),
        (ServerPhase.AWAITING, "wait", _wait),
        (ServerPhase.AWAITING, "open", _open),
        (ServerPhase.BATCHED, "answer", _answer),
        (ServerPhase.ANSWERED, "publish", _publish),
        (ServerPhase.REFUSED, "publish", _publish),
        (ServerPhase.ABANDONED, "publish", _publish),
    )
    table = (
        Route("GET", "/rounds", list_rounds, problems=(503,)),
        Route("POST", "/rounds", propose, operator=True, problems=(409, 507)),
        Route("GET", ROUND, round_status),
        Route("GET", f"{ROUND}/terms", terms),
        *BATCHES,
        Route("POST", f"{ROUND}/end", hear, problems=(403, 409, 507)),
    )
