"""Lists of the people who are most likely near, for neighbours who find out by letter who is.

The server sees noise, and perhaps decoys, so the nearest reports are often not the nearest people;
and everybody in one cell of a grid would get the same few. Here the chance that two reports belong
to people who are near each other follows from the posteriors of both. Pairs of kinds of reports get
candidates in the order of this chance, until everybody's list is full. Inside a pair of kinds they
are dealt in a circle, in random order, so that all lists there are equally long. Lists are mutual.

The draws depend on the reports alone, so the same batch gives the same lists in any order; reports
of one kind are interchangeable.
"""

import hashlib

import numpy as np
from scipy.spatial import cKDTree

from coatcheck.entropy import Entropy, seeded
from coatcheck.tasks.contract import Belief, Floats, Positions, References

_LEAST = 1e-6  # of the largest chance: less likely pairs are not listed
_CHUNK = 512  # kinds at a time


def likely_lists(belief: Belief, *, radius: float, limit: int) -> References:
    """Return for each report the `limit` others who are most likely within the radius.

    `belief.places` are in the unit of distances.
    """
    counts = np.bincount(belief.kinds, minlength=len(belief.weights))
    chances = near_chances(belief, radius=radius)
    members = np.split(np.argsort(belief.kinds, kind="stable"), np.cumsum(counts)[:-1])
    draws = _draws(counts, chances)
    for group in members:
        group[:] = group[np.argsort(draws.words(len(group)), kind="stable")]
    pairs = _dealt(members, chances, limit=limit)
    return _references(
        pairs, chances[belief.kinds[pairs[0]], belief.kinds[pairs[1]]], len(belief.kinds)
    )


def near_chances(belief: Belief, *, radius: float) -> Floats:
    """Return for each pair of kinds the chance that two people are there and near each other."""
    tree = cKDTree(belief.places)
    close = tree.sparse_distance_matrix(tree, radius, output_type="coo_matrix").tocsr()
    close.data[:] = 1.0
    close.setdiag(1.0)
    chances = belief.chances
    whole = np.empty((len(chances), len(chances)))
    for start in range(0, len(chances), _CHUNK):
        rows = slice(start, start + _CHUNK)
        whole[rows] = np.asarray(chances[rows] @ close) @ chances.T
    return np.asarray((whole + whole.T) / 2)


def _draws(counts: Positions, chances: Floats) -> Entropy:
    """Return a source of draws that depends on the batch alone."""
    text = counts.tobytes() + np.round(chances, 9).tobytes()
    return seeded(int.from_bytes(hashlib.sha256(text).digest()[:16], "little"))


def _dealt(members: list[Positions], chances: Floats, *, limit: int) -> tuple[Positions, Positions]:
    """Return the pairs of positions that list each other, those of the likeliest kinds first."""
    sizes = np.array([len(group) for group in members])
    first, second = np.triu_indices(len(members))
    worth = chances[first, second]
    some = (worth > _LEAST * worth.max(initial=0.0)) & (sizes[first] > 0) & (sizes[second] > 0)
    first, second, worth = first[some], second[some], worth[some]
    room = np.full(int(sizes.sum()), limit)
    free = limit * sizes  # of each kind
    dealt = [(np.empty(0, dtype=np.int64),) * 2]
    for at in np.argsort(-worth, kind="stable").tolist():
        one, two = int(first[at]), int(second[at])
        if not (free[one] and free[two]):
            continue
        pairs = (
            _circle(members[one], room) if one == two else _around(members[one], members[two], room)
        )
        for kind, side in ((one, pairs[0]), (two, pairs[1])):
            np.subtract.at(room, side, 1)
            free[kind] -= len(side)
        dealt.append(pairs)
        if not free.any():
            break
    return np.concatenate([one for one, _ in dealt]), np.concatenate([two for _, two in dealt])


def _circle(group: Positions, room: Positions) -> tuple[Positions, Positions]:
    """Pair each of a group with those next to it in a circle, as many for everybody."""
    turns = min(int(room[group].min()) // 2, (len(group) - 1) // 2)
    nearby = [np.roll(group, -turn) for turn in range(1, turns + 1)]
    if not nearby:
        return group[:0], group[:0]
    return np.tile(group, turns), np.concatenate(nearby)


def _around(one: Positions, two: Positions, room: Positions) -> tuple[Positions, Positions]:
    """Pair two groups turn by turn, those with the most room first; nobody meets anybody twice."""
    one, two = (group[np.argsort(-room[group], kind="stable")] for group in (one, two))
    one, two = one[room[one] > 0], two[room[two] > 0]
    count = min(int(room[one].sum()), int(room[two].sum()), len(one) * len(two))
    if not count:
        return one[:0], two[:0]
    turn = np.arange(count)
    shift = turn // int(np.lcm(len(one), len(two)))
    ours, theirs = one[turn % len(one)], two[(turn + shift) % len(two)]
    fits = (_earlier(ours) < room[ours]) & (_earlier(theirs) < room[theirs])
    return ours[fits], theirs[fits]


def _earlier(values: Positions) -> Positions:
    """Return how often each value stands before its place."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.concatenate([[True], np.diff(ordered) != 0]))
    lengths = np.diff(np.append(starts, len(ordered)))
    earlier = np.empty(len(values), dtype=np.int64)
    earlier[order] = np.arange(len(values)) - np.repeat(starts, lengths)
    return earlier


def _references(pairs: tuple[Positions, Positions], worth: Floats, reports: int) -> References:
    """Return both directions of all pairs as lists, the likeliest first."""
    owners, others = np.concatenate(pairs), np.concatenate(pairs[::-1])
    order = np.lexsort((-np.concatenate([worth, worth]), owners))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=reports))])
    return References(0, indptr, others[order], ordered=True)
