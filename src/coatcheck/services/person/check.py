"""Checks a deployed service as a person meets it, step by step, and names the role that fails.

An operator asks directly and through the relay for what people ask, so that a failure of the relay
or of one role's gateway can be told from a failure of the role. With a value the check also takes
part: it hands in a report, waits for the round and opens the answer, as one more person.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import UNSET, Struct, UnsetType

from coatcheck.errors import Error, Refused
from coatcheck.protocol.agreement import Trust, TrustedTerms, accept
from coatcheck.protocol.client import Limit
from coatcheck.protocol.wire.encoding import read_document
from coatcheck.services.documents import Offer
from coatcheck.services.person.board_view import BoardView, Peers
from coatcheck.services.person.relay_client import RelayedClient
from coatcheck.services.person.session import Session, current_round, service_of
from coatcheck.services.web.client import HttpClient, NotTaken, patiently

_APART: Final = 60
"""Seconds by which clocks may differ: rounds open and close by them."""
_SOON: Final = 10.0
"""Seconds in which a role that has too much to do, or a witness, is asked again."""
_ANY_COST: Final = Limit(float("inf"), 1.0, disclosures=0)


class _Health(Struct, frozen=True):
    role: str
    leads: bool = True
    now: int | UnsetType = UNSET


@dataclass(frozen=True)
class Step:
    """One thing that people need, and whether it works.

    Attributes:
        role: the party that it needs, with its address.
        what: what was tried.
        failure: why it failed; empty if it works.
        skipped: whether it was not tried, because a step before it failed.
    """

    role: str
    what: str
    failure: str = ""
    skipped: bool = False

    @property
    def passed(self) -> bool:
        """Whether it was tried and works."""
        return not self.failure and not self.skipped


@dataclass(frozen=True, kw_only=True)
class Check:
    """What to check, and as whom.

    Attributes:
        address: the address of a round, or of the service's first shuffler.
        trusted: the keys that people are told to trust.
        relay: the relay that people are told to use; empty for none.
        token: what admits a person, if the shufflers ask for it; several separated by commas.
        group: the group to take part in, if the terms have several.
        value: the value to take part with, or a function that reads it for a domain; None to hand
            in nothing.
        wait: seconds to wait for the round's answers.
        ca: a file of certificates to trust instead of the system's.
    """

    address: str
    trusted: Trust
    relay: str = ""
    token: str = ""
    group: str = ""
    value: Callable[[Any], Any] | None = None
    wait: float = 600.0
    ca: str = ""

    async def steps(self) -> AsyncIterator[Step]:
        """Try everything in the order in which a person needs it, and yield each result."""
        direct = HttpClient(ca=self.ca)
        try:
            async for step in self._steps(direct):
                yield step
        finally:
            await direct.close()

    async def _steps(self, direct: HttpClient) -> AsyncIterator[Step]:
        first = f"shuffler {_host(self.address)}"
        url, step = await _try(first, "its current round", self._round())
        yield step
        if url is None:
            return
        what = "the terms of the round, signed by keys that you trust"
        terms, step = await _try(first, what, self._terms(direct, url))
        yield step
        if terms is None:
            return
        parties = [("shuffler", party.url) for party in terms.terms.shufflers]
        parties += [("server", terms.terms.server.url), ("board", terms.terms.board.url)]
        away = set[str]()
        for role, origin in parties:
            name = f"{role} {_host(origin)}"
            answered, step = await _try(
                name, "answers, by the right clock", _health(direct, origin)
            )
            away |= set() if answered else {origin}
            yield step
        yield await self._log_step(direct, terms, f"board {_host(parties[-1][1])}", away)
        if self.relay:
            async for step in self._through_the_relay(direct, terms, away):
                yield step
        if self.value is not None:
            async for step in self._part(url, terms):
                yield step

    async def _round(self) -> str:
        service = service_of(self.address)
        if not service:
            return self.address.rstrip("/")
        return await current_round(service, trusted=self.trusted, ca=self.ca, patience=0.0)

    async def _terms(self, peers: Peers, url: str) -> TrustedTerms:
        wrong = f"{url} is not the address of a round at a shuffler"
        offer = read_document(await peers.get(url), Offer, wrong)
        return accept(offer.signed, trusted=self.trusted)

    async def _log_step(
        self, peers: Peers, terms: TrustedTerms, role: str, away: Collection[str]
    ) -> Step:
        """Check that the board has logged the round; not tried if it is away."""
        what = "the round in its log"
        what += ", cosigned by your witnesses" if self.trusted.witnesses.least else ""
        if terms.terms.board.url in away:
            return Step(role, what, skipped=True)
        with TemporaryDirectory() as folder:
            view = BoardView(terms, path=Path(folder) / "board", peers=peers, trusted=self.trusted)
            # Witnesses cosign a new round some time after the board has logged it.
            _, step = await _try(role, what, patiently(view.check_logged, _SOON))
        return step

    async def _through_the_relay(
        self, direct: HttpClient, terms: TrustedTerms, away: set[str]
    ) -> AsyncIterator[Step]:
        """Ask every role that people ask, through the relay, unless it does not answer anybody."""
        relay = f"relay {_host(self.relay)}"
        answered, step = await _try(relay, "answers", _get(direct, f"{self.relay}/healthz"))
        yield step
        roles = [*(party.url for party in terms.terms.shufflers), terms.terms.board.url]
        away = away if answered else set(roles)
        relayed = RelayedClient(self.relay, first=terms.address, trusted=self.trusted, ca=self.ca)
        relayed.add_shufflers(roles[:-1])
        try:
            for origin in roles[:-1]:
                role = f"{relay} to shuffler {_host(origin)}"
                what = "the round, sealed to its gateway"
                if origin in away:
                    yield Step(role, what, skipped=True)
                    continue
                request = _get(relayed, f"{origin}/rounds/{terms.digest.hex()}")
                yield (await _try(role, what, request))[1]
            yield await self._log_step(relayed, terms, f"{relay} to board {_host(roles[-1])}", away)
        finally:
            await relayed.close()

    async def _part(self, url: str, terms: TrustedTerms) -> AsyncIterator[Step]:
        """Hand in a report as one more person, wait for the round, and open the answer."""
        way = f"through {_host(self.relay)}" if self.relay else "directly"
        shufflers = " and ".join(_host(party.url) for party in terms.terms.shufflers)
        ends = f"server {_host(terms.terms.server.url)}"
        with TemporaryDirectory() as folder:
            session = Session(
                url,
                path=Path(folder) / "ticket",
                trusted=self.trusted,
                relay=self.relay,
                ca=self.ca,
            )
            async with session:
                joined, step = await _try(
                    f"shuffler {shufflers}",
                    f"takes a report {way}, and signs for it",
                    self._join(session),
                )
                yield step
                what = f"the answer on the board, opened {way}"
                if joined is None:
                    yield Step(ends, what, skipped=True)
                    return
                _, step = await _try(ends, what, session.collect(patience=self.wait))
                yield step

    async def _join(self, session: Session) -> bool:
        invitation = await session.invitation(group=self.group, limit=_ANY_COST)
        value = self.value(invitation.randomizer.domain) if self.value else None
        ticket = session.prepare(invitation, value, ledger=None)
        await session.upload(invitation.round, token=self.token, patience=_SOON)
        return bool(ticket.upload)


async def _get(peers: Peers, url: str) -> bytes:
    """Fetch a document; a role that has too much to do is asked again, one that is away is not."""
    try:
        return await peers.get(url)
    except NotTaken:
        return await patiently(lambda: peers.get(url), _SOON)


async def _health(direct: HttpClient, origin: str) -> None:
    """Check that a role answers, leads its store and has the right time."""
    wrong = f"{origin}/healthz is not the answer of a role"
    health = read_document(await _get(direct, f"{origin}/healthz"), _Health, wrong)
    if health.now is not UNSET and abs(health.now - time.time()) > _APART:
        raise Refused(
            f"its clock differs from this machine's by {abs(health.now - time.time()):.0f} s:"
            " rounds open and close by it; set both by NTP"
        )


async def _try(role: str, what: str, work: Awaitable[Any]) -> tuple[Any, Step]:
    """Do one step; a failure becomes its reason."""
    try:
        result = await work
    except Error as error:
        return None, Step(role, what, failure=str(error))
    return (True if result is None else result), Step(role, what)


def _host(address: str) -> str:
    return urlsplit(address).netloc
