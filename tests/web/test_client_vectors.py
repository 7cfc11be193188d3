"""The browser client reads the same byte vectors as the Python side, with the same outcome."""

import json
from pathlib import Path
from typing import Any

from web.browser import ROOT, ask

VECTORS = ROOT / "tests/vectors"
NOT_THE_BROWSERS = {"batch", "manifest", "partitions", "order", "registration", "slack", "token"}
"""What passes between the roles only, and tokens, whose signatures the shuffler checks."""


def cases() -> list[dict[str, Any]]:
    """Return every vector that a person's client has a use for."""
    found = []
    for path in sorted(VECTORS.glob("*.json")):
        document = _read(path)
        if isinstance(document, dict):
            found += [one for one in document["cases"] if one["kind"] not in NOT_THE_BROWSERS]
    return [one for one in found if _is_a_clients(one)]


def _is_a_clients(one: dict[str, Any]) -> bool:
    """Tell whether a client has to read or write this; it never reads an upload or a request."""
    if one["kind"] == "upload":
        return bool(one["expect"] != "malformed")
    if one["kind"] == "oblivious":
        return bool(one["expect"] == "success")
    return one.get("of") != "request"


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_every_vector_has_the_same_outcome_in_the_browser() -> None:
    """Bytes decode to the stated fields, or are refused, and never with another error."""
    listed = cases()
    signed = _read(VECTORS / "terms.json")["cases"][0]["input"]
    upload = _read(VECTORS / "uploads.json")["cases"][0]["input"]
    outcomes = ask("vectors", cases=listed, signed=signed, upload=upload)
    assert len(listed) > 80
    for case, found in zip(listed, outcomes, strict=True):
        if case["expect"] == "success":
            assert found.get("fields") == case["fields"], (case["name"], found)
        else:
            assert found.get("refused"), (case["name"], found)
