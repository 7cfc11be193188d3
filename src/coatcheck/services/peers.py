"""How one service speaks to another: documents and deliveries, tried again by the caller.

A peer that is away is `Unavailable`; what it refuses comes back as `Refused` in its own words.
"""

import ssl
from typing import Any, Self

import httpx2

from coatcheck.errors import Misuse, Refused, Unavailable

_LATER = frozenset({408, 425, 429, 500, 502, 503, 504, 507})


class Absent(Refused):
    """There is nothing at this address, or not yet."""


class Peers:
    """A pool of connections to the other services."""

    def __init__(self, *, ca: str = "", timeout: float = 30.0) -> None:
        self._http = httpx2.AsyncClient(verify=_trusted(ca) if ca else True, timeout=timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.close()

    async def get(self, url: str) -> bytes:
        """Fetch a document."""
        return await self._ask("GET", url)

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
        self, method: str, url: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> bytes:
        try:
            answer = await self._http.request(method, url, content=body, headers=headers)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise Unavailable(f"{url} {_why_not(error)}") from None
        if answer.is_success:
            return answer.content
        text = told(answer)
        if answer.status_code in _LATER:
            raise Unavailable(f"{url} cannot do it now: {text}")
        raise (Absent if answer.status_code == 404 else Refused)(f"{url} refused: {text}")


def ask(
    method: str, url: str, *, body: dict[str, Any] | None = None, token: str = "", ca: str = ""
) -> dict[str, Any]:
    """Ask a service once, as a command does, and return its document, or say why not."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    verify = _trusted(ca) if ca else True
    try:
        answer = httpx2.request(method, url, json=body, headers=headers, timeout=120, verify=verify)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise Unavailable(f"{url} {_why_not(error)}: check the address, or try later") from None
    try:
        found: Any = answer.json()
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
    try:
        document: Any = answer.json()
        return str(document["detail"])[:500]
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status_code}"


def _trusted(ca: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise Misuse(f"{ca} is no file of certificates (PEM): {error}") from None
