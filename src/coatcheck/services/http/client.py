"""How one service speaks to another: documents and deliveries, tried again by the caller.

A peer that is away is `Unavailable`; what it refuses comes back as `Refused` in its own words.
"""

import asyncio
import json
import ssl
from typing import Any, Final, Self

import httpx2

from coatcheck.errors import Misuse, Refused, Unavailable

_LATER = frozenset({408, 425, 429, 500, 502, 503, 504, 507})
_NOT_TAKEN = frozenset({425, 429})
_PLAIN = {"accept-encoding": "identity"}
DOCUMENT: Final = 1 << 20
"""The most bytes of a document, a receipt or a proof."""
BULK: Final = 1 << 30
"""The most bytes of a bulletin."""
_LISTS: Final = 1 << 24
"""The most bytes of what a command asks for: a list of rounds may be long."""
_SLOWEST: Final = 1 << 16
"""Bytes a second below which an answer counts as none."""


class Absent(Refused):
    """There is nothing at this address, or not yet."""


class NotTaken(Unavailable):
    """The other side says that it took nothing, and that a later try is right."""


class Peers:
    """A pool of connections to the other services.

    *Guarantee:* an answer is as long as was allowed or refused, before it is held: no peer can
    fill the memory, by length or by compression.
    """

    def __init__(self, *, ca: str = "", timeout: float = 30.0) -> None:
        self._timeout = timeout
        self._http = httpx2.AsyncClient(verify=_trusted(ca) if ca else True, timeout=timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.close()

    async def get(self, url: str, *, most: int = DOCUMENT) -> bytes:
        """Fetch a document of at most so many bytes."""
        return await self._ask("GET", url, most=most)

    async def send(
        self,
        url: str,
        body: bytes,
        *,
        headers: dict[str, str] | None = None,
        method: str = "POST",
    ) -> bytes:
        """Send a body and return the answer."""
        return await self._ask(method, url, body, headers or {"content-type": "application/json"})

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _ask(
        self,
        method: str,
        url: str,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        *,
        most: int = DOCUMENT,
    ) -> bytes:
        headers = {**(headers or {}), **_PLAIN}
        # The timeout holds between two pieces; this one keeps a peer from trickling for ever.
        longest = 4 * self._timeout + (most + len(body)) / _SLOWEST
        try:
            async with (
                asyncio.timeout(longest),
                self._http.stream(method, url, content=body, headers=headers) as answer,
            ):
                held = _Held(url, answer, most)
                async for piece in answer.aiter_raw():
                    held.add(piece)
        except TimeoutError:
            raise Unavailable(f"{url} takes too long to answer") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise Unavailable(f"{url} {_why_not(error)}") from None
        if answer.is_success:
            return bytes(held.body)
        text = _sentence(bytes(held.body), answer.status_code)
        if answer.status_code in _LATER:
            kind = NotTaken if answer.status_code in _NOT_TAKEN else Unavailable
            raise kind(f"{url} cannot do it now: {text}")
        raise (Absent if answer.status_code == 404 else Refused)(f"{url} refused: {text}")


class _Held:
    """An answer as it comes in, refused as soon as it is too long or not plain."""

    def __init__(self, url: str, answer: httpx2.Response, most: int) -> None:
        self._url = url
        self._most = most if answer.is_success else min(most, DOCUMENT)
        self.body = bytearray()
        coding = answer.headers.get("content-encoding", "identity")
        if coding != "identity":
            raise Refused(f"{url} answers in another encoding than plain: it is not read")
        length = answer.headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._most:
            raise self._too_long()

    def add(self, piece: bytes) -> None:
        """Take the next piece."""
        if len(self.body) + len(piece) > self._most:
            raise self._too_long()
        self.body += piece

    def _too_long(self) -> Refused:
        return Refused(f"{self._url} answers with more than {self._most} bytes: it is not read")


def ask(
    method: str, url: str, *, body: dict[str, Any] | None = None, token: str = "", ca: str = ""
) -> dict[str, Any]:
    """Ask a service once, as a command does, and return its document, or say why not."""
    headers = {"authorization": f"Bearer {token}", **_PLAIN} if token else _PLAIN
    verify = _trusted(ca) if ca else True
    try:
        with (
            httpx2.Client(timeout=120, verify=verify) as http,
            http.stream(method, url, json=body, headers=headers) as answer,
        ):
            held = _Held(url, answer, _LISTS)
            for piece in answer.iter_raw():
                held.add(piece)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise Unavailable(f"{url} {_why_not(error)}: check the address, or try later") from None
    try:
        found: Any = json.loads(held.body)
    except ValueError:
        raise Refused(f"{url} is no address of a coatcheck service") from None
    if answer.is_success and isinstance(found, dict):
        return found
    detail = found.get("detail", answer.status_code) if isinstance(found, dict) else "a list"
    if answer.status_code == 422:
        raise Misuse(str(detail))
    raise Refused(f"{url} refused: {detail}")


def _why_not(error: Exception) -> str:
    """Say why nobody answered: a certificate that is not known is no reason to try later."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "has a certificate that nobody you trust has signed; is it your own? Name it by --ca"
    return f"does not answer ({type(error).__name__})"


def told(answer: httpx2.Response) -> str:
    """Read a problem document's sentence."""
    return _sentence(answer.content, answer.status_code)


def _sentence(raw: bytes, status: int) -> str:
    try:
        document: Any = json.loads(raw)
        return str(document["detail"])[:500]
    except (ValueError, KeyError, TypeError):
        return f"status {status}"


def _trusted(ca: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise Misuse(f"{ca} is no file of certificates (PEM): {error}") from None
