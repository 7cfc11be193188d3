"""How a plan's error would change with another crowd or another promise, for charts."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, TypeAlias

from coatcheck.domains import Domain
from coatcheck.planning.search import Promise, designs
from coatcheck.randomizers import Goal

Curves: TypeAlias = dict[str, list[tuple[float, float]]]

_CROWDS: Final = (0.1, 0.3, 1.0, 3.0, 10.0)
_BUDGETS: Final = (0.2, 0.45, 1.0, 1.7, 3.0)


def against_crowd(promise: Promise, *, domain: Domain, goal: Goal) -> Curves:
    """Give each mechanism's least error for a tenth to ten times the crowd."""
    gone = promise.corrupted + promise.exposed + promise.lost
    crowds = sorted({max(gone + 2, round(promise.crowd * factor)) for factor in _CROWDS})
    return _curves(((n, replace(promise, crowd=n)) for n in crowds), domain, goal)


def against_epsilon(promise: Promise, *, domain: Domain, goal: Goal) -> Curves:
    """Give each mechanism's least error for a fifth to three times the promised ε."""
    budgets = [promise.epsilon * factor for factor in _BUDGETS]
    return _curves(((x, replace(promise, epsilon=x)) for x in budgets), domain, goal)


def _curves(points: Iterable[tuple[float, Promise]], domain: Domain, goal: Goal) -> Curves:
    lines: Curves = {}
    for x, promise in points:
        for design in designs(promise, domain=domain, goal=goal, quick=True):
            if math.isfinite(design.error):
                lines.setdefault(design.randomizer.name, []).append((x, design.error))
    return lines
