"""Arbitrary bytes: every decoder accepts or refuses, without unexpected errors."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck.errors import Refused
from coatcheck.protocol import client
from coatcheck.protocol.agreement import read_signed, write_signed
from coatcheck.protocol.keys import Contact
from coatcheck.protocol.terms import read_terms
from coatcheck.protocol.ticket import Receipt, read_ticket, write_ticket
from coatcheck.protocol.wire.batches import Batch, Manifest
from coatcheck.protocol.wire.bulletins import Bulletin, Checkpoint, Heading, Posting, heading_size
from coatcheck.protocol.wire.messages import Answer, decode_answer, decode_letter
from coatcheck.protocol.wire.uploads import Upload
from support.plain_server import encode_answer
from support.rounds import SmallRound

SMALL = SmallRound()
ROUND = SMALL.round
CROWD = SMALL.crowd(3)
BATCH = SMALL.batch(CROWD)
MANIFEST = Batch.decode(BATCH, ROUND).manifest.encode()
BULLETIN = SMALL.server().answer(BATCH)
BOARD = SMALL.board()
BOARD.publish(BULLETIN, ROUND)
POSTING, _ = client.write(CROWD[0], b"hello", to=CROWD[1].keys.contact_raw, round_=ROUND)
RECEIPT = SMALL.shuffler().receive(CROWD[0].upload, now=1_000)
ADDRESS = CROWD[1].keys.address

DECODERS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "terms": (read_terms, ROUND.document),
    "signed terms": (read_signed, write_signed(SMALL.signed)),
    "ticket": (read_ticket, write_ticket(CROWD[0])),
    "contact": (lambda raw: Contact.decode(SMALL.suite, raw), CROWD[0].keys.contact_raw),
    "upload": (lambda raw: Upload.decode(raw, ROUND), CROWD[0].upload),
    "receipt": (Receipt.decode, RECEIPT),
    "batch": (lambda raw: Batch.decode(raw, ROUND), BATCH),
    "manifest": (lambda raw: Manifest.decode(raw, ROUND), MANIFEST),
    "heading": (Heading.decode, BULLETIN[: heading_size(2, 1)]),
    "bulletin": (lambda raw: Bulletin.decode(raw, ROUND), BULLETIN),
    "posting": (lambda raw: Posting.decode(raw, ROUND), POSTING),
    "checkpoint": (Checkpoint.decode, BOARD.checkpoint()),
    "answer": (lambda raw: decode_answer(raw, ROUND), encode_answer(Answer((1.0,)), size=128)),
    "letter": (lambda raw: decode_letter(raw, ROUND, recipient=ADDRESS), bytes(395)),
}


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_decoders_refuse_or_accept(name: str, data: st.DataObject) -> None:
    """Random bytes, and valid ones that were cut, grown, spliced and flipped."""
    decode, good = DECODERS[name]
    raw = bytearray(data.draw(st.one_of(st.just(good), st.binary(max_size=2 * len(good)))))
    for _ in range(data.draw(st.integers(0, 3))):
        start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(raw))] * 2)))
        raw[start:end] = data.draw(st.binary(max_size=max(8, end - start)))
    try:
        decode(bytes(raw))
    except Refused:
        return


@pytest.mark.parametrize("name", [name for name in DECODERS if name != "letter"])
def test_the_valid_examples_decode(name: str) -> None:
    """The starting points of the fuzz test are valid."""
    decode, good = DECODERS[name]
    decode(good)
