"""The OpenAPI document of a service, from its table of routes and msgspec's JSON schemas."""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from coatcheck.services.http.problems import KINDS, MEDIA, ProblemDocument
from coatcheck.services.http.routes import JSON, Header, Reply, Route

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
