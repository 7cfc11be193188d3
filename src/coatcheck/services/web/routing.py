"""A service's routes as a table: the application and its OpenAPI document are both made from it.

A row names a method, a path and a handler. What a route takes and gives is read from the handler's
signature, what it does from the handler's docstring.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta, Struct

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

# HOUSE-DOC services.http.problems: "Problem documents (RFC 9457): a fixed list of types, and sentences that say what to do.\n\nA detail is a fixed sentence, or a role's own words about terms, batches and counts. No detail\nrepeats what one person sent.\n"
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


# HOUSE-DOC services.http.openapi: "The OpenAPI document of a service, from its table of routes and msgspec's JSON schemas."
Part = dict[str, Any]

_BINARY: Final[Part] = {"type": "string", "format": "binary"}
_UNADMITTED: Final = KINDS["unadmitted"].status
_RETRY: Final = Header("retry-after", "After how many seconds to come back.", "^[0-9]+$")
_ANYWHERE: Final = (
    "Errors are problem documents (RFC 9457). Before a request reaches its route, the connection"
    " may answer with the status 400, 408, 429 or 431."
)


def describe(role: str, routes: Sequence[Route]) -> Part:
    """Write the document."""
    schemas, components = _schemas(routes)
    paths: dict[str, Part] = {}
    for route in routes:
        paths.setdefault(route.template, {})[route.method.lower()] = _operation(route, schemas)
    operator = {"type": "http", "scheme": "bearer", "description": "The operator's token."}
    told = "A token of Privacy Pass (RFC 9577), if the round's terms ask for one."
    admission = {"type": "http", "scheme": "PrivateToken", "description": told}
    return {
        "openapi": "3.1.0",
        "info": {"title": f"coatcheck {role}", "version": "1", "description": _ANYWHERE},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"operator": operator, "admission": admission},
        },
    }


def _schemas(routes: Sequence[Route]) -> tuple[dict[Any, Part], Part]:
    """Have msgspec write the schema of every type; patterns as ECMAScript spells them."""
    kinds: list[Any] = [ProblemDocument]
    for route in routes:
        fields = msgspec.structs.fields(route.parameters)
        kinds += [*(one.type for one in fields), route.body, route.answer]
    kinds = [kind for kind in dict.fromkeys(kinds) if kind not in {None, Reply}]
    made = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    spelled = re.sub(rb'"\\\\A([^"]*)\\\\Z"', rb'"^\1$"', msgspec.json.encode(made))
    schemas, components = msgspec.json.decode(spelled)
    return dict(zip(kinds, schemas, strict=True)), components


def _operation(route: Route, schemas: dict[Any, Part]) -> Part:
    content = {JSON: {"schema": schemas[route.body]}} if route.body else _octets(route.takes)
    made: Part = {
        "operationId": f"{route.handler.__name__.rstrip('_')}_{route.method.lower()}",
        "summary": route.summary,
        "parameters": _parameters(route, schemas),
        "responses": _responses(route, schemas),
    }
    if route.body or route.takes_bytes:
        made["requestBody"] = {"required": True, "content": content}
    if route.operator:
        made["security"] = [{"operator": []}]
    if route.demands and not route.operator:
        made["security"] = [{}, {"admission": []}]
    return made


def _octets(media: str) -> Part:
    return {media: {"schema": {"type": "string"} if media.startswith("text/") else _BINARY}}


def _parameters(route: Route, schemas: dict[Any, Part]) -> list[Part]:
    made: list[Part] = [{"in": "header", "name": one.name, **_header(one)} for one in route.reads]
    for one in msgspec.structs.fields(route.parameters):
        place = "path" if f"{{{one.name}}}" in route.template else "query"
        schema = schemas[one.type] | ({} if one.required else {"default": one.default})
        made.append({"in": place, "name": one.name, "required": one.required, "schema": schema})
    return made


def _header(header: Header) -> Part:
    schema = {"type": "string"} | ({"pattern": header.pattern} if header.pattern else {})
    return {"description": header.description, "required": header.required, "schema": schema}


def _responses(route: Route, schemas: dict[Any, Part]) -> Part:
    document = schemas.get(route.answer)
    fine: Part = {
        "description": route.summary,
        "content": {JSON: {"schema": document}} if document else _octets(route.media),
        "headers": {one.name: _header(one) for one in route.sends},
    }
    made = {str(route.status): fine}
    for status in _statuses(route):
        kinds = [kind for kind in KINDS.values() if kind.status == status]
        said = [_RETRY] if kinds[0].pause else []
        if route.demands and status == _UNADMITTED:
            said.append(route.demands)
        made[str(status)] = {
            "description": "; or: ".join(kind.title for kind in kinds),
            "content": {MEDIA: {"schema": schemas[ProblemDocument]}},
            "headers": {one.name: _header(one) for one in said},
        }
    return made


def _statuses(route: Route) -> list[int]:
    """List the statuses of the problems that a route answers with."""
    found = set(route.problems)
    if route.parameters.__struct_fields__ or route.body:
        found.add(422)
    if "{digest}" in route.path:
        found |= {404, 503}  # a process that stands by cannot know
    if route.operator:
        found.add(403)
    if route.takes_bytes or route.body:
        found |= {400, 408, 413, 429, 503}
    return sorted(found)
