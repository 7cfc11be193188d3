"""The tables of SPEC's section on HTTP, made from the code: every route, document and problem.

`python tests/http_tables.py` writes them again after a route has changed.
"""

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from coatcheck.services.local_cluster import Cluster
from coatcheck.services.process import ROLES, build
from coatcheck.services.web.app import App
from coatcheck.services.web.routing import KINDS, Route

SPEC = Path(__file__).parents[1] / "SPEC.md"


def apps(folder: Path) -> dict[str, App[Any]]:
    """Build every role, without a socket."""
    local = Cluster(folder, relay=True, witnesses=1)
    named = {local.role(name): name for name in reversed(local.names)}
    return {role: build(role, folder / f"{named[role]}.toml") for role in ROLES}


def routes(app: App[Any]) -> str:
    """Write the table of a role's routes."""
    rows = ["| request | what it does | takes | gives | problems |", "|---|---|---|---|---|"]
    rows += [_row(app, route) for route in app.routes]
    return "\n".join(rows)


def _row(app: App[Any], route: Route) -> str:
    told = app.document["paths"][route.template][route.method.lower()]
    names = {"header": [], "query": []}  # type: dict[str, list[str]]
    for one in told["parameters"]:
        names.get(one["in"], []).append(f"`{one['name']}`")
    takes = [", ".join(names["query"]), ", ".join(names["header"])]
    if "requestBody" in told:
        takes.insert(0, _content(told["requestBody"]["content"]))
    who = [
        word for word, true in (("relayed", route.relayed), ("operator", route.operator)) if true
    ]
    (fine,) = (status for status in told["responses"] if status < "300")
    gives = f"{fine}: {_content(told['responses'][fine]['content'])}"
    sends = [f"`{name}`" for name in told["responses"][fine]["headers"]]
    problems = ", ".join(status for status in told["responses"] if status >= "300")
    cells = [
        f"`{route.method} {route.template}`" + "".join(f" ({word})" for word in who),
        route.summary,
        "; ".join(filter(None, takes)) or "nothing",
        "; ".join([gives, *sends]),
        problems or "none",
    ]
    return f"| {' | '.join(cells)} |"


def _content(content: dict[str, Any]) -> str:
    ((media, part),) = content.items()
    return _typed(part["schema"]) if media == "application/json" else f"`{media}`"


def _typed(schema: dict[str, Any]) -> str:
    """Say in a few words what a schema asks for."""
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if "anyOf" in schema:
        return " or ".join(_typed(one) for one in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return " or ".join(f'`"{one}"`' for one in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_typed(schema['items'])}" if schema.get("items") else "list"
    if schema.get("contentEncoding") == "base64":
        return "base64"
    return str({"string": "text", "integer": "whole number"}.get(kind, kind))


def documents(app: App[Any]) -> str:
    """Write the table of the documents that a role takes and gives."""
    rows = ["| document | fields |", "|---|---|"]
    schemas = app.document["components"]["schemas"]
    for name, schema in sorted(schemas.items()):
        if name == "ProblemDocument" or "properties" not in schema:
            continue
        fields = []
        for field, part in schema["properties"].items():
            optional = "" if field in schema.get("required", ()) else ", may be absent"
            fields.append(f"`{field}` ({_typed(part)}{optional})")
        rows.append(f"| `{name}` | {', '.join(fields) or 'none'} |")
    return "\n".join(rows)


def problems() -> str:
    """Write the table of all problems."""
    rows = ["| type | status | meaning | come back after |", "|---|---|---|---|"]
    for kind in KINDS.values():
        pause = f"{kind.pause} s" if kind.pause else ""
        rows.append(f"| `{kind.name}` | {kind.status} | {kind.title} | {pause} |")
    return "\n".join(rows)


def parts(folder: Path) -> dict[str, str]:
    """Make every table."""
    made = {"problems": problems()}
    for role, app in apps(folder).items():
        made[f"routes: {role}"], made[f"documents: {role}"] = routes(app), documents(app)
    return made


def pattern(name: str) -> re.Pattern[str]:
    """Find a table between its marks."""
    return re.compile(rf"(<!-- {name} -->\n\n).*?(\n\n<!-- end -->)", re.DOTALL)


def main() -> None:
    """Write the tables into SPEC again."""
    text = SPEC.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for name, table in parts(Path(folder)).items():
            before, after = pattern(name).split(text)[:2], pattern(name).split(text)[2:]
            text = "".join((*before, table, *after))
    SPEC.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
