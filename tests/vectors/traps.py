"""Vectors of traps: commitments, registrations, and how many people a count shows."""

from coatcheck.protocol.wire.uploads import Registration, commitment
from vectors import kinds
from vectors.kinds import Case
from vectors.writing import case, flip, wrong

_SLACK = {
    1e-3: {0: 9, 1: 11, 2: 13, 10: 20, 100: 49},
    1e-9: {0: 29, 1: 33, 2: 35, 10: 48, 100: 104, 1000: 287},
    0.25: {0: 1, 1: 2, 5: 3},
}
_SLACK_OF_THREE = {0: 11, 1: 13, 10: 22, 100: 55}
"""At 1e-3 with two decoys, so that each person hands in three reports."""


def cases() -> list[Case]:
    """A commitment, its registration, altered copies, and values of s."""
    digest, trap = kinds.the_round().digest, bytes(range(118))
    named = commitment(trap, digest=digest, group=1, hop=2)
    given = {"digest": digest.hex(), "group": 1, "hop": 2, "trap": trap.hex()}
    raw = Registration(2, 1, digest, named).encode()
    fields = {"group": 1, "id": named[:16].hex(), "commitment": named.hex()}
    changes = [
        ("a byte short", raw[:-1], "malformed"),
        ("a byte more", raw + b"\0", "malformed"),
        ("another version", flip(raw, 0), "malformed"),
        ("another shuffler", flip(raw, 1), "malformed"),
        ("a group that is not there", raw[:2] + b"\2" + raw[3:], "malformed"),
        ("the spare byte", flip(raw, 3), "malformed"),
        ("other terms", flip(raw, 4), "malformed"),
    ]
    return [
        case("118 bytes", "commitment", given, fields={"commitment": named.hex()}),
        case("with the third shuffler", "registration", raw.hex(), hop=2, fields=fields),
        *[{**one, "hop": 2} for one in wrong("registration", "registration", *changes)],
        *[
            case(f"{lost} lost at {delta:g}", "slack", [lost, delta], fields={"slack": more})
            for delta, row in _SLACK.items()
            for lost, more in row.items()
        ],
        *[
            case(f"{lost} lost, 3 reports", "slack", [lost, 1e-3, 3], fields={"slack": more})
            for lost, more in _SLACK_OF_THREE.items()
        ],
    ]
