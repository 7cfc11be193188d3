"""The OpenAPI document of each service: every route, with all its inputs and outputs."""

import json
from pathlib import Path
from typing import Any

import pytest

from coatcheck.services.board.log import PROOFS
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.process import ROLES, build
from coatcheck.services.web.app import App
from coatcheck.services.web.routing import KINDS, MEDIA, Problem

EXPECTED = {
    "shuffler": {
        "GET /key",
        "GET /rounds",
        "GET /rounds/current",
        "POST /rounds",
        "GET /rounds/{digest}",
        "PUT /rounds/{digest}",
        "GET /admission",
        "POST /rounds/{digest}/uploads",
        "POST /rounds/{digest}/batch",
        "PUT /rounds/{digest}/batch/{part}",
        "POST /rounds/{digest}/end",
        "GET /rounds/{digest}/crowd",
        "POST /rounds/{digest}/closing",
        "POST /rounds/{digest}/abandonment",
        "GET /.well-known/ohttp-gateway",
        "POST /.well-known/ohttp-gateway",
    },
    "server": {
        "GET /key",
        "GET /rounds",
        "POST /rounds",
        "GET /rounds/{digest}",
        "GET /rounds/{digest}/terms",
        "POST /rounds/{digest}/batch",
        "PUT /rounds/{digest}/batch/{part}",
        "POST /rounds/{digest}/end",
    },
    "board": {
        "GET /key",
        "GET /rounds",
        "GET /rounds/{digest}",
        "PUT /rounds/{digest}",
        "GET /rounds/{digest}/bulletin",
        "POST /rounds/{digest}/bulletin",
        "POST /rounds/{digest}/end",
        "GET /rounds/{digest}/entries/{group}/{address}",
        "GET /rounds/{digest}/letters",
        "POST /rounds/{digest}/letters",
        "GET /rounds/{digest}/place",
        "GET /rounds/{digest}/heading",
        "GET /rounds/{digest}/logged",
        "GET /rounds/{digest}/letters/{address}",
        "GET /checkpoint",
        "GET /log/checkpoint",
        "GET /log/tile/{level}/{place}",
        "GET /proofs/inclusion",
        "GET /proofs/consistency",
        "POST /gateways",
        "GET /.well-known/ohttp-gateway",
        "POST /.well-known/ohttp-gateway",
    },
    "relay": {f"{method} /gateways/{{authority}}" for method in ("GET", "POST", "OPTIONS")},
    "witness": {"POST /add-checkpoint", "GET /{log}/checkpoint", "GET /key"},
}
COMMON = {"GET /healthz", "GET /metrics", "GET /openapi.json"}
PARTS = {
    "shuffler POST /rounds/{digest}/uploads": {"coatcheck-token"},
    "shuffler POST /rounds/{digest}/batch": {"coatcheck-content", "coatcheck-signature"},
    "shuffler PUT /rounds/{digest}/batch/{part}": {"coatcheck-content", "coatcheck-signature"},
    "server POST /rounds/{digest}/batch": {"coatcheck-content", "coatcheck-signature"},
    "server PUT /rounds/{digest}/batch/{part}": {"coatcheck-content", "coatcheck-signature"},
    "board POST /rounds/{digest}/bulletin": {"coatcheck-content", "coatcheck-signature"},
}


@pytest.fixture(params=ROLES)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> App[Any]:
    """Return the application of a role, without a socket."""
    local = Cluster(tmp_path, relay=True, witnesses=1)
    name = next(name for name in local.names if local.role(name) == request.param)
    return build(request.param, tmp_path / f"{name}.toml")


def operations(app: App[Any]) -> dict[str, dict[str, Any]]:
    """List the document's content for each route."""
    document = json.loads(json.dumps(app.document))
    return {
        f"{method.upper()} {path}": found
        for path, methods in document["paths"].items()
        for method, found in methods.items()
    }


def test_every_route_is_in_the_document(app: App[Any]) -> None:
    """The application and the document have the same routes."""
    served = {f"{route.method} {route.template}" for route in app.routes}
    assert served == set(operations(app)) == EXPECTED[app.role] | COMMON


def test_each_route_is_described_in_full(app: App[Any]) -> None:
    """Each has a summary, a name, its parameters, and media types for every input and output."""
    found = operations(app)
    assert len({one["operationId"] for one in found.values()}) == len(found)
    statuses = {str(kind.status) for kind in KINDS.values()}
    for name, one in found.items():
        assert one["summary"].endswith("."), name
        listed = {part["name"] for part in one["parameters"]}
        assert all(f"{{{part}}}" not in name or part in listed for part in ("digest", "group"))
        headers = {part["name"] for part in one["parameters"] if part["in"] == "header"}
        assert headers == PARTS.get(f"{app.role} {name}", set())
        fine = {status: said for status, said in one["responses"].items() if status < "300"}
        assert len(fine) == 1
        told = {status: said for status, said in one["responses"].items() if status >= "300"}
        assert set(told) <= statuses
        assert all(set(said["content"]) == {MEDIA} for said in told.values())
        assert all("schema" in part for said in fine.values() for part in said["content"].values())
        if name.startswith("PUT") or (name.startswith("POST") and "closing" not in name):
            assert one["requestBody"]["content"], name
            assert {"400", "408", "413"} <= set(told), name
        for_operator = {
            "shuffler": ("closing", "abandonment", "crowd"),
            "server": ("POST /rounds",),
        }
        wanted = name.endswith(("/metrics", *for_operator.get(app.role, ())))
        assert (one.get("security") == [{"operator": []}]) == wanted, name
        asks = "401" in told
        assert ({"admission": []} in one.get("security", ())) == asks, name


def test_every_reference_leads_somewhere(app: App[Any]) -> None:
    """Every named schema exists, and patterns are valid in ECMAScript."""
    text = json.dumps(app.document)
    named = set(app.document["components"]["schemas"])
    assert "ProblemDocument" in named
    parts = text.split('"#/components/schemas/')[1:]
    assert {part.partition('"')[0] for part in parts} <= named
    assert "\\\\A" not in text
    assert "\\\\Z" not in text


@pytest.mark.parametrize("text", ["1e0", "1.0", "-0", "01", "%31%30%20", "true"])
def test_a_number_has_one_spelling(text: str) -> None:
    """SPEC section 19: two spellings of an address cannot confuse a cache or a proxy."""
    route = next(one for one in PROOFS if one.path == "/proofs/inclusion")
    assert route.read({}, b"place=10&size=12&more=1e0") == {"place": 10, "size": 12}
    with pytest.raises(Problem):
        route.read({}, f"place={text}&size=12".encode())
