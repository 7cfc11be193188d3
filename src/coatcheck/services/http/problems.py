"""Problem documents (RFC 9457): a closed list of types, and sentences that say what to do.

A detail is a fixed sentence or a role's own words about terms, batches and counts; none repeats
what one person sent.
"""

import json
from dataclasses import dataclass
from typing import Final

from coatcheck.errors import (
    BadKey,
    BadSignature,
    Error,
    Fenced,
    Full,
    Malformed,
    Misuse,
    Refused,
    Unavailable,
)

MEDIA: Final = "application/problem+json"
_PREFIX: Final = "https://coatcheck.example/problems/"


@dataclass(frozen=True)
class Kind:
    """One type of problem."""

    name: str
    status: int
    title: str

    @property
    def type(self) -> str:
        """The address that stands for the type; nobody needs to fetch it."""
        return _PREFIX + self.name


KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind("malformed", 400, "The bytes are not what this address takes"),
        Kind("forbidden", 403, "This is for the operator, or for a key that is known here"),
        Kind("not-found", 404, "There is nothing at this address"),
        Kind("method", 405, "This address does not take this method"),
        Kind("too-slow", 408, "The request did not arrive in time"),
        Kind("conflict", 409, "Something else is there already, and stays"),
        Kind("closed", 409, "The round takes nothing more"),
        Kind("refused", 409, "Going on would break a promise"),
        Kind("too-large", 413, "The body is larger than anything this address takes"),
        Kind("unprocessable", 422, "The document does not say what it has to"),
        Kind("releasing", 425, "The round is being released; come back in a moment"),
        Kind("busy", 429, "Too many wait already; come back in a moment"),
        Kind("internal", 500, "This is our mistake"),
        Kind("unavailable", 503, "This cannot be done now; come back in a moment"),
        Kind("full", 507, "There is no room left; come back later"),
    )
}
"""Every type there is."""

_PAUSE: Final = {"releasing": 2, "busy": 1, "unavailable": 2, "full": 30}


class Problem(Exception):
    """Something to tell the one who asked."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = KINDS[name]
        self.detail = detail

    @property
    def headers(self) -> dict[str, str]:
        """When to come back, and where the connection cannot be used any more."""
        pause = _PAUSE.get(self.kind.name)
        found = {"retry-after": str(pause)} if pause else {}
        return found | ({"connection": "close"} if self.kind.status == 413 else {})

    def document(self) -> bytes:
        """Write the problem."""
        kind = self.kind
        return json.dumps(
            {
                "type": kind.type,
                "title": kind.title,
                "status": kind.status,
                "detail": self.detail,
            }
        ).encode()


def told(error: Error) -> Problem:
    """Turn one of our errors into the problem that is told."""
    names: tuple[tuple[type[Error], str], ...] = (
        (Full, "full"),
        (Unavailable, "unavailable"),
        (Fenced, "unavailable"),
        (Malformed, "malformed"),
        (BadKey, "malformed"),
        (BadSignature, "forbidden"),
        (Refused, "refused"),
        (Misuse, "unprocessable"),
    )
    for kind, name in names:
        if isinstance(error, kind):
            return Problem(name, str(error))
    return Problem("internal", "this is our mistake, and it was counted")
