r"""Public priors: where people are likely to be, and estimates under such a prior.

A prior is public data: a census grid, a street network, a list of venues, or the density that the
noisy reports of earlier rounds showed. Never build one from private data. Mechanisms are chosen
for a prior and reports are decoded by it; both cost no privacy, because a prior does not depend on
the people who report.

    >>> prior = Prior.from_points([(0.1, 0.2), (0.1, 0.3), (0.8, 0.8)])
    >>> len(prior.points), prior.source
    (3, '3 places')
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coatcheck.domains import Ball, Box, Categories, Domain, Floats, Product
from coatcheck.domains.tables import read_places
from coatcheck.entropy import Entropy
from coatcheck.errors import Misuse
from coatcheck.randomizers.contract import Randomizer, Reports
from coatcheck.randomizers.density import Cells, decode_batch

_BLURS: Final = 4  # rounds of smoothing: a venue also represents its neighbourhood
_FINE: Final = 2_304
_TOO_FEW: Final = "a prior must have at least two different places with weights above 0; add places"


@dataclass(frozen=True, eq=False)
class Prior:
    """A public density of people.

    Attributes:
        points: places in the user's units, (n, d), or labels, (n,); empty for the even prior.
        weights: how many people each place represents.
        source: where the data is from, for messages.
    """

    points: NDArray[Any]
    weights: Floats
    source: str

    # -- sources of priors

    @classmethod
    def from_points(cls, points: Any, *, weights: ArrayLike | None = None) -> "Prior":
        """Build a prior from public places, one row each, or from labels.

        *Assumes:* the places are public, never those of the people who will report.
        """
        return cls._checked(points, weights, source="")

    @classmethod
    def from_grid(cls, grid: ArrayLike, *, domain: Box) -> "Prior":
        """Build a prior from a raster over a box: `grid[i, j]` people in that cell.

        The first index runs along the first axis of the box from `lo` to `hi`, and so on.
        """
        counts = _numbers(grid)
        if not isinstance(domain, Box):
            raise Misuse(f"`grid` must be a raster over a Box, not over {domain}")
        if counts.ndim != domain.dimension:
            raise Misuse(
                f"`grid` must have one index per axis of the box, {domain.dimension}, got the "
                f"shape {counts.shape}"
            )
        if counts.size < 2:
            raise Misuse(f"`grid` must have at least two cells, got {counts.size}")
        _check_weights(counts)
        sides = [(np.arange(count) + 0.5) / count * 2 - 1 for count in counts.shape]
        places = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1)
        full = counts > 0
        shape = " x ".join(map(str, counts.shape))
        values = domain.from_unit(places[full])
        return cls._checked(values, counts[full], source=f"a grid of {shape} cells")

    @classmethod
    def from_file(cls, path: str | Path, *, columns: Sequence[str] = ()) -> "Prior":
        """Build a prior from a CSV or GeoJSON file of places, all of which must be readable.

        The error for a bad value names its line and column.
        """
        table = read_places(Path(path), columns=columns)
        return cls._checked(table.values, None, source=table.source)

    @classmethod
    def learned_from(cls, rounds: Iterable[tuple[Randomizer, Reports]]) -> "Prior":
        """Build a prior from the noisy reports of earlier rounds; this costs no privacy.

        Each round is a pair of its randomizer and its reports, all on one domain. Rounds that are
        too small to learn from add nothing.
        """
        points, weights, domains, count = [], [], set(), 0
        for randomizer, reports in rounds:
            domains.add(randomizer.domain)
            if "learned" not in randomizer.decodes or isinstance(randomizer.domain, Product):
                raise Misuse(
                    f"no density can be learned from {randomizer.name} on {randomizer.domain}; "
                    "give rounds of a mechanism with the decoder `learned`"
                )
            decoded = decode_batch(randomizer, np.asarray(reports))
            if decoded.learned:
                points.append(randomizer.domain.values(decoded.cells.points))
                weights.append(decoded.density * len(reports))
                count += len(reports)
        if len(domains) > 1:
            raise Misuse(
                "`rounds` must have one domain, got different domains; learn a prior for each"
            )
        if not points:
            raise Misuse("the earlier rounds have too few reports to learn from; use Prior.even()")
        everybody = np.concatenate(points), np.concatenate(weights)
        return cls._checked(*everybody, source=f"{count:,} earlier reports")

    @classmethod
    def even(cls, domain: Domain) -> "Prior":
        """Return the prior without knowledge: all places of a domain are equally likely."""
        return cls(np.empty((0, domain.dimension)), np.empty(0), "people spread evenly")

    @classmethod
    def _checked(cls, points: Any, weights: ArrayLike | None, *, source: str) -> "Prior":
        try:
            rows = np.asarray(points)
        except ValueError:  # rows of different lengths
            rows = np.empty(())
        if rows.dtype.kind not in "fiuU" or rows.ndim not in {1, 2}:
            raise Misuse("a prior must be places, one row of numbers each, or labels")
        if rows.dtype.kind != "U":
            rows = rows.astype(np.float64)
            rows = rows if rows.ndim == 2 else rows[:, None]
            if not np.isfinite(rows).all():
                row, axis = np.argwhere(~np.isfinite(rows))[0]
                raise Misuse(
                    f"place {row} of the prior, axis {axis}, must be a finite number, got "
                    f"{rows[row, axis]}"
                )
        if len(rows) < 2:
            raise Misuse(_TOO_FEW)
        share = np.ones(len(rows)) if weights is None else _numbers(weights)
        if share.shape != (len(rows),):
            raise Misuse(
                f"`weights` must have one number per place, {len(rows)}, got {share.shape}"
            )
        _check_weights(share)
        if len(np.unique(rows[share > 0], axis=0)) < 2:
            raise Misuse(_TOO_FEW)
        places = rows.copy()
        places.setflags(write=False)
        return cls(places, share, source or f"{len(rows):,} places")

    # -- uses of priors

    @property
    def is_even(self) -> bool:
        """Return whether this is the even prior."""
        return len(self.points) == 0

    def on(self, cells: Cells) -> Floats:
        """Return the share of people in each cell of a domain."""
        if self.is_even:
            return cells.even
        density = cells.count(*self._inside(cells.domain))
        for _ in range(_BLURS):
            density = cells.smooth(density)
        return np.asarray(density / density.sum())

    def draw(self, domain: Domain, size: int, entropy: Entropy) -> Any:
        """Draw the values of `size` simulated people, in the user's units."""
        if isinstance(domain, Product):
            raise Misuse("a prior has one field; give one prior per field of a Product")
        if self.is_even:
            cells = Cells.of(domain, most=_FINE)
            return domain.values(cells.points[entropy.below(len(cells.points), size)])
        points, weights = self._inside(domain)
        upto = np.cumsum(weights)
        rows = np.searchsorted(upto, entropy.uniforms(size) * upto[-1], side="right")
        return domain.values(points[np.minimum(rows, len(points) - 1)])

    def check_not(self, values: Any) -> None:
        """Refuse a prior that was built from the values that are to be protected."""
        rows = np.asarray(values)
        if self.is_even or rows.size != self.points.size or rows.dtype.kind not in "fiuU":
            return
        own = np.sort(self.points.reshape(len(rows), -1), axis=0)
        if (own == np.sort(rows.reshape(len(rows), -1), axis=0)).all():
            raise Misuse(
                "this prior holds the very values that are to be protected; build it from public "
                "data, such as a census or last year's published map"
            )

    def _inside(self, domain: Box | Ball | Categories) -> tuple[NDArray[np.int64], Floats]:
        """Return the lattice points and weights of the places inside a domain."""
        labels = self.points.dtype.kind == "U"
        if isinstance(domain, Categories) != labels:
            raise Misuse(f"a prior of {'labels' if labels else 'places'} does not fit {domain}")
        if isinstance(domain, Categories):
            inside = np.asarray(np.isin(self.points, domain.labels))
        elif self.points.shape[1] != domain.dimension:
            raise Misuse(
                f"the prior's places must have {domain.dimension} coordinates, as the domain, got "
                f"{self.points.shape[1]}"
            )
        elif isinstance(domain, Box):
            above, below = self.points >= domain.lo, self.points <= domain.hi
            inside = np.asarray((above & below).all(axis=1))
        else:
            inside = np.asarray(np.linalg.norm(self.points, ord=domain.p, axis=1) <= domain.radius)
        weights = self.weights * inside
        if not weights.sum() > 0:
            raise Misuse(
                f"none of the prior's places ({self.source}) lies in the domain; are latitude and "
                "longitude swapped, or is it another city?"
            )
        points: Any = self.points[inside]
        return domain.snap(points), weights[inside]


def _numbers(weights: ArrayLike) -> Floats:
    try:
        return np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise Misuse("`weights` must be numbers, one per place or cell of the prior") from None


def _check_weights(weights: Floats) -> None:
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise Misuse("the weights of a prior must be finite numbers of at least 0")
    if not weights.sum() > 0:
        raise Misuse("at least one of the weights of a prior must be above 0")


# -- decoding by public examples
#
# `estimate` needs nothing but the report. A server that also has public examples of what people
# hold (its own validation data, last year's published map) can weigh them by how likely each makes
# the report. No other decoder has a smaller mean squared error under that prior. The estimate is
# computed from the report alone, so it costs no privacy.
_PAIRS: Final = 1 << 17  # pairs of a report and a place at a time, which fit a core's cache


def posterior_mean(randomizer: Randomizer, reports: Reports, *, prior: Floats) -> Floats:
    """Return the posterior mean of each value, in the user's units.

    `prior` holds places that are equally likely before the report: (m, d) if they are the same
    for everybody, (n, m, d) if they differ by person. *Assumes:* the prior is public or belongs to
    the server; it is never another person's value.
    """
    domain, reports = randomizer.domain, np.asarray(reports)
    if not isinstance(domain, Box | Ball):
        raise Misuse(f"a posterior mean works on a Box or a Ball, not on {domain}")
    if reports.ndim != 2 or reports.shape[1] != randomizer.width:
        raise Misuse(f"reports must have the shape (n, {randomizer.width}), got {reports.shape}")
    places = _places_of_each(prior, len(reports), domain.dimension)
    means = np.empty((len(reports), domain.dimension))
    size = max(1, _PAIRS // places.shape[1])
    for start in range(0, len(reports), size):
        rows = slice(start, start + size)
        means[rows] = _means(randomizer, domain, reports[rows], places[rows])
    return means


def _places_of_each(prior: Floats, n: int, d: int) -> Floats:
    """Return the places of each of n people, (n, m, d), without copying shared ones."""
    places = np.asarray(prior, dtype=np.float64)
    if places.ndim == 2:
        places = np.broadcast_to(places, (n, *places.shape))
    if places.ndim != 3 or places.shape[0] != n or places.shape[1] == 0 or places.shape[2] != d:
        raise Misuse(
            f"a prior must have the shape (m, {d}), or ({n}, m, {d}) if places differ by person, "
            f"with at least one place; got {np.shape(prior)}"
        )
    return places


def _means(randomizer: Randomizer, domain: Box | Ball, reports: Reports, places: Floats) -> Floats:
    n, m, d = places.shape
    points = domain.snap(places.reshape(n * m, d))
    likely = randomizer.density(np.repeat(reports, m, axis=0), points).reshape(n, m)
    totals = likely.sum(axis=1, keepdims=True)
    if not (totals > 0).all():
        raise Misuse(
            f"some reports are impossible: {randomizer.name} does not give them from any place of "
            "the prior"
        )
    means: Floats = np.einsum("km,kmd->kd", likely / totals, places)
    return means
