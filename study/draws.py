"""Steps of every sheet about places: draw reports by a design, decode them, average over seeds."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from coatcheck import Prior, seeded
from coatcheck.randomizers.density import LEARNED, batch_belief
from coatcheck.tasks import Belief
from study.conventions import GLOBAL_BUDGETS, LOCAL_BUDGETS, SQUARE, Design
from study.sheets import Row

Floats = NDArray[np.float64]
Places = tuple[list[Floats], list[Belief] | None]
"""Estimated places of each group, and where requested the server's beliefs about them."""

_EVERY: Final = {"none": (0.0,), "local": LOCAL_BUDGETS}


def budgets(model: str, *, quick: bool) -> tuple[float, ...]:
    """Return the budgets of a model; `none` has no report and no budget."""
    every = _EVERY.get(model, GLOBAL_BUDGETS)
    return every[2:4] if quick and len(every) > 1 else every


def spread(name: str, values: Sequence[float]) -> Row:
    """Return a mean and its standard error over seeds; with one seed there is none."""
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return {name: float(np.mean(values)), f"{name}_se": error}


def draw(values: Floats, design: Design | None, seed: int, *, prior: Prior | None = None) -> Floats:
    """Return estimates from one report per value; seeded: a SIMULATION.

    A learned decoder starts from the prior, if there is one, as the server's does.

    Without a design nobody reports, and everybody is placed next to the middle: not all at one
    point, where the order of the people could help a matching.
    """
    if design is None:
        return nobody(values, np.zeros(values.shape[1]), seed)
    reports = design.randomizer.randomize(values, seeded(seed))
    start = prior if design.how in LEARNED else None
    estimates: Floats = design.randomizer.estimate(reports, design.how, prior=start)
    return estimates


def nobody(values: Floats, middle: Floats, seed: int) -> Floats:
    """Return places next to one point for everybody, independent of the values."""
    return middle + 1e-9 * (seeded(seed).uniforms(values.size).reshape(values.shape) - 0.5)


def draw_groups(
    groups: Sequence[Floats],
    designs: Sequence[Design | None],
    seed: int,
    *,
    aware: bool = False,
    prior: Prior | None = None,
) -> Places:
    """Return estimates of each group; if `aware`, also beliefs about where the values were."""
    both = list(zip(groups, designs, strict=True))
    places = [draw(values, one, seed + g, prior=prior) for g, (values, one) in enumerate(both)]
    if not aware:
        return places, None
    return places, [_belief(v, one, seed + g, prior) for g, (v, one) in enumerate(both) if one]


def _belief(values: Floats, design: Design, seed: int, prior: Prior | None) -> Belief:
    """Return the server's belief about the values behind the same reports."""
    reports = design.randomizer.randomize(values, seeded(seed))
    of = batch_belief(design.randomizer, reports, prior=prior)
    return Belief(of.kinds, of.weights, SQUARE.from_unit(of.places))


def error(values: Floats, estimates: Floats) -> float:
    """Return the mean l2 error."""
    return float(np.linalg.norm(estimates - values, axis=1).mean())
