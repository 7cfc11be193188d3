"""The one HTTP client, for services, persons, commands and the demo.

A service that is away is `Unavailable`, and worth another try; what it refuses comes back as
`Refused`, in its own words. Nothing is tried again unless the caller says so with `patiently`.
"""

import asyncio
import ipaddress
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self, TypeVar
from urllib.parse import urlsplit

import msgspec

from coatcheck.errors import Misuse, Refused, Unavailable
from coatcheck.protocol.wire.encoding import read_document
from coatcheck.services.web.routing import JSON

if TYPE_CHECKING:
    from types import ModuleType

    import httpx2  # of the extra `serve`: loaded by `_httpx2` when a client is made

# HOUSE-DOC services.http.origins: 'Addresses of roles and relays: their parts, and whether two belong to one operator.'
_REGISTRIES: Final = frozenset(
    ("ac", "co", "com", "edu", "go", "gob", "gouv", "gov", "mil", "ne", "net", "nom", "or", "org")
)
"""Labels below a country's that are a registry's."""


class Origin(NamedTuple):
    """Where a role or a relay is."""

    scheme: str
    authority: str
    host: str
    port: int = 0

    @property
    def url(self) -> str:
        """The address without a path."""
        return f"{self.scheme}://{self.authority}"


def origin_of(url: str) -> Origin:
    """Read the origin of an address."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 0
    except ValueError:
        host, port = "", 0
    if not host or parts.scheme not in {"http", "https"} or "@" in parts.netloc:
        raise Misuse(f"{url!r} is no address: give https://HOST[:PORT]")
    return Origin(parts.scheme, parts.netloc.lower(), host, port)


def apart(relay: str, role: str) -> None:
    """Refuse a relay in the domain of the role it is to hide people from.

    Domains are compared from their second label on (`relay.a.org` and `board.a.org` are one
    operator's). Addresses of this machine are for practice, and let through.
    """
    one, two = origin_of(relay).host, origin_of(role).host
    if _is_loopback(one) or _is_loopback(two):
        return
    if one == two or (not _is_number(one) and not _is_number(two) and _domain(one) == _domain(two)):
        raise Misuse(
            f"the relay {one} and the role {two} belong to one operator, who would see both who"
            " asks and what is asked: use a relay of somebody else"
        )


def _domain(host: str) -> list[str]:
    labels = host.rstrip(".").split(".")
    # The last two labels of a.co.uk are a registry's and nobody's own; those of a.b.io are b's.
    registry = len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _REGISTRIES
    return labels[-3 if registry else -2 :]


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_number(host) and ipaddress.ip_address(host).is_loopback)


_LATER: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 507})
_NOT_TAKEN: Final = frozenset({425, 429})
_HERE: Final = ("all://127.0.0.1", "all://localhost", "all://[::1]")
"""No proxy stands between processes of one machine."""
DOCUMENT: Final = 1 << 20
"""The most bytes of a document, a receipt or a proof."""
LIST: Final = 1 << 24
"""The most bytes of a list of rounds."""
BULK: Final = 1 << 30
"""The most bytes of a bulletin."""
_SLOWEST: Final = 1 << 16
"""Bytes per second below which an answer counts as none."""
_PAUSE: Final = 0.25
_LONGEST: Final = 5.0

_T = TypeVar("_T")


@dataclass(frozen=True)
class Answered:
    """An answer as it came: any status, headers in lower case, the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Exchanges(Protocol):
    """What asks once and gives the answer as it came."""

    async def exchange(
        self,
        method: str,
        url: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        most: int = DOCUMENT,
    ) -> Answered:
        """Ask once; a refusal is an answer, too."""

    async def close(self) -> None:
        """Close the connections."""


@dataclass(frozen=True)
class Long:
    """A body that is never held in whole: how many bytes, and a way to make its pieces."""

    size: int
    pieces: Callable[[], AsyncIterator[bytes]]

    def __len__(self) -> int:
        return self.size


class Absent(Refused):
    """There is nothing at this address, or not yet."""


class Wrong(Refused):
    """What was sent does not say what it has to."""


class NotTaken(Unavailable):
    """The other side says that it took nothing, and that a later try is right."""


class HttpClient:
    """A pool of connections to services.

    *Guarantee:* an answer that is longer than allowed, or compressed, is refused before it is
    held: no service can fill the memory.
    """

    def __init__(self, *, ca: str = "", timeout: float = 30.0, connections: int = 100) -> None:
        httpx2 = _httpx2()
        self._timeout = timeout
        verify = trusted(ca) if ca else _usual()
        # The pool looks at everything that waits in it at every turn, so nothing waits in it.
        self._turns = asyncio.Semaphore(connections)
        self._http = httpx2.AsyncClient(
            verify=verify,
            timeout=timeout,
            mounts=dict.fromkeys(_HERE),
            limits=httpx2.Limits(
                max_connections=connections, max_keepalive_connections=connections
            ),
            follow_redirects=False,  # terms say where a role is, and answers never do
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.close()

    async def get(self, url: str, *, most: int = DOCUMENT) -> bytes:
        """Fetch a document of at most so many bytes."""
        return taken(url, await self.exchange("GET", url, most=most))

    async def send(
        self,
        url: str,
        body: bytes,
        *,
        headers: Mapping[str, str] | None = None,
        method: str = "POST",
    ) -> bytes:
        """Send a body, JSON unless the headers say otherwise, and return the answer."""
        headers = headers or {"content-type": JSON}
        return taken(url, await self.exchange(method, url, body, headers=headers))

    async def stream(self, url: str, body: Long, *, headers: Mapping[str, str]) -> bytes:
        """Send a body that is never held in whole, and return the answer."""
        return taken(url, await self.exchange("POST", url, body, headers=headers))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def exchange(
        self,
        method: str,
        url: str,
        body: bytes | Long = b"",
        *,
        headers: Mapping[str, str] | None = None,
        most: int = DOCUMENT,
    ) -> Answered:
        """Ask once; a refusal is an answer, too."""
        plain = {**(headers or {}), "accept-encoding": "identity"}
        content: bytes | AsyncIterator[bytes]
        if isinstance(body, Long):
            content, plain["content-length"] = body.pieces(), str(body.size)
        else:
            content = body
        # The timeout holds between two pieces; this one keeps a peer from trickling for ever.
        longest = 4 * self._timeout + (most + len(body)) / _SLOWEST
        try:
            async with (
                self._turns,
                asyncio.timeout(longest),
                self._http.stream(method, _parsed(url), content=content, headers=plain) as answer,
            ):
                raw = await _held(answer, url, most)
        except TimeoutError:
            raise Unavailable(f"{url} takes too long to answer") from None
        except _failures() as error:
            raise Unavailable(f"{url} {_why_not(error)}") from None
        return Answered(answer.status_code, dict(answer.headers.items()), raw)


def _httpx2() -> "ModuleType":
    """Load the HTTP library, or say which extra has it."""
    try:
        return import_module("httpx2")
    except ModuleNotFoundError:
        raise Misuse("HTTP needs the extra `serve`: pip install 'coatcheck[serve]'") from None


@cache
def _failures() -> tuple[type[Exception], ...]:
    """Return what the HTTP library raises if no answer comes."""
    httpx2 = _httpx2()
    return httpx2.HTTPError, httpx2.InvalidURL, OSError


@lru_cache(maxsize=256)
def _parsed(url: str) -> "httpx2.URL":
    """Read an address; many requests go to few of them."""
    url_type: type[httpx2.URL] = _httpx2().URL
    return url_type(url)


def taken(url: str, answer: Answered) -> bytes:
    """Give the body of an answer that is no refusal; tell a refusal in its own words."""
    if 200 <= answer.status < 300:
        return answer.body
    raise _refusal(url, answer.status, answer.body)


async def _held(answer: "httpx2.Response", url: str, most: int) -> bytes:
    """Read an answer, as long as it is plain and not too long."""
    most = most if answer.is_success else min(most, DOCUMENT)
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise Refused(f"{url} answers in another encoding than plain: it is not read")
    length = answer.headers.get("content-length", "0")
    body = bytearray()
    if not length.isdigit() or int(length) <= most:
        async for piece in answer.aiter_raw():
            body += piece
            if len(body) > most:
                break
        else:
            return bytes(body)
    raise Refused(f"{url} answers with more than {most} bytes: it is not read")


def _why_not(error: Exception) -> str:
    """Say why nobody answered: a certificate that is not known is no reason to try later."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "has a certificate that nobody you trust has signed; is it your own? Name it by --ca"
    return f"does not answer ({type(error).__name__}): check the address, or try later"


def _refusal(url: str, status: int, raw: bytes) -> Refused | Unavailable:
    """Tell a problem document in its own words."""
    try:
        text = str(msgspec.json.decode(raw, type=dict[str, Any])["detail"])[:500]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError):
        text = f"status {status}"
    if status in _LATER:
        kind = NotTaken if status in _NOT_TAKEN else Unavailable
        return kind(f"{url} cannot do it now: {text}")
    if 300 <= status < 400:
        return Refused(f"{url} sends you elsewhere, which the terms do not name: nothing was done")
    return {404: Absent, 422: Wrong}.get(status, Refused)(f"{url} refused: {text}")


@cache
def _usual() -> ssl.SSLContext:
    """Trust the system's certificates, read once: that takes longer than to ask."""
    context: ssl.SSLContext = _httpx2().create_ssl_context()
    return context


def trusted(ca: str) -> ssl.SSLContext:
    """Trust the certificates of a file, or the system's if none is named."""
    try:
        return ssl.create_default_context(cafile=ca or None)
    except (OSError, ssl.SSLError) as error:
        raise Misuse(f"{ca} is no file of certificates (PEM): {error}") from None


async def patiently(
    ask: Callable[[], Awaitable[_T]],
    patience: float,
    *,
    growth: float = 2.0,
    draw: Callable[[float], float] = float,
) -> _T:
    """Ask again, ever more rarely, for so many seconds, while the other side is away.

    `draw` makes a pause of the one that is due.
    """
    end, pause = time.monotonic() + patience, _PAUSE
    while True:
        try:
            return await ask()
        except Unavailable:
            if time.monotonic() + pause > end:
                raise
        await asyncio.sleep(draw(pause))
        pause = min(pause * growth, _LONGEST)


def ask(
    method: str, url: str, *, body: Mapping[str, Any] | None = None, token: str = "", ca: str = ""
) -> Any:
    """Ask a service once, as a command does, and return its JSON document, or say why not."""
    headers = {"content-type": JSON} | ({"authorization": f"Bearer {token}"} if token else {})

    async def once() -> bytes:
        async with HttpClient(ca=ca, timeout=120) as peers:
            if method == "GET":
                return taken(url, await peers.exchange("GET", url, headers=headers, most=LIST))
            return await peers.send(url, msgspec.json.encode(body or {}), headers=headers)

    # In a thread of its own, where no event loop runs yet.
    with ThreadPoolExecutor(1) as thread:
        try:
            raw = thread.submit(asyncio.run, once()).result()
        except Wrong as error:
            raise Misuse(str(error)) from None
    kind: Any = dict[str, Any] | list[Any]
    return read_document(raw, kind, f"{url} is no address of a coatcheck service")
