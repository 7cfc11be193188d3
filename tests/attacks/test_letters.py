"""Attacks by letter: what a cheating candidate gets out of a person, whatever it sends.

The cheat has its own exchange, bound to one cell, and free choice of everything that it sends.
`Cheat.opened` tries all that it can compute. docs/explanation/letters.md states the bound: it
learns the ring of its cell around the person, or nothing, by one password of its choice.
"""

import hashlib
from collections.abc import Callable

import numpy as np
from cryptography.exceptions import InvalidTag

from coatcheck.protocol.settling.blinded_sets import (
    VALUE_SIZE,
    Factor,
    exclusive_or,
    hash_to_point,
    read_point,
    slot_of,
    write_cell,
)
from coatcheck.protocol.settling.exchange import (
    _KEY_LABEL,
    Exchange,
    Points,
    _cipher,
    _nonce,
    prf,
)
from coatcheck.protocol.settling.rings import Cell, Rings
from coatcheck.protocol.settling.rules import Kind, Settling
from support.settling import DIGEST, NEAR, RINGS, make_person

VICTIM, CHEAT, SECOND = b"v" * 16, b"c" * 16, b"d" * 16
AROUND = list(NEAR.around)
"""The 69 cells that are near the cell (0, 0)."""
Choice = Callable[[Cell], bytes]


class Cheat:
    """A candidate who asks from one cell and chooses the value of every cell of its table."""

    def __init__(self, question: Cell, *, seed: int, rings: Rings = NEAR) -> None:
        self.rings, self._secret = rings, b"cheat" + seed.to_bytes(27, "big")
        self.inner = Exchange(self._secret, question, address=CHEAT, digest=DIGEST, rings=rings)
        self.points = self.inner.points

    def table(self, victim: Points, cells: list[Cell], values: Choice) -> bytes:
        """Write a table for any cells with different slots, with a value of its choice for each."""
        own = self.inner._set
        own._cells = cells
        own._places = [
            (VALUE_SIZE * slot_of(cell, self.rings.width), write_cell(cell)) for cell in cells
        ]
        own.__dict__.pop("_multiples", None)
        chosen = [int.from_bytes(values(cell), "big") for cell in cells]
        filler = bytes(self.rings.table_size)
        return own.reply(victim.question, chosen, asker=VICTIM, answerer=CHEAT, filler=filler)

    def share(self, password: bytes) -> bytes:
        """Write the share for a password."""
        point = hash_to_point(DIGEST + CHEAT + VICTIM + password)
        return b"\2" + self._factor.x_of(point)

    @property
    def _factor(self) -> Factor:
        return Factor(prf(self._secret, b"factor", VICTIM))

    def opened(self, share: bytes, own: bytes, box: bytes, index: int) -> bytes | None:
        """Open the victim's box with the key of one's share, and with all that can be made of it.

        There is one shared secret that it can compute, from its factor and the victim's share. It
        also tries those of the points that it has seen.
        """
        texts = [self._factor.x_of(read_point(one)) for one in (share, own)]
        texts += [share[1:], own[1:]]
        for text in texts:
            whole = DIGEST + CHEAT + VICTIM + own + share + text
            key = hashlib.sha256(_KEY_LABEL + whole).digest()
            try:
                return _cipher(key, VICTIM).decrypt(_nonce(index), box, None)
            except InvalidTag:
                continue
        return None


def meet(
    cheat: Cheat, cell: Cell, *, cells: list[Cell], values: Choice, xor: int = 1, seed: int = 0
) -> tuple[Settling, bool]:
    """Let a cheat exchange letters with a person who would send words to somebody near.

    The cheat learns the value that it reads, takes as password that value XOR `xor`, XOR what
    `values` gives the cell (0, 0), and returns whether it can open what the person writes.
    """
    victim = make_person(seed.to_bytes(32, "big"), cell, [[CHEAT]], address=VICTIM)
    ((_, points),) = victim.speak()
    own = Points(points[2:35], points[35:])
    assert victim.notice(CHEAT, b"\0\0" + cheat.points.encode())
    ((_, table),) = victim.speak()
    value = cheat.inner.read(VICTIM, own, table[2:])
    assert victim.receive(CHEAT, b"\0\1" + cheat.table(own, cells, values))
    ((_, share),) = victim.speak()
    guess = exclusive_or(exclusive_or(value, xor.to_bytes(VALUE_SIZE, "big")), values((0, 0)))
    mine = cheat.share(guess)
    assert victim.receive(CHEAT, b"\0\2" + mine)
    ((_, box),) = victim.speak(b"31.23, 121.47")
    return victim, cheat.opened(share[2:], mine, box[2:], 3) is not None


def alike(cell: Cell) -> bytes:
    """Give all cells of a table one value."""
    del cell
    return b"tok"


def apart(cell: Cell) -> bytes:
    """Give each cell of a table a value of its own."""
    return bytes((0, 100 + cell[0], 100 + cell[1]))


def test_somebody_near_can_open_the_words() -> None:
    """The attacks below fail for the right reason: with the right password the box opens."""
    for number, cell in enumerate(AROUND[::9]):
        _, opened = meet(Cheat((0, 0), seed=number), cell, cells=AROUND, values=alike)
        assert opened


def test_a_stranger_gets_no_words_by_a_claim() -> None:
    """Its table may name any cells, the person's own too: its question is about another cell.

    Before, whoever named the person's cell in a reply was sent the exact coordinates.
    """
    for number in range(40):
        here = (5_000 + number, -2_500)
        names: list[Cell] = [(here[0] + x, here[1] + y) for x, y in AROUND]
        cheat = Cheat((0, 0), seed=number)
        victim, opened = meet(cheat, here, cells=names, values=alike, seed=number)
        assert not opened
        assert victim.partners == ()


def test_a_table_with_a_value_for_each_cell_reveals_one_cell_at_most() -> None:
    """The share of a person shows no value, so a cheat can test one password and no more.

    If a person sent anything that could be checked offline against a value, such as a hash of it, a
    cheat who gives each cell a value of its own would find the cell by trying all.
    """
    opened = []
    for number, cell in enumerate([(0, 0), *AROUND[::5]]):
        _, found = meet(Cheat((0, 0), seed=number), cell, cells=AROUND, values=apart)
        opened += [cell] if found else []
    assert opened == [(0, 0)]


def test_a_cheat_gets_one_predicate_and_nothing_adaptive() -> None:
    """A cheat near all 69 cells halves them by its table; it learns one bit, and not two.

    Before, it learned from its own question that the person is near, and then by a table chosen
    after it which half: 69 cells became 34.5 in 200 of 200 trials. Now a person in the other half
    looks like one who is far away: the cheat opens nothing, and the value that it reads is noise.
    """
    half = [cell for cell in AROUND if cell > (0, 0)]
    others = [cell for cell in AROUND if cell not in half]
    far = [(40 + n, -60) for n in range(len(others))]
    noise: dict[str, list[bytes]] = {"other half": [], "far": []}
    for number, cell in enumerate(half):
        assert meet(Cheat((0, 0), seed=number), cell, cells=half, values=alike)[1]
    for where, cells in (("other half", others), ("far", far)):
        for number, cell in enumerate(cells):
            cheat = Cheat((0, 0), seed=number)
            victim, opened = meet(cheat, cell, cells=half, values=alike, seed=number)
            assert not opened
            assert victim.partners == ()
            assert victim.progress.dropped == {}
            noise[where].append(seen_by(cheat, victim))
    for values in noise.values():
        bits = np.unpackbits(np.frombuffer(b"".join(values), dtype=np.uint8))
        assert len(set(values)) == len(values)
        assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(bits.size)


def seen_by(cheat: Cheat, victim: Settling) -> bytes:
    """Return the value that a cheat reads in a person's table."""
    points = victim._exchange.points
    table = victim._exchange.table(CHEAT, cheat.points)
    return cheat.inner.read(VICTIM, points, table)


def test_a_cheat_learns_the_ring_of_its_cell_or_nothing() -> None:
    """With a table of one value, a password fits one ring, so the cheat must guess the ring.

    Its best table gives each cell the value that makes one password right for all: the cheat then
    learns the ring of its own cell around the person, which an honest candidate learns too.
    """

    def best(cell: Cell) -> bytes:
        return exclusive_or(b"tok", RINGS.around[cell].to_bytes(VALUE_SIZE, "big"))

    by_ring: dict[int, Cell] = {ring: offset for offset, ring in RINGS.around.items()}
    for ring, cell in by_ring.items():
        fits = [
            [ring_opened(cell, values, guess) for guess in range(5)] for values in (alike, best)
        ]
        assert fits[0] == [guess == ring for guess in range(5)]
        assert fits[1] == [guess == 0 for guess in range(5)]


def ring_opened(cell: Cell, values: Choice, guess: int) -> bool:
    """Return whether a cheat that guesses a ring opens the box of a person in a cell."""
    victim = Exchange(b"v" * 32, cell, address=VICTIM, digest=DIGEST, rings=RINGS)
    cheat = Cheat((0, 0), seed=1, rings=RINGS)
    read = cheat.inner.read(VICTIM, victim.points, victim.table(CHEAT, cheat.points))
    table = cheat.table(victim.points, list(RINGS.around), values)
    value = victim.read(CHEAT, cheat.points, table)
    share = victim.share(CHEAT, value)
    password = exclusive_or(exclusive_or(read, guess.to_bytes(VALUE_SIZE, "big")), b"tok")
    mine = cheat.share(password)
    box = victim.box(victim.key(CHEAT, value, mine), 3, CHEAT, b"text")
    return cheat.opened(share, mine, box, 3) is not None


def test_nobody_appears_near_by_passing_letters_back() -> None:
    """A cheat sends a person's own letters back to them."""
    victim = make_person(b"v" * 32, (5, 5), [[CHEAT]], address=VICTIM)
    while not victim.done:
        for to, body in victim.speak(b"home"):
            if to == VICTIM:
                assert victim.notice(CHEAT, body)
            else:
                assert victim.receive(CHEAT, body)
    assert victim.partners == ()
    assert victim.progress.dropped == {}


def test_two_cheats_cannot_introduce_two_people_who_are_near() -> None:
    """Each of two neighbours has a cheat as candidate, and the cheats pass all letters on.

    The letters hold for the addresses of the two who exchange them, so nobody appears near.
    """
    one = make_person(b"1" * 32, (5, 5), [[CHEAT]], address=VICTIM)
    other = make_person(b"2" * 32, (5, 6), [[SECOND]], address=b"w" * 16)
    for step in one.steps:
        for speaker, reader, candidate in ((one, other, SECOND), (other, one, CHEAT)):
            for _, body in speaker.speak(b"home"):
                take = reader.notice if step.kind is Kind.POINTS else reader.receive
                assert take(candidate, body)
    assert one.partners == other.partners == ()
