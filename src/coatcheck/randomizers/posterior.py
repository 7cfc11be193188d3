"""Reading reports with what is known anyway: the mean of where a value can have been.

`estimate` needs nothing but the report. A server that also has public examples of what people
hold (its own validation data, last year's published map) can weigh them by how likely each makes
the report; no other reading has a smaller mean squared error under that prior. It is computed from
the report alone, so it costs no privacy. Sees reports, never values.
"""

from typing import Final

import numpy as np

from coatcheck.domains import Ball, Box, Floats
from coatcheck.errors import Misuse
from coatcheck.randomizers.contract import Randomizer, Reports

_PAIRS: Final = 1 << 17  # of a report and a place at a time: what they need fits a core's cache


def posterior_mean(randomizer: Randomizer, reports: Reports, *, prior: Floats) -> Floats:
    """Return the mean of where each value can have been, in the user's units.

    `prior` holds places that were equally likely before the report: (m, d) if they are the same
    for everybody, (n, m, d) if each person has their own. *Assumes:* the prior is public, or the
    server's own; never another person's value.
    """
    domain, reports = randomizer.domain, np.asarray(reports)
    if not isinstance(domain, Box | Ball):
        raise Misuse(f"a mean needs a Box or a Ball, not {domain}")
    if reports.ndim != 2 or reports.shape[1] != randomizer.width:
        raise Misuse(f"reports must have the shape (n, {randomizer.width}), got {reports.shape}")
    places = _everybodys(prior, len(reports), domain.dimension)
    means = np.empty((len(reports), domain.dimension))
    size = max(1, _PAIRS // places.shape[1])
    for start in range(0, len(reports), size):
        rows = slice(start, start + size)
        means[rows] = _means(randomizer, domain, reports[rows], places[rows])
    return means


def _everybodys(prior: Floats, n: int, d: int) -> Floats:
    """Return the places of each of n people, (n, m, d), without copying shared ones."""
    places = np.asarray(prior, dtype=np.float64)
    if places.ndim == 2:
        places = np.broadcast_to(places, (n, *places.shape))
    if places.ndim != 3 or places.shape[0] != n or places.shape[1] == 0 or places.shape[2] != d:
        raise Misuse(
            f"a prior must have the shape (m, {d}), or ({n}, m, {d}) with places of each person's "
            f"own, and at least one place; got {np.shape(prior)}"
        )
    return places


def _means(randomizer: Randomizer, domain: Box | Ball, reports: Reports, places: Floats) -> Floats:
    n, m, d = places.shape
    points = domain.snap(places.reshape(n * m, d))
    likely = randomizer.density(np.repeat(reports, m, axis=0), points).reshape(n, m)
    whole = likely.sum(axis=1, keepdims=True)
    if not (whole > 0).all():
        raise Misuse(f"there are reports that {randomizer.name} does not give from any place")
    means: Floats = np.einsum("km,kmd->kd", likely / whole, places)
    return means
