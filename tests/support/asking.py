"""Requests to an application without a socket."""

from typing import Any

from coatcheck.services.web.app import App
from coatcheck.services.web.client import HttpAnswer


async def ask(
    app: App[Any], method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> HttpAnswer:
    """Send one request."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    lines = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    where, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": where,
        "query_string": query.encode(),
        "headers": lines,
    }
    await app(scope, receive, send)
    said = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return HttpAnswer(sent[0]["status"], said, sent[1]["body"])
