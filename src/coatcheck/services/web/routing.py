"""Route tables, the problem documents that routes answer with, and the OpenAPI document.

A row of a table names a method, a path and a handler. The application and the OpenAPI document are
both made from it: parameters and types come from the handler's signature, the summary from its
docstring. Problems are those of RFC 9457, of a fixed list of types (S19.16). A detail is a fixed
sentence, or says something about terms, batches and counts; it repeats nothing that a person sent.
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

MEDIA: Final = "application/problem+json"
OHTTP_KEY: Final = "https://iana.org/assignments/http-problem-types#ohttp-key"
_PREFIX: Final = "https://coatcheck.example/problems/"


class Kind(NamedTuple):
    """One type of problem.

    Attributes:
        pause: seconds after which the client should try again; 0 if it should not.
        type: the address of the type, if it is not one of ours.
    """

    name: str
    status: int
    title: str
    pause: int = 0
    type: str = ""


KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind("malformed", 400, "Malformed request"),
        Kind("ohttp-key", 400, "Unknown gateway key", type=OHTTP_KEY),
        Kind("unadmitted", 401, "An admission token is required"),
        Kind("forbidden", 403, "Only the operator or a trusted key may do this"),
        Kind("not-found", 404, "Not found"),
        Kind("method", 405, "Method not allowed"),
        Kind("too-slow", 408, "The request took too long"),
        Kind("conflict", 409, "Conflict with something already stored"),
        Kind("closed", 409, "The round is closed for this"),
        Kind("refused", 409, "Refused, because it would break a rule of the protocol"),
        Kind("too-large", 413, "The body is too large"),
        Kind("unprocessable", 422, "Invalid document or parameters"),
        Kind("releasing", 425, "The round is being released; try again in a moment", 2),
        Kind("busy", 429, "Too many requests; try again in a moment", 1),
        Kind("long-headers", 431, "The headers are too large"),
        Kind("internal", 500, "Internal error"),
        Kind("unavailable", 503, "Unavailable now; try again in a moment", 2),
        Kind("full", 507, "No space left; try again later", 30),
    )
}
"""All types, by name."""

_KIND_OF_ERROR: Final[tuple[tuple[type[Error], str], ...]] = (
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
    """A problem: what was wrong, and what to do about it (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


class Problem(Exception):
    """A problem that a handler raises and the client gets as the answer.

    Attributes:
        headers: of the answer: `retry-after`, `allow` or `www-authenticate`.
    """

    def __init__(self, name: str, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.kind = KINDS[name]
        self.detail = detail
        retry = {"retry-after": str(self.kind.pause)} if self.kind.pause else {}
        self.headers = retry | {name.replace("_", "-"): value for name, value in headers.items()}

    def document(self) -> bytes:
        """Return the problem document."""
        kind = self.kind
        type_ = kind.type or _PREFIX + kind.name
        return msgspec.json.encode(ProblemDocument(type_, kind.title, kind.status, self.detail))


def problem_of(error: Error) -> Problem:
    """Return the problem that stands for one of our errors."""
    for kind, name in _KIND_OF_ERROR:
        if isinstance(error, kind):
            return Problem(name, str(error))
    return Problem("internal", "this is an error of the service; it was counted")


JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
OCTETS: Final = "application/octet-stream"
ROUND: Final = "/rounds/{digest}"
_NOT_IN_ADDRESS: Final = frozenset({"body", "wire"})
_ROUND: Final = (
    "this is not the address of a round; it ends in /rounds/ and 64 hex digits (0-9, a-f)"
)

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
    """An answer in bytes that is not a JSON document."""

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Long(Reply):
    """An answer that is too long to hold in memory: it is read and sent piece by piece.

    Attributes:
        size: the number of bytes.
        read: returns the bytes from one offset up to another.
    """

    body: bytes = b""
    size: int
    read: Callable[[int, int], Awaitable[bytes]]


@dataclass(frozen=True)
class Route:
    """One row of a route table.

    Attributes:
        handler: called with the service and, by name, the parameters of the path, `body` for a JSON
            document, and the parameters of the query.
        problems: statuses of problems beyond those that follow from what the route takes.
        operator: whether only the operator may send this request.
        relayed: whether the gateway serves this route to people.
        reads: request headers that the handler reads.
        sends: headers of the answer.
        demands: the header that comes with status 401 and says which credential is needed.
        takes: the media type of the bytes that a handler with a `wire` reads.
        media: the answer's media type if it is a `Reply`.
        gives: the answer's type, for a handler that sends the answer itself to save time.
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
        """The first sentence of the handler's docstring."""
        return " ".join((inspect.getdoc(self.handler) or "").split("\n\n")[0].split())

    @cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.handler)

    @cached_property
    def takes_bytes(self) -> bool:
        """Whether the handler reads the bytes of the body itself."""
        return "wire" in self._signature.parameters

    @cached_property
    def body(self) -> Any:
        """The type of the JSON document that the route takes, or None."""
        parameter = self._signature.parameters.get("body")
        return parameter.annotation if parameter else None

    @cached_property
    def answer(self) -> Any:
        """The type of the answer."""
        return self.gives or self._signature.return_annotation

    @cached_property
    def parameters(self) -> type[Struct]:
        """The parameters of path and query, as a struct."""
        _, *parameters = self._signature.parameters.values()
        fields: list[Any] = [
            (part.name, part.annotation, *(() if part.default is part.empty else (part.default,)))
            for part in parameters
            if part.name not in _NOT_IN_ADDRESS
        ]
        return msgspec.defstruct("Parameters", fields, frozen=True)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern of the paths that this route serves; it must match in full."""
        segments = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", self.path)
        return re.compile(re.sub(r"\{(\w+)\*\}", r"(?P<\1>.+)", segments))

    @cached_property
    def template(self) -> str:
        """The path as in OpenAPI, without the mark of `{name*}`, which takes several segments."""
        return self.path.replace("*}", "}")

    def read(self, path: dict[str, str], query: bytes = b"") -> dict[str, Any]:
        """Read the parameters; unknown ones of the query are ignored."""
        try:
            texts = path
            if query:
                texts = dict(parse_qsl(query.decode("ascii"), max_num_fields=16)) | path
            parameters = msgspec.convert(texts, type=self.parameters, strict=False)
        except (ValueError, msgspec.ValidationError) as error:
            detail = _ROUND if "$.digest" in str(error) else f"wrong parameter: {error}"
            raise Problem("unprocessable", detail[:300]) from None
        values: dict[str, Any] = msgspec.structs.asdict(parameters)
        if any(str(value) != texts.get(name, str(value)) for name, value in values.items()):
            detail = "wrong parameter: a number is written in decimal digits, without leading zeros"
            raise Problem("unprocessable", detail)
        return values

    def read_body(self, raw: bytes) -> Any:
        """Read the JSON document; unknown and missing fields are rejected."""
        try:
            return msgspec.json.decode(raw, type=self.body)
        except msgspec.ValidationError as error:
            raise Problem("unprocessable", f"wrong document: {error}"[:300]) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Problem("malformed", "the body is not a JSON document") from None


# The OpenAPI document of a service, from its route table and the JSON schemas of msgspec.

Part = dict[str, Any]

_BINARY: Final[Part] = {"type": "string", "format": "binary"}
_UNADMITTED: Final = KINDS["unadmitted"].status
_RETRY: Final = Header("retry-after", "Seconds after which to try again.", "^[0-9]+$")
_ERRORS_NOTE: Final = (
    "Errors are problem documents (RFC 9457). Before a request reaches its route, the connection"
    " may answer with the status 400, 408, 429 or 431."
)


def describe(role: str, routes: Sequence[Route]) -> Part:
    """Return the OpenAPI document of a role."""
    schemas, components = _schemas(routes)
    paths: dict[str, Part] = {}
    for route in routes:
        paths.setdefault(route.template, {})[route.method.lower()] = _operation(route, schemas)
    operator = {"type": "http", "scheme": "bearer", "description": "The operator's token."}
    description = "A token of Privacy Pass (RFC 9577), if the round's terms ask for one."
    admission = {"type": "http", "scheme": "PrivateToken", "description": description}
    return {
        "openapi": "3.1.0",
        "info": {"title": f"coatcheck {role}", "version": "1", "description": _ERRORS_NOTE},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"operator": operator, "admission": admission},
        },
    }


def _schemas(routes: Sequence[Route]) -> tuple[dict[Any, Part], Part]:
    """Return the JSON schema of every type, with patterns in the syntax of ECMAScript."""
    kinds: list[Any] = [ProblemDocument]
    for route in routes:
        fields = msgspec.structs.fields(route.parameters)
        kinds += [*(field.type for field in fields), route.body, route.answer]
    kinds = [kind for kind in dict.fromkeys(kinds) if kind not in {None, Reply}]
    document = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    text = re.sub(rb'"\\\\A([^"]*)\\\\Z"', rb'"^\1$"', msgspec.json.encode(document))
    schemas, components = msgspec.json.decode(text)
    return dict(zip(kinds, schemas, strict=True)), components


def _operation(route: Route, schemas: dict[Any, Part]) -> Part:
    content = {JSON: {"schema": schemas[route.body]}} if route.body else _octets(route.takes)
    operation: Part = {
        "operationId": f"{route.handler.__name__.rstrip('_')}_{route.method.lower()}",
        "summary": route.summary,
        "parameters": _parameters(route, schemas),
        "responses": _responses(route, schemas),
    }
    if route.body or route.takes_bytes:
        operation["requestBody"] = {"required": True, "content": content}
    if route.operator:
        operation["security"] = [{"operator": []}]
    if route.demands:
        operation["security"] = [{}, {"admission": []}]
    return operation


def _octets(media: str) -> Part:
    return {media: {"schema": {"type": "string"} if media.startswith("text/") else _BINARY}}


def _parameters(route: Route, schemas: dict[Any, Part]) -> list[Part]:
    parameters: list[Part] = [
        {"in": "header", "name": header.name, **_header(header)} for header in route.reads
    ]
    for field_ in msgspec.structs.fields(route.parameters):
        place = "path" if f"{{{field_.name}}}" in route.template else "query"
        schema = schemas[field_.type] | ({} if field_.required else {"default": field_.default})
        parameters.append(
            {"in": place, "name": field_.name, "required": field_.required, "schema": schema}
        )
    return parameters


def _header(header: Header) -> Part:
    schema = {"type": "string"} | ({"pattern": header.pattern} if header.pattern else {})
    return {"description": header.description, "required": header.required, "schema": schema}


def _responses(route: Route, schemas: dict[Any, Part]) -> Part:
    document = schemas.get(route.answer)
    success: Part = {
        "description": route.summary,
        "content": {JSON: {"schema": document}} if document else _octets(route.media),
        "headers": {header.name: _header(header) for header in route.sends},
    }
    responses = {str(route.status): success}
    for status in _statuses(route):
        kinds = [kind for kind in KINDS.values() if kind.status == status]
        headers = [_RETRY] if kinds[0].pause else []
        if route.demands and status == _UNADMITTED:
            headers.append(route.demands)
        responses[str(status)] = {
            "description": "; or: ".join(kind.title for kind in kinds),
            "content": {MEDIA: {"schema": schemas[ProblemDocument]}},
            "headers": {header.name: _header(header) for header in headers},
        }
    return responses


def _statuses(route: Route) -> list[int]:
    """Return the statuses of the problems that a route answers with."""
    statuses = set(route.problems)
    if route.parameters.__struct_fields__ or route.body:
        statuses.add(422)
    if "{digest}" in route.path:
        statuses |= {404, 503}  # a standby process does not know the round
    if route.operator:
        statuses.add(403)
    if route.takes_bytes or route.body:
        statuses |= {400, 408, 413, 429, 503}
    return sorted(statuses)
