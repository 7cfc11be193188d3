"""A batch in many partitions has the items, order and counts of a batch in one piece."""

import hashlib
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck.errors import BadSignature, Malformed, Refused
from coatcheck.protocol.log.merkle import Tree
from coatcheck.protocol.log.verification import verify_manifest
from coatcheck.protocol.shuffler import RANK_SIZE, Peeled, as_rows, gather, sift
from coatcheck.protocol.wire import batches as manifests
from coatcheck.protocol.wire.batches import PART, Batch, Manifest, Part, bits_of, capacity_of_part
from coatcheck.protocol.wire.uploads import REASONS, Tally
from coatcheck.stores.round_keys import RoundKey
from support.rounds import OPENS, SmallRound, released

CASCADE = SmallRound(shufflers=2, minimum=2)
CROWD = CASCADE.crowd(9)


def through(*, secret: bytes) -> list[Batch]:
    """Pass a crowd through both shufflers with one secret; return what each releases."""
    raw, batches = b"", []
    for hop in range(2):
        shuffler = CASCADE.shuffler(hop)
        shuffler.state.secret[:] = secret
        CASCADE.upload(CROWD, shuffler)
        if hop:
            shuffler.accept(raw)
        raw = released(shuffler)
        batches.append(Batch.decode(raw, CASCADE.round))
    return batches


def test_partitions_in_order_are_the_order_of_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many partitions are the bytes of one, cut; every partition begins with its rank bits."""
    secret = RoundKey(b"k" * 32).secret
    whole = through(secret=secret)
    monkeypatch.setattr(manifests, "_BITS", 1)
    cut = through(secret=secret)
    for hop, (one, many) in enumerate(zip(whole, cut, strict=True)):
        assert one.items == many.items
        assert one.tallies == many.tallies
        assert [len(group) for group in one.manifest.parts] == [1, 1]
        assert [len(group) for group in many.manifest.parts] == [16, 16]  # 18 items of 9 people
        assert one.manifest.root != many.manifest.root
        assert [tally.kept for tally in many.tallies] == [9 * (2 - hop)] * 2
    assert [tally.traps for tally in cut[1].tallies] == [9, 9]


def test_equal_items_in_different_partitions_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that is passed on in another partition or group is detected or stays there."""
    monkeypatch.setattr(manifests, "_BITS", 1)
    first = CASCADE.shuffler()
    CASCADE.upload(CROWD, first)
    batch = Batch.decode(released(first), CASCADE.round)
    parts = [[] for _ in range(2)]  # type: list[list[list[bytes]]]
    for group, items in batch.items_by_partition():
        parts[group].append(items)
    parts[0][15] = [*parts[0][15], parts[0][0][0] if parts[0][0] else parts[0][1][0]]
    received = replace(batch.tallies[0], received=batch.tallies[0].received + 1)
    double = Batch.compose(parts, (received, batch.tallies[1]), digest=CASCADE.round.digest)
    second = CASCADE.shuffler(1)
    CASCADE.upload(CROWD, second)
    second.accept(double.sign(CASCADE.roles.shufflers[0].signing.sign))
    tally = Batch.decode(second.release(), CASCADE.round).tallies[0]
    assert (tally.received, tally.kept, tally.traps) == (19, 9, 9)
    assert tally.dropped[REASONS.index("repeated")] == 1


ROW = RANK_SIZE + 4


@settings(max_examples=60, deadline=None)
@given(data=st.data(), bits=st.integers(0, 5))
def test_sifting_and_gathering_is_what_one_loop_does(data: st.DataObject, bits: int) -> None:
    """Any items, repeated, unopened or traps, in any parts, give the result of a plain loop."""
    made = st.tuples(st.integers(0, 40), st.one_of(st.none(), st.integers(0, 12)))
    given_ = data.draw(st.lists(made, max_size=60))
    # One rank has one item: it is a hash of the item's id.
    fixed: dict[int, int | None] = {}
    listed = [(rank, fixed.setdefault(rank, item)) for rank, item in given_]
    trapped = data.draw(st.sets(st.integers(0, 12)))

    def rank_of(n: int) -> bytes:
        return hashlib.sha256(b"rank%d" % n).digest()[:RANK_SIZE]

    def name_of(n: int) -> bytes:
        return hashlib.sha256(b"name%d" % n).digest()[:16]

    def peeled(part: list[tuple[int, int | None]]) -> Peeled:
        told = b"".join(rank_of(r) + (bytes(16) if i is None else name_of(i)) for r, i in part)
        items = sorted(rank_of(r) + b"%04d" % i for r, i in part if i is not None)
        return Peeled(as_rows(told, RANK_SIZE + 16), as_rows(b"".join(items), ROW))

    cuts = sorted(data.draw(st.lists(st.integers(0, len(listed)), max_size=3)))
    edges = [0, *cuts, len(listed)]
    parts = [peeled(listed[a:b]) for a, b in pairwise(edges)]
    traps = as_rows(b"".join(name_of(n) for n in trapped), 16)
    sifted = sift(
        Tally(len(listed)), [part.ranks for part in parts], traps=as_rows(b"".join(traps), 16)
    )
    dealt = zip(*(part.shares(bits) for part in parts), strict=True)
    found = [gather(pieces, out) for pieces, out in zip(dealt, sifted.shares(bits), strict=True)]

    kept, unpeeled, seen = [], 0, set()
    for rank, item in sorted(fixed.items(), key=lambda pair: rank_of(pair[0])):
        if item is None:
            unpeeled += 1
        elif item not in seen:
            seen.add(item)
            if item not in trapped:
                kept.append((rank_of(rank), b"%04d" % item))
    assert b"".join(found) == b"".join(item for _, item in kept)
    assert sifted.tally.kept == len(kept)
    assert sifted.tally.traps == len(seen & trapped)
    assert sifted.tally.dropped[REASONS.index("unpeeled")] == unpeeled
    for number, raw in enumerate(found):
        mine = [
            item for rank, item in kept if int.from_bytes(rank) >> (8 * RANK_SIZE - bits) == number
        ]
        assert raw == b"".join(mine)


def test_half_to_all_of_a_partition_is_full() -> None:
    """The number of partitions follows from count and size: 8,192 to 16,384 items up to 2^20."""
    for count in (PART + 1, 10**5, 10**6, 10**7, 2**32 - 1):
        for size in (100, 3000, 10**5):
            room = capacity_of_part(count, size)
            assert room / 2 < count / (1 << bits_of(count, size)) <= room
            assert room == PART or (count > 2**20 and room * size <= 2**26)
    assert {bits_of(count, 100) for count in range(PART + 1)} == {0}


def test_pieces_of_a_large_crowd_grow_as_it_does() -> None:
    """Each part deals one piece per partition: one piece per 128 to 512 items."""
    for bits in range(20, 33):
        parts = 1 << bits_of(1 << bits, 16)
        assert 128 <= 2**bits / parts**2 <= 512


def test_the_root_is_the_specs() -> None:
    """SPEC section 7, computed by hand: a leaf is group, count and hash."""
    parts = [[Part(2, b"a" * 32)], [Part(1, b"b" * 32)]]
    made = Manifest.compose(parts, (Tally(2), Tally(1)), digest=bytes(32), earlier=[b"e" * 32])
    leaves = [b"\0" + bytes((0, 0, 0, 2)) + b"a" * 32, b"\1" + bytes((0, 0, 0, 1)) + b"b" * 32]
    assert made.roots == (b"e" * 32, Tree(leaves).root())
    assert made.hop == 1


def test_a_manifest_of_another_hop_or_signer_is_refused() -> None:
    """The place in the cascade and the signature must match; a partition has a largest size."""
    round_, sign = CASCADE.round, CASCADE.roles.shufflers[0].signing.sign
    parts = [[Part(2, bytes(32))], [Part(1, bytes(32))]]
    made = Manifest.compose(parts, (Tally(2), Tally(1)), digest=round_.digest)
    raw = made.sign(sign)
    assert verify_manifest(raw, round_, hop=0).parts == made.parts
    with pytest.raises(Malformed, match="hop 0"):
        verify_manifest(raw, round_, hop=1)
    with pytest.raises(BadSignature):
        verify_manifest(made.sign(CASCADE.roles.server.signing.sign), round_, hop=0)
    crowded = [[Part(2 * PART + 1, bytes(32)), *[Part(1, bytes(32))] * 3], parts[1]]
    large = Manifest.compose(crowded, (Tally(2 * PART + 4), Tally(1)), digest=round_.digest)
    with pytest.raises(Malformed, match="more than"):
        verify_manifest(large.sign(sign), round_, hop=0)


def test_the_server_opens_only_partitions_of_the_accepted_manifest() -> None:
    """The hash is checked at every use, not only on arrival."""
    small = SmallRound()
    raw = small.batch(small.crowd(2))
    server = small.server()
    server.accept(raw)
    with pytest.raises(Malformed, match="hash"):
        server.answer(raw[:-1] + bytes([raw[-1] ^ 1]))
    assert server.answer(raw)


def test_a_round_that_falls_short_leaves_no_batch() -> None:
    """Too few items after sifting: refused before any signature, and everything stays."""
    shuffler = CASCADE.shuffler()
    junk = [ticket.upload[:52] + bytes(len(ticket.upload) - 52) for ticket in CROWD]
    for raw in junk:
        shuffler.receive(raw, now=OPENS)
    with pytest.raises(Refused, match="fewer"):
        released(shuffler)
    assert not shuffler.state.batch
    assert len(shuffler.state.held) == len(CROWD)
    assert np.any(np.frombuffer(bytes(shuffler.state.secret), np.uint8))
