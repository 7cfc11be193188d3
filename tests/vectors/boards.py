"""Vectors of what is on the board: bulletins, ends, letters and checkpoints."""

import hashlib
from dataclasses import replace

from coatcheck.protocol.envelope import Purpose, binding
from coatcheck.protocol.log.merkle import Tree
from coatcheck.protocol.outcomes import FEW_REPORTS, FEW_TRAPS, LATE, TASK, abandonment
from coatcheck.protocol.wire.bulletins import (
    ANSWERED,
    REFUSED,
    ROUND_LEAF,
    TERMS_LEAF,
    Bulletin,
    Checkpoint,
    Posting,
)
from coatcheck.protocol.wire.messages import Answer, encode_letter
from coatcheck.protocol.wire.uploads import Tally
from support.plain_server import encode_answer
from vectors import kinds
from vectors.kinds import ALICE, BOARD, BOB, SERVER, SHUFFLER, Case, pairs
from vectors.writing import case, flip, seal, wrong


def boards() -> list[Case]:
    """A bulletin, a refused round, a letter and a checkpoint."""
    round_ = kinds.the_round()
    text = encode_answer(Answer((1.0,)), size=128)
    entries = []
    for group, row in enumerate(((ALICE, 12), (BOB, 13))):
        bound = binding(Purpose.ANSWER, digest=round_.digest, group=group)
        sealed = [(n, seal(text, to=n, bound=bound, number=180 + n)) for n in row]
        entries.append([pairs(n).address + body for n, body in sealed])
    sign = pairs(SERVER).signing.sign
    draft = Bulletin.compose(
        entries,
        outcome=ANSWERED,
        digest=round_.digest,
        tallies=(Tally(2), Tally(2)),
        roots=(bytes(32),),
    )
    raw = draft.signed(sign).encode()
    unsigned = replace(draft.heading, signature=bytes(64))
    turned = Bulletin(unsigned, tuple(group[::-1] for group in draft.entries)).encode()
    none = Bulletin.compose(
        [[], []],
        outcome=REFUSED,
        digest=round_.digest,
        tallies=(Tally(1), Tally(2)),
        roots=(bytes(32),),
        reason=FEW_REPORTS,
    )
    refused = none.signed(sign).encode()
    fields = {
        "outcome": 1,
        "reason": 0,
        "who": 255,
        "flawless": True,
        "root": draft.heading.root.hex(),
        "answer": text.hex(),
    }
    root = hashlib.sha256(b"").hexdigest()
    empty = {**fields, "outcome": 2, "reason": 1, "root": root, "answer": ""}
    changes = [
        ("a byte short", raw[:-1], "malformed"),
        ("an altered entry", flip(raw, len(raw) - 1), "malformed"),
        ("entries out of order", turned, "malformed"),
        ("another outcome", raw[:1] + b"\4" + raw[2:], "malformed"),
        ("another number of shufflers", flip(raw, 5), "malformed"),
        ("a spare byte that is not zero", flip(raw, 6), "malformed"),
        ("other terms", flip(raw, 8), "malformed"),
        ("an altered root of a batch", flip(raw, 40 + 72), "bad-signature"),
        ("an altered signature", flip(raw, 40 + 72 + 64), "bad-signature"),
        ("another reason", flip(raw, 2), "bad-signature"),
        ("a shuffler that the round does not have", flip(raw, 3), "malformed"),
        (
            "signed by the server for a shuffler",
            _ended(LATE, who=0, signer=SERVER),
            "bad-signature",
        ),
    ]
    return [
        case("answered", "bulletin", raw.hex(), fields=fields),
        case("refused", "bulletin", refused.hex(), fields=empty),
        *_ends(empty),
        *wrong("bulletin", "bulletin", *changes),
        *_letters(),
        *_checkpoints(),
        *_logged(),
    ]


def _logged() -> list[Case]:
    """A log that has the terms, and proofs that do not show it."""
    round_, sign = kinds.the_round(), pairs(BOARD).signing.sign
    tree = Tree([TERMS_LEAF + bytes(32), TERMS_LEAF + round_.digest, ROUND_LEAF + round_.digest])
    point = Checkpoint(len(tree), tree.root()).sign(sign).hex()

    def given(place: int, **more: object) -> dict[str, object]:
        path = [step.hex() for step in tree.inclusion(place)]
        return {"checkpoint": point, "place": place, "path": path, **more}

    forged = Checkpoint(len(tree), tree.root()).sign(pairs(SERVER).signing.sign).hex()
    return [
        case("logged", "logged", given(1), fields={"size": 3, "root": tree.root().hex()}),
        case("logged: other terms", "logged", given(0), "equivocation"),
        case("logged: not the terms", "logged", given(2), "equivocation"),
        case("logged: no path", "logged", given(1, path=[]), "equivocation"),
        case("logged: not the board", "logged", given(1, checkpoint=forged), "bad-signature"),
    ]


def _ended(reason: int, *, who: int, signer: int) -> bytes:
    word = abandonment(kinds.the_round(), reason=reason, signer=who)
    return word.signed(pairs(signer).signing.sign).encode()


def _ends(empty: dict[str, object]) -> list[Case]:
    """Return vectors of abandoned rounds and of headings with invalid counts."""
    round_, sign = kinds.the_round(), pairs(SERVER).signing.sign

    def refused(reason: int, *tallies: Tally) -> str:
        counts = (tallies, (bytes(32),))
        none = Bulletin.compose([[], []], REFUSED, round_.digest, *counts, reason=reason)
        return none.signed(sign).encode().hex()

    abandoned = {**empty, "outcome": 3}
    few = _ended(FEW_REPORTS, who=0, signer=SHUFFLER).hex()
    late = _ended(LATE, who=255, signer=SERVER).hex()
    task = _ended(TASK, who=255, signer=SERVER).hex()
    traps = _ended(FEW_TRAPS, who=0, signer=SHUFFLER).hex()
    bad: list[list[bytes]] = [[], []]
    short = Bulletin.compose(bad, ANSWERED, round_.digest, (Tally(0), Tally(0)), (bytes(32),))
    enough = (Tally(9), Tally(9))
    return [
        case("a shuffler gave up", "bulletin", few, fields={**abandoned, "who": 0}),
        case("few traps", "bulletin", traps, fields={**abandoned, "reason": 2, "who": 0}),
        case("no batch came", "bulletin", late, fields={**abandoned, "reason": 4}),
        case("the task", "bulletin", refused(3, *enough), fields={**empty, "reason": 3}),
        case(
            "abandoned for the task",
            "bulletin",
            task,
            fields={**abandoned, "reason": 3, "flawless": False},
        ),
        case(
            "answered below the minimum",
            "bulletin",
            short.signed(sign).encode().hex(),
            fields={**empty, "outcome": 1, "reason": 0, "flawless": False},
        ),
        case(
            "too few, and the counts say enough",
            "bulletin",
            refused(1, *enough),
            fields={**empty, "flawless": False},
        ),
    ]


def _letter(writer: int, reader: int, signer: int) -> bytes:
    round_, sender = kinds.the_round(), pairs(writer)
    sender.signing = pairs(signer).signing
    text = encode_letter(
        round_,
        sender=sender,
        recipient=pairs(reader).address,
        counter=3,
        body=b"at the corner",
    )
    bound = binding(Purpose.LETTER, digest=round_.digest, group=0)
    sealed = seal(text, to=BOB, bound=bound, number=220)
    return Posting(round_.digest, pairs(BOB).address, sealed).encode()


def _letters() -> list[Case]:
    raw = _letter(ALICE, BOB, ALICE)
    fields = {"sender": pairs(ALICE).address.hex(), "counter": 3, "body": b"at the corner".hex()}
    changes = [
        ("for somebody else", _letter(ALICE, 12, ALICE), "bad-signature"),
        ("signed by somebody else", _letter(ALICE, BOB, 12), "bad-signature"),
        ("altered", flip(raw, len(raw) - 1), "unsealable"),
        ("another round", flip(raw, 4), "malformed"),
        ("a byte short", raw[:-1], "malformed"),
    ]
    first = case("Alice to Bob", "posting", raw.hex(), fields=fields)
    return [first, *wrong("letter", "posting", *changes)]


def _checkpoints() -> list[Case]:
    point = Checkpoint(5, bytes(range(32)))
    raw = point.sign(pairs(BOARD).signing.sign)
    changes = [
        ("another size", flip(raw, 11), "bad-signature"),
        ("a byte short", raw[:-1], "malformed"),
        ("another version", flip(raw, 0), "malformed"),
    ]
    good = case(
        "five leaves", "checkpoint", raw.hex(), fields={"size": 5, "root": bytes(range(32)).hex()}
    )
    return [good, *wrong("checkpoint", "checkpoint", *changes)]
