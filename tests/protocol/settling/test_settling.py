"""Settling: one partner each, known to both, and letters that look the same in every case."""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from coatcheck.errors import Misuse, Refused
from coatcheck.protocol.drafting import read_draft
from coatcheck.protocol.settling.exchange import prf
from coatcheck.protocol.settling.rings import Rings, cell_of
from coatcheck.protocol.settling.rules import (
    HERE,
    NOTICES,
    TALK,
    WOULD,
    YOURS,
    Kind,
    Progress,
    Settling,
    Step,
    schedule,
)
from support.settling import DIGEST, LETTER_SIZE, RINGS, make_people, run_together, settle

ASKS = (3, 2)
STEPS = schedule(ASKS)
People = tuple[list[Settling], list[Settling]]


def crowd(seed: int, *, askers: int = 20, others: int = 24, candidates: int = 4) -> People:
    """Return people at random places, most in a ring, with random candidates, two lists each."""
    rng = np.random.default_rng(seed)
    lists: list[list[list[int]]] = [[], []]
    for _ in range(askers):
        order = rng.permutation(others).tolist()
        lists[0].append(order[:candidates])
        lists[1].append(order[candidates : 2 * candidates])
    sides = (askers, others)
    first, second = ([(int(x), int(y)) for x, y in rng.integers(0, 4, (n, 2))] for n in sides)
    return make_people(lists, cells=(first, second), asks=ASKS, entropy=seed)


class Person:
    """A person who follows the rules; subclasses override how they speak."""

    def __init__(self, inner: Settling) -> None:
        self.inner, self.address, self.lists = inner, inner.address, inner.lists

    @property
    def done(self) -> bool:
        """Do nothing."""
        return self.inner.done

    def speak(self) -> list[tuple[bytes, bytes]]:
        """Speak by the rules."""
        return self.inner.speak()

    def receive(self, sender: bytes, body: bytes) -> object:
        """Receive by the rules."""
        return self.inner.receive(sender, body)

    def notice(self, sender: bytes, body: bytes) -> object:
        """Write the notice by the rules."""
        return self.inner.notice(sender, body)


class Faulty(Person):
    """A person who breaks the rules in one way."""

    def __init__(self, inner: Settling, fault: str, seed: int) -> None:
        super().__init__(inner)
        self.fault, self.rng = fault, np.random.default_rng(seed)
        self.ends = int(self.rng.integers(1, len(STEPS))) if fault == "vanishes" else 0
        if fault == "lies":
            inner._exchange._set._cells = [(x + 2, y) for x, y in inner._exchange._set._cells]
        self.kept: list[tuple[bytes, bytes]] = []

    def speak(self) -> list[tuple[bytes, bytes]]:
        """Write a letter that breaks the rules."""
        index = self.inner.progress.step
        step, letters = STEPS[index], self.inner.speak()
        match self.fault:
            case "vanishes" | "silent":
                letters = letters if index < self.ends else []
            case "loses":
                letters = [one for one in letters if self.rng.random() < 0.7]
            case "late":
                self.kept, letters = letters, self.kept
            case "repeats":
                letters *= 3
            case "mutters":
                letters = [(to, bytes(body[:-1])) for to, body in letters]
            case "holds all" if step.kind in TALK:
                letters = [(to, self._holding(index, to, body)) for to, body in letters]
            case "tags all" if step.kind is Kind.TAG:
                tags = [self._tag_for(who, step.turn) for who in self.lists[step.turn]]
                letters = [(self.address, bytes((0, index)) + tag) for tag in tags]
            case "closes first" if step.kind is Kind.SHARE:
                closes = [STEPS.index(Step(Kind.CLOSE, turn)) for turn in (0, 1)]
                letters += [(self.address, bytes((0, close))) for close in closes]
        return letters

    def _holding(self, index: int, to: bytes, body: bytes) -> bytes:
        key = self.inner._key(to)
        flags = bytes((HERE | YOURS | WOULD,))
        return body[:2] + self.inner._exchange.box(key, index, to, flags) if key else body

    def _tag_for(self, who: bytes, turn: int) -> bytes:
        key = self.inner._key(who)
        return prf(key or b"", b"tag", bytes((turn,)) + self.address)[:16]


FAULTS = (
    "silent",
    "vanishes",
    "loses",
    "late",
    "repeats",
    "mutters",
    "holds all",
    "tags all",
    "closes first",
    "lies",
)


def check_beliefs(people: People, honest: set[bytes]) -> None:
    """Check that each honest person's partner is on the other side and, if honest, agrees."""
    everybody = {one.address: one for side in people for one in side}
    taken = Counter[bytes]()
    for one in everybody.values():
        if one.address not in honest or one.partner is None:
            continue
        taken[one.partner] += 1
        other = everybody[one.partner]
        assert other.asks != one.asks
        if other.address in honest:
            assert other.partner == one.address
    # An honest person is somebody's partner once; a cheat may deceive one person in each pass.
    assert all(times <= (1 if who in honest else len(ASKS)) for who, times in taken.items())


@pytest.mark.parametrize("fault", [*FAULTS, "all of these"])
def test_honest_people_agree_on_their_one_partner(fault: str) -> None:
    """This holds with 10 % of people who break the rules in any way."""
    askers, others = crowd(FAULTS.index(fault) if fault in FAULTS else 99)
    people = [*askers, *others]
    bad = set(np.random.default_rng(4).permutation(len(people))[: len(people) // 10].tolist())
    kinds = FAULTS if fault == "all of these" else (fault,)
    acting = [
        Faulty(one, kinds[n % len(kinds)], n) if n in bad else Person(one)
        for n, one in enumerate(people)
    ]
    run_together(acting)
    honest = {one.address for n, one in enumerate(people) if n not in bad}
    check_beliefs((askers, others), honest)
    mine = [one for one in askers if one.address in honest]
    assert sum(one.partner is not None for one in mine) >= 0.7 * len(mine)


def test_everybody_writes_the_same_at_every_step() -> None:
    """The number, recipients and sizes of a person's letters depend on the lists alone."""
    askers, others = crowd(1, askers=12, others=14)
    people = [*askers, *others]
    for index, step in enumerate(STEPS):
        spoken = [(one, one.speak(b"come" if one.asks else b"")) for one in people]
        assert len({len(body) for _, letters in spoken for _, body in letters}) == 1
        for one, letters in spoken:
            to = [who for who, _ in letters]
            if step.kind in NOTICES:
                assert to == [one.address]
            elif step.kind in TALK:
                speaking = one.speaks(index, asks=one.asks)
                assert to == (list(one.lists[step.turn]) if speaking else [])
            else:
                assert to == [*one.lists[0], *one.lists[1]]
        by_name = {one.address: one for one in people}
        for one, letters in spoken:
            for who, body in letters:
                if who != one.address:
                    by_name[who].receive(one.address, body)
                    continue
                for reader in people:
                    if who == reader.address or who in reader._turn_of:
                        reader.notice(who, body)
    assert any(one.partner for one in askers)


def test_the_nearest_rings_are_paired() -> None:
    """With enough steps the pairing is stable: no two in a nearer ring would rather be paired."""
    rng = np.random.default_rng(3)
    cells = tuple([(int(x), int(y)) for x, y in rng.integers(0, 7, (12, 2))] for _ in range(2))
    everybody = [list(range(12))] * 12
    partners = settle(everybody, cells=(cells[0], cells[1]), asks=(30,))
    far = RINGS.count + 1
    apart = np.array([[RINGS.ring(a, b) or far for b in cells[1]] for a in cells[0]])
    mine, theirs = np.full(12, far), np.full(12, far)
    for asker, other in enumerate(partners):
        if other >= 0:
            assert apart[asker, other] < far
            mine[asker] = theirs[other] = apart[asker, other]
    assert not np.any((apart < mine[:, None]) & (apart < theirs[None, :]))
    assert sum(other >= 0 for other in partners) >= 8


def pair() -> tuple[Settling, Settling]:
    """Return two people who are each other's candidates."""
    (one,), (other,) = make_people([[[0]]], cells=([(0, 0)], [(0, 1)]), asks=(1,))
    return one, other


STEPS_ONE = schedule((1,))


def hand_over(sender: Settling, reader: Settling) -> list[tuple[bytes, bytes]]:
    """Let one person speak and the other receive."""
    letters = sender.speak()
    for to, body in letters:
        if to == sender.address:
            sender.notice(to, body)
            reader.notice(to, body)
        else:
            reader.receive(sender.address, body)
    return letters


def meet(one: Settling, other: Settling, until: Kind) -> None:
    """Let two people speak by turns until a step of this kind is next."""
    while STEPS_ONE[one.progress.step].kind is not until:
        hand_over(one, other)
        hand_over(other, one)


def test_what_does_not_belong_here_is_dropped_and_counted() -> None:
    """A letter of the wrong size, step or sender changes nothing and raises no error."""
    one, other = pair()
    ((own, points),) = other.speak()
    bad_notices = [
        (b"?" * 16, points, "sender"),
        (own, points[:-1], "size"),
        (own, points[:2] + bytes(66), "point"),
        (own, bytes((0, 1)) + points[2:], "step"),
        (own, bytes((0, 6)) + bytes(15), "size"),
    ]
    for sender, body, reason in bad_notices:
        before = one.progress.dropped.get(reason, 0)
        assert not one.notice(sender, body)
        assert one.progress.dropped[reason] == before + 1
    assert one.progress.points == {}
    assert not one.receive(own, b"\0\1" + bytes(RINGS.table_size))  # no point to read it with
    assert one.notice(own, points)
    assert not one.notice(own, points)
    hand_over(one, other)
    ((_, table),) = other.speak()
    assert one.receive(own, table)
    assert not one.receive(own, table)
    ((_, share),) = other.speak()
    bad_letters = [
        (b"?" * 16, share, "sender"),
        (own, share[:1] + b"\xff" + share[2:], "step"),
        (own, share + b"\0", "size"),
        (own, b"", "size"),
        (own, b"See you at nine", "size"),
        (own, share[:2] + b"\3" + share[3:], "point"),
        (own, share[:2] + b"\2" + b"\xff" * 32, "point"),
        (own, bytes((0, 4)) + bytes(20), "step"),  # asking is not theirs
        (own, points, "step"),
    ]
    for sender, body, reason in bad_letters:
        before = one.progress.dropped.get(reason, 0)
        assert not one.receive(sender, body)
        assert one.progress.dropped[reason] == before + 1
    assert one.progress.shares == {}
    assert one.receive(own, share)
    assert not one.receive(own, share)
    assert one.progress.dropped["repeated"] == 3


def test_points_and_tables_that_come_late_do_not_count() -> None:
    """By then the tables, or the shares, are written."""
    one, other = pair()
    ((own, points),) = other.speak()
    one.speak()
    one.speak()
    assert not one.notice(own, points)
    one, other = pair()
    hand_over(other, one)
    hand_over(one, other)
    ((_, table),) = other.speak()
    one.speak()
    one.speak()
    assert not one.receive(own, table)
    assert one.progress.dropped == {"late": 1}


def test_a_candidate_who_moves_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second ring from the same candidate is dropped: the first one stands."""
    one, other = pair()
    meet(one, other, Kind.ASK)
    assert one.progress.heard[other.address.hex()].ring == 1
    token = other._exchange._token(one.address)
    moved = bytes((*token[:2], token[2] ^ 3))
    monkeypatch.setattr(other._exchange, "_token", lambda _: moved)
    hand_over(one, other)
    hand_over(other, one)
    hand_over(one, other)
    hand_over(other, one)
    assert one.progress.dropped == {"changed": 1}
    assert one.progress.heard[other.address.hex()].ring == 1


def test_a_tag_after_the_close_pairs_nobody() -> None:
    """A person with a late tag is free, and both sides see that on the board."""
    one, other = pair()
    meet(one, other, Kind.TAG)
    hand_over(one, other)  # one's tag
    hand_over(one, other)  # and close, before the other's tag
    hand_over(other, one)
    hand_over(other, one)
    assert one.partner is None
    assert other.partner is None


def test_steps_wait_for_letters_but_not_for_the_silent() -> None:
    """A step begins when all have written; a silent candidate is awaited once."""
    one, other = pair()
    assert one.ready()
    one.speak()
    assert not one.ready()
    assert one.ready(late=True)
    one.speak()
    assert one.ready()  # the other has published no points: no second wait
    one.speak()
    one.speak()
    one.speak()  # asks, though nothing was heard
    assert one.ready()
    one.speak()
    one.speak()
    assert not one.ready(late=True)  # their own tag must be on the board, whatever the hour
    other.speak()


def test_every_step_waits_for_its_letter() -> None:
    """While the other has not written, the next step does not begin."""
    one, other = pair()
    for step in STEPS_ONE[:-2]:
        hand_over(one, other)
        if step.kind is Kind.TAG or other.speaks(one.progress.step - 1, asks=other.asks):
            assert not one.ready()
        hand_over(other, one)
        assert one.ready()


def test_a_crash_changes_no_letter() -> None:
    """Restored from its stored state at every step, a person writes the same letters."""
    askers, others = crowd(5, askers=6, others=6)

    def reborn(one: Settling) -> Settling:
        stored = msgspec.json.decode(msgspec.json.encode(one.progress), type=Progress)
        return Settling(
            stored,
            address=one.address,
            asks=one.asks,
            lists=one.lists,
            secret=one._secret,
            steps=one.steps,
            digest=DIGEST,
            rings=RINGS,
            letter_size=LETTER_SIZE,
        )

    class Crashing(Person):
        def speak(self) -> list[tuple[bytes, bytes]]:
            before = reborn(self.inner)
            letters = self.inner.speak()
            assert before.speak() == letters
            self.inner = before
            return letters

    crashing = [Crashing(one) for one in (*askers, *others)]
    run_together(crashing)
    again = crowd(5, askers=6, others=6)
    run_together(again[0] + again[1])
    assert [one.inner.partner for one in crashing] == [
        one.partner for side in again for one in side
    ]
    assert any(one.inner.partner for one in crashing)


def test_words_go_to_the_partner_alone() -> None:
    """They are in one letter of the last step; nobody can open the other letters."""
    askers, others = crowd(2, askers=10, others=10)
    people = {one.address: one for one in (*askers, *others)}

    class Writing(Person):
        def speak(self) -> list[tuple[bytes, bytes]]:
            return self.inner.speak(b"at the corner, " + self.address)

    run_together([Writing(one) for one in people.values()])
    for one in people.values():
        told = {bytes.fromhex(who): text for who, text in one.progress.words.items() if text}
        expected = {one.partner: b"at the corner, " + one.partner} if one.partner else {}
        assert told == expected


def test_places_are_rounded_to_cells() -> None:
    """A cell is a square with the side in the terms; the scale converts degrees to metres."""
    assert cell_of((0.5, -0.5), scale=(), side=0.2) == (2, -3)
    assert cell_of((31.2, 121.4), scale=(1000.0, 500.0), side=100.0) == (312, 607)


def test_lists_must_fit_the_passes() -> None:
    """One list of candidates per pass."""
    with pytest.raises(Misuse, match="2 passes need as many lists, got 1"):
        Settling(
            Progress(cell=(0, 0)),
            address=b"",
            asks=True,
            lists=[[]],
            secret=b"",
            steps=STEPS,
            digest=DIGEST,
            rings=RINGS,
            letter_size=LETTER_SIZE,
        )
    with pytest.raises(Misuse, match="one set of lists per pass"):
        make_people([[]], cells=([], []), asks=ASKS)


def drafted(task: dict[str, object], settle: dict[str, object], **rest: int) -> object:
    """Return a draft of riders and drivers, or of neighbours."""
    box = {"kind": "box", "lo": [0, 0], "hi": [1, 1]}
    mechanism = {"name": "bounded", "epsilon": 1.0, "domain": box}
    group = {"minimum": 50, "delta": 1e-3, "randomizer": mechanism}
    names = ("people",) if task["name"] == "neighbours" else ("users", "workers")
    groups = [{"name": name, **group} for name in names]
    return read_draft({"round": "r", "task": task, "groups": groups, "settle": settle, **rest})


def test_drafts_without_valid_settling_are_refused() -> None:
    """Each error says what to change."""
    pairs: dict[str, object] = {"name": "least-cost-matching", "candidates": 5}
    near: dict[str, object] = {"name": "neighbours", "radius": 0.1, "mutual": True}
    drafted(pairs, {"cell": 0.01, "rings": [0.04]})
    drafted(pairs, {})
    drafted(near, {"asks": []})
    bad: list[tuple[dict[str, object], dict[str, object], dict[str, int], str]] = [
        ({"name": "least-cost-matching"}, {}, {}, "gives no candidates"),
        (pairs, {"asks": []}, {}, "gives no candidates"),
        (pairs, {"cell": -1}, {}, "does not fit"),
        (pairs, {"rings": []}, {}, "does not fit"),
        (pairs, {"words": 3}, {}, "does not fit"),
        (pairs, {"rings": [0.2, 0.1]}, {}, "each larger than the one before"),
        (pairs, {}, {"letter_size": 8}, "at least 245, got"),
        ({**near, "mutual": False}, {"asks": []}, {}, "set `mutual`"),
        (near, {"asks": []}, {"letter_size": 244}, "at least 245, got"),
        (near, {"cell": 1e-6, "asks": []}, {}, "make `cell` larger"),
    ]
    for task, stated, rest, sentence in bad:
        with pytest.raises(Misuse, match=sentence):
            drafted(task, stated, **rest)


def test_what_two_people_say_is_that_of_the_specification() -> None:
    """What the boxes hold matches SPEC bit by bit."""
    one, other = pair()
    meet(one, other, Kind.SHOW)

    def said() -> Iterator[tuple[int, ...]]:
        for _ in range(3):
            index = one.progress.step
            letters = [hand_over(person, peer) for person, peer in ((one, other), (other, one))]
            key, value = one._key(other.address), one._value(other.address)
            assert key is not None
            assert value is not None
            for sender, spoken in zip((one, other), letters, strict=True):
                reader = other if sender is one else one
                seen = reader._value(sender.address)
                assert seen is not None
                for _, body in spoken:
                    opened = reader._exchange.open(key, seen, index, sender.address, body[2:])
                    assert opened.ring == 1
                    yield tuple(opened.content)

    assert list(said()) == [(HERE | WOULD,), (HERE | YOURS,), (HERE | YOURS,)]


def test_terms_with_many_axes_stall_nobody() -> None:
    """The search stops at the number of cells that a letter has room for; 13^40 would never end."""
    for axes in (4, 8, 40, 10**9):
        with pytest.raises(Misuse, match="make `cell` larger"):
            Rings((6.0,), side=1.0, axes=axes)
    with pytest.raises(Misuse, match="make `cell` larger"):
        Rings((1e300,), side=1e-300, axes=2)
    assert Rings((0.5,), side=1.0, axes=1000).around == {(0,) * 1000: 1}
    assert len(Rings((600.0,), side=600 / 4.5, axes=2).around) == 69


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
    """Terms come from strangers, while tickets hold numbers of 32 bits."""
    with pytest.raises(Refused):
        cell_of(place, scale=scale, side=side)
