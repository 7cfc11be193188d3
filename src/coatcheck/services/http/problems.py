"""Problem documents (RFC 9457): a fixed list of types, and sentences that say what to do.

A detail is a fixed sentence, or a role's own words about terms, batches and counts. No detail
repeats what one person sent.
"""

from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

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
OHTTP_KEY: Final = "https://iana.org/assignments/http-problem-types#ohttp-key"
_PREFIX: Final = "https://coatcheck.example/problems/"


class Kind(NamedTuple):
    """One type of problem; `pause` is after how many seconds to come back, 0 for never.

    `type` is its address, for a type that is not our own.
    """

    name: str
    status: int
    title: str
    pause: int = 0
    type: str = ""


KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind("malformed", 400, "The bytes are not what this address takes"),
        Kind("ohttp-key", 400, "The gateway has no such key", type=OHTTP_KEY),
        Kind("unadmitted", 401, "Who hands something in shows a token"),
        Kind("forbidden", 403, "This is for the operator, or for a key that is known here"),
        Kind("not-found", 404, "There is nothing at this address"),
        Kind("method", 405, "This address does not take this method"),
        Kind("too-slow", 408, "The request did not arrive in time"),
        Kind("conflict", 409, "Something else is there already, and stays"),
        Kind("closed", 409, "The round takes nothing more"),
        Kind("refused", 409, "Going on would break a promise"),
        Kind("too-large", 413, "The body is larger than anything this address takes"),
        Kind("unprocessable", 422, "The document does not say what it has to"),
        Kind("releasing", 425, "The round is being released; come back in a moment", 2),
        Kind("busy", 429, "Too many wait already; come back in a moment", 1),
        Kind("long-headers", 431, "The headers are larger than any that are read here"),
        Kind("internal", 500, "This is our mistake"),
        Kind("unavailable", 503, "This cannot be done now; come back in a moment", 2),
        Kind("full", 507, "There is no room left; come back later", 30),
    )
}
"""Every type there is."""

_NAMES: Final[tuple[tuple[type[Error], str], ...]] = (
    (Full, "full"),
    (Unavailable, "unavailable"),
    (Fenced, "unavailable"),
    (Malformed, "malformed"),
    (BadKey, "malformed"),
    (BadSignature, "forbidden"),
    (Refused, "refused"),
    (Misuse, "unprocessable"),
)


class ProblemDocument(Struct, frozen=True):
    """What was wrong, and what to do about it (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


class Problem(Exception):
    """Something to tell the client.

    Attributes:
        headers: what the answer says beside the document: when to come back, which methods, what
            to show.
    """

    def __init__(self, name: str, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.kind = KINDS[name]
        self.detail = detail
        said = {name.replace("_", "-"): value for name, value in headers.items()}
        self.headers = ({"retry-after": str(self.kind.pause)} if self.kind.pause else {}) | said

    def document(self) -> bytes:
        """Write the problem."""
        kind = self.kind
        type_ = kind.type or _PREFIX + kind.name
        return msgspec.json.encode(ProblemDocument(type_, kind.title, kind.status, self.detail))


def told(error: Error) -> Problem:
    """Turn one of our errors into the problem that is told."""
    for kind, name in _NAMES:
        if isinstance(error, kind):
            return Problem(name, str(error))
    return Problem("internal", "this is our mistake, and it was counted")
