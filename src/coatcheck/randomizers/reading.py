"""Reading a batch of reports by the density of people that the batch itself shows.

Each report is read as the median (or the mean) of where its value can have been, if people are
spread as all reports together say. It is an estimator of the batch: permuted reports get permuted
estimates, and the same batch always gets the same ones. A batch that is too small to learn from
is read plainly, and so is a grid of a few large cells; `Reading.words` says so.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from coatcheck.domains import Categories, Floats
from coatcheck.randomizers.cells import Cells
from coatcheck.randomizers.density import (
    Bins,
    Channel,
    Mechanism,
    binned,
    cells_for,
    gained,
    learn,
    never_zero,
)

LEARNED: Final = ("learned", "learned-mean")
"""Ways to read that look at the whole batch: by the median, which makes the mean distance small,
and by the mean, which makes the mean squared distance small."""
DIMENSIONS: Final = 3  # beyond, cells are too coarse to say anything
_PARTS: Final = 9  # of a grid: with fewer, a learned reading can be worse than a plain one
_ENOUGH: Final = 2.0  # nats by which half of a batch must explain the other better
_ROUNDS: Final = 8  # of Weiszfeld's iteration
_CHUNK: Final = 1 << 18  # pairs of a bin and a cell at a time


class Weights(Protocol):
    """A prior, as far as reading needs it."""

    def on(self, cells: Cells) -> Floats:
        """Return its weight in each cell."""


@dataclass(frozen=True, eq=False)
class Reading:
    """How a batch was read.

    Attributes:
        places: one per report on the unit ball, (n, d); on categories the position of a label,
            (n, 1). None if a report by itself is to be read plainly: the batch was too small to
            learn from, there was no prior, and the mechanism has a formula for even people.
        density: the share of people in each cell by which reports were read.
        cells: the cells.
        gain: in nats, how much better half of the batch explains the other half than the prior
            (people spread evenly if there is none) does.
        learned: whether that was enough to learn from.
        given: whether there was a prior.
    """

    places: Floats | None
    density: Floats
    cells: Cells
    gain: float
    learned: bool
    given: bool

    @property
    def words(self) -> str:
        """Say how the batch was read."""
        if self.learned:
            return "read by the density of people that the reports themselves show"
        if self.given:
            return "too few reports to learn where people are; read by the prior alone"
        return "too few reports, or cells, to learn where people are; each was read by itself"


def read(
    made: Mechanism,
    reports: Any,
    *,
    mean: bool = False,
    prior: Weights | None = None,
    known: bool = False,
) -> Reading:
    """Read a batch by the density that it shows, starting from a prior if there is one.

    If the prior is `known` to be right, nothing is learned besides.
    """
    cells, given = cells_for(made), prior is not None
    start = cells.even if prior is None else never_zero(prior.on(cells), cells)
    if len(reports) == 0:
        return Reading(None, start, cells, gain=-np.inf, learned=False, given=given)
    channel, bins = binned(made, reports, cells)
    gain = -np.inf if known else gained(channel, bins, cells, start)
    learned = gain > _ENOUGH and (given or not too_coarse(made))
    density, places = start, None
    if learned:
        size = len(channel.forward(start))
        counts = np.bincount(bins, minlength=size).astype(np.float64)
        density = learn(channel, counts, cells, start)
    if learned or given or made.near is None:
        distinct, where = np.unique(bins, return_inverse=True)
        places = posterior(channel, distinct, cells, density, mean=mean)[where]
    return Reading(places, density, cells, gain=gain, learned=learned, given=given)


def too_coarse(made: Mechanism) -> bool:
    """Return whether reports name one of a few large cells, which tells too little of people."""
    if isinstance(made.domain, Categories) or made.near is None or made.near.reach:
        return False
    return bool(np.prod(made.high - made.low + 1.0) < _PARTS)


def posterior(
    channel: Channel, bins: Bins, cells: Cells, density: Floats, *, mean: bool = False
) -> Floats:
    """Return where a report of each bin is read, on the unit ball; on categories, which label."""
    middle = _middle(cells, mean=mean)
    found = np.empty((len(bins), cells.places.shape[1]))
    size = max(1, _CHUNK // len(density))
    for start in range(0, len(bins), size):
        rows = slice(start, start + size)
        found[rows] = middle(_weights(channel, bins[rows], density))
    return found


def believed(
    made: Mechanism, reports: Any, *, prior: Weights | None = None
) -> tuple[Bins, Floats, Floats]:
    """Return what a batch says of where each of its values can have been.

    That is the kind of each report, (n,), how likely each kind makes each place, (kinds, m), and
    the places on the unit ball, (m, d), under the density that the batch shows or the prior.
    """
    found = read(made, reports, prior=prior)
    channel, bins = binned(made, reports, found.cells)
    distinct, kinds = np.unique(bins, return_inverse=True)
    return kinds.reshape(-1), _weights(channel, distinct, found.density), found.cells.places


def _weights(channel: Channel, bins: Bins, density: Floats) -> Floats:
    """Return how likely each cell is behind a report of each bin, (bins, cells)."""
    weights = channel.likely(bins) * density
    return np.asarray(weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300))


def _middle(cells: Cells, *, mean: bool) -> Callable[[Floats], Floats]:
    """Return what reads rows of weights on the cells as places."""
    places = cells.places
    if isinstance(cells.domain, Categories):
        return lambda weights: weights.argmax(axis=1)[:, None].astype(np.float64)
    if mean:
        return lambda weights: weights @ places
    if places.shape[1] == 1:
        return lambda weights: _line_median(weights, places[:, 0])
    scale = cells.domain.scale
    return lambda weights: geometric_median(weights, places * scale) / scale


def _line_median(weights: Floats, places: Floats) -> Floats:
    """Return the median of each row, as if people were even within each cell."""
    upto = np.cumsum(weights, axis=1)
    cell = np.minimum((upto < 0.5).sum(axis=1), len(places) - 1)
    rows = np.arange(len(weights))
    share = weights[rows, cell]
    within = 0.5 - (upto[rows, cell] - share)
    side = places[1] - places[0] if len(places) > 1 else 0.0
    part = np.clip(np.divide(within, share, out=np.full_like(share, 0.5), where=share > 0), 0, 1)
    return np.asarray(places[cell] + (part - 0.5) * side)[:, None]


def geometric_median(weights: Floats, places: Floats) -> Floats:
    """Return for each row of weights the place with the least mean distance (Weiszfeld).

    A cell is no point: within it people are some way apart, which also keeps the iteration from
    getting stuck on a middle.
    """
    span = np.ptp(places, axis=0)
    blur = float(np.prod(np.maximum(span, 1e-300)) / len(places)) ** (2 / places.shape[1]) / 16
    lengths = (places**2).sum(axis=1)
    found = weights @ places
    for _ in range(_ROUNDS):
        squares = (found**2).sum(axis=1)[:, None] + lengths - 2 * found @ places.T
        pull = weights / np.sqrt(np.maximum(squares, 0.0) + blur)
        found = (pull @ places) / np.maximum(pull.sum(axis=1, keepdims=True), 1e-300)
    return found
