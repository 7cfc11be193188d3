"""The board: append-only, and detected when it equivocates."""

from dataclasses import replace

import pytest

from coatcheck.errors import BadKey, BadSignature, Equivocation, Malformed, Misuse, Refused
from coatcheck.protocol import client
from coatcheck.protocol.board import Board, LetterLimitReached
from coatcheck.protocol.log.merkle import MemoryKeyValueStore, Tree, check_inclusion
from coatcheck.protocol.log.verification import (
    check_logged,
    follow,
    verify_bulletin,
    verify_entry,
    verify_heading,
)
from coatcheck.protocol.wire.bulletins import (
    KEY_LIST_LIMIT,
    KEYS_LEAF,
    LETTER_LEAF,
    PERIOD,
    ROUND_LEAF,
    TERMS_LEAF,
    Bulletin,
    Checkpoint,
    KeyList,
)
from support.rounds import SmallRound, check

SMALL = SmallRound()
CROWD = SMALL.crowd(5)
BULLETIN = SMALL.server().answer(SMALL.batch(CROWD))
OTHER = SMALL.server().answer(SMALL.batch(CROWD[:4]))
KEY = SMALL.roles.board.signing.public_raw.hex()


def letter(number: int) -> bytes:
    """Return a letter from the first person to the second."""
    ticket, to = CROWD[0], CROWD[1].keys.contact_raw
    return client.write(ticket, bytes([number]), to=to, round_=SMALL.round)[0]


def shown(*letters: bytes, bulletin: bytes = BULLETIN) -> Board:
    """Return a board that shows a bulletin and letters."""
    board = SMALL.board()
    board.publish(bulletin, SMALL.round)
    for raw in letters:
        board.post(raw, SMALL.round)
    return board


def test_a_bulletin_is_published_once() -> None:
    """The same bulletin again has the same place; another one for the round is refused."""
    board = shown()
    assert board.publish(BULLETIN, SMALL.round) == 1
    with pytest.raises(Refused, match="stays"):
        board.publish(OTHER, SMALL.round)
    assert board.bulletin(SMALL.round.digest) == BULLETIN


def test_nothing_is_shown_of_a_round_whose_terms_are_not_in_the_log() -> None:
    """Terms are logged once, and a checkpoint proves it."""
    board = Board(sign=SMALL.roles.board.signing.sign, check=check)
    with pytest.raises(Refused, match="not in the log"):
        board.publish(BULLETIN, SMALL.round)
    morning = SmallRound(name="morning")
    assert [board.log_terms(one.round) for one in (morning, SMALL, morning)] == [0, 1, 0]
    assert board.publish(BULLETIN, SMALL.round) == 2
    point = follow(board.checkpoint(), board=KEY, before=None)
    check_logged(SMALL.round, point=point, place=1, path=board.inclusion(1))
    for wrong in (morning.round, SmallRound(name="evening").round):
        with pytest.raises(Equivocation):
            check_logged(wrong, point=point, place=1, path=board.inclusion(1))


def key_list(keys: bytes, *, until: int = 20_000 * PERIOD) -> bytes:
    """Return a key list of the first shuffler's gateway, as the board logs it."""
    signing = SMALL.roles.shufflers[0].signing
    signature = signing.sign(KeyList.signed_part(keys, until))
    return KeyList(signing.public_raw, until, signature, keys).encode()


def test_the_log_has_one_key_list_of_a_role_and_a_day() -> None:
    """The same list again has the same place; another one of the day is refused, also later."""
    board = shown()
    first, second = key_list(b"one"), key_list(b"two")
    assert [board.log_keys(raw) for raw in (first, first)] == [2, 2]
    with pytest.raises(Refused, match="another key list of this role and day"):
        board.log_keys(second)
    assert board.log_keys(key_list(b"two", until=20_001 * PERIOD)) == 3
    with pytest.raises(Refused, match="another key list"):
        board.log_keys(second)
    point = Checkpoint.decode(board.checkpoint())
    path = board.inclusion(2, size=point.size)
    check_inclusion(KEYS_LEAF + first, place=2, size=point.size, root=point.root, path=path)
    assert len(board) == 4


@pytest.mark.parametrize("at", [0, 3, 4, 36, 44, 108])
def test_a_key_list_that_was_altered_is_not_logged(at: int) -> None:
    """Every byte is signed or part of the layout."""
    raw = bytearray(key_list(b"keys"))
    raw[at] ^= 1
    board = shown()
    with pytest.raises((Malformed, BadSignature, BadKey)):
        board.log_keys(bytes(raw))
    with pytest.raises(Malformed):
        board.log_keys(key_list(b""))
    with pytest.raises(Malformed):
        board.log_keys(key_list(b"k" * KEY_LIST_LIMIT))
    assert len(board) == 2


def test_an_address_has_a_limit_of_letters() -> None:
    """A letter over the limit is refused and a repeated one known; a restart changes nothing."""
    first, second, more = letter(1), letter(2), letter(3)
    key_values = MemoryKeyValueStore()
    board = SMALL.board(key_values)
    board.publish(BULLETIN, SMALL.round)
    board.letters_each = 2
    assert [board.post(raw, SMALL.round) for raw in (first, second, first)] == [2, 3, 2]
    with pytest.raises(LetterLimitReached):
        board.post(more, SMALL.round)
    ticket, to = CROWD[1], CROWD[0].keys.contact_raw
    back = client.write(ticket, b"back", to=to, round_=SMALL.round)[0]
    assert board.post(back, SMALL.round) == 4
    board.save()
    again = Board(
        sign=SMALL.roles.board.signing.sign, check=check, letters_each=1, store=key_values
    )
    assert again.letters(SMALL.round.digest) == [first, second, back]
    with pytest.raises(LetterLimitReached):
        again.post(more, SMALL.round)


def test_only_the_servers_bulletin_is_shown() -> None:
    """A changed byte in heading or entries keeps it off the board."""
    board = SMALL.board()
    for place in (5, 40, 100, len(BULLETIN) - 1):
        raw = bytearray(BULLETIN)
        raw[place] ^= 1
        with pytest.raises((Malformed, BadSignature)):
            board.publish(bytes(raw), SMALL.round)
    with pytest.raises(Malformed):
        board.publish(BULLETIN + b"\0", SMALL.round)
    with pytest.raises(Misuse):
        board.bulletin(SMALL.round.digest)


def test_unsorted_entries_are_refused() -> None:
    """Unsorted entries are refused even if the server signed them."""
    bulletin = Bulletin.decode(BULLETIN, SMALL.round)
    turned = Bulletin(bulletin.heading, tuple(group[::-1] for group in bulletin.entries))
    with pytest.raises(Malformed, match="root"):
        verify_bulletin(turned.encode(), SMALL.round)
    sincere = Bulletin(replace(turned.heading, root=turned.tree.root()), turned.entries)
    signed = sincere.signed(SMALL.roles.server.signing.sign)
    with pytest.raises(Malformed, match="sorted"):
        verify_bulletin(signed.encode(), SMALL.round)


def test_a_reader_checks_heading_and_single_entry() -> None:
    """A light reader needs one entry, its path, the heading and a checkpoint."""
    board = shown(letter(1))
    point = follow(board.checkpoint(), board=KEY, before=None)
    signed = Bulletin.decode(BULLETIN, SMALL.round).heading
    place = board.place(SMALL.round.digest)
    path = board.inclusion(place, size=point.size)
    heading = verify_heading(signed, SMALL.round, point=point, place=place, path=path)
    mine = CROWD[3]
    entry, at, steps = board.entry(SMALL.round.digest, group=mine.group, address=mine.keys.address)
    found = verify_entry(entry, group=mine.group, heading=heading, place=at, path=steps)
    assert client.open_entry(mine, found).values
    with pytest.raises(Equivocation):
        verify_entry(entry[:-1] + b"\0", group=mine.group, heading=heading, place=at, path=steps)
    with pytest.raises(Malformed, match="size"):
        verify_entry(entry[:-1], group=mine.group, heading=heading, place=at, path=steps)
    with pytest.raises(Malformed, match="another person"):
        client.open_entry(CROWD[1], found)
    with pytest.raises(Malformed, match="another person"):
        client.open_entry(mine, replace(found, group=1 - mine.group))


def test_only_the_servers_signature_makes_a_bulletin_verified() -> None:
    """A well-formed bulletin with another party's signature is refused."""
    bulletin = Bulletin.decode(BULLETIN, SMALL.round)
    stranger = SmallRound(seed=99).roles.server.signing
    forged = bulletin.signed(stranger.sign)
    with pytest.raises(BadSignature):
        verify_bulletin(forged.encode(), SMALL.round)
    assert verify_bulletin(BULLETIN, SMALL.round).round == SMALL.round


def test_a_heading_must_be_signed_for_this_round_and_logged() -> None:
    """The signature, the round and the log are checked separately."""
    board = shown(letter(1))
    point = follow(board.checkpoint(), board=KEY, before=None)
    place = board.place(SMALL.round.digest)
    path = board.inclusion(place, size=point.size)
    heading = Bulletin.decode(BULLETIN, SMALL.round).heading
    signature = SmallRound(seed=99).roles.server.signing.sign(heading.signed_part())
    forged = replace(heading, signature=signature)
    with pytest.raises(BadSignature):
        verify_heading(forged, SMALL.round, point=point, place=place, path=path)
    with pytest.raises(Equivocation, match="not under the signed root"):
        verify_heading(heading, SMALL.round, point=point, place=place, path=[bytes(32), *path[1:]])
    morning = SmallRound(name="morning")
    raw = morning.server().answer(morning.batch(morning.crowd(2)))
    other = Bulletin.decode(raw, morning.round).heading
    with pytest.raises(Equivocation, match="other terms"):
        verify_heading(other, SMALL.round, point=point, place=place, path=path)


def test_a_growing_log_is_consistent() -> None:
    """A reader that follows from checkpoint to checkpoint accepts an honest board."""
    board, before = SMALL.board(), None
    board.publish(BULLETIN, SMALL.round)
    for number in range(12):
        size = before.size if before else 0
        before = follow(board.checkpoint(), board=KEY, before=before, path=board.consistency(size))
        board.post(letter(number), SMALL.round)
    assert before is not None
    assert before.size == 13


def test_equivocation_is_caught() -> None:
    """A board that shows two people different bulletins or letters cannot connect the two logs."""
    texts = [letter(n) for n in range(4)]
    honest = shown(*texts)
    other = shown(*[letter(n) for n in range(4)])  # fresh seals: other letters
    split = shown(*texts, bulletin=OTHER)
    for liar in (other, split):
        mine = follow(honest.checkpoint(), board=KEY, before=None)
        theirs = follow(liar.checkpoint(), board=KEY, before=None)
        assert mine.size == theirs.size
        for board in (honest, liar):
            with pytest.raises(Equivocation):
                follow(liar.checkpoint(), board=KEY, before=mine, path=board.consistency(mine.size))
        liar.post(letter(9), SMALL.round)
        for path in (liar.consistency(mine.size), honest.consistency(2), []):
            with pytest.raises(Equivocation):
                follow(liar.checkpoint(), board=KEY, before=mine, path=path)


def test_a_board_that_shrinks_is_caught() -> None:
    """A smaller log is refused like a different one."""
    long, short = shown(letter(1), letter(2)), shown(letter(1))
    point = follow(long.checkpoint(), board=KEY, before=None)
    with pytest.raises(Equivocation, match="shorter log"):
        follow(short.checkpoint(), board=KEY, before=point)


def test_checkpoints_are_signed() -> None:
    """A checkpoint that is altered or signed by another key is refused."""
    raw = shown().checkpoint()
    with pytest.raises(BadSignature):
        follow(raw, board=SMALL.roles.server.signing.public_raw.hex(), before=None)
    altered = Checkpoint.decode(raw)
    grown = replace(altered, size=altered.size + 1)
    with pytest.raises(BadSignature):
        follow(grown.encode(), board=KEY, before=None)
    for wrong in (raw[:-1], raw + b"\0", b"\2" + raw[1:]):
        with pytest.raises(Malformed):
            follow(wrong, board=KEY, before=None)


def test_letters_go_to_addresses_of_the_round() -> None:
    """Foreign addresses, other sizes and other rounds are refused; a retry is one letter."""
    board = shown()
    raw = letter(1)
    assert board.post(raw, SMALL.round) == board.post(raw, SMALL.round) == 2
    assert board.letters(SMALL.round.digest) == [raw]
    assert board.letters(SMALL.round.digest, since=1) == []
    stranger = raw[:36] + bytes(16) + raw[52:]
    with pytest.raises(Refused, match="no such address"):
        board.post(stranger, SMALL.round)
    for wrong in (raw[:-1], raw + b"\0", b"\2" + raw[1:], raw[:4] + bytes(32) + raw[36:]):
        with pytest.raises(Malformed):
            board.post(wrong, SMALL.round)
    with pytest.raises(Misuse, match="no outcome"):
        SMALL.board().post(raw, SMALL.round)


def test_a_board_can_restart_from_its_store_at_any_time() -> None:
    """A restarted board signs the same root, has every place and proof, and goes on from there."""
    texts = [letter(n % 256) for n in range(300)]
    key_values, tree = MemoryKeyValueStore(), Tree([TERMS_LEAF + SMALL.round.digest])
    board = SMALL.board(key_values)
    board.publish(BULLETIN, SMALL.round)
    tree.append(ROUND_LEAF + board.heading(SMALL.round.digest))
    for number, raw in enumerate(texts):
        assert board.post(raw, SMALL.round) == tree.append(LETTER_LEAF + raw)
        if number % 51 == 0:
            board.save()
            board = SMALL.board(key_values)
    point = Checkpoint.decode(board.checkpoint())
    assert (point.size, point.root) == (len(tree), tree.root())
    for size in (1, 2, 255, 256, 257, 302):
        assert board.consistency(size) == tree.consistency(size)
        assert board.inclusion(size - 1) == tree.inclusion(size - 1)
        assert board.root(size) == tree.root(size)
    assert board.letters(SMALL.round.digest, since=290, most=3) == texts[290:293]
    address = CROWD[1].keys.address
    assert board.letters_to(address, SMALL.round.digest, since=2, most=2) == [
        (2, texts[2]),
        (3, texts[3]),
    ]
    assert board.letters_to(address, SMALL.round.digest, since=9, until=10) == [(9, texts[9])]
    assert board.leaves(0, 2) == [TERMS_LEAF + SMALL.round.digest, board.leaves(1, 2)[0]]
    assert board.leaves(300, 999) == [LETTER_LEAF + raw for raw in texts[298:]]
