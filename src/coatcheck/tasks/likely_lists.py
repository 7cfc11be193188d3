"""Lists of the people who are most likely near, for neighbours who find out by letter who is.

The server sees noise, and perhaps decoys, so the nearest reports are often not the nearest people;
and everybody in one cell of a grid would get the same few. Here the chance that two reports belong
to people who are near each other follows from the posteriors of both. Pairs of kinds of reports get
candidates in the order of this chance, in a few turns. After each turn the posteriors are those of
people who have found too few so far: somebody with few near people on the list is likely somewhere
else, where the report does not say, so later turns look there as well.

Inside a pair of kinds candidates are dealt in circles, in random order, so that lists are about
equally long. Lists are mutual. The draws depend on the reports alone, so the same batch gives the
same lists in any order; reports of one kind are interchangeable.
"""

import hashlib
import math

import numpy as np
from scipy.spatial import cKDTree

from coatcheck.entropy import Entropy, seeded
from coatcheck.tasks.contract import Belief, Floats, Positions, References

_LEAST = 1e-6  # of the largest chance: less likely pairs are not listed
_TURNS = 6
_ENOUGH = 2  # near people: whoever has found as many looks no further
_CHUNK = 512  # kinds at a time


def likely_lists(belief: Belief, *, radius: float, limit: int) -> References:
    """Return for each report at most `limit` others who are likely within the radius.

    `belief.places` are in the unit of distances.
    """
    counts = np.bincount(belief.kinds, minlength=len(belief.weights))
    members = np.split(np.argsort(belief.kinds, kind="stable"), np.cumsum(counts)[:-1])
    near = _near(belief, radius=radius)
    chances = belief.chances
    draws = _draws(counts, near)
    deal = _Deal(
        [group[np.argsort(draws.words(len(group)), kind="stable")] for group in members], draws
    )
    for turn in range(1, _TURNS + 1):
        searching = chances * _still_searching(deal.listed / np.maximum(counts, 1)[:, None] @ near)
        worth = searching @ near.T
        deal.extend(worth + worth.T, most=min(limit, 2 * math.ceil(limit * turn / (2 * _TURNS))))
    first, second = deal.pairs
    return _references(
        deal.pairs, (chances @ near.T)[belief.kinds[first], belief.kinds[second]], len(belief.kinds)
    )


def near_chances(belief: Belief, *, radius: float) -> Floats:
    """Return for each pair of kinds the chance that two people are there and near each other."""
    return np.asarray(belief.chances @ _near(belief, radius=radius).T)


def _near(belief: Belief, *, radius: float) -> Floats:
    """Return how likely somebody with each kind of report is there and near each place."""
    tree = cKDTree(belief.places)
    close = tree.sparse_distance_matrix(tree, radius, output_type="coo_matrix").tocsr()
    close.data[:] = 1.0
    close.setdiag(1.0)
    chances = belief.chances
    rows = [np.asarray(chances[at : at + _CHUNK] @ close) for at in range(0, len(chances), _CHUNK)]
    return np.concatenate(rows) if rows else chances


def _still_searching(found: Floats) -> Floats:
    """Return the chance that somebody has found fewer than enough, if this many are expected."""
    terms = [found**k / math.factorial(k) for k in range(_ENOUGH)]
    return np.asarray(np.exp(-found) * sum(terms))


def _draws(counts: Positions, near: Floats) -> Entropy:
    """Return a source of draws that depends on the batch alone."""
    text = counts.tobytes() + np.round(near, 9).tobytes()
    return seeded(int.from_bytes(hashlib.sha256(text).digest()[:16], "little"))


class _Deal:
    """Who lists whom so far."""

    def __init__(self, members: list[Positions], draws: Entropy) -> None:
        self._members = members
        self._sizes = np.array([len(group) for group in members], dtype=np.int64)
        self._used = np.zeros(int(self._sizes.sum()), dtype=np.int64)
        self._starts = draws.below(1 << 30, 2 * len(members)).astype(np.int64).reshape(2, -1)
        self._turns: dict[tuple[int, int], int] = {}  # of each pair of kinds
        self._dealt: list[tuple[Positions, Positions]] = []
        self.listed = np.zeros((len(members), len(members)))
        """How often each kind lists each other kind."""

    @property
    def pairs(self) -> tuple[Positions, Positions]:
        """The pairs of positions that list each other."""
        none = np.empty(0, dtype=np.int64)
        first = [one for one, _ in self._dealt]
        second = [two for _, two in self._dealt]
        return np.concatenate([none, *first]), np.concatenate([none, *second])

    def extend(self, worth: Floats, *, most: int) -> None:
        """Fill up all lists to a length, by the pairs of kinds that are worth most."""
        first, second = np.triu_indices(len(self._members))
        value = worth[first, second]
        some = value > _LEAST * value.max(initial=0.0)
        some &= (self._sizes[first] > 0) & (self._sizes[second] > 0)
        first, second, value = first[some], second[some], value[some]
        room = most - self._used
        free = np.array([int(room[group].sum()) for group in self._members])
        for at in np.argsort(-value, kind="stable").tolist():
            one, two = int(first[at]), int(second[at])
            if not (free[one] and free[two]):
                continue
            pairs = self._next(one, two, min(int(free[one]), int(free[two])))
            fits = _fitting(pairs, room)
            pairs = pairs[0][fits], pairs[1][fits]
            for own, other, side in ((one, two, pairs[0]), (two, one, pairs[1])):
                np.subtract.at(room, side, 1)
                free[own] -= len(side)
                self.listed[own, other] += len(side)
            self._dealt.append(pairs)
        self._used = most - room

    def _next(self, one: int, two: int, count: int) -> tuple[Positions, Positions]:
        """Return the next pairs of two kinds; nobody meets anybody twice."""
        ours, theirs = self._members[one], self._members[two]
        begun = self._turns.get((one, two), 0)
        if one == two:  # whole circles, in which everybody meets two others
            circles = count // (2 * len(ours)) * len(ours)
            ended = min(begun + circles, (len(ours) - 1) // 2 * len(ours))
        else:
            ended = min(begun + count, len(ours) * len(theirs))
        self._turns[one, two] = ended
        turn = np.arange(begun, ended)
        if one == two:
            at, shift = turn % len(ours), 1 + turn // len(ours)
            return ours[at], ours[(at + shift) % len(ours)]
        shift = turn // int(np.lcm(len(ours), len(theirs)))
        first, second = self._starts[0, two], self._starts[1, one]
        return ours[(first + turn) % len(ours)], theirs[(second + turn + shift) % len(theirs)]


def _fitting(pairs: tuple[Positions, Positions], room: Positions) -> Positions:
    """Return the pairs for which both still have room, if they are taken in order."""
    both = np.concatenate(pairs)
    if (np.bincount(both, minlength=len(room)) <= room).all():
        return np.arange(len(pairs[0]))
    left = dict(zip(both.tolist(), room[both].tolist(), strict=True))
    fits = []
    for at, (one, two) in enumerate(zip(pairs[0].tolist(), pairs[1].tolist(), strict=True)):
        if left[one] and left[two]:
            left[one] -= 1
            left[two] -= 1
            fits.append(at)
    return np.array(fits, dtype=np.int64)


def _references(pairs: tuple[Positions, Positions], worth: Floats, reports: int) -> References:
    """Return both directions of all pairs as lists, the likeliest first."""
    owners, others = np.concatenate(pairs), np.concatenate(pairs[::-1])
    order = np.lexsort((-np.concatenate([worth, worth]), owners))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=reports))])
    return References(0, indptr, others[order], ordered=True)
