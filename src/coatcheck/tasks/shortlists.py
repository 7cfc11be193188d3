"""Balanced lists of candidate partners for everybody of the smaller side.

The server sees noise, so the partner that looks best to it is often a poor one. Candidates settle
by letter which of them are nearest. Everybody of the smaller side gets `count` candidates, and as
many again for a second pass; two people are on each other's list of the same pass. On the larger
side the lengths of the lists of a pass differ by at most one.

Both sides are gathered into blocks of equal or neighbouring places, those of the larger side at
least as long as two lists. The least-cost plan says how many candidates each block takes from each
other block; inside a block they are dealt from a pack that is shuffled again whenever it is empty.
The draws depend on the reports alone, so the same batch gives the same lists in any order.
"""

import hashlib
from collections.abc import Sequence
from itertools import count as ever

import numpy as np

from coatcheck.entropy import Entropy, seeded
from coatcheck.tasks.contract import Floats, Positions, normalised
from coatcheck.tasks.solvers.assignment import ship, transport

_GAP = 0.01  # of the cost of a plan: the noise is far larger
_ROOM = 2  # blocks of several places are larger by this factor, so that second lists fill up
_MOST = 2000  # blocks of a side where costs come from a table

Table = tuple[Floats, Positions, Positions]
"""The cost of a pair by kinds of reports, and the kind of each row and of each column."""
_Crowd = tuple[Floats, Floats, Table | None]


def candidates(
    rows: Floats, columns: Floats, *, count: int, table: Table | None = None
) -> tuple[Positions, Positions]:
    """Return the columns listed for each row, (rows, count), for each of the two passes.

    Without a table, the cost of a pair is its distance. The first list is always full, and columns
    are on equally many first lists up to one, unless there are fewer columns than `count`. The
    second list names nobody of the first; it is shorter where a block has too few others. Lists are
    filled up with -1.
    *Assumes:* there are at least as many columns as rows.
    """
    orders = [np.lexsort(side.T[::-1]) for side in (rows, columns)]
    (ours, theirs), _ = normalised(rows[orders[0]], columns[orders[1]])
    draws = _draws(ours, theirs)
    if table is not None:
        table = (table[0], table[1][orders[0]], table[2][orders[1]])
    listed: list[set[int]] = [set() for _ in ours]
    lists = []
    for size in (min(count, len(theirs)), min(count, max(0, len(theirs) - count))):
        dealt = _deal_lists(
            (ours, theirs, table), size, least=2 * count, listed=listed, draws=draws
        )
        named = np.full((len(ours), count), -1)
        named[orders[0], :size] = np.where(dealt < 0, -1, orders[1][dealt])
        lists.append(named)
    return lists[0], lists[1]


def _draws(*sides: Floats) -> Entropy:
    """Return a source of draws that depends on the places alone."""
    parts = ((side + 0.0).tobytes() for side in sides)  # -0 and 0 are one place
    digest = hashlib.sha256(b"".join(parts)).digest()
    return seeded(int.from_bytes(digest[:16], "little"))


def _deal_lists(
    crowd: _Crowd,
    size: int,
    *,
    least: int,
    listed: list[set[int]],
    draws: Entropy,
) -> Positions:
    """Return one list per row, (rows, size), without columns of `listed`; -1 where none is free."""
    rows, columns, table = crowd
    lists = np.full((len(rows), size), -1)
    if not lists.size:
        return lists
    block_of = _blocks(columns, max(least, len(columns) // _MOST if table else 0))
    from_block = _plan_blocks(crowd, block_of, size, draws)
    owners, place = np.divmod(np.arange(lists.size), size)
    # Block by block, the rows in random order, all that a row takes from a block together.
    turn = np.argsort(draws.words(len(rows)), kind="stable")[owners]
    order = np.lexsort((turn, from_block.ravel()))
    members = np.argsort(block_of, kind="stable")
    packs = np.split(members, np.cumsum(np.bincount(block_of))[:-1])
    bounds = np.cumsum(np.bincount(from_block.ravel(), minlength=len(packs)))
    for pack, units in zip(packs, np.split(order, bounds[:-1]), strict=True):
        cards = _hand_out(pack, owners[units].tolist(), listed, draws)
        lists[owners[units], place[units]] = cards
    return lists


def _hand_out(
    pack: Positions, owners: list[int], listed: list[set[int]], draws: Entropy
) -> list[int]:
    """Deal each owner a card that they do not have; shuffle the pack again when it is empty."""
    dealt: list[int] = []
    cards: list[int] = []
    for at, owner in enumerate(owners):
        if at % len(pack) == 0:
            cards = pack[np.argsort(draws.words(len(pack)), kind="stable")].tolist() + cards
        own = listed[owner]
        free = next((k for k in reversed(range(len(cards))) if cards[k] not in own), None)
        card = _swapped(dealt, owners, cards, listed) if free is None else cards.pop(free)
        dealt.append(card)
        own.update({card} - {-1})
    return dealt


def _swapped(dealt: list[int], owners: list[int], cards: list[int], listed: list[set[int]]) -> int:
    """Take a dealt card back from an owner who can get another one; -1 if there is none."""
    own = listed[owners[len(dealt)]]
    for at in reversed(range(len(dealt))):
        card, theirs = dealt[at], listed[owners[at]]
        other = next((unused for unused in cards if unused not in theirs), -1)
        if card not in own | {-1} and other >= 0:
            cards.remove(other)
            dealt[at] = other
            theirs.symmetric_difference_update((card, other))
            return card
    return -1


def _blocks(points: Floats, least: int) -> Positions:
    """Return the block of each point; neighbours share a block of at least `least` points.

    Points at one place are in one block.
    """
    places, place_of = np.unique(points, axis=0, return_inverse=True)
    weight = np.bincount(place_of.ravel())
    block_of, blocks = np.empty(len(places), dtype=np.int64), 0
    parts = [np.arange(len(places))]
    while parts:
        part = parts.pop()
        halves = _halved(places, weight, part, least)
        if halves:
            parts += halves
        else:
            block_of[part] = blocks
            blocks += 1
    return block_of[place_of.ravel()]


def _halved(
    places: Floats, weight: Positions, part: Positions, least: int
) -> list[Positions] | None:
    """Return the part cut in two along its widest side that leaves enough in both, if any."""
    total, most = int(weight[part].sum()), int(weight[part].max())
    if total < 2 * least * (1 if most >= least else _ROOM):
        return None
    for axis in np.argsort(-np.ptp(places[part], axis=0), kind="stable"):
        order = part[np.argsort(places[part, axis], kind="stable")]
        below = np.cumsum(weight[order])[:-1]
        fits = np.flatnonzero((below >= least) & (below <= total - least))
        if len(fits):
            cut = fits[np.argmin(np.abs(2 * below[fits] - total))] + 1
            return [order[cut:], order[:cut]]
    return None


def _plan_blocks(crowd: _Crowd, block_of: Positions, size: int, draws: Entropy) -> Positions:
    """Return the block that each of a row's candidates comes from, (rows, size), at the least cost.

    Every column is listed as often as every other, or once more: first all columns get an equal
    share, then the remaining entries go to columns that get one more each.
    """
    rows, columns, table = crowd
    place_of = _blocks(rows, max(size, len(rows) // _MOST if table else 0))
    people, room = np.bincount(place_of), np.bincount(block_of)
    places, centres = _centres(rows, place_of), _centres(columns, block_of)
    costs = None if table is None else _block_costs(table, place_of, block_of)
    share, rest = divmod(size * len(rows), len(columns))
    wanted, flows = size * people, []
    if share:
        if costs is None:
            plan = transport(centres, places, share * room, wanted, gap=_GAP)
        else:
            plan = ship(costs.T, share * room, wanted, gap=_GAP)
        flows.append((plan.targets, plan.sources, plan.amounts))
        shipped = np.bincount(plan.targets, plan.amounts, minlength=len(places))
        wanted = wanted - shipped.astype(np.int64)
    if rest:
        asking = np.flatnonzero(wanted)
        if costs is None:
            plan = transport(places[asking], centres, wanted[asking], room, gap=_GAP)
        else:
            plan = ship(costs[asking], wanted[asking], room, gap=_GAP)
        flows.append((asking[plan.sources], plan.targets, plan.amounts))
    sources, targets, amounts = (np.concatenate(part) for part in zip(*flows, strict=True))
    order = np.lexsort((targets, sources))
    units = np.repeat(targets[order], amounts[order])  # by place; inside a place by block
    # Dealt round and round to the people of a place, so that each gets a fair mix of its blocks.
    members = np.lexsort((draws.words(len(rows)), place_of))
    start = np.cumsum(people) - people
    at = place_of[members]
    turn = np.arange(len(rows)) - start[at]
    planned = np.empty((len(rows), size), dtype=np.int64)
    for k in range(size):
        planned[members, k] = units[size * start[at] + k * people[at] + turn]
    return planned


def _centres(points: Floats, block_of: Positions) -> Floats:
    """Return the mean place of each block."""
    summed = np.stack([np.bincount(block_of, weights=axis) for axis in points.T], axis=1)
    return np.asarray(summed / np.bincount(block_of)[:, None], dtype=np.float64)


def _block_costs(table: Table, place_of: Positions, block_of: Positions) -> Floats:
    """Return what a pair costs by blocks: the mean over the people of both."""
    costs, ours, theirs = table
    shares = []
    for blocks, kinds, width in ((place_of, ours, len(costs)), (block_of, theirs, costs.shape[1])):
        counts = np.zeros((blocks.max() + 1, width))
        np.add.at(counts, (blocks, kinds), 1.0)
        shares.append(counts / counts.sum(axis=1, keepdims=True))
    return np.asarray(shares[0] @ costs @ shares[1].T)


def settled(
    ours: Floats,
    theirs: Floats,
    lists: Sequence[Positions],
    *,
    asks: Sequence[int] = (),
    radii: Sequence[float] = (),
) -> Positions:
    """Return the partner of each row, or -1, when all settle by their true places and nobody lies.

    With `radii` people only know in which ring a candidate is, and not who in it is nearer; nobody
    settles beyond the last radius.

    At every step each free row asks the nearest column that would take it, and each column keeps
    the nearest row that asked (deferred acceptance). Rows that are free after the first list go on
    with the second. `asks` says how many steps a list has; by default as many as change something.
    """
    partner, held = np.full(len(ours), -1), np.full(len(theirs), -1)
    draws = seeded(len(ours))
    for turn, named in enumerate(lists):
        apart = np.hypot.reduce(ours[:, None, :] - theirs[named], axis=2)
        if len(radii):
            rings = np.searchsorted(radii, apart)
            lots = draws.uniforms(apart.size).reshape(apart.shape)
            apart = np.where(rings < len(radii), rings + lots, np.inf)
        apart[(named < 0) | (partner[:, None] >= 0) | (held[named] >= 0)] = np.inf
        held_at, steps = np.full(len(theirs), np.inf), ever() if not asks else range(asks[turn])
        for _ in steps:
            (rows,) = np.nonzero(partner < 0)
            would = np.where(apart[rows] < held_at[named[rows]], apart[rows], np.inf)
            best = would.argmin(axis=1)
            near = would[np.arange(len(rows)), best]
            some = np.isfinite(near)
            if not some.any():
                break
            rows, near, columns = rows[some], near[some], named[rows, best][some]
            order = np.lexsort((near, columns))
            first = order[np.concatenate([[True], np.diff(columns[order]) > 0])]
            rows, columns, near = rows[first], columns[first], near[first]
            replaced = held[columns]
            partner[replaced[replaced >= 0]] = -1
            held[columns], held_at[columns], partner[rows] = rows, near, columns
    return partner
