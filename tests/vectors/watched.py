"""Vectors of checkpoints that witnesses cosigned: which notes count, and for whom."""

from coatcheck.protocol.log.merkle import Tree
from coatcheck.protocol.log.signed_notes import COSIGNATURE, LogCheckpoint, Note, NoteKey
from coatcheck.protocol.log.verification import board_note_key
from vectors.kinds import BOARD, Case, outcome, pairs
from vectors.writing import case

_WITNESSES = (21, 22, 23)
_TREE = Tree(bytes((n,)) for n in range(5))
_TIME = 1_763_000_000
_BOARD = pairs(BOARD).signing
_KEY = board_note_key(_BOARD.public_raw.hex())


def _text(*, origin: str = _KEY.name, size: int = 5) -> str:
    return LogCheckpoint(origin, size, _TREE.root(size)).write()


def _cosigned(note: Note, *numbers: int, time: int = _TIME, name: str = "") -> Note:
    """Put the cosignatures of witnesses under a note."""
    for number in numbers:
        signing = pairs(number).signing
        key = NoteKey(name or f"witness-{number}.example", signing.public_raw, COSIGNATURE)
        note = note.signed(key, signing.sign, time=time)
    return note


def _keys(*numbers: int) -> list[str]:
    return [pairs(number).signing.public_raw.hex() for number in numbers]


def _good() -> dict[str, tuple[Note, int, str]]:
    one, two, three = _WITNESSES
    note = Note(_text()).signed(_KEY, _BOARD.sign)
    longer = Note(_text() + "another line\n").signed(_KEY, _BOARD.sign)
    other = board_note_key(pairs(one).signing.public_raw.hex())
    strange = Note(_text(origin=other.name)).signed(other, pairs(one).signing.sign)
    claimed = Note(_text(), (("witness-21.example", bytes(4), bytes(72)),)).signed(
        _KEY, _BOARD.sign
    )
    return {
        "two of two": (_cosigned(note, one, two), 2, "success"),
        "two of three": (_cosigned(note, one, three), 2, "success"),
        "a stranger's word counts for nothing": (_cosigned(note, one, 24), 1, "success"),
        "a new key of a witness": (_cosigned(note, one, 32), 2, "success"),
        "both keys of a witness are one word": (_cosigned(note, two, 32), 2, "unavailable"),
        "a line after the third": (_cosigned(longer, one), 1, "success"),
        "a time above 2^53": (_cosigned(note, one, time=2**63 + 1), 1, "success"),
        "any name that a witness goes by": (_cosigned(note, one, name="elsewhere"), 1, "success"),
        "one of two": (_cosigned(note, one), 2, "unavailable"),
        "nobody": (note, 1, "unavailable"),
        "a signature of an id that nobody has": (_cosigned(claimed, two), 1, "success"),
        "another log": (_cosigned(strange, two), 1, "bad-signature"),
        "not the board's": (_cosigned(Note(_text()), one), 1, "bad-signature"),
    }


def cases() -> list[Case]:
    """Notes with enough words and with too few, and altered ones."""
    one, two, three = _WITNESSES
    known = {"witnesses": [_keys(one), _keys(two, 32), _keys(three)]}
    found = [
        case(
            f"a watched checkpoint: {name}",
            "watched",
            note.write().hex(),
            expect,
            **known,
            demanded=demanded,
        )
        for name, (note, demanded, expect) in _good().items()
    ]
    raw = _cosigned(Note(_text()).signed(_KEY, _BOARD.sign), one, two).write()
    lines = raw.split(b"\n")
    forged = _cosigned(Note(_text(size=4)).signed(_KEY, _BOARD.sign), one)
    mixed = Note(_text(), Note.read(raw).signatures[:1] + forged.signatures[1:]).write()
    changes = {
        "a known witness's word on another root": (mixed, "bad-signature"),
        "another size": (raw.replace(b"\n5\n", b"\n6\n"), "bad-signature"),
        "a size with a zero before it": (raw.replace(b"\n5\n", b"\n05\n"), "malformed"),
        "a root that is cut": (raw.replace(lines[2], lines[2][:-4]), "malformed"),
        "no empty line": (raw.replace(b"\n\n", b"\n"), "malformed"),
        "no signature": (raw[: raw.index(b"\n\n") + 2], "malformed"),
        "no line feed at the end": (raw[:-1], "malformed"),
        "a carriage return": (raw.replace(b"\n\n", b"\r\n\n"), "malformed"),
        "a hyphen for the dash": (raw.replace("\u2014".encode(), b"-"), "malformed"),
        "a signature that is no base64": (raw[:-3] + b"*=\n", "malformed"),
        "no UTF-8": (raw + b"\xff\n", "malformed"),
        "65 signatures": (raw + lines[4] + b"\n" + (lines[5] + b"\n") * 62, "malformed"),
        "nothing": (b"", "malformed"),
    }
    for name, (changed, expect) in changes.items():
        found.append(
            case(
                f"a watched checkpoint: {name}",
                "watched",
                changed.hex(),
                expect,
                **known,
                demanded=1,
            )
        )
    group = {"least": 2, "of": [_either(one, two), _keys(three)]}
    quorums: dict[str, tuple[Case, list[int]]] = {
        "a group and a witness": (group, [one, three]),
        "the group alone is one of two": (group, [one, two]),
        "a quorum of nobody": ({"least": 0, "of": []}, []),
    }
    for name, (quorum, signers) in quorums.items():
        note = _cosigned(Note(_text()).signed(_KEY, _BOARD.sign), *signers)
        expect = "unavailable" if "alone" in name else "success"
        found.append(
            case(
                f"a watched checkpoint: {name}",
                "watched",
                note.write().hex(),
                expect,
                witnesses=quorum,
            )
        )
    return [_filled(one) for one in found]


def _either(*numbers: int) -> Case:
    """Return a quorum of one of these witnesses."""
    return {"least": 1, "of": [_keys(number) for number in numbers]}


def _filled(one: Case) -> Case:
    """Add the fields; `tests/vectors/test_vectors.py` and the browser compute them again."""
    word, fields = outcome(one)
    if word != one["expect"]:
        raise ValueError(f"{one['name']}: {word} instead of {one['expect']}")
    return one | ({"fields": fields} if fields else {})
