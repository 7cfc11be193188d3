"""The OpenAPI document of a service, from its table of routes and msgspec's JSON schemas."""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from coatcheck.services.http.problems import KINDS, MEDIA, ProblemDocument
from coatcheck.services.http.routes import JSON, OCTETS, Header, Reply, Route

_BINARY: Final = {"type": "string", "format": "binary"}
_RETRY: Final = Header("retry-after", "After how many seconds to come back.", "^[0-9]+$")
_CONNECTION: Final = (400, 408, 429, 431)
_ANYWHERE: Final = (
    "Errors are problem documents (RFC 9457). Before a request reaches its route the connection"
    f" may answer with one of the statuses {', '.join(map(str, _CONNECTION))}."
)


def describe(role: str, routes: Sequence[Route]) -> dict[str, Any]:
    """Write the document."""
    schemas, components = _schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    operator = {"type": "http", "scheme": "bearer", "description": "The operator's token."}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": f"coatcheck {role}", "version": "1", "description": _ANYWHERE},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"operator": operator}},
    }
    return document


def statuses(route: Route) -> list[int]:
    """List the statuses of the problems that a route answers with."""
    found = set(route.problems)
    if route.path_type.__struct_fields__ or route.query_type.__struct_fields__:
        found.add(422)
    if "{digest}" in route.path:
        found |= {404, 503}  # a process that stands by cannot know
    if route.operator:
        found.add(403)
    if route.bare or route.body:
        found |= {400, 408, 413, 503}
    if route.body:
        found.add(422)
    return sorted(found)


def _schemas(routes: Sequence[Route]) -> tuple[dict[Any, Any], dict[str, Any]]:
    """Have msgspec write the schema of every type; patterns as ECMAScript spells them."""
    kinds: list[Any] = [ProblemDocument]
    for route in routes:
        kinds += [kind for kind in (route.body, route.answer) if _is_document(kind)]
        for part in (route.path_type, route.query_type):
            kinds += [one.type for one in msgspec.structs.fields(part)]
    kinds = list(dict.fromkeys(kinds))
    made, components = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}"
    )
    return dict(zip(kinds, _plain(list(made)), strict=True)), _plain(components)


def _is_document(kind: Any) -> bool:
    return kind not in {None, Reply, bytes}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: re.sub(r"^\\A(.*)\\Z$", r"^\1$", inner)
            if key == "pattern" and isinstance(inner, str)
            else _plain(inner)
            for key, inner in value.items()
        }
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _operation(route: Route, schemas: dict[Any, Any]) -> dict[str, Any]:
    name = getattr(route.handler, "__name__", "").rstrip("_")
    made: dict[str, Any] = {
        "operationId": f"{name}_{route.method.lower()}",
        "summary": route.summary,
        "parameters": _parameters(route, schemas),
        "responses": _responses(route, schemas),
    }
    if route.bare:
        made["requestBody"] = {"required": True, "content": {OCTETS: {"schema": _BINARY}}}
    elif route.body:
        made["requestBody"] = {"required": True, "content": {JSON: {"schema": schemas[route.body]}}}
    if route.operator:
        made["security"] = [{"operator": []}]
    return made


def _parameters(route: Route, schemas: dict[Any, Any]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for place, part in (("path", route.path_type), ("query", route.query_type)):
        for one in msgspec.structs.fields(part):
            schema = schemas[one.type]
            if not one.required:
                schema = {**schema, "default": one.default}
            made.append({"name": one.name, "in": place, "required": one.required, "schema": schema})
    return made + [{"in": "header", **_header(one), "name": one.name} for one in route.reads]


def _header(header: Header) -> dict[str, Any]:
    pattern = {"pattern": header.pattern} if header.pattern else {}
    return {
        "description": header.description,
        "required": header.required,
        "schema": {"type": "string", **pattern},
    }


def _responses(route: Route, schemas: dict[Any, Any]) -> dict[str, Any]:
    if _is_document(route.answer):
        content = {JSON: {"schema": schemas[route.answer]}}
    else:
        content = {
            route.media: {"schema": _BINARY if route.media == OCTETS else {"type": "string"}}
        }
    fine: dict[str, Any] = {"description": route.summary, "content": content}
    if route.sends:
        fine["headers"] = {one.name: _header(one) for one in route.sends}
    problem = schemas[ProblemDocument]
    return {str(route.status): fine} | {
        str(status): _problem(status, problem) for status in statuses(route)
    }


def _problem(status: int, schema: dict[str, Any]) -> dict[str, Any]:
    kinds = [kind for kind in KINDS.values() if kind.status == status]
    made: dict[str, Any] = {
        "description": "; or: ".join(kind.title for kind in kinds),
        "content": {MEDIA: {"schema": schema}},
    }
    if any(kind.pause for kind in kinds):
        made["headers"] = {"retry-after": _header(_RETRY)}
    return made
