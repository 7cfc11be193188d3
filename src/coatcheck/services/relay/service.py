"""The relay as a service: passes sealed requests on to gateways, and knows nothing else.

Knows who asks and which role is asked, never what; keeps and logs neither. It forwards the body
and its media type and nothing of the connection. One list of keys per gateway serves everybody, so
that no gateway can give each person a key of their own. SPEC section 17.
"""

import asyncio
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from coatcheck.errors import Malformed, Unavailable
from coatcheck.protocol.oblivious import (
    GATEWAY_PATH,
    KEYS_MEDIA,
    REQUEST_MEDIA,
    RESPONSE_MEDIA,
    SIZES,
)
from coatcheck.services.http.app import App, openapi
from coatcheck.services.http.client import Answered
from coatcheck.services.http.connections import (
    Receive,
    Scope,
    Send,
    Wire,
    header,
    read_body,
)
from coatcheck.services.http.gateway import SENDS, SIGNATURES, UNTIL, SignedKeys
from coatcheck.services.http.origins import Origin, apart, origin_of
from coatcheck.services.http.problems import MEDIA, OHTTP_KEY, Problem
from coatcheck.services.http.routes import Reply, Route
from coatcheck.services.metrics import MEDIA as METRICS
from coatcheck.services.relay.pipes import Pipes
from coatcheck.services.settings import RelaySettings

Authority = Annotated[str, Meta(pattern=r"\A[0-9a-z.:\[\]-]{1,255}\Z")]
_AWAY: Final = "this gateway does not answer now: try later, and never without a relay"
_ANY_PAGE: Final = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", f"{UNTIL}, {SIGNATURES}".encode()),
]
"""Pages of any site may ask a relay: it knows nobody, so there is nothing to take from it."""
_ASKED: Final = {
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "content-type",
    "access-control-max-age": "86400",
}
_AGAIN: Final = 1.0
"""Seconds within which a gateway's keys are not fetched twice, whatever it says of them."""


class RelayHealth(Struct, frozen=True):
    """Which role this is; a relay has no store, so every process of it serves."""

    role: str
    leads: bool = True


@dataclass(frozen=True)
class _Kept:
    """A gateway's keys as everybody gets them, and since when by the steady clock."""

    signed: SignedKeys
    since: float


class RelayService(App[RelaySettings]):
    """One relay for the gateways that its settings name."""

    role = "relay"
    settings_type = RelaySettings

    def __init__(self, settings: RelaySettings) -> None:
        super().__init__(settings)
        self._pipes = Pipes(ca=settings.ca_file, timeout=settings.peer_timeout)
        self._gateways: dict[str, Origin] = {}
        self._kept: dict[str, _Kept] = {}
        self._fetching: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._under_way = 0
        for told in settings.gateways:
            if not told.startswith("@"):
                self._admit(told)

    def _admit(self, told: str) -> None:
        origin = origin_of(told)
        if self.settings.url:
            apart(self.settings.url, told)
        self._gateways[origin.authority] = origin

    def _gateway(self, authority: str) -> Origin:
        """Find a gateway that the settings name."""
        if authority not in self._gateways:
            for told in self.settings.gateways:
                if told.startswith("@"):
                    with suppress(Unavailable):  # a role that has not started yet
                        self._admit(self.settings.value(told))
        if authority not in self._gateways:
            raise Problem("not-found", "this relay serves no such gateway")
        return self._gateways[authority]

    async def end(self) -> None:
        """Close the connections."""
        await self._pipes.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; browsers are told that any page may read the answer."""

        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_ANY_PAGE]
            await send(message)

        await super().__call__(scope, receive, sent if scope["type"] == "http" else send)

    # -- for people

    async def preflight(self, authority: Authority) -> Reply:
        """Tell a browser that a page of any site may ask."""
        self._gateway(authority)
        return Reply(b"", _ASKED)

    async def keys(self, authority: Authority) -> Reply:
        """Give a gateway's keys: the same to everybody for a while."""
        gateway = self._gateway(authority)
        async with self._fetching[authority]:  # whoever asks meanwhile gets what the first one gets
            kept = self._kept.get(authority)
            if kept is None or time.monotonic() - kept.since > self.settings.keys_for:
                kept = self._kept[authority] = await self._fetched(gateway)
        return Reply(kept.signed.keys, kept.signed.headers)

    async def _fetched(self, gateway: Origin) -> _Kept:
        """Fetch a gateway's keys."""
        answer = await self._ask("GET", gateway, b"", {"accept": KEYS_MEDIA})
        if answer.status != 200:
            raise Problem("unavailable", _AWAY)
        try:
            return _Kept(SignedKeys.read(answer.body, answer.headers), time.monotonic())
        except Malformed:
            raise Problem("unavailable", _AWAY) from None

    async def forward(self, authority: Authority, wire: Wire) -> Reply:
        """Pass a sealed request on to a gateway, and its sealed answer back."""
        scope, receive, _ = wire
        gateway = self._gateway(authority)
        if header(scope, b"content-type") != REQUEST_MEDIA.encode():
            raise Problem("malformed", f"a relay takes {REQUEST_MEDIA}")
        if self._under_way >= self.settings.waiting:
            raise Problem("busy", "too many requests are under way: try again in a moment")
        self._under_way += 1
        try:
            body = await read_body(scope, receive, limit=SIZES[-1])
            answer = await self._ask("POST", gateway, body, {"content-type": REQUEST_MEDIA})
        finally:
            self._under_way -= 1
        media = answer.headers.get("content-type", "")
        if answer.status == 200 and media == RESPONSE_MEDIA:
            return Reply(answer.body)
        if media == MEDIA and OHTTP_KEY.encode() in answer.body:
            self._forget(authority)
            raise Problem("ohttp-key", "the gateway has other keys now: fetch them again")
        if answer.status == 400:
            raise Problem("malformed", "the gateway says that this is no encapsulated request")
        raise Problem("unavailable", _AWAY)

    def _forget(self, authority: str) -> None:
        """Have the keys fetched again, but not at the pace of whoever sends rubbish."""
        kept = self._kept.get(authority)
        if kept is not None and time.monotonic() - kept.since > _AGAIN:
            del self._kept[authority]

    async def _ask(
        self, method: str, gateway: Origin, body: bytes, headers: dict[str, str]
    ) -> Answered:
        try:
            return await self._pipes.exchange(method, gateway, GATEWAY_PATH, body, headers=headers)
        except Unavailable:
            raise Problem("unavailable", _AWAY) from None

    # -- for the operator

    async def healthz(self) -> RelayHealth:
        """Say that the relay answers."""
        return RelayHealth(self.role)

    async def metrics_page(self) -> Reply:
        """Give the counts as Prometheus reads them."""
        return Reply(self.metrics.page())

    table = (
        Route(
            *("POST", "/gateways/{authority}", forward),
            takes=REQUEST_MEDIA,
            media=RESPONSE_MEDIA,
            problems=(404, 422, 429),
        ),
        Route(
            *("GET", "/gateways/{authority}", keys),
            media=KEYS_MEDIA,
            sends=SENDS,
            problems=(404, 503),
        ),
        Route("OPTIONS", "/gateways/{authority}", preflight, problems=(404,)),
    )
    common = (
        Route("GET", "/healthz", healthz),
        Route("GET", "/metrics", metrics_page, media=METRICS, operator=True),
        Route("GET", "/openapi.json", openapi),
    )
