"""Client that sends every request through a relay, sealed to a role's gateway, at random times.

`RelayedClient` has the methods of `HttpClient`, so that a session can use either. It connects to
the relay only. The relay returns the gateways' keys, which are accepted only with the roles'
signatures, and only one list per day: a gateway that gave each person keys of their own could tell
them apart. Through a relay a person also sends requests at random times: a relay and a role that
both record times could otherwise join requests that follow one another. SPEC section 17.
"""

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from msgspec import UNSET, DecodeError, json

from coatcheck.durable_files import read_secret, write_bytes
from coatcheck.entropy import system
from coatcheck.errors import Equivocation, Misuse, Refused, Unavailable
from coatcheck.protocol.agreement import Trust
from coatcheck.protocol.oblivious_http import (
    KEYS_MEDIA,
    OVERHEAD,
    PADDING,
    REQUEST_MEDIA,
    SIZES,
    GatewayConfig,
    Request,
    Response,
    SealedRequest,
    SignedKeys,
    message_size,
    read_keys,
    seal_request,
)
from coatcheck.protocol.terms import Round
from coatcheck.protocol.wire.bulletins import KeyList
from coatcheck.services.person.store import folder_lock
from coatcheck.services.web.client import (
    DOCUMENT,
    Exchanges,
    HttpAnswer,
    HttpClient,
    Origin,
    body_of,
    check_apart,
    origin_of,
)
from coatcheck.services.web.routing import JSON, OHTTP_KEY

_WHOLE: Final = re.compile(rb"bytes [0-9]+-[0-9]+/([0-9]{1,12})")
_HEADERS: Final = 256
"""Bytes of headers and framing around a content, at most."""
_LEVELS: Final = 3
"""The number of sizes to which messages are padded by `pad_for`; longer ones have their own."""
PIECE: Final = SIZES[3] - _HEADERS
"""Bytes of a piece of a bulletin: with its headers it fills one of the sizes."""


CheckLogged = Callable[[KeyList, "RelayedClient"], Awaitable[None]]
"""A function that raises unless the board's log has a key list; it asks with the client given."""


class SeenKeys:
    """The newest key list of each gateway that a person has seen, in a file or in memory.

    Attributes:
        path: the file; all rounds of a person may share it. None stands for memory.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._lists: dict[str, SignedKeys] = {}

    def get(self, authority: str) -> SignedKeys | None:
        """Return the list of a gateway; None if there is none."""
        if authority not in self._lists and self.path is not None and self.path.exists():
            self._lists = self._stored(self.path) | self._lists
        return self._lists.get(authority)

    def keep(self, authority: str, signed: SignedKeys) -> None:
        """Store a list; `Equivocation` if another one of the same period, or a newer, is there."""
        if self.path is None:
            self._check(authority, self._lists.get(authority), signed)
        else:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with folder_lock(self.path):
                stored = self._stored(self.path) if self.path.exists() else {}
                self._check(authority, stored.get(authority), signed)
                lists = json.encode(stored | {authority: signed})
                write_bytes(self.path, lists, secret=True, replace=True)
        self._lists[authority] = signed

    def _check(self, authority: str, before: SignedKeys | None, signed: SignedKeys) -> None:
        if before is None or signed.until > before.until or signed.is_same_list(before):
            return
        if signed.until < before.until:
            raise Refused(
                f"the relay gives an older key list of {authority} than before; nothing was sent:"
                " use another relay"
            )
        proof = ""
        if self.path is not None:
            second = Path(f"{self.path}.second")
            write_bytes(second, json.encode({authority: signed}), secret=True, replace=True)
            proof = f" (they are in {self.path} and {second})"
        raise Equivocation(
            f"{authority} has signed two key lists for one day, which could tell people apart;"
            f" nothing was sent; keep both as proof{proof}, and do not use this role"
        )

    @staticmethod
    def _stored(path: Path) -> dict[str, SignedKeys]:
        try:
            return json.decode(read_secret(path), type=dict[str, SignedKeys])
        except DecodeError:
            raise Misuse(f"{path} holds no key lists of gateways; remove it") from None


class RelayedClient:
    """A client of roles, through a relay.

    *Guarantee:* it connects to the relay and to nothing else, whatever fails.

    Attributes:
        relay: the relay's address.
        first: the address of the round, which is at a shuffler. Any other role counts as the board
            unless `add_shufflers` has named it as a shuffler.
        seen: the file of the gateways' key lists that this person has seen; in memory by default.
        sent_requests: the number of sealed requests that were sent.
    """

    def __init__(
        self,
        relay: str,
        *,
        first: str,
        trusted: Trust,
        http: Exchanges | None = None,
        ca: str = "",
        seen: Path | None = None,
    ) -> None:
        self.relay = origin_of(relay).url
        if relay.rstrip("/") != self.relay:
            raise Misuse(
                f"{relay!r} is not the address of a relay; give https://HOST[:PORT] without a path"
            )
        self._shufflers = {origin_of(first)}
        self._trusted = trusted
        self._http: Exchanges = http or HttpClient(ca=ca)
        self._seen = SeenKeys(seen)
        self._current: dict[Origin, tuple[SignedKeys, GatewayConfig]] = {}
        self._check_logged: CheckLogged | None = None
        self._signers: dict[Origin, bytes] = {}
        self._logged: set[tuple[Origin, SignedKeys]] = set()
        self._logging: defaultdict[Origin, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._least = SIZES[0]
        self.sent_requests = 0

    def add_shufflers(self, shufflers: Iterable[str]) -> None:
        """Add the addresses of the shufflers, from the terms."""
        self._shufflers |= {origin_of(url) for url in shufflers}

    def check_lists(self, check: CheckLogged, *, signers: Mapping[str, str]) -> None:
        """From now on, use a key list only after `check` has found it in the board's log (S17.33).

        `signers` are the roles' addresses and verifying keys, from the terms.
        """
        self._check_logged = check
        self._signers = {origin_of(url): bytes.fromhex(key) for url, key in signers.items()}

    def pad_for(self, size: int) -> None:
        """Pad every message from now on to the size that a content of `size` bytes needs."""
        fitting = [padded for padded in SIZES[:_LEVELS] if size + _HEADERS <= padded]
        self._least = fitting[0] if fitting else SIZES[_LEVELS - 1]

    async def get(self, url: str, *, most: int = DOCUMENT) -> bytes:
        """Fetch a document of at most `most` bytes; a long one comes in pieces of one size."""
        if most <= DOCUMENT:
            return self._body(url, await self._exchange("GET", url))
        return await self._get_in_pieces(url, most)

    async def page(self, url: str) -> tuple[bytes, dict[str, str]]:
        """Fetch a page with its headers."""
        answer = await self._exchange("GET", url)
        lines = {name.decode(): value.decode("latin-1") for name, value in answer.headers}
        return self._body(url, answer), lines

    async def send(
        self,
        url: str,
        body: bytes,
        *,
        headers: Mapping[str, str] | None = None,
        method: str = "POST",
    ) -> bytes:
        """Send a body, JSON unless the headers say otherwise, and return the answer."""
        lines = headers or {"content-type": JSON}
        return self._body(url, await self._exchange(method, url, body, headers=lines))

    async def close(self) -> None:
        """Close the connection to the relay."""
        await self._http.close()

    async def _get_in_pieces(self, url: str, most: int) -> bytes:
        body = bytearray()
        while True:
            byte_range = {"range": f"bytes={len(body)}-{len(body) + PIECE - 1}"}
            answer = await self._exchange("GET", url, headers=byte_range)
            piece = self._body(url, answer)
            body += piece
            total = _WHOLE.fullmatch(dict(answer.headers).get(b"content-range", b""))
            if answer.status != 206 or not total or len(body) >= int(total[1]):
                return bytes(body)
            if int(total[1]) > most or not piece:
                raise Refused(f"{url} answers with more than {most} bytes, or without end")

    @staticmethod
    def _body(url: str, answer: Response) -> bytes:
        return body_of(url, HttpAnswer(answer.status, {}, answer.content))

    async def _exchange(
        self,
        method: str,
        url: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Send a request once; if a new period of the gateway has begun, once more with its key."""
        origin = origin_of(url)
        named = {**(headers or {}), PADDING: str(self._least)}
        lines = tuple((name.encode(), value.encode()) for name, value in named.items())
        path = url[len(origin.url) :].encode()
        host = (origin.scheme.encode(), origin.authority.encode())
        text = Request(method.encode(), *host, path or b"/", lines, body).encode()
        least = self._least - OVERHEAD
        text = text.ljust(message_size(max(len(text), least), overhead=OVERHEAD), b"\0")
        answer, sealed = await self._send_sealed(origin, text)
        if _is_about_keys(answer) and await self._has_next_period(origin):
            # The gateway has opened nothing, so this repeats no request (S17.22).
            answer, sealed = await self._send_sealed(origin, text)
        if _is_about_keys(answer):
            raise Unavailable(
                f"{origin.host} does not open requests under its key of today; try later, at the"
                " latest tomorrow"
            )
        return Response.decode(sealed.open(body_of(self.relay, answer)))

    async def _send_sealed(self, origin: Origin, text: bytes) -> tuple[HttpAnswer, SealedRequest]:
        current = self._current.get(origin)
        if current is None or current[0].until <= time.time():
            current = await self._fetch_keys(origin)
        await self._find_in_log(origin, current[0])
        sealed = seal_request(text, current[1])
        self.sent_requests += 1
        answer = await self._at_relay("POST", origin, sealed.raw, {"content-type": REQUEST_MEDIA})
        return answer, sealed

    async def find_lists(self) -> None:
        """Check that the log has the lists of all roles of the terms, before they are needed.

        So no request to the board goes with a request to a shuffler later.
        """
        for origin in self._signers:
            signed, _ = self._current.get(origin) or await self._fetch_keys(origin)
            await self._find_in_log(origin, signed)

    async def _find_in_log(self, origin: Origin, signed: SignedKeys) -> None:
        """Check that the log has a list, once; the requests for that carry nothing of a person."""
        check, signer = self._check_logged, self._signers.get(origin)
        if check is None or signer is None:
            return
        async with self._logging[origin]:
            if (origin, signed) in self._logged:
                return
            await check(self._listing(origin, signed, signer), self._unchecked())
            self._logged.add((origin, signed))

    def _unchecked(self) -> "RelayedClient":
        """Return a client for the check itself, with the same lists and the same padding."""
        peers = RelayedClient(self.relay, first=self.relay, trusted=self._trusted, http=self._http)
        peers._shufflers, peers._least = self._shufflers, self._least
        peers._seen, peers._current = self._seen, self._current
        return peers

    def _listing(self, origin: Origin, signed: SignedKeys, signer: bytes) -> KeyList:
        """Return the list under the key of the terms, or else under another key of the role."""
        for verifying in (signer, *sorted(self._trusted_keys(origin))):
            listing = signed.listing(verifying)
            if listing is not None:
                return listing
        raise Refused(f"no key that you trust signed the key list of {origin.host}")

    async def _has_next_period(self, origin: Origin) -> bool:
        """Return whether the relay has the key list of a later period than the current one."""
        before = self._current[origin][0]
        after, _ = await self._fetch_keys(origin, fresh=True)
        return after.until > before.until

    async def _fetch_keys(
        self, origin: Origin, *, fresh: bool = False
    ) -> tuple[SignedKeys, GatewayConfig]:
        """Take the list that this person has seen, or the relay's; never a second of a period."""
        check_apart(self.relay, origin.url)
        signed = self._seen.get(origin.authority)
        if fresh or signed is None or signed.until <= time.time():
            answer = await self._at_relay("GET", origin, b"", {"accept": KEYS_MEDIA})
            signed = SignedKeys.read(body_of(self.relay, answer), answer.headers)
        self._check(signed, origin)
        await asyncio.to_thread(self._seen.keep, origin.authority, signed)
        self._current[origin] = signed, read_keys(signed.keys)
        return self._current[origin]

    def _check(self, signed: SignedKeys, origin: Origin) -> None:
        """Reject keys that no trusted key of the role signed, or not for this time (S17.20)."""
        if not any(signed.is_signed_by(key) for key in self._trusted_keys(origin)):
            raise Refused(
                f"the relay's keys for {origin.host} are not signed by a key that you trust for"
                " that role; nothing was sent"
            )
        if not signed.covers(time.time()):
            raise Unavailable(
                f"the relay's keys for {origin.host} are not for today; check your clock, or try"
                " later"
            )

    def _trusted_keys(self, origin: Origin) -> frozenset[bytes]:
        """Return the keys that a person trusts for the role at an address."""
        of_role = self._trusted.shufflers if origin in self._shufflers else [self._trusted.board]
        return frozenset[bytes]().union(*of_role) | self._trusted.anywhere

    async def _at_relay(
        self, method: str, origin: Origin, body: bytes, headers: dict[str, str]
    ) -> HttpAnswer:
        url = f"{self.relay}/gateways/{origin.authority}"
        try:
            return await self._http.exchange(method, url, body, headers=headers, most=SIZES[-1])
        except Unavailable as error:
            raise Unavailable(f"{error}; nothing was sent without the relay") from None


def _is_about_keys(answer: HttpAnswer) -> bool:
    return answer.status == 400 and OHTTP_KEY.encode() in answer.body


# -- random request times


def window_of(round_: Round, peers: HttpClient | RelayedClient) -> int:
    """Return the seconds within which request times are drawn; 0 without a relay (S17.27)."""
    window = round_.terms.window
    return 0 if window is UNSET or not isinstance(peers, RelayedClient) else window


def random_delay(seconds: float) -> float:
    """Draw a time evenly from 0 to `seconds`."""
    return system().integer(int(1000 * seconds) + 1) / 1000


async def wait_random(seconds: float) -> None:
    """Wait for a time drawn evenly from 0 to `seconds`."""
    if seconds:
        await asyncio.sleep(random_delay(seconds))
