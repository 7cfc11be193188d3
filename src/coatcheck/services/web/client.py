"""The HTTP client of services, people, commands and the demo; opening a round; origins.

A service that does not answer raises `Unavailable`, and trying again may help; a request that it
rejects raises `Refused` with the service's own words. The client retries nothing unless the caller
uses `patiently`.
"""

import asyncio
import ipaddress
import ssl
import threading
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

_RETRY_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 507})
_NOT_TAKEN: Final = frozenset({425, 429})
_LOOPBACK: Final = ("all://127.0.0.1", "all://localhost", "all://[::1]")
"""Addresses that the client requests without a proxy: those of this machine."""
DOCUMENT: Final = 1 << 20
"""The most bytes of a document, a receipt or a proof."""
LIST: Final = 1 << 24
"""The most bytes of a list of rounds."""
BULK: Final = 1 << 30
"""The most bytes of a bulletin."""
_SLOWEST: Final = 1 << 16
"""Bytes per second below which an answer is too slow."""
_PAUSE: Final = 0.25
_LONGEST: Final = 5.0

_T = TypeVar("_T")


@dataclass(frozen=True)
class HttpAnswer:
    """An answer of any status, with header names in lower case and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Exchanges(Protocol):
    """A client that sends a request once and returns the answer."""

    async def exchange(
        self,
        method: str,
        url: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        most: int = DOCUMENT,
    ) -> HttpAnswer:
        """Send a request once; an answer of any status is returned."""

    async def close(self) -> None:
        """Close the connections."""


@dataclass(frozen=True)
class LongBody:
    """A body that is never in memory as a whole: its size, and a function that yields pieces."""

    size: int
    pieces: Callable[[], AsyncIterator[bytes]]

    def __len__(self) -> int:
        return self.size


class Absent(Refused):
    """The service has nothing at this address, or not yet (404)."""


class Unprocessable(Refused):
    """The service found the document or a parameter invalid (422)."""


class NotTaken(Unavailable):
    """The service did not take the request, and the client should try again later (425, 429)."""


class HttpClient:
    """A pool of connections to services.

    *Guarantee:* an answer that is longer than allowed, or compressed, is rejected before it is
    read: no service can fill the memory.
    """

    def __init__(self, *, ca: str = "", timeout: float = 30.0, connections: int = 100) -> None:
        httpx2 = _httpx2()
        self._timeout = timeout
        verify = certificates(ca) if ca else _system_certificates()
        # httpx2 scans all its waiting requests for each one, so they wait here instead.
        self._turns = asyncio.Semaphore(connections)
        self._http = httpx2.AsyncClient(
            verify=verify,
            timeout=timeout,
            mounts=dict.fromkeys(_LOOPBACK),
            limits=httpx2.Limits(
                max_connections=connections, max_keepalive_connections=connections
            ),
            follow_redirects=False,  # only terms say where a role is (S6.10)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.close()

    async def get(self, url: str, *, most: int = DOCUMENT) -> bytes:
        """Fetch a document of at most `most` bytes."""
        return body_of(url, await self.exchange("GET", url, most=most))

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
        return body_of(url, await self.exchange(method, url, body, headers=headers))

    async def stream(self, url: str, body: LongBody, *, headers: Mapping[str, str]) -> bytes:
        """Send a body that is never in memory as a whole, and return the answer."""
        return body_of(url, await self.exchange("POST", url, body, headers=headers))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def exchange(
        self,
        method: str,
        url: str,
        body: bytes | LongBody = b"",
        *,
        headers: Mapping[str, str] | None = None,
        most: int = DOCUMENT,
    ) -> HttpAnswer:
        """Send a request once; an answer of any status is returned."""
        lines = {**(headers or {}), "accept-encoding": "identity"}
        content: bytes | AsyncIterator[bytes]
        if isinstance(body, LongBody):
            content, lines["content-length"] = body.pieces(), str(body.size)
        else:
            content = body
        # httpx2 limits the time between two pieces; this limits the whole answer.
        longest = 4 * self._timeout + (most + len(body)) / _SLOWEST
        try:
            async with (
                self._turns,
                asyncio.timeout(longest),
                self._http.stream(method, _parsed(url), content=content, headers=lines) as answer,
            ):
                raw = await _read_answer(answer, url, most)
        except TimeoutError:
            raise Unavailable(
                f"{url} took longer than {longest:.0f} s to answer; try later"
            ) from None
        except _failures() as error:
            raise Unavailable(f"{url} {_describe(error)}") from None
        return HttpAnswer(answer.status_code, dict(answer.headers.items()), raw)


def _httpx2() -> "ModuleType":
    """Load the HTTP library, or say which extra has it."""
    try:
        return import_module("httpx2")
    except ModuleNotFoundError:
        raise Misuse("HTTP needs the extra `serve`: pip install 'coatcheck[serve]'") from None


@cache
def _failures() -> tuple[type[Exception], ...]:
    """Return the exceptions of the HTTP library for a request without an answer."""
    httpx2 = _httpx2()
    return httpx2.HTTPError, httpx2.InvalidURL, OSError


@lru_cache(maxsize=256)
def _parsed(url: str) -> "httpx2.URL":
    """Parse an address; cached, as many requests go to few addresses."""
    url_type: type[httpx2.URL] = _httpx2().URL
    return url_type(url)


def body_of(url: str, answer: HttpAnswer) -> bytes:
    """Return the body of a successful answer; raise the problem of any other."""
    if 200 <= answer.status < 300:
        return answer.body
    raise _error_of(url, answer.status, answer.body)


async def _read_answer(answer: "httpx2.Response", url: str, most: int) -> bytes:
    """Read an answer that is neither compressed nor too long."""
    most = most if answer.is_success else min(most, DOCUMENT)
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise Refused(f"{url} sent a compressed answer, which was not read; ask its operator")
    length = answer.headers.get("content-length", "0")
    body = bytearray()
    if not length.isdigit() or int(length) <= most:
        async for piece in answer.aiter_raw():
            body += piece
            if len(body) > most:
                break
        else:
            return bytes(body)
    raise Refused(f"{url} sent more than {most} bytes, which were not read; ask its operator")


def _describe(error: Exception) -> str:
    """Say why there was no answer, and what helps: trying later does not fix a certificate."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return (
            "has a certificate from no authority that you trust; if it is yours, pass it as `--ca`"
        )
    return f"does not answer ({type(error).__name__}): check the address, or try later"


def _error_of(url: str, status: int, raw: bytes) -> Refused | Unavailable:
    """Return the error for a problem document, with the service's own words."""
    try:
        text = str(msgspec.json.decode(raw, type=dict[str, Any])["detail"])[:500]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError):
        text = f"status {status}"
    if status in _RETRY_STATUSES:
        kind = NotTaken if status in _NOT_TAKEN else Unavailable
        return kind(f"{url} cannot do this now: {text}")
    if 300 <= status < 400:
        return Refused(
            f"{url} redirects elsewhere, which was not followed; use the address in the terms"
        )
    return {404: Absent, 422: Unprocessable}.get(status, Refused)(f"{url} refused: {text}")


@cache
def _system_certificates() -> ssl.SSLContext:
    """Trust the system's certificates, read once because that is slow."""
    context: ssl.SSLContext = _httpx2().create_ssl_context()
    return context


def certificates(ca: str) -> ssl.SSLContext:
    """Return a TLS context that trusts the certificates of a file, or else the system's."""
    try:
        return ssl.create_default_context(cafile=ca or None)
    except (OSError, ssl.SSLError) as error:
        raise Misuse(f"cannot read certificates from {ca}: {error}; give a PEM file") from None


async def patiently(
    ask: Callable[[], Awaitable[_T]],
    patience: float,
    *,
    growth: float = 2.0,
    draw: Callable[[float], float] = float,
) -> _T:
    """Repeat a request for `patience` seconds, at growing intervals, while it is `Unavailable`.

    `draw` maps each pause to the time that is really waited.
    """
    deadline, pause = time.monotonic() + patience, _PAUSE
    while True:
        try:
            return await ask()
        except Unavailable:
            if time.monotonic() + pause > deadline:
                raise
        await asyncio.sleep(draw(pause))
        pause = min(pause * growth, _LONGEST)


def ask(
    method: str, url: str, *, body: Mapping[str, Any] | None = None, token: str = "", ca: str = ""
) -> Any:
    """Send a request once, from code that is not async, and return the JSON document."""
    headers = {"content-type": JSON} | ({"authorization": f"Bearer {token}"} if token else {})

    async def once() -> bytes:
        async with HttpClient(ca=ca, timeout=120) as peers:
            if method == "GET":
                return body_of(url, await peers.exchange("GET", url, headers=headers, most=LIST))
            return await peers.send(url, msgspec.json.encode(body or {}), headers=headers)

    # In a separate thread, where no event loop runs yet.
    with ThreadPoolExecutor(1) as thread:
        try:
            raw = thread.submit(asyncio.run, once()).result()
        except Unprocessable as error:
            raise Misuse(str(error)) from None
    kind: Any = dict[str, Any] | list[Any]
    return read_document(raw, kind, f"{url} is not the address of a coatcheck service")


def open_round(
    server: str,
    body: dict[str, Any],
    *,
    token: str,
    patience: float = 60.0,
    ca: str = "",
    stopped: threading.Event | None = None,
) -> str:
    """Have a server open a round everywhere, and return the round's address for people.

    Repeats the request while a role does not answer: the server opens only one round for all of
    them. Another thread ends the wait by setting `stopped`.
    """
    stopped = stopped or threading.Event()
    deadline = time.monotonic() + patience
    reason = Unavailable(f"{server} does not answer; run the same command again")
    while time.monotonic() < deadline:
        try:
            status = ask("POST", f"{server}/rounds", body=body, token=token, ca=ca)
        except Unavailable as error:
            reason = error
        else:
            if status["opened"]:
                return str(status["url"])
            reason = Unavailable(
                f"round {status['round']} is still {status['phase']}; run the same command again"
            )
        if stopped.wait(0.3):
            break
    raise reason


# -- origins

_REGISTRIES: Final = frozenset(
    ("ac", "co", "com", "edu", "go", "gob", "gouv", "gov", "mil", "ne", "net", "nom", "or", "org")
)
"""Second-level labels under which registries of countries assign names, as in `co.uk`."""


class Origin(NamedTuple):
    """The scheme, host and port of a role or a relay."""

    scheme: str
    authority: str
    host: str
    port: int = 0

    @property
    def url(self) -> str:
        """The origin as an address, without a path."""
        return f"{self.scheme}://{self.authority}"


def origin_of(url: str) -> Origin:
    """Return the origin of an address."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 0
    except ValueError:
        host, port = "", 0
    if not host or parts.scheme not in {"http", "https"} or "@" in parts.netloc:
        raise Misuse(f"{url!r} is not an address; give https://HOST[:PORT]")
    return Origin(parts.scheme, parts.netloc.lower(), host, port)


def check_apart(relay: str, role: str) -> None:
    """Reject a relay in the domain of the role from which it should hide people (S17.17, S17.21).

    Hosts are in one domain if their last two labels agree (three under a registry, as in `co.uk`):
    `relay.a.org` and `board.a.org` have one operator. Addresses of this machine pass.
    """
    first, second = origin_of(relay).host, origin_of(role).host
    if _is_loopback(first) or _is_loopback(second):
        return
    are_names = not _is_number(first) and not _is_number(second)
    if first == second or (are_names and _domain(first) == _domain(second)):
        raise Misuse(
            f"the relay {first} and the role {second} are in one domain, so one operator would see"
            " both who sends a request and what it says; use a relay with another operator"
        )


def _domain(host: str) -> list[str]:
    labels = host.rstrip(".").split(".")
    # The last two labels of a.co.uk belong to a registry; those of a.b.io belong to the owner of b.
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
