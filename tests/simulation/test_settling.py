"""The results of settling that a simulation computes are those of people who write letters."""

from collections.abc import Sequence

import numpy as np
import pytest

from coatcheck.protocol.settling.rings import Cell, Rings
from coatcheck.protocol.terms import SettleTerms
from coatcheck.simulation.settling import settle_by_rings
from coatcheck.tasks.contract import Positions
from coatcheck.tasks.shortlists import candidates
from support.settling import settle

# A ring for each distance, so that few candidates are equally far.
RADII = tuple(sorted({float(np.hypot(x, y)) + 1e-9 for x in range(6) for y in range(6)}))
FINE = Rings(RADII, side=1.0, axes=2)


@pytest.mark.parametrize("asks", [(1,), (2,), (3, 2), (1, 1)])
def test_the_short_way_settles_as_people_do(asks: tuple[int, ...]) -> None:
    """Step by step, the arrays pair the same people as the letters of honest people.

    Only where nobody has two candidates in one ring: there the keys of pairs decide.
    """
    draws, compared = np.random.default_rng(sum(asks)), 0
    terms = SettleTerms(cell=1.0, rings=RADII, asks=asks)
    while compared < 4:
        few, many = (draws.integers(0, 9, (n, 2)).astype(np.float64) for n in (4, 7))
        lists = candidates(few // 3, many // 3, count=2)[: len(asks)]
        cells = [[tuple(map(int, place)) for place in side] for side in (few, many)]
        if has_ties(lists, cells):
            continue
        compared += 1
        plain = [[[int(one) for one in row if one >= 0] for row in named] for named in lists]
        there = settle(*plain, cells=(cells[0], cells[1]), asks=asks, rings=FINE)
        assert settle_by_rings(few, many, lists, terms=terms).tolist() == there


def has_ties(lists: Sequence[Positions], cells: Sequence[Sequence[Cell]]) -> bool:
    """Return whether somebody has two candidates of a pass in one ring."""
    for named in lists:
        pairs = [(a, b) for a, row in enumerate(named.tolist()) for b in row if b >= 0]
        rings = [(a, b, FINE.ring(cells[0][a], cells[1][b])) for a, b in pairs]
        ours, theirs = [(a, ring) for a, _, ring in rings], [(b, ring) for _, b, ring in rings]
        if len(set(ours)) < len(ours) or len(set(theirs)) < len(theirs):
            return True
    return False
