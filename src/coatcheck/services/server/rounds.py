"""A server's rounds: what its process holds of each, and the step that is due in each phase.

The shufflers sign the terms, the server opens the round everywhere, a worker answers its batch, and
the bulletin goes to the board. Nothing here computes: jobs are named, and a worker loads them.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from coatcheck.errors import BadSignature, Forgotten, Refused, Unavailable
from coatcheck.protocol.agreement import read_signed, verify_signatures, write_signed
from coatcheck.protocol.keys import PublicKeys
from coatcheck.protocol.outcomes import OPERATOR, answer_due, due, outcome_without_batch
from coatcheck.protocol.state_machine import SERVER_TRANSITIONS, ServerPhase
from coatcheck.protocol.terms import AdmissionTerms, ShufflerParty, read_terms
from coatcheck.protocol.wire.encoding import read_document
from coatcheck.services import clock
from coatcheck.services.batch_transfer import announced, bulletin_part_name
from coatcheck.services.documents import ServerRoundStatus
from coatcheck.services.rounds import LiveRound, RoundService
from coatcheck.services.server.drafts import Schedule
from coatcheck.services.server.store import ServerRound, ServerStore
from coatcheck.services.settings import ServerSettings
from coatcheck.services.web.client import LongBody
from coatcheck.services.worker_pools import run_by_name

DRAFT: Final = "coatcheck.services.server.drafts:draft"
ANSWER: Final = "coatcheck.services.server.pipeline:answer"
REFUSE: Final = "coatcheck.services.server.pipeline:refuse"


@dataclass(kw_only=True)
class ServerLiveRound(LiveRound[ServerRound]):
    """A round as this process holds it; `opened` once this process has opened it everywhere."""

    opened: bool = False

    def status(self) -> ServerRoundStatus:
        """Return where the round stands."""
        terms, phase = self.round.terms, self.stored.phase
        return ServerRoundStatus(
            round=terms.round,
            digest=self.round.digest.hex(),
            phase=phase.value,
            outcome=self.stored.outcome,
            opened=self.opened or phase not in {ServerPhase.PROPOSED, ServerPhase.AWAITING},
            closes=terms.closes,
            expires=terms.expires,
            url=self.round.address,
            stages=self.stages,
        )


class ServerRounds(RoundService[ServerSettings, ServerStore, ServerLiveRound]):
    """The part of a server's service that takes rounds from phase to phase."""

    role = "server"
    moves = SERVER_TRANSITIONS
    settings_type = ServerSettings
    store_type = ServerStore

    def __init__(self, settings: ServerSettings, store: ServerStore | None = None) -> None:
        super().__init__(settings, store)
        table, suite = settings.schedule, self.keyring.public.suite
        self.schedule = Schedule(settings, table, suite=suite) if table else None
        self._scheduling = asyncio.Lock()

    def hold(self, stored: ServerRound) -> ServerLiveRound:
        """Make a live round of its record."""
        round_ = read_terms(read_signed(stored.signed).document.encode())
        return ServerLiveRound(round=round_, stored=stored)

    def batched(self, digest: str) -> tuple[ServerLiveRound, int]:
        """Find a round that takes a batch, and the place of the shuffler that makes it."""
        live = self.live_round(digest)
        if live.stored.phase is ServerPhase.PROPOSED:
            raise self.absent("this server has no such round")
        return live, len(live.round.terms.shufflers) - 1

    # New rounds

    async def begin_round(
        self, draft: dict[str, Any], times: tuple[int, int, int], density: bytes = b""
    ) -> ServerLiveRound:
        """Find the round of this name, or compute and store its terms, which nobody signed yet."""
        live = self.rounds.named(draft.get("round"))
        if live is not None:
            return live
        compute = partial(
            run_by_name,
            DRAFT,
            url=self.url,
            shufflers=[await self._shuffler(name) for name in self.settings.shufflers],
            board=(await self._public_keys(self.settings.board)).notary,
            density=density,
        )
        raw = await self.workers.run(compute, self.settings, draft, times)
        round_ = read_terms(read_signed(raw).document.encode())
        await self.write(self.store.begin, ServerRound(round_.digest, round_.terms.round, raw))
        clock.reach("server.proposed")
        await self.refresh()
        live = self.rounds.named(round_.terms.round)
        if live is None:
            raise Refused(
                "a round of this name is stored but cannot be loaded (see the log); use a new name"
            )
        return live

    async def _public_keys(self, setting: str) -> PublicKeys:
        """Fetch a role's public keys, which this server must trust."""
        url = self.settings.value(setting)
        raw = await self.peers.get(f"{url}/key")
        public = read_document(raw, PublicKeys, f"{url}/key is not a key", error=Unavailable)
        if bytes.fromhex(public.verifying) not in self.trusted:
            raise Refused(f"the key of {url} is not trusted; list its file in `trusted`")
        if public.url != url:
            raise Refused(f"the role at {url} has the address {public.url}; use it in the settings")
        return public

    async def _shuffler(self, setting: str) -> ShufflerParty:
        """Fetch a shuffler's public keys, and whom it admits."""
        public = await self._public_keys(setting)
        url = f"{public.url}/admission"
        kind: Any = AdmissionTerms
        raw = await self.peers.get(url)
        admission = read_document(
            raw, kind, f"{url} does not state whom the shuffler admits", error=Unavailable
        )
        return public.shuffler(admission)

    async def step(self) -> None:
        """Take every unfinished round as far as it goes now, and open the scheduled one."""
        await super().step()
        if self.schedule and not self._scheduling.locked():
            self.spawn(partial(self._open_scheduled, self.schedule))

    async def _open_scheduled(self, schedule: Schedule) -> None:
        """Open the round of the schedule that is due; one attempt at a time."""
        async with self._scheduling:
            slot = schedule.due(self.clock.now())
            if slot is None:
                return
            live = self.rounds.named(slot.name)
            if live is not None and live.opened:
                await asyncio.to_thread(schedule.announce, live.round.address)
            if live is not None:
                return
            density = b""
            if schedule.learns_from(slot):
                density = await asyncio.to_thread(self.store.density)
            draft = {**schedule.draft, "round": slot.name}
            with schedule.trying():
                await self.begin_round(draft, (slot.opens, slot.closes, slot.expires), density)

    # The steps, phase by phase

    async def _sign(self, live: ServerLiveRound) -> None:
        """Ask every shuffler in turn for its signature, until it is too late to join."""
        if self.clock.now() >= live.round.terms.expires:
            await self.write(self.store.finish, live.round.digest, "lapse")
            await self.done(live, "lapsed", ", because a shuffler did not sign its terms")
            return
        signed = read_signed(live.stored.signed)
        for url in (party.url for party in live.round.terms.shufflers):
            raw = await self.peers.send(f"{url}/rounds", write_signed(signed))
            signed = read_signed(raw)
            if signed.document.encode() != live.round.document:
                raise BadSignature(f"{url} signed other terms than it was sent")
            clock.reach("server.signed")
        verify_signatures(signed)
        await self.write(self.store.agree, live.round.digest, write_signed(signed))
        clock.reach("server.agreed")
        await self.done(live, "signed")

    async def _open(self, live: ServerLiveRound) -> None:
        """Open the round everywhere, at the first shuffler last: it takes uploads at once."""
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
        """Abandon a round whose batch has not come in time."""
        if self.clock.now() < due(live.round, len(live.round.terms.shufflers)):
            return
        keys = self.keyring.of(live.round.terms.server.verifying)
        await self.abandon_round(live, outcome_without_batch(live.round, sign=keys.signing.sign))

    async def abandon_round(
        self, live: ServerLiveRound, end: bytes, *, move: str = "abandon"
    ) -> None:
        """Store the signed outcome of a round that has no answer."""
        await self.write(self.store.answer, live.round.digest, move, end)
        clock.reach("server.abandoned")
        await self.done(live, "abandoned")

    async def _answer(self, live: ServerLiveRound) -> None:
        """Have a worker answer the round; when its time is over, refuse it."""
        deadline = answer_due(live.round)
        if self.clock.now() < deadline:
            outcome = await self.within(deadline, self.run_in_worker(ANSWER, live))
        else:
            # Here, as workers may be what kept the round from its answer.
            args = (self.store, self.settings, live.round.digest, self.leadership.fence)
            outcome = await asyncio.to_thread(run_by_name, REFUSE, *args)
        await self.done(live, outcome)

    async def _publish(self, live: ServerLiveRound) -> None:
        """Send the round's outcome to the board; if another one is there, forget it."""
        terms, digest, move = live.round.terms, live.round.digest, "publish"
        keys = self.keyring.of(terms.server.verifying)
        try:
            outgoing = await asyncio.to_thread(OutgoingBulletin, self.store, digest)
            size, content = await asyncio.to_thread(outgoing.measured)
            headers = announced(content, digest=digest, signing=keys.signing)
            clock.reach("server.deliver")
            url = f"{terms.board.url}/rounds/{digest.hex()}/bulletin"
            await self.peers.stream(url, LongBody(size, outgoing.pieces), headers=headers)
            clock.reach("server.delivered")
        except Forgotten:
            # The key of its entries is gone. If the board has no outcome, people must get one; to
            # sign another one than the board has would look like equivocation.
            shown = await self.shown_outcome(live)
            if not shown:
                end = outcome_without_batch(live.round, sign=keys.signing.sign, reason=OPERATOR)
                await self.abandon_round(live, end, move="lose")
                return
            heading = await asyncio.to_thread(self.store.blob, digest, "bulletin")
            move = "publish" if shown == heading else "yield"
        except Unavailable:
            if not self.is_too_late(live):
                raise
            move = "yield"
        except Refused:
            if not await self.shown_outcome(live) and not self.is_too_late(live):
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

    async def lose(self, live: ServerLiveRound) -> None:
        """Take the next step of a round whose key is gone: it finds out, and abandons the round."""
        await self.advance(live)


class OutgoingBulletin:
    """The outcome of a round on its way to the board: its heading, then its parts, one at a time.

    An outcome without entries is its heading alone. SPEC section 19.

    Attributes:
        names: the files of its parts, in order.
    """

    def __init__(self, store: ServerStore, digest: bytes) -> None:
        self.heading = store.blob(digest, "bulletin")
        self._files = store.files(digest)
        hashes = store.part_hashes(digest)
        if hashes:
            self._files.key("batch")  # `Forgotten` before any part is read, if the key is gone
        self.names = [bulletin_part_name(*part) for part in enumerate(hashes)]

    def part(self, name: str) -> bytes:
        """Read a part."""
        return self._files.get(name, use="batch")

    def measured(self) -> tuple[int, bytes]:
        """Return the size of the whole in bytes, and its hash."""
        content, size = hashlib.sha256(self.heading), len(self.heading)
        for name in self.names:
            raw = self.part(name)
            content.update(raw)
            size += len(raw)
        return size, content.digest()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Give the bytes, a part at a time."""
        yield self.heading
        for name in self.names:
            yield await asyncio.to_thread(self.part, name)
