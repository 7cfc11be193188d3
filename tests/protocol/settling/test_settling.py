"""Settling: one partner each, known to both, and letters that look the same in every case."""

from collections import Counter
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from coatcheck.errors import Misuse
from coatcheck.protocol.drafting import read_draft
from coatcheck.protocol.settling.rules import (
    HERE,
    YOURS,
    Kind,
    Progress,
    Settling,
    Step,
    cell_of,
    prf,
    schedule,
)
from coatcheck.simulation.settling import make_people, run_together, settle

ASKS = (3, 2)
STEPS = schedule(ASKS)
People = tuple[list[Settling], list[Settling]]


def crowd(seed: int, *, askers: int = 60, others: int = 72, candidates: int = 5) -> People:
    """Return people at random places with random candidates, two lists each."""
    rng = np.random.default_rng(seed)
    lists: list[list[list[int]]] = [[], []]
    for _ in range(askers):
        order = rng.permutation(others).tolist()
        lists[0].append(order[:candidates])
        lists[1].append(order[candidates : 2 * candidates])
    sides = (askers, others)
    first, second = ([(int(x), int(y)) for x, y in rng.integers(0, 40, (n, 2))] for n in sides)
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
            case "holds all" if step.kind in {Kind.ASK, Kind.ANSWER}:
                letters = [(to, body[:2] + bytes((7,)) + body[3:]) for to, body in letters]
            case "tags all" if step.kind is Kind.TAG:
                tags = [self._tag_for(who, step.turn) for who in self.lists[step.turn]]
                letters = [(self.address, bytes((0, index)) + tag) for tag in tags]
            case "closes first" if step.kind is Kind.PLACES:
                close = STEPS.index(Step(Kind.CLOSE, step.turn))
                letters = [*letters, (self.address, bytes((0, close)))]
            case "lies" if letters and len(letters[0][1]) > 20:
                place = self.rng.integers(0, 40, 2).astype(">i4").tobytes()
                letters = [(to, body[:-8] + place) for to, body in letters]
        return letters

    def _tag_for(self, who: bytes, turn: int) -> bytes:
        key = self.inner._pair_key(who)
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
    assert sum(one.partner is not None for one in mine) >= 0.85 * len(mine)


def test_everybody_writes_the_same_at_every_step() -> None:
    """The number, recipients and sizes of a person's letters depend on the lists alone."""
    askers, others = crowd(1)
    for index, step in enumerate(STEPS):
        people = [*askers, *others]
        spoken = [(one, one.speak()) for one in people]
        sizes = {len(body) for _, letters in spoken for _, body in letters}
        assert len(sizes) == 1 or step.kind is Kind.WORDS
        for one, letters in spoken:
            to = [who for who, _ in letters]
            if step.kind in {Kind.TAG, Kind.CLOSE}:
                assert to == [one.address]
            elif step.kind is Kind.WORDS:
                assert to == [*one.lists[0], *one.lists[1]]
            else:
                speaking = one.speaks(index, asks=one.asks)
                assert to == (list(one.lists[step.turn]) if speaking else [])
        by_name = {one.address: one for one in people}
        for one, letters in spoken:
            for who, body in letters:
                if who != one.address:
                    by_name[who].receive(one.address, body)
                    continue
                for reader in people:
                    if who == reader.address or who in reader._turn_of:
                        reader.notice(who, body)


def test_the_nearest_are_paired() -> None:
    """With true places and enough steps the pairing is stable: no two would rather be paired."""
    rng = np.random.default_rng(3)
    cells = tuple([(int(x), int(y)) for x, y in rng.integers(0, 2000, (40, 2))] for _ in range(2))
    everybody = [list(range(40))] * 40
    found = settle(everybody, cells=(cells[0], cells[1]), asks=(60,))
    assert sorted(found) == list(range(40))
    apart = np.hypot.reduce(np.array(cells[0])[:, None] - np.array(cells[1])[None], axis=2)
    mine = apart[np.arange(40), found]
    theirs = np.empty(40)
    theirs[found] = mine
    assert not np.any((apart < mine[:, None]) & (apart < theirs[None, :]))


def pair() -> tuple[Settling, Settling]:
    """Return two people who are each other's candidates."""
    (one,), (other,) = make_people([[[0]]], cells=([(0, 0)], [(3, 4)]), asks=(1,))
    return one, other


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


def test_what_does_not_belong_here_is_dropped_and_counted() -> None:
    """A letter of the wrong size, step or sender changes nothing and raises no error."""
    one, other = pair()
    ((_, good),) = other.speak()
    bad = {
        "sender": (b"?" * 16, good),
        "size": (other.address, good + b"\0"),
        "step": (other.address, good[:1] + b"\xff" + good[2:]),
    }
    for reason, (sender, body) in bad.items():
        assert not one.receive(sender, body)
        assert one.progress.dropped[reason] == 1
    assert not one.receive(other.address, b"")
    assert not one.receive(other.address, b"See you at nine")
    assert not one.receive(other.address, good[:1] + b"\x01" + good[2:])  # asking is not theirs
    assert not one.notice(other.address, good)
    assert not one.notice(b"?" * 16, bytes((0, 3)) + bytes(16))
    assert not one.notice(other.address, bytes((0, 3)) + bytes(15))
    assert one.progress.heard == {}
    assert one.receive(other.address, good)
    assert not one.receive(other.address, good)
    assert one.progress.dropped["repeated"] == 1
    assert sum(one.progress.dropped.values()) == 10


def test_a_candidate_who_moves_is_not_believed() -> None:
    """A second place from the same candidate is dropped: the first one stands."""
    one, other = pair()
    hand_over(other, one)
    hand_over(one, other)
    other.progress.cell = (0, 1)
    hand_over(one, other)
    hand_over(other, one)
    hand_over(other, one)
    assert one.progress.dropped == {"changed": 1}


def test_a_tag_after_the_close_pairs_nobody() -> None:
    """A person with a late tag is free, and both sides see that on the board."""
    one, other = pair()
    for kind in (Kind.PLACES, Kind.ASK, Kind.ANSWER):
        assert STEPS[one.progress.step].kind is kind
        hand_over(one, other)
        hand_over(other, one)
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
    one.speak()  # asks, though nothing was heard
    one.speak()
    assert one.ready()  # the other has missed a letter: no second wait
    one.speak()
    assert not one.ready(late=True)  # their own tag must be on the board, whatever the hour
    other.speak()


def test_a_crash_changes_no_letter() -> None:
    """Restored from its stored state at every step, a person writes the same letters."""
    askers, others = crowd(5, askers=12, others=12)

    def reborn(one: Settling) -> Settling:
        stored = msgspec.json.decode(msgspec.json.encode(one.progress), type=Progress)
        return Settling(
            stored,
            address=one.address,
            asks=one.asks,
            lists=one.lists,
            secret=one._secret,
            steps=one.steps,
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
    again = crowd(5, askers=12, others=12)
    run_together(again[0] + again[1])
    assert [one.inner.partner for one in crashing] == [
        one.partner for side in again for one in side
    ]
    assert any(one.inner.partner for one in crashing)


def test_words_go_to_the_partner_alone() -> None:
    """The exact place is in one letter of the last step; the other letters are empty."""
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
        Settling(Progress(cell=()), address=b"", asks=True, lists=[[]], secret=b"", steps=STEPS)
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
    drafted(pairs, {"cell": 0.01})
    drafted(near, {"cell": 0.02, "asks": []}, letter_size=1138)
    bad: list[tuple[dict[str, object], dict[str, object], dict[str, int], str]] = [
        ({"name": "least-cost-matching"}, {"cell": 0.01}, {}, "gives no candidates"),
        (pairs, {"cell": 0.01, "asks": []}, {}, "gives no candidates"),
        (pairs, {"cell": -1}, {}, "does not fit"),
        (pairs, {"cell": 0.01, "words": 3}, {}, "does not fit"),
        (pairs, {"cell": 0.01}, {"letter_size": 8}, "at least 27, got"),
        ({**near, "mutual": False}, {"cell": 0.02, "asks": []}, {}, "set `mutual`"),
        (near, {"cell": 0.02, "asks": []}, {}, "at least 1138, got"),
        (near, {"cell": 1e-6, "asks": []}, {}, "at most 6 cells"),
    ]
    for task, stated, rest, sentence in bad:
        with pytest.raises(Misuse, match=sentence):
            drafted(task, stated, **rest)


def test_bits_are_those_of_the_specification() -> None:
    """The letters of two people match SPEC bit by bit."""
    one, other = pair()

    def said() -> Iterator[tuple[int, ...]]:
        for _ in range(3):
            letters = [hand_over(person, peer) for person, peer in ((one, other), (other, one))]
            yield tuple(body[2] for spoken in letters for _, body in spoken)

    assert list(said()) == [(HERE, HERE), (HERE | YOURS,), (HERE | YOURS,)]
