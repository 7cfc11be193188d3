"""Estimates: a batch's reports as the numbers that a task reads, and where they can come from."""

import numpy as np
from numpy.typing import NDArray

from coatcheck import tasks
from coatcheck.domains import Ball, Box, Categories
from coatcheck.errors import Refused
from coatcheck.randomizers import Decode, FieldwiseResponse, GridResponse, Prior, Randomizer
from coatcheck.randomizers.reading import LEARNED, believed


def numbers(
    randomizer: Randomizer,
    reports: NDArray[np.int64],
    how: Decode | None = None,
    *,
    prior: Prior | None = None,
) -> NDArray[np.float64]:
    """Estimate reports as numbers, (n, d): a label by its place in the list, fields in a row.

    A public prior is where a learned decode starts from; other decodes and fields ignore it.
    """
    if how not in LEARNED:
        prior = None
    if isinstance(randomizer, GridResponse) and isinstance(randomizer.domain, Categories):
        return randomizer.label_points(reports, how, prior=prior).astype(np.float64)
    if isinstance(randomizer, FieldwiseResponse):
        fields = zip(randomizer.parts.values(), randomizer.split_reports(reports), strict=True)
        found = [numbers(part, own, randomizer.part_decode(part, how)) for part, own in fields]
        return np.concatenate(found, axis=1)
    return np.asarray(randomizer.estimate(reports, how, prior=prior), dtype=np.float64)


def belief(
    randomizer: Randomizer, reports: NDArray[np.int64], *, prior: Prior | None = None
) -> tasks.Belief:
    """Say where the values behind reports can have been, by the density that the batch shows."""
    domain = randomizer.domain
    if not isinstance(domain, Box | Ball) or not randomizer.learns:
        raise Refused(
            f"reports of {randomizer.name} on this domain cannot be read by where people are:"
            " choose a task that needs estimates only"
        )
    kinds, weights, places = believed(randomizer, reports, prior=prior)
    return tasks.Belief(kinds, weights, domain.from_unit(places))


def possible_reports(
    randomizer: Randomizer, reports: NDArray[np.int64], in_range: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Tell which reports the randomizer can give at all: all values share one set of them."""
    possible = np.zeros(len(reports), dtype=np.bool_)
    if in_range.any():
        origin = np.zeros((int(in_range.sum()), randomizer.domain.dimension), dtype=np.int64)
        possible[in_range] = randomizer.density(reports[in_range], origin) > 0
    return possible
