"""How one service speaks to another: documents and deliveries, tried again by the caller.

A peer that is away is `Unavailable`; what it refuses comes back as `Refused` in its own words.
"""

import ssl
from typing import Any, Self

import httpx2

from coatcheck.errors import Refused, Unavailable

_LATER = frozenset({408, 425, 429, 500, 502, 503, 504, 507})


class Absent(Refused):
    """There is nothing at this address, or not yet."""


class Peers:
    """A pool of connections to the other services."""

    def __init__(self, *, ca: str = "", timeout: float = 30.0) -> None:
        verify: ssl.SSLContext | bool = ssl.create_default_context(cafile=ca) if ca else True
        self._http = httpx2.AsyncClient(verify=verify, timeout=timeout)

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
            raise Unavailable(f"{url} does not answer ({type(error).__name__})") from None
        if answer.is_success:
            return answer.content
        text = told(answer)
        if answer.status_code in _LATER:
            raise Unavailable(f"{url} cannot do it now: {text}")
        raise (Absent if answer.status_code == 404 else Refused)(f"{url} refused: {text}")


def told(answer: httpx2.Response) -> str:
    """Read a problem document's sentence."""
    try:
        document: Any = answer.json()
        return str(document["detail"])[:500]
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status_code}"
