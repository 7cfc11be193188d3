"""SPEC.md: its tables are the code's, its rules are numbered, and citations of rules exist."""

import re
from collections import Counter
from pathlib import Path
from typing import Any, cast, get_args

import pytest

import http_tables
from coatcheck.protocol import state_machine, terms, ticket
from coatcheck.protocol.envelope import Purpose
from coatcheck.protocol.state_machine import Transitions
from coatcheck.protocol.terms import SUITES
from coatcheck.protocol.wire import bulletins, uploads
from support.rounds import SmallRound

ROOT = Path(__file__).parents[2]
SPEC = (ROOT / "SPEC.md").read_text(encoding="utf-8")
RULE = re.compile(r"\*\*S(\d+)\.(\d+)\*\* ")
CITATION = re.compile(r"\bS\d+\.\d+\b")


def table(section: str, columns: int) -> list[list[str]]:
    """Return the rows of a section's first table with this many columns."""
    body = SPEC.split(f"\n## {section}", 1)[1].split("\n## ", 1)[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in body.splitlines()
        if line.startswith("|") and not line.startswith("|---")
    ]
    return [row for row in rows if len(row) == columns][1:]


def sections() -> dict[int, list[str]]:
    """Return the blocks between blank lines of each numbered section."""
    numbered = re.split(r"^## (\d+)\. .*\n", SPEC, flags=re.MULTILINE)[1:]
    pairs = zip(numbered[::2], numbered[1::2], strict=True)
    return {int(number): re.split(r"\n\s*\n", body.strip()) for number, body in pairs}


def rules() -> list[tuple[int, int]]:
    """Return the numbers of all rules, in order, each with the section in which it stands."""
    found = []
    for section, blocks in sections().items():
        for number in filter(None, map(RULE.match, blocks)):
            assert int(number[1]) == section, f"{number[0]} stands in section {section}"
            found.append((section, int(number[2])))
    return found


def test_rules_are_numbered_without_gaps() -> None:
    """In each section the rules are S<section>.1, S<section>.2 and so on, each once."""
    counts = Counter(section for section, _ in rules())
    assert rules() == [
        (section, place) for section, count in counts.items() for place in range(1, count + 1)
    ]
    assert len(RULE.findall(SPEC)) == len(rules()), "a rule must begin a paragraph of its own"


def test_sections_are_numbered_without_gaps() -> None:
    """Citations of whole sections stay valid: 1 to 20, in order."""
    assert list(sections()) == list(range(1, 21))


@pytest.mark.parametrize("section", range(1, 21))
def test_requirements_are_rules(section: int) -> None:
    """Every paragraph that says MUST, SHOULD or MAY can be cited by a number."""
    words = re.compile(r"\b(MUST|SHOULD|MAY)\b")
    loose = [block for block in sections()[section] if words.search(block)]
    assert [block for block in loose if not RULE.match(block)] == []


def cited() -> dict[str, set[str]]:
    """Return the rules that each file of texts, code and tests cites."""
    folders = ["src", "tests", "docs", "web-client/src", "web-client/test"]
    files = [*ROOT.glob("*.md")]
    for folder in folders:
        files += [
            path
            for path in (ROOT / folder).rglob("*")
            if path.suffix in {".py", ".md", ".js", ".mjs"} and "node_modules" not in path.parts
        ]
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    return {
        str(path.relative_to(ROOT)): set(CITATION.findall(text)) for path, text in texts.items()
    }


def test_cited_rules_exist() -> None:
    """A citation such as the first rule of section 2 names a rule that SPEC has."""
    known = {f"S{section}.{place}" for section, place in rules()}
    unknown = {name: sorted(numbers - known) for name, numbers in cited().items()}
    assert {name: numbers for name, numbers in unknown.items() if numbers} == {}


def transitions_table(moves: Transitions[Any]) -> str:
    """Return a role's table of transitions as in SPEC."""
    rows = [f"| {phase.value} | {move} | {after.value} |" for phase, move, after in moves]
    return "\n".join(["| phase | transition | next phase |", "|---|---|---|", *rows])


TRANSITIONS: dict[str, Transitions[Any]] = {
    "shuffler": state_machine.SHUFFLER_TRANSITIONS,
    "server": state_machine.SERVER_TRANSITIONS,
}


@pytest.mark.parametrize("role", TRANSITIONS)
def test_the_transitions_are_the_codes(role: str) -> None:
    """SPEC's table is the one that runs: a transition that is added in one place only fails here.

    To mend it, put what is expected here between the two comments of SPEC.
    """
    block = SPEC.split(f"<!-- transitions: {role} -->\n", 1)[1].split("\n<!-- end -->", 1)[0]
    assert block == transitions_table(TRANSITIONS[role])


@pytest.mark.parametrize("role", TRANSITIONS)
def test_every_phase_can_be_reached_and_left(role: str) -> None:
    """Each phase is the first or follows a transition; only final phases have none after them."""
    table = TRANSITIONS[role]
    phases = [*cast("Any", table.phases)]
    reached = {after for _, _, after in table} | {phases[0]}
    assert reached == set(phases)
    final = {phase.value for phase in phases if table.is_last(phase)}
    assert final <= {"delivered", "ended", "published", "overtaken", "lapsed"}


def test_the_reasons_are_the_codes() -> None:
    """Drop reasons have the order in which they are counted."""
    reasons = [
        row[0].strip("`")
        for row in table("7. Uploads, receipts and batches", 3)
        if row[0].startswith("`")
    ]
    assert tuple(reasons) == uploads.REASONS


def test_the_suites_are_the_codes() -> None:
    """Names, numbers and sizes."""
    rows = {row[0].strip("`"): row for row in table("3. Suites", 7)}
    for name, suite in SUITES.items():
        row = rows[name]
        assert (int(row[1]), int(row[5]), int(row[6])) == (
            suite.number,
            suite.sealing_size,
            suite.overhead,
        )
        assert row[2].startswith(f"0x{suite.kem:04x}")


def test_the_bindings_are_the_codes() -> None:
    """Labels and roles of every purpose."""
    rows = {row[0]: [cell.strip("`").encode() for cell in row[1:4]] for row in table("5. Seals", 7)}
    assert rows == {purpose.name.lower(): list(purpose.value) for purpose in Purpose}


def test_the_fields_of_the_terms_are_the_codes() -> None:
    """Each field of the struct is in the table, and nothing else."""
    listed = set(re.findall(r"`([\w\[\].-]+)`", " ".join(row[0] for row in table("6. Terms", 3))))
    own = set(terms.Terms.__struct_fields__)
    groups = {f"groups[].{name}" for name in terms.GroupTerms.__struct_fields__}
    kinds = {kind.__struct_config__.tag for kind in get_args(terms.AdmissionTerms)}
    assert listed == own | groups | {"shufflers[].admission", "kind"} | kinds


def test_the_sizes_are_the_codes() -> None:
    """The formulas of section 6 and the fixed sizes give what the code gives."""
    for suite in SUITES.values():
        round_ = SmallRound(suite=suite.name, shufflers=2, note_size=3).round
        o, c = suite.overhead, suite.contact_size
        group = round_.terms.groups[0]
        report = 2 + c + group.payload_size + group.note_size
        assert round_.report_size(0) == report
        assert [round_.item_size(0, hop) for hop in range(3)] == [
            report + (3 - hop) * o for hop in range(3)
        ]
        assert round_.upload_sizes[0] == 52 + 2 * (report + 3 * o)
        assert round_.entry_size(0) == 16 + group.answer_size + o
        assert round_.letter_size() == 75 + c + round_.terms.letter_size + o
    assert ticket.RECEIPT_SIZE == 470
    assert uploads.TALLY_SIZE == 36
    assert bulletins.CHECKPOINT_SIZE == 108
    assert bulletins.heading_size(2, 3) == 136 + 36 * 2 + 32 * 3
    assert "| the first 136 + 36 G + 32 k bytes of the bulletin |" in http_tables.SPEC.read_text()


def test_the_tables_are_those_of_the_code(tmp_path: Path) -> None:
    """Each route, document and problem of the code is in SPEC, and nothing else."""
    text = http_tables.SPEC.read_text(encoding="utf-8")
    for name, table in http_tables.parts(tmp_path).items():
        found = http_tables.pattern(name).search(text)
        assert found, f"SPEC has no table {name}"
        assert found[0] == f"{found[1]}{table}{found[2]}", "run python tests/http_tables.py"


def test_every_route_of_openapi_is_in_the_specification(tmp_path: Path) -> None:
    """The three lists of routes are one: SPEC's, the code's and OpenAPI's."""
    text = http_tables.SPEC.read_text(encoding="utf-8")
    for role, app in http_tables.apps(tmp_path).items():
        found = http_tables.pattern(f"routes: {role}").search(text)
        listed = set(re.findall(r"^\| `([A-Z]+ /\S*)`", found[0] if found else "", re.MULTILINE))
        served = {f"{route.method} {route.template}" for route in app.routes}
        described = {
            f"{method.upper()} {path}"
            for path, methods in app.document["paths"].items()
            for method in methods
        }
        assert listed == served == described
