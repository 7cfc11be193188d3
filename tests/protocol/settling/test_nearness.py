"""The nearness test by letter: both sides get the right bit, and letters reveal nothing else."""

import math
from typing import Any

import numpy as np
import pytest

from coatcheck.errors import BadKey, Misuse, Refused
from coatcheck.protocol.settling.nearness import (
    NAME_SIZE,
    POINT_SIZE,
    Blind,
    Nearness,
    hash_to_point,
    offsets,
    reply_size,
)
from coatcheck.protocol.settling.rules import Cell, Progress, cell_of, prf
from coatcheck.simulation.settling import run_together

AROUND = offsets(2.0, side=1.0, axes=2)
DIGEST = bytes(32)


def person(number: int, cell: Cell, candidates: list[int], *, seed: int = 0) -> Nearness:
    """Return a person in a cell, with numbered candidates."""
    return Nearness(
        Progress(cell=cell),
        address=bytes(15) + bytes((number,)),
        candidates=[bytes(15) + bytes((one,)) for one in candidates],
        secret=prf(seed.to_bytes(32, "big"), b"person", bytes((number,))),
        around=AROUND,
        digest=DIGEST,
    )


def test_both_learn_whether_they_are_near() -> None:
    """In a row of people each finds those at most one cell away, and both sides agree."""
    cells = [(n, n % 2) for n in range(6)]
    people = [person(n, cell, [m for m in range(6) if m != n]) for n, cell in enumerate(cells)]
    run_together(people)
    for n, one in enumerate(people):
        near = {m for m in range(6) if abs(m - n) == 1}
        assert {who[-1] for who in one.near} == near
        assert one.progress.dropped == {}


def test_which_cells_count_as_near() -> None:
    """Cells are near if their centres lie within nine tenths of the radius."""
    assert len(offsets(600.0, side=120.0, axes=2)) == 69
    assert all(x * x + y * y <= 1.8**2 for x, y in AROUND)
    assert reply_size(600.0, side=120.0, axes=2) == 2 + 32 + 16 * 69
    with pytest.raises(Misuse, match="smaller than the radius"):
        Nearness(
            Progress(cell=(0, 0)),
            address=b"",
            candidates=[],
            secret=b"",
            around=[],
            digest=DIGEST,
        )


def test_terms_with_many_axes_stall_nobody() -> None:
    """The search stops at the number of cells a letter could name; 11^40 would never end."""
    for axes in (3, 8, 40):
        with pytest.raises(Misuse, match="make cells larger"):
            offsets(6.0, side=1.0, axes=axes)
    assert offsets(1.0, side=1.0, axes=1000) == [(0,) * 1000]
    assert len(offsets(1.2, side=1.0, axes=100)) == 201


@pytest.mark.parametrize(
    ("place", "scale", "side"),
    [
        ((0.5, 1.0), (), 1e-10),
        ((0.5, -1.0), (), 1e-10),
        ((0.5, 1.0), (), 5e-324),
        ((math.nan, 1.0), (), 1.0),
        ((math.inf, 1.0), (), 1.0),
        ((2.0**31 - 7, 0.0), (), 1.0),
        ((0.5, 1.0), (1.0,), 1.0),
        ((0.5, 1.0), "ab", 1.0),
        ((0.5, 1.0), (1.0, None), 1.0),
    ],
)
def test_a_place_without_a_cell_is_refused(place: Any, scale: Any, side: float) -> None:
    """Terms come from strangers, while letters and tickets hold numbers of 32 bits."""
    with pytest.raises(Refused):
        cell_of(place, scale=scale, side=side)


def test_cells_at_the_range_limits_have_valid_neighbours() -> None:
    """This holds at the lower and at the upper limit."""
    ends = cell_of((2.0**31 - 8, -(2.0**31) + 8), scale=(), side=1.0)
    one = person(0, ends, [1])
    one._around = offsets(6.0, side=1.0, axes=2)
    for _ in range(2):
        ((_, body),) = one.speak()
    assert len(body) == reply_size(6.0, side=1.0, axes=2)


def test_blinds_commute_and_come_off() -> None:
    """Two blinds give the same point in either order, and each can be removed."""
    a, b, x = Blind(b"a"), Blind(b"b"), hash_to_point(b"here")
    assert a.blind(b.blind(x)) == b.blind(a.blind(x)) != hash_to_point(b"there")
    assert b.unblind(a.blind(b.blind(x))) == a.blind(x)
    assert len({a.blind(x), b.blind(x), x}) == 3
    with pytest.raises(BadKey):
        a.blind(b"\xff" * 32)


def letters(cells: tuple[Cell, Cell], seed: int) -> list[bytes]:
    """Return all letters between two candidates before the words."""
    one, other = person(0, cells[0], [1], seed=seed), person(1, cells[1], [0], seed=seed)
    written = []
    for _ in range(2):
        spoken = [(one, other, one.speak()), (other, one, other.speak())]
        for sender, reader, bodies in spoken:
            for _, body in bodies:
                reader.receive(sender.address, body)
                written.append(body)
    assert one.near == other.near == ()
    return written


def test_letters_of_two_far_candidates_do_not_depend_on_their_places() -> None:
    """For two pairs of far places the letters have the same numbers, sizes and distribution.

    No point or name occurs twice, in one exchange or over places and keys, so an onlooker who
    holds both replies can match none; under one person's keys all cells give different points; and
    all bits are even. 2 x 60 exchanges: one of the 32 bits of the first four bytes of the first
    point deviates by more than 5 sigma with a chance below 64 * 6e-7.
    """
    here, there = ((0, 0), (50, 50)), ((-7, 900), (31, -4))
    runs = {place: [letters(place, seed) for seed in range(60)] for place in (here, there)}
    shapes = {tuple(len(body) for body in run) for one in runs.values() for run in one}
    assert len(shapes) == 1
    for one in runs.values():
        parts = [part for run in one for body in run for part in cut(body[2:])]
        assert len(set(parts)) == len(parts)
        first = np.array([list(run[0][2:6]) for run in one], dtype=np.uint8)
        share = np.unpackbits(first, axis=1).mean(axis=0)
        assert np.all(np.abs(share - 0.5) < 5 * 0.5 / np.sqrt(len(one)))


def cut(content: bytes) -> list[bytes]:
    """Cut the content of a letter into its point and the names of cells."""
    names = range(POINT_SIZE, len(content), NAME_SIZE)
    return [content[:POINT_SIZE], *(content[at : at + NAME_SIZE] for at in names)]


def test_every_place_explains_every_first_letter() -> None:
    """For any place, some blind gives the same letter: the letter hides the place perfectly.

    Shown by the blind that does it: the one that takes the other place's point to this letter
    exists because the group has prime order; here with a known ratio between two points.
    """
    x = hash_to_point(b"place")
    ratio, own = Blind(b"ratio"), Blind(b"own")
    other = ratio.blind(x)
    letter = own.blind(other)  # a letter of somebody at `other` under the blind `own`
    # Under the blind own * ratio, somebody at `x` writes the very same letter.
    assert own.blind(ratio.blind(x)) == letter


def test_what_does_not_belong_here_is_dropped_and_counted() -> None:
    """A wrong sender, size, step or point, or a repeated or late letter, is dropped."""
    one, other = person(0, (0, 0), [1]), person(1, (1, 0), [0])
    ((_, good),) = other.speak()
    bad = [
        (b"?" * 16, good, "sender"),
        (other.address, b"", "size"),
        (other.address, good[:-1], "size"),
        (other.address, good[:1] + b"\x07" + good[2:], "step"),
        (other.address, good[:2] + b"\xff" * 32, "point"),
    ]
    for sender, body, reason in bad:
        before = one.progress.dropped.get(reason, 0)
        assert not one.receive(sender, body)
        assert one.progress.dropped[reason] == before + 1
    assert not one.notice(other.address, good)
    assert one.ready()
    one.speak()
    assert not one.ready()
    assert one.ready(late=True)
    assert one.receive(other.address, good)
    assert not one.receive(other.address, good)
    assert one.ready()
    one.speak()
    fresh = person(1, (1, 0), [0], seed=3)
    one.progress.points.clear()
    ((_, late),) = fresh.speak()
    assert not one.receive(other.address, late)
    assert one.progress.dropped["late"] == 1


def test_a_cheat_has_one_guess_per_letter() -> None:
    """A cheat that asks from a chosen cell learns that cell's bit, with one letter per guess."""
    honest = person(0, (5, 5), [1])
    bits = []
    for cell in ((5, 6), (9, 9)):
        cheat = person(1, cell, [0])
        again = person(0, (5, 5), [1])
        for _ in range(2):
            for sender, reader in ((again, cheat), (cheat, again)):
                for _, body in sender.speak():
                    reader.receive(sender.address, body)
        bits.append(cheat.near == (honest.address,))
    assert bits == [True, False]


def test_nobody_appears_near_by_passing_letters_back() -> None:
    """A cheat returns a person's own point and reply, alone or through a second cheat.

    The person's reply to their own point has their own cell in it, blinded as their own cells are.
    """
    for askers in ([1], [1, 2]):  # the cheat who replies is 1, the one who asks is the last
        victim = person(0, (5, 5), askers)
        asked = dict(victim.speak())
        for who in askers:
            victim.receive(bytes(15) + bytes((who,)), asked[bytes(15) + b"\1"])
        replies = dict(victim.speak())
        victim.receive(bytes(15) + b"\1", replies[bytes(15) + bytes((askers[-1],))])
        assert victim.progress.dropped == {}
        assert victim.near == ()
