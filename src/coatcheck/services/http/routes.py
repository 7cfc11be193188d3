"""A service's routes as a table: the application and its OpenAPI document are both made from it.

A row names a method, a path and a handler. What a route takes and gives is read from the handler's
signature, what it does from the handler's docstring.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta, Struct

from coatcheck.services.http.problems import Problem

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
OCTETS: Final = "application/octet-stream"
ROUND: Final = "/rounds/{digest}"
_APART: Final = frozenset({"body", "wire"})
_ROUND: Final = "this is no address of a round: it ends in /rounds/ and 64 digits, 0-9 and a-f"

Digest = Annotated[
    str, Meta(pattern=r"\A[0-9a-f]{64}\Z", description="The digest of the round's terms.")
]
Number = Annotated[int, Meta(ge=0, lt=1 << 32, description="The number of a partition, from 0.")]


class Header(Struct, frozen=True):
    """A header that a route reads or sends."""

    name: str
    description: str
    pattern: str = ""
    required: bool = True


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """An empty document."""


@dataclass(frozen=True)
class Reply:
    """An answer that is bytes and no JSON document."""

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Long(Reply):
    """An answer that is too long to hold: it is read and sent piece by piece.

    Attributes:
        size: how many bytes it has.
        read: gives those from one place to before another.
    """

    body: bytes = b""
    size: int
    read: Callable[[int, int], Awaitable[bytes]]


@dataclass(frozen=True)
class Route:
    """One row of the table.

    Attributes:
        handler: called with the service and what the request says, by the names of the parameters:
            those of the path, `body` for a JSON document, the others from the query.
        problems: statuses of problems beyond those that follow from what the route takes.
        operator: whether only the operator may ask.
        relayed: whether people may ask through the gateway.
        reads: request headers that the handler reads.
        sends: headers of the answer.
        demands: the header of status 401 that says what to show.
        takes: the media type of the bytes that a handler with a `wire` reads.
        media: the answer's media type if it is a `Reply`.
        gives: what a handler gives that also answers by itself, which saves time.
    """

    method: str
    path: str
    handler: Callable[..., Any]
    status: int = 200
    problems: tuple[int, ...] = ()
    operator: bool = False
    relayed: bool = False
    reads: tuple[Header, ...] = ()
    sends: tuple[Header, ...] = ()
    demands: Header | None = None
    takes: str = OCTETS
    media: str = OCTETS
    gives: Any = None

    @cached_property
    def summary(self) -> str:
        """What the route does, in a sentence."""
        return " ".join((inspect.getdoc(self.handler) or "").split("\n\n")[0].split())

    @cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.handler)

    @cached_property
    def takes_bytes(self) -> bool:
        """Whether the handler reads bytes from the wire."""
        return "wire" in self._signature.parameters

    @cached_property
    def body(self) -> Any:
        """The type of the JSON document that the route takes, or None."""
        found = self._signature.parameters.get("body")
        return found.annotation if found else None

    @cached_property
    def answer(self) -> Any:
        """The type of what the route gives."""
        return self.gives or self._signature.return_annotation

    @cached_property
    def parameters(self) -> type[Struct]:
        """The parameters of path and query, as a struct."""
        _, *given = self._signature.parameters.values()
        fields: list[Any] = [
            (one.name, one.annotation, *(() if one.default is one.empty else (one.default,)))
            for one in given
            if one.name not in _APART
        ]
        return msgspec.defstruct("Parameters", fields, frozen=True)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """What a path looks like that this route serves, to be matched in full."""
        one = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", self.path)
        return re.compile(re.sub(r"\{(\w+)\*\}", r"(?P<\1>.+)", one))

    @cached_property
    def template(self) -> str:
        """The path as OpenAPI writes it; `{name*}` takes several parts of a path."""
        return self.path.replace("*}", "}")

    def read(self, path: dict[str, str], query: bytes = b"") -> dict[str, Any]:
        """Read the parameters; those of the query that nobody asked for are left out."""
        try:
            given = path
            if query:
                given = dict(parse_qsl(query.decode("ascii"), max_num_fields=16)) | path
            found = msgspec.convert(given, type=self.parameters, strict=False)
        except (ValueError, msgspec.ValidationError) as error:
            wrong = _ROUND if "$.digest" in str(error) else f"the address is wrong: {error}"
            raise Problem("unprocessable", wrong[:300]) from None
        read: dict[str, Any] = msgspec.structs.asdict(found)
        if any(str(value) != given.get(name, str(value)) for name, value in read.items()):
            raise Problem("unprocessable", "the address is wrong: write a number as digits alone")
        return read

    def read_body(self, raw: bytes) -> Any:
        """Read the JSON document strictly."""
        try:
            return msgspec.json.decode(raw, type=self.body)
        except msgspec.ValidationError as error:
            raise Problem("unprocessable", f"the document is wrong: {error}"[:300]) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Problem("malformed", "this is no JSON document") from None
