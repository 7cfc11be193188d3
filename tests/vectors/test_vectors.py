"""The byte vectors: each has the outcome that it states, and one command makes them all again."""

import json
from pathlib import Path

import pytest

from vectors import examining, kinds, make

HERE = Path(__file__).parent
CASES: dict[tuple[str, str], list[kinds.Case]] = {}
for name in make.PARTS:
    for case in json.loads((HERE / f"{name}.json").read_text())["cases"]:
        CASES.setdefault((name, case["kind"]), []).append(case)


@pytest.mark.parametrize("cases", CASES.values(), ids=map("-".join, CASES))
def test_vectors(cases: list[kinds.Case]) -> None:
    """Each record decodes to the stated fields, or is refused in the stated way."""
    for case in cases:
        outcome, fields = kinds.outcome(case)
        assert outcome == case["expect"], case["name"]
        if outcome == "success":
            assert examining.agrees(case, fields), case["name"]


@pytest.mark.parametrize("name", make.PARTS)
def test_the_files_are_what_the_command_makes(name: str) -> None:
    """Nobody edits vectors by hand."""
    assert (HERE / f"{name}.json").read_text() == make.text(name)


def test_every_kind_has_both_outcomes_where_it_can_fail() -> None:
    """A decoder without a failing vector is not pinned down."""
    outcomes: dict[str, set[str]] = {}
    for (_, kind), cases in CASES.items():
        outcomes.setdefault(kind, set()).update(case["expect"] for case in cases)
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
            "nobody",
            "conversation",
            "partitions",
            "crowd",
        }
        if kind not in alone:
            assert len(found) > 1, kind
