"""The browser client reads the same byte vectors as the Python side, with the same outcome."""

import json
from pathlib import Path
from typing import Any

from vectors import examining
from world.web.browser import ROOT, ask

VECTORS = ROOT / "tests/vectors"
NOT_THE_BROWSERS = {
    *("batch", "decoys", "key-list", "manifest", "order", "partitions"),
    *("registration", "slack", "token"),
}
"""Messages that only roles read, and tokens, whose signatures the shuffler verifies."""


def cases() -> list[dict[str, Any]]:
    """Return every vector that concerns a person's client."""
    vectors = []
    for path in sorted(VECTORS.glob("*.json")):
        document = _read(path)
        if isinstance(document, dict):
            vectors += [case for case in document["cases"] if case["kind"] not in NOT_THE_BROWSERS]
    return [case for case in vectors if _is_a_clients(case)]


def _is_a_clients(case: dict[str, Any]) -> bool:
    """Return whether a client reads or writes this; it never reads an upload or a request."""
    if case["kind"] == "upload":
        return bool(case["expect"] != "malformed")
    if case["kind"] == "oblivious":
        return bool(case["expect"] == "success")
    return case.get("of") != "request"


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_every_vector_has_the_same_outcome_in_the_browser() -> None:
    """Bytes decode to the stated fields, or are refused, and never with another error."""
    listed = cases()
    signed = _read(VECTORS / "terms.json")["cases"][0]["input"]
    upload = _read(VECTORS / "uploads.json")["cases"][0]["input"]
    outcomes = ask("vectors", cases=listed, signed=signed, upload=upload)
    assert len(listed) > 80
    for case, result in zip(listed, outcomes, strict=True):
        if case["expect"] == "success":
            fields = result.get("fields")
            assert fields is not None, (case["name"], result)
            assert examining.agrees(case, fields), (case["name"], result)
        else:
            assert result.get("refused"), (case["name"], result)
