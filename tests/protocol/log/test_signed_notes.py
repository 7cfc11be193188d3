"""Signed notes and witnesses: C2SP's examples, real checkpoints, a recorded trace, our own logs."""

import base64
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck.errors import BadSignature, Equivocation, Malformed, Refused
from coatcheck.protocol.keys import SigningKey
from coatcheck.protocol.log.merkle import Tree
from coatcheck.protocol.log.signed_notes import (
    COSIGNATURE,
    Behind,
    LogCheckpoint,
    Note,
    NoteKey,
    Submission,
    Unknown,
    examine,
    read_lines,
    signature_lines,
)
from coatcheck.protocol.log.verification import board_note_key, follow_watched
from coatcheck.protocol.log.witness_policy import Quorum
from support.published import published

LOG, WITNESS = SigningKey(bytes(range(32))), SigningKey(bytes(range(1, 33)))
LOG_KEY = NoteKey("example.com/log", LOG.public_raw)
WITNESS_KEY = NoteKey("example.com/witness", WITNESS.public_raw, COSIGNATURE)
TREE = Tree(bytes((n,)) for n in range(9))


def checkpoint(size: int, *, tree: Tree = TREE) -> Note:
    """Return the log's checkpoint over its first leaves."""
    text = LogCheckpoint("example.com/log", size, tree.root(size)).write()
    return Note(text).signed(LOG_KEY, LOG.sign)


def sent(old: int, new: int) -> bytes:
    """Return the submission from one size to another."""
    path = TREE.consistency(old, new) if old else []
    return Submission(old, tuple(path), checkpoint(new)).write()


def test_the_examples_of_c2sp_read_and_verify() -> None:
    """The note with a key verifies; the others decode and encode to the same bytes."""
    given_ = published("c2sp-examples.json")
    example = given_["signed_note"]
    key = NoteKey.read(example["vkey"])
    assert key.text == example["vkey"]
    note = Note.read(example["note"].encode())
    assert set(note.signers([key])) == {key}
    assert note.write() == example["note"].encode()
    with pytest.raises(BadSignature):
        replace(note, text=note.text + "x\n").signers([key])
    formats = given_["format_only"]
    for name in ("signed_note_unverifiable", "checkpoint", "cosigned_checkpoint"):
        raw = formats[name].encode()
        assert Note.read(raw).write() == raw
    point = LogCheckpoint.read(Note.read(formats["cosigned_checkpoint"].encode()).text)
    assert point.size == 20852163
    assert point.write().encode() in formats["cosignature_v1_message"].encode()
    request = formats["add_checkpoint_request"].encode()
    assert Submission.read(request).write() == request
    lines = formats["add_checkpoint_response"].encode()
    assert signature_lines(read_lines(lines)) == lines


def test_real_checkpoints_verify_under_their_keys() -> None:
    """Notes of other logs and witnesses verify under every key of a supported type."""
    found = 0
    for one in published("real-checkpoints.json")["vectors"]:
        keys = []
        for text in one["vkeys"]:
            try:
                keys.append(NoteKey.read(text))
            except Malformed:
                assert base64.b64decode(text.split("+", 2)[2])[0] not in {1, 4}
        note = Note.read(one["note"].encode())
        signers = note.signers(keys)
        assert set(signers) == set(keys)
        assert all((time > 0) == (key.kind == COSIGNATURE) for key, time in signers.items())
        LogCheckpoint.read(note.text)
        found += len(keys)
    assert found >= 6


def test_a_recorded_trace_has_the_recorded_answers() -> None:
    """Answers match those of another witness, except the newer status for an unknown log."""
    trace = published("litewitness-trace.json")
    origin = trace["log_key_name_and_origin"]
    logs = {origin: NoteKey(origin, bytes.fromhex(trace["log_public_key"]))}
    last: dict[str, LogCheckpoint] = {}
    for step in trace["steps"]:
        status, told = 200, ""
        try:
            accepted = examine(step["body"].encode(), logs=logs, last=last)
            last[origin] = accepted.checkpoint
        except Unknown:
            status = 403  # today's specification: 404
        except BadSignature:
            status = 403
        except Behind as behind:
            status, told = 409, f"{behind.size}\n"
        except Equivocation:
            status = 422
        assert status == step["status"]
        assert status != 409 or f"body == {told!r}".replace("'", '"') == step["assert"]


def signed_text(point: LogCheckpoint) -> Note:
    """Sign any checkpoint text with the log's key."""
    return Note(point.write()).signed(LOG_KEY, LOG.sign)


def test_a_boards_note_is_for_its_own_log() -> None:
    """A note under the name of another log counts as not signed by the board."""
    key = board_note_key(LOG.public_raw.hex())
    for origin, good in ((key.name, True), ("example.com/log", False)):
        point = LogCheckpoint(origin, 3, TREE.root(3))
        raw = Note(point.write()).signed(key, LOG.sign).write()
        asked = {"board": LOG.public_raw.hex(), "witnesses": Quorum(), "before": None}
        if good:
            assert follow_watched(raw, **asked).size == 3  # type: ignore[arg-type] # plain
            continue
        with pytest.raises(BadSignature, match="not signed by the board"):
            follow_watched(raw, **asked)  # type: ignore[arg-type] # plain


def test_a_witness_follows_a_log_that_grows() -> None:
    """Growth is accepted; a fork, a shrunken log, and missing or extra proofs are refused."""
    logs, last = {"example.com/log": LOG_KEY}, dict[str, LogCheckpoint]()
    for old, new in ((0, 3), (3, 3), (3, 8), (8, 9)):
        accepted = examine(sent(old, new), logs=logs, last=last)
        assert accepted.checkpoint.size == new
        last[accepted.checkpoint.origin] = accepted.checkpoint
        with pytest.raises(Behind) as behind:
            examine(sent(1, 9), logs=logs, last=last)
        assert behind.value.size == new
    last["example.com/log"] = LogCheckpoint("example.com/log", 3, TREE.root(3))
    other = Tree(bytes((n + 1,)) for n in range(9))
    path = tuple(TREE.consistency(3, 9))
    wrong = [
        Submission(3, path, checkpoint(9, tree=other)),
        Submission(3, path[:-1], checkpoint(9)),
        Submission(3, (*path, bytes(32)), checkpoint(9)),
        Submission(3, (), checkpoint(3, tree=other)),
    ]
    for one in wrong:
        with pytest.raises(Equivocation):
            examine(one.write(), logs=logs, last=last)
    for one, kind in (
        (Submission(0, (bytes(32),), checkpoint(3)), Equivocation),
        (
            Submission(0, (), signed_text(LogCheckpoint("example.com/log", 0, bytes(32)))),
            Equivocation,
        ),
        (Submission(9, (), checkpoint(3)), Malformed),
    ):
        with pytest.raises(kind):
            examine(one.write(), logs=logs, last={})
    with pytest.raises(Unknown):
        examine(sent(0, 3), logs={}, last={})
    stranger = NoteKey("example.com/log", WITNESS.public_raw)
    with pytest.raises(BadSignature):
        examine(sent(0, 3), logs={"example.com/log": stranger}, last={})


def test_a_cosignature_is_bound_to_text_and_time() -> None:
    """A cosignature verifies with its time; under another key, text or time it does not."""
    note = checkpoint(5).signed(WITNESS_KEY, WITNESS.sign, time=1_700_000_000)
    assert note.signers([LOG_KEY, WITNESS_KEY]) == {LOG_KEY: 0, WITNESS_KEY: 1_700_000_000}
    assert Note.read(note.write()) == note
    (name, number, made) = note.signatures[1]
    for changed in (
        (name, number, bytes(7) + b"\1" + made[8:]),
        (name, number, made[:-1] + bytes((made[-1] ^ 1,))),
        (name, number, made[8:]),
    ):
        with pytest.raises(BadSignature):
            Note(note.text, (changed,)).signers([WITNESS_KEY])
    assert not Note(note.text, ((name, bytes(4), made),)).signers([WITNESS_KEY])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no key",
        "a+00000000+" + base64.b64encode(b"\1" + bytes(32)).decode(),
        LOG_KEY.text.replace("example", "other"),
        LOG_KEY.text[:-4],
        f"{LOG_KEY.name}+{LOG_KEY.id.hex()}+{base64.b64encode(bytes((9,)) + bytes(32)).decode()}",
    ],
)
def test_a_malformed_key_is_refused(text: str) -> None:
    """The key id must match the name and the bytes."""
    with pytest.raises(Malformed):
        NoteKey.read(text)


GOOD = sent(3, 9)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_submission_is_accepted_or_refused(data: st.DataObject) -> None:
    """Valid submissions, cut, grown or spliced, and random bytes, raise nothing unexpected."""
    raw = bytearray(data.draw(st.one_of(st.just(GOOD), st.binary(max_size=300))))
    for _ in range(data.draw(st.integers(0, 3))):
        start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(raw))] * 2)))
        raw[start:end] = data.draw(st.binary(max_size=20))
    last = {"example.com/log": LogCheckpoint("example.com/log", 3, TREE.root(3))}
    try:
        accepted = examine(bytes(raw), logs={"example.com/log": LOG_KEY}, last=last)
    except Refused:
        return
    assert accepted.checkpoint.root == TREE.root(accepted.checkpoint.size)
