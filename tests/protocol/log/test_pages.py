"""A bulletin in a key-value store: pages by address, tiles of its tree; rejected ones vanish."""

import io
import os
from dataclasses import replace

import pytest

from coatcheck.errors import Malformed, Refused
from coatcheck.protocol.board import Board
from coatcheck.protocol.log.merkle import MemoryKeyValueStore
from coatcheck.protocol.wire.bulletins import ANSWERED, Bulletin
from coatcheck.protocol.wire.uploads import Tally, tree_of
from support.rounds import SmallRound

SMALL = SmallRound()
SIZES = (300, 70)


def bulletin(*, sizes: tuple[int, int] = SIZES) -> Bulletin:
    """Return a bulletin of random entries, signed by the server."""
    entries = [
        [os.urandom(SMALL.round.entry_size(group)) for _ in range(size)]
        for group, size in enumerate(sizes)
    ]
    tallies = [Tally(size) for size in sizes]
    made = Bulletin.compose(entries, ANSWERED, SMALL.round.digest, tallies, roots=[bytes(32)])
    return made.signed(SMALL.roles.server.signing.sign)


MADE = bulletin()
RAW = MADE.encode()


def shown(key_values: MemoryKeyValueStore | None = None) -> Board:
    """Return a board that shows the bulletin."""
    board = SMALL.board(key_values)
    board.publish(RAW, SMALL.round)
    return board


def test_every_entry_is_found_with_the_path_of_one_whole_tree() -> None:
    """Pages and tiles give the same as the whole bulletin; an absent address is not found."""
    board, digest = shown(), SMALL.round.digest
    for group, entries in enumerate(MADE.entries):
        for number, entry in enumerate(entries):
            found, place, path = board.entry(digest, group=group, address=entry[:16])
            assert (found, place) == (entry, number + sum(SIZES[:group]))
            assert path == MADE.tree.inclusion(place)
            for other in (1 - group, 7):
                with pytest.raises(Refused, match="no such address"):
                    board.entry(digest, group=other, address=entry[:16])
        for stranger in (bytes(16), b"\xff" * 16, os.urandom(16)):
            with pytest.raises(Refused, match="no such address"):
                board.entry(digest, group=group, address=stranger)


def test_any_range_of_a_bulletin_can_be_read() -> None:
    """Ranges may cross the heading, pages and groups, and reach beyond the end."""
    board, digest, size = shown(), SMALL.round.digest, len(RAW)
    assert (board.bulletin(digest), board.length(digest)) == (RAW, size)
    cuts = sorted({0, 1, 207, 208, 209, 500, size // 2, size - 1, size, size + 9})
    for start in cuts:
        for end in cuts:
            assert board.part(digest, start, end) == RAW[start:end]


def test_what_is_refused_leaves_nothing_in_the_key_value_store() -> None:
    """Short, long, unsorted or altered entries store nothing, and a good bulletin still follows."""
    key_values = MemoryKeyValueStore()
    board = SMALL.board(key_values)
    before = key_values.items()
    head = len(RAW) - sum(len(entry) for group in MADE.entries for entry in group)
    width = len(MADE.entries[0][0])
    turned = RAW[:head] + RAW[head + width : head + 2 * width] + RAW[head : head + width]
    altered = bytearray(RAW)
    altered[-1] ^= 1
    for wrong in (RAW[:-1], RAW + b"\0", turned + RAW[head + 2 * width :], bytes(altered)):
        with pytest.raises(Malformed):
            board.publish(wrong, SMALL.round)
        assert key_values.items() == before
    assert board.publish(RAW, SMALL.round) == 1


@pytest.mark.parametrize("place", [5, 63, 127])
def test_no_address_is_twice_on_a_bulletin(place: int) -> None:
    """This holds across the border of two pages too, whoever signed the bulletin."""
    entries = sorted(os.urandom(SMALL.round.entry_size(0)) for _ in range(150))
    entries[place + 1] = entries[place][:16] + b"\xff" * (len(entries[0]) - 16)
    tallies = (Tally(150), Tally(70))
    groups = [entries, list(MADE.entries[1])]
    made = Bulletin.compose(groups, ANSWERED, SMALL.round.digest, tallies, roots=[bytes(32)])
    raw = made.signed(SMALL.roles.server.signing.sign).encode()
    with pytest.raises(Malformed, match="not sorted"):
        SMALL.board().publish(raw, SMALL.round)


@pytest.mark.parametrize("place", [0, 63])
def test_the_order_holds_between_pages_too(place: int) -> None:
    """Two neighbours in the wrong order are refused even under a signed root."""
    entries = list(MADE.entries[0])
    entries[place], entries[place + 1] = entries[place + 1], entries[place]
    made = replace(MADE, entries=(tuple(entries), MADE.entries[1]))
    made = replace(made, heading=replace(made.heading, root=tree_of(made.entries).root()))
    raw = made.signed(SMALL.roles.server.signing.sign).encode()
    with pytest.raises(Malformed, match="not sorted"):
        SMALL.board().publish(raw, SMALL.round)


def test_the_same_heading_with_other_entries_is_another_outcome() -> None:
    """A longer bulletin is another one too; the same bytes again are not."""
    board = shown()
    altered = bytearray(RAW)
    altered[-1] ^= 1
    for other in (bytes(altered), RAW[:-1], RAW + b"\0", bulletin().encode()):
        with pytest.raises(Refused, match="another outcome"):
            board.publish(other, SMALL.round)
    assert board.publish(RAW, SMALL.round) == 1


def test_a_staged_bulletin_is_invisible() -> None:
    """Neither the log nor any request has it before it is published."""
    board = SMALL.board()
    heading = board.stage(io.BytesIO(RAW), SMALL.round)
    assert len(board) == 1
    record = board.record(SMALL.round.digest)
    assert record is not None
    assert record.outcome is None
    assert board.show(heading, SMALL.round) == 1
