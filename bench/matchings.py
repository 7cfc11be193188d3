"""Whether matchings are right: random rounds against a plain solver that sees every pair.

`python -m bench matchings` holds 2,354 rounds, or as many as COATCHECK_ROUNDS says. Sides are equal
or not, places repeat heavily or lie on a lattice, and coordinates are moved by up to 1e9 and scaled
by up to 1e150 either way. A least-cost matching must cost what scipy's dense solver finds, within
the gap that is stated; a maximum matching must have as many pairs as scipy's on the whole graph,
each within the radius. With `--scipy` it measures instead how fast our solvers are beside SciPy's
(`bench/_solvers.py`).
"""

import math
import os
import sys
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from bench import Figure, _solvers, show
from coatcheck.tasks import Floats
from coatcheck.tasks.solvers import assignment
from coatcheck.tasks.solvers.assignment import assign
from coatcheck.tasks.solvers.maximum import maximum

ROUNDS = 2354
_CLOSE = 1e-9  # of the cost, for the rounding of sums
_KINDS = ("spread", "lattice", "few places", "one place", "clusters")
_MOVED = (0.0, 0.0, 1e3, 1e9, -1e9)
# Powers of two, about 1e-160, 1e-9 and 1e150: what is at the radius on a lattice stays there.
_SCALED = (1.0, 1.0, 2.0**-531, 2.0**-30, 2.0**498)


@dataclass(frozen=True)
class Round:
    """Two sides, and a radius in their unit."""

    rows: Floats
    columns: Floats
    radius: float
    description: str


def draw(seed: int) -> Round:
    """Return a random round, with a description."""
    draws = np.random.default_rng(seed)
    kind = _KINDS[seed % len(_KINDS)]
    few = int(draws.integers(1, 60))
    many = few if draws.random() < 0.5 else few + int(draws.integers(1, 30))
    axes = int(draws.integers(1, 4))
    sides = [_places(kind, size, axes, draws) for size in (few, many)]
    moved, scaled = (float(draws.choice(one)) for one in (_MOVED, _SCALED))
    if scaled != 1.0:
        moved = 0.0  # what is left after so large a move would be none of the places
    sides = [(side + moved) * scaled for side in sides]
    radius = float(draws.choice((0.05, 1.0, 3.0, 5.0))) * scaled
    if kind == "clusters":
        radius *= 1.003  # hundredths are no binary fractions: at the radius, rounding would decide
    if draws.random() < 0.5:
        sides.reverse()
    description = (
        f"seed {seed}: {kind}, {len(sides[0])} x {len(sides[1])}, moved {moved:g}, {scaled:g}"
    )
    return Round(sides[0], sides[1], radius, description)


def _places(kind: str, size: int, axes: int, draws: np.random.Generator) -> Floats:
    if kind == "one place":
        others = draws.integers(0, 3, (size, axes)).astype(float)
        return np.where(draws.random((size, 1)) < 0.9, 0.0, others)
    if kind == "few places":
        return 2 * draws.integers(0, 3, (4, axes)).astype(float)[draws.integers(0, 4, size)]
    if kind == "lattice":
        return draws.integers(0, 8, (size, axes)).astype(float)
    if kind == "clusters":
        return np.round(draws.integers(0, 3, (size, 1)) * 4.0 + draws.random((size, axes)), 2)
    return draws.uniform(-5, 5, (size, axes))


def wrong(one: Round) -> list[str]:
    """Return what is wrong with the matchings of a round; empty if they are right."""
    gaps = one.rows[:, None, :] - one.columns[None, :, :]
    apart = np.hypot.reduce(gaps, axis=2)
    unit = float(apart.max()) or 1.0
    faults = []
    few, many = sorted((one.rows, one.columns), key=len)
    costs = (apart if few is one.rows else apart.T) / unit
    best = float(costs[linear_sum_assignment(costs)].sum())
    with patch.object(assignment, "_SMALL_PAIRS", 0):  # so small a round would go to scipy itself
        matching = assign(few, many)
    cost = float(costs[np.arange(len(few)), matching.columns].sum())
    if len(np.unique(matching.columns)) < len(few) or matching.columns.min() < 0:
        faults.append(f"{one.description}: not everybody has a separate partner")
    if cost - best > (matching.gap + _CLOSE) * max(best, 1e-12):
        faults.append(
            f"{one.description}: cost {cost!r}, least {best!r}, stated gap {matching.gap:g}"
        )
    near = apart <= one.radius
    most = int((maximum_bipartite_matching(csr_array(near), perm_type="column") >= 0).sum())
    partner = maximum(one.rows, one.columns, radius=one.radius)
    paired = np.flatnonzero(partner >= 0)
    far = int((~near[paired, partner[paired]]).sum())
    if len(np.unique(partner[paired])) < len(paired) or far or len(paired) != most:
        faults.append(f"{one.description}: {len(paired)} pairs, {far} too far, {most} possible")
    return faults


def main() -> int:
    """Run the rounds; return 1 if a matching was wrong."""
    if "--scipy" in sys.argv:
        return _solvers.main()
    rounds = int(os.environ.get("COATCHECK_ROUNDS", ROUNDS))
    faults = [sentence for seed in range(rounds) for sentence in wrong(draw(seed))]
    for sentence in faults[:20]:
        print(sentence)
    return show(
        [
            Figure(what="rounds", value=rounds, unit=""),
            Figure(what="wrong matchings", value=len(faults), unit="", target=math.nextafter(1, 0)),
        ]
    )
