"""What every sheet about places does with a design: draw reports, read them, average over seeds."""

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
"""Where a server puts the people of each group, and what else it believes, if that is asked."""

_EVERY: Final = {"none": (0.0,), "local": LOCAL_BUDGETS}


def budgets(model: str, *, quick: bool) -> tuple[float, ...]:
    """Return the budgets of a model; without a report there is none."""
    every = _EVERY.get(model, GLOBAL_BUDGETS)
    return every[2:4] if quick and len(every) > 1 else every


def spread(name: str, found: Sequence[float]) -> Row:
    """Return a mean and its standard error over seeds; with one seed there is none."""
    error = float(np.std(found, ddof=1)) / math.sqrt(len(found)) if len(found) > 1 else math.nan
    return {name: float(np.mean(found)), f"{name}_se": error}


def draw(values: Floats, made: Design | None, seed: int, *, prior: Prior | None = None) -> Floats:
    """Return estimates from one report per value; seeded: a SIMULATION.

    A learned reading starts from the prior, if there is one, as the server's does.

    Without a design nobody reports, and everybody is put into the middle: next to it, so that
    no order of the people can help a matching.
    """
    if made is None:
        return nobody(values, np.zeros(values.shape[1]), seed)
    reports = made.randomizer.randomize(values, seeded(seed))
    start = prior if made.how in LEARNED else None
    estimates: Floats = made.randomizer.estimate(reports, made.how, prior=start)
    return estimates


def nobody(values: Floats, middle: Floats, seed: int) -> Floats:
    """Return one place for everybody, without looking at them."""
    return middle + 1e-9 * (seeded(seed).uniforms(values.size).reshape(values.shape) - 0.5)


def draw_groups(
    groups: Sequence[Floats],
    made: Sequence[Design | None],
    seed: int,
    *,
    aware: bool = False,
    prior: Prior | None = None,
) -> Places:
    """Return estimates of each group; if aware, also where the values can have been."""
    both = list(zip(groups, made, strict=True))
    places = [draw(values, one, seed + g, prior=prior) for g, (values, one) in enumerate(both)]
    if not aware:
        return places, None
    return places, [_belief(v, one, seed + g, prior) for g, (v, one) in enumerate(both) if one]


def _belief(values: Floats, made: Design, seed: int, prior: Prior | None) -> Belief:
    """Return what a server believes about the values behind the same reports."""
    reports = made.randomizer.randomize(values, seeded(seed))
    kinds, weights, places = batch_belief(made.randomizer, reports, prior=prior)
    return Belief(kinds, weights, SQUARE.from_unit(places))


def error(values: Floats, estimates: Floats) -> float:
    """Return the mean l2 error."""
    return float(np.linalg.norm(estimates - values, axis=1).mean())
