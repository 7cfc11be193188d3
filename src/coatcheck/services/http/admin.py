"""The operator's page: rounds, phases, counts and health of one role, to read and not to change.

Plain HTML, made here, without scripts: a browser asks for the operator's name and token. It shows
what the other routes give the operator as documents, and nothing of one report.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from typing import Any, Final

import msgspec

from coatcheck.services.http.routes import Header, Reply, Route

_MEDIA: Final = "text/html; charset=utf-8"
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
MOST: Final = 200
"""How many rounds are shown, the newest."""
_TIMES: Final = ("opens", "closes", "expires")
_STYLE: Final = """
body{font:1rem/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;
color:#1a1a1a;background:#fff}
table{border-collapse:collapse;width:100%;margin:0 0 2rem}
caption{text-align:left;font-weight:600;padding:.5rem 0}
th,td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid #ccc;vertical-align:top}
code{font-size:.9em}
@media(prefers-color-scheme:dark){body{color:#eee;background:#161616}th,td{border-color:#444}}
"""


_WHO: Final = Header("www-authenticate", "Asks a browser for an operator's name and token.")


async def admin(service: Any) -> Reply:
    """Show rounds, counts and health to an operator, as a page without scripts."""
    leads = "yes" if service.leadership.leads else "no, another process does"
    made = page(
        name=service.settings.name,
        role=service.role,
        facts={"address": service.url, "leads its store": leads},
        rounds=[msgspec.to_builtins(one) for one in await service.list_rounds()],
        counts=service.metrics.counts(),
        now=service.clock.now(),
    )
    return Reply(made, _HEADERS)


ADMIN: Final = Route(
    *("GET", "/admin", admin), media=_MEDIA, operator=True, demands=_WHO, problems=(401, 503)
)
"""The route of the page."""


def page(
    *,
    name: str,
    role: str,
    facts: Mapping[str, Any],
    rounds: Sequence[Mapping[str, Any]],
    counts: Iterable[tuple[str, str, float]],
    now: int,
) -> bytes:
    """Write the page of a role for an operator."""
    shown = sorted(rounds, key=lambda one: one.get("opens") or one.get("closes") or 0)[-MOST:]
    facts = {**facts, "time": _time(now), "version": version("coatcheck")}
    title = f"{name}: coatcheck {role}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        _table("Health", ("", ""), [(key, str(value)) for key, value in facts.items()]),
        _table("Rounds, the newest first", *_rounds(shown[::-1])),
        _table("Counts since the start", ("count", "of", ""), _told(counts)),
        "<p>This page changes nothing: <code>coatcheck round --help</code> tells what does.</p>",
    ]
    head = f"<title>{escape(title)}</title><style>{_STYLE}</style>"
    look = '<meta name="viewport" content="width=device-width,initial-scale=1">'
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{look}{head}</head>\n'
        f"<body><main>\n{body}\n</main></body></html>\n"
    ).encode()


def _rounds(rounds: Sequence[Mapping[str, Any]]) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Tell each round by the fields that its role gives."""
    columns = [
        name for name in ("round", "phase", "groups", *_TIMES) if name in (rounds or [{}])[0]
    ]
    return columns, [[_cell(name, one[name]) for name in columns] for one in rounds]


def _cell(name: str, value: Any) -> str:
    if name in _TIMES:
        return _time(value)
    if name == "groups":
        return ", ".join(f"{one['name']} {one['crowd']:,} of {one['minimum']:,}" for one in value)
    return str(value)


def _told(counts: Iterable[tuple[str, str, float]]) -> list[Sequence[str]]:
    return [(name.replace("_", " "), of, f"{value:,.10g}") for name, of, value in counts]


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _table(caption: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table, or say that it is empty; the first cell of a row heads it."""
    if not rows:
        return f"<h2>{escape(caption)}</h2><p>None yet.</p>"
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in headings)
    lines = [
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    ]
    top = f"<thead><tr>{head}</tr></thead>" if any(headings) else ""
    return (
        f"<table><caption>{escape(caption)}</caption>{top}<tbody>{''.join(lines)}</tbody></table>"
    )
