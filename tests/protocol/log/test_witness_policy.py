"""Policies of witnesses: the shared file format, and when enough have cosigned."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.errors import Malformed, Misuse
from coatcheck.protocol.agreement import Trust
from coatcheck.protocol.log.signed_notes import COSIGNATURE, ED25519, NoteKey
from coatcheck.protocol.log.witness_policy import Quorum, read_policy

KEYS = [bytes((n,)) * 32 for n in range(1, 8)]


def witness(number: int) -> str:
    """Return the key of a witness as C2SP writes it."""
    return NoteKey(f"witness-{number}.example", KEYS[number], COSIGNATURE).text


LOG = NoteKey("board.example", KEYS[0], ED25519).text
EXAMPLE = f"""\
# Two organizations, as in the example of C2SP.
log {LOG} https://board.example

witness X1 {witness(1)}
witness X2\t{witness(2)} https://two.example/
witness X3 {witness(3)}
group X-witnesses 2 X1 X2 X3

  witness Y1 {witness(4)}
witness Y2 {witness(5)}
witness Y3 {witness(6)}
group Y-witnesses any Y1 Y2 Y3

group X-and-Y all X-witnesses Y-witnesses
quorum X-and-Y
"""


def reached(quorum: Quorum, signers: set[int]) -> bool:
    """Return whether a quorum is reached by witnesses of these numbers."""
    keys = {KEYS[number] for number in signers}
    return quorum.reached(lambda member: bool(member & keys))


def test_a_quorum_of_groups_is_reached_as_its_file_says() -> None:
    """Two of the first organization and one of the second: every set of witnesses is tried."""
    policy = read_policy(EXAMPLE.encode())
    assert policy.logs == {KEYS[0]}
    for count in range(7):
        for chosen in itertools.combinations(range(1, 7), count):
            signers = set(chosen)
            enough = len(signers & {1, 2, 3}) >= 2 and bool(signers & {4, 5, 6})
            assert reached(policy.quorum, signers) == enough


@pytest.mark.parametrize(
    ("text", "signers", "enough"),
    [
        ("quorum none", set(), True),
        (f"witness one {witness(1)}\nquorum one", {1}, True),
        (f"witness one {witness(1)}\nquorum one", {2}, False),
    ],
)
def test_the_smallest_policies(text: str, signers: set[int], enough: bool) -> None:  # noqa: FBT001 - a case
    """Nobody, or one witness without a group."""
    assert reached(read_policy(text.encode()).quorum, signers) == enough


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no `quorum` line"),
        (f"witness a {witness(1)}", "no `quorum` line"),
        ("quorum none\nquorum none", "one `quorum` line"),
        ("quorum someone", "no line before defines"),
        (f"group g all a\nwitness a {witness(1)}\nquorum g", "line 1 .*no line before"),
        (f"witness a {witness(1)}\nwitness b {witness(1)}\nquorum a", "twice under one key"),
        (f"witness a {witness(1)}\nwitness a {witness(2)}\nquorum a", "a name is defined twice"),
        (f"witness none {witness(1)}\nquorum none", "a name is defined twice"),
        (f"log {LOG}\nlog {LOG}\nquorum none", "a log is listed twice"),
        (f"witness a {witness(1)}\ngroup g 2 a\nquorum g", "more members than it has"),
        (f"witness a {witness(1)}\ngroup g 0 a\nquorum g", "`all`, `any` or a number"),
        (f"witness a {witness(1)}\ngroup g most a\nquorum g", "`all`, `any` or a number"),
        (f"witness a {witness(1)}\ngroup g all a a\nquorum g", "in two groups"),
        (
            f"witness a {witness(1)}\ngroup g all a\ngroup h all a\ngroup i any g h\nquorum i",
            "in two groups",
        ),
        (f"witness a {LOG}\nquorum a", "not the key of a witness"),
        (f"log {witness(1)}\nquorum none", "not the key of a log"),
        ("witness a key\nquorum a", "line 1"),
        ("quorum none\x00", "control characters"),
        ("quorum none\r", "control characters"),
        ("trust everybody\nquorum none", "must be a log, witness, group or quorum"),
        (f"witness a {witness(1)} one two\nquorum a", "must be a log, witness"),
        ("group g all\nquorum g", "must be a log, witness"),
    ],
)
def test_what_is_no_policy_is_refused_with_its_line(text: str, reason: str) -> None:
    """Whatever C2SP forbids, and above all what would let one witness count twice."""
    with pytest.raises(Malformed, match=reason):
        read_policy(text.encode())


@given(st.binary(max_size=200))
def test_any_bytes_are_a_policy_or_malformed(raw: bytes) -> None:
    """A file from a stranger raises nothing else."""
    try:
        read_policy(raw)
    except Malformed:
        return
    assert b"quorum" in raw


def test_a_policy_and_single_witnesses_do_not_mix() -> None:
    """A person names witnesses in one way; the file's logs limit the boards."""
    policy = read_policy(EXAMPLE.encode())
    alone = Trust.of([("board", [KEYS[0], KEYS[6]])]).under(policy)
    assert alone.board == {KEYS[0]}
    assert alone.witnesses == policy.quorum
    for entries in ([], [("", [KEYS[6]])], [("board", [KEYS[0]]), ("", [KEYS[6]])]):
        with pytest.raises(Misuse, match="board=FILE"):
            Trust.of(entries).under(policy)  # nobody becomes a board by being in the file
    with pytest.raises(Misuse, match="not by both"):
        Trust.of([("witness", [KEYS[1]])]).under(policy)
    with pytest.raises(Misuse, match="names no log of a board"):
        Trust.of([("board", [KEYS[5]])]).under(policy)
