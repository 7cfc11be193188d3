"""The byte vectors: each has the outcome that it states, and one command makes them all again."""

import json
from pathlib import Path

import pytest

from vectors import kinds, make

HERE = Path(__file__).parent
CASES = [
    pytest.param(case, id=f"{name}-{case['name']}")
    for name in make.PARTS
    for case in json.loads((HERE / f"{name}.json").read_text())["cases"]
]


@pytest.mark.parametrize("case", CASES)
def test_vector(case: kinds.Case) -> None:
    """The record decodes to the stated fields, or is refused in the stated way."""
    found, fields = kinds.outcome(case)
    assert found == case["expect"]
    if found == "success":
        assert fields == case["fields"]


@pytest.mark.parametrize("name", make.PARTS)
def test_the_files_are_what_the_command_makes(name: str) -> None:
    """Nobody edits vectors by hand."""
    assert (HERE / f"{name}.json").read_text() == make.text(name)


def test_every_kind_has_both_outcomes_where_it_can_fail() -> None:
    """A decoder without a failing vector is not pinned down."""
    outcomes: dict[str, set[str]] = {}
    for parameter in CASES:
        case = parameter.values[0]
        outcomes.setdefault(case["kind"], set()).add(case["expect"])  # type: ignore[index] # a dict
    for kind, found in outcomes.items():
        assert "success" in found
        alone = {
            "keys",
            "binding",
            "order",
            "root",
            "commitment",
            "slack",
            "cell",
            "conversation",
            "partitions",
        }
        if kind not in alone:
            assert len(found) > 1, kind
