"""Errors and choices under what is known of where people are.

`errors_under` predicts how far people are from where they are read, if a prior is right about
them: on average and for the 90th and 99th percentile. `report_free` is the best answer that needs
no report at all; a mechanism that loses to it is not worth its noise.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import numpy as np

from coatcheck.domains import Ball, Box, Categories, Domain, Floats, Product
from coatcheck.entropy import seeded
from coatcheck.errors import Misuse
from coatcheck.randomizers.caps import BoundedResponse
from coatcheck.randomizers.cells import Cells
from coatcheck.randomizers.choice import (
    Budget,
    Choice,
    Errors,
    Shape,
    any_ldp,
    by_error,
    fit,
)
from coatcheck.randomizers.contract import Decode, Randomizer
from coatcheck.randomizers.fieldwise import FieldwiseResponse
from coatcheck.randomizers.grid import GridResponse, finer_grids
from coatcheck.randomizers.prediction import evenly
from coatcheck.randomizers.prior import Prior
from coatcheck.randomizers.reading import LEARNED, geometric_median, read

_FINE: Final = 2_304
_NODES: Final = 1 << 13
_PEOPLE: Final = 20_000
_FEW: Final = 3_000  # while searching
_RADII: Final = tuple(float(r) for r in np.geomspace(0.03, 0.9, 12))
_ENOUGH: Final = 200
_KNOWN: Final = 3.0
_PARTS: Final = 9


def misses(domain: Domain, estimates: Any, values: Any) -> Floats:
    """Return how far each estimate is from its value, in the unit of the domain."""
    if isinstance(domain, Categories):
        return np.asarray(np.asarray(estimates) != np.asarray(values), dtype=np.float64)
    if isinstance(domain, Product):
        raise TypeError("fields have errors of their own; this is a bug in coatcheck")
    unit = domain.from_unit(np.ones((1, domain.dimension)))
    unit = unit - domain.from_unit(np.zeros((1, domain.dimension)))
    return np.asarray(np.linalg.norm((estimates - values) / unit * domain.scale, axis=1))


def errors_under(made: Randomizer, how: Decode, prior: Prior, *, people: int = _PEOPLE) -> Errors:
    """Return the errors if people are as a prior says, from a fixed draw of made-up people.

    A learned decode is given the prior, as if it had learned it: a large batch comes close.
    """
    entropy, domain = seeded(0), made.domain
    values = prior.draw(domain, people, entropy)
    reports = made.randomize(values, entropy, clamp=True)
    if how in LEARNED:
        places = read(made, reports, mean=how == LEARNED[1], prior=prior, known=True).places
        estimates = _in_units(domain, np.asarray(places))
    else:
        estimates = made.estimate(reports, how)
    found = misses(domain, estimates, values)
    high = np.quantile(found, (0.9, 0.99))
    return Errors(
        mean=float(found.mean()), percentile_90=float(high[0]), percentile_99=float(high[1])
    )


def report_free(domain: Domain, *, goal: str = "mean", prior: Prior | None = None) -> float | None:
    """Return the error of the best answer that is the same for everybody, without any report.

    Under a prior, of its median or likeliest label; else of the middle. None where there is no
    such answer: for unbiased estimates, for tasks and for several fields.
    """
    if isinstance(domain, Product) or goal not in {"mean", "worst"}:
        return None
    if isinstance(domain, Categories):
        even = 1 - 1 / len(domain.labels)
        if prior is None or prior.is_even or goal == "worst":
            return even
        return 1 - float(prior.on(Cells.of(domain, most=_FINE)).max())
    if goal == "worst":
        reach = (
            np.ones(domain.dimension) if domain.p == math.inf else np.eye(1, domain.dimension)[0]
        )
        return float(np.linalg.norm(reach * domain.scale))
    if prior is None or prior.is_even:
        places, _ = evenly(_NODES, dimension=domain.dimension, p=domain.p, extra=1)
        return float(np.linalg.norm(places * domain.scale, axis=1).mean())
    cells = Cells.of(domain, most=_FINE)
    density, places = prior.on(cells)[None], cells.places * domain.scale
    middle = geometric_median(density, places)
    return float(density[0] @ np.linalg.norm(places - middle, axis=1))


def enough_to_learn(made: Randomizer, people: int) -> bool:
    """Return whether a batch of so many reports is likely to show where people are.

    Two hundred reports are enough at a local ε of 3; below, information shrinks with its square.
    A grid with a few large cells tells too little, whatever the crowd.
    """
    if isinstance(made, FieldwiseResponse):
        return all(enough_to_learn(part, people) for part in made.parts.values())
    if "learned" not in made.decodes or isinstance(made.domain, Categories):
        return False  # labels are read as told, so that they can be counted
    parts = getattr(made, "total", _PARTS)
    if isinstance(made.domain, Box) and parts < _PARTS:
        return False
    return people >= _ENOUGH * max(1.0, (_KNOWN / made.epsilon) ** 2)


def ranked_under(
    prior: Prior, *, domain: Domain, budget: Budget, quick: bool = False
) -> list[Choice]:
    """Return each family at its best if people are as a prior says, the least error first."""
    found: dict[str, Choice] = {}
    for shape in _shapes(domain, budget):
        made = fit(shape, budget)
        how: Decode = "learned" if "learned" in made.decodes else made.decodes[0]
        errors = errors_under(made, how, prior, people=_FEW)
        best = found.get(made.name)
        if made.exact and (best is None or errors.mean < best.error):
            found[made.name] = Choice(randomizer=made, how=how, error=errors.mean)
    if not found:
        raise Misuse(f"no exact mechanism serves a prior on {domain}")
    free = report_free(domain, prior=prior)
    judged = []
    for one in found.values():
        errors = errors_under(one.randomizer, one.how, prior, people=_FEW if quick else _PEOPLE)
        judged.append(
            Choice(
                randomizer=one.randomizer,
                how=one.how,
                error=errors.mean,
                report_free=free,
                under_prior=errors,
            )
        )
    return sorted(judged, key=by_error)


def _shapes(domain: Domain, budget: Budget) -> Iterator[Shape]:
    if isinstance(domain, Product):
        raise Misuse("a prior is of one field: choose for each field by itself")
    if isinstance(domain, Categories):
        yield partial(GridResponse, domain=domain)
        return
    for radius in _RADII:
        yield partial(BoundedResponse, domain=domain, radius=radius)
    if isinstance(domain, Box):
        most = 16 + 4 * math.exp(min(7.0, budget(any_ldp)))
        size = 1.0
        for cells in finer_grids(domain):
            if math.prod(cells) > most:
                break
            if math.prod(cells) >= size:  # each about a third finer than the one before
                size = 1.3 * math.prod(cells)
                if math.prod(cells) > 1:
                    yield partial(GridResponse, domain=domain, cells=cells)


def _in_units(domain: Domain, places: Floats) -> Any:
    if isinstance(domain, Box | Ball):
        return domain.from_unit(places)
    return domain.values(places.astype(np.int64))
