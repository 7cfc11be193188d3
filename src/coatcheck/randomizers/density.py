"""Where people are, estimated from their noisy reports alone.

The domain is cut into cells. A channel says how likely each bin of reports is from each cell, by
the mechanism's own law; expectation maximisation with a little smoothing (EMS, as square wave's
server does) then finds the share of people in each cell that explains the batch best. Everything
here is computed from reports, so it costs no privacy. It depends on the batch as a set: the order
of the reports changes nothing.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from coatcheck.domains import Floats, Points
from coatcheck.entropy import seeded
from coatcheck.errors import Misuse
from coatcheck.randomizers.cells import Cells

_FEW: Final = 1_200  # cells below `_LOUD`
_MANY: Final = 2_304
_LINE: Final = 512  # cells of a line
_LOUD: Final = 4.0  # the local ε from which finer cells are worth their time
_PAIRS: Final = 1 << 17  # of a report and a place at a time
_MOST_NAMES: Final = 1 << 16
_STEPS: Final = 800
_STILL: Final = 0.002  # in nats of the whole batch: a step that gains less is the last
_EVEN_SHARE: Final = 0.01  # of a prior, so that no place is ever thought impossible

Bins = NDArray[np.intp]


class Mechanism(Protocol):
    """What is needed of a randomizer; its contract says what each is."""

    @property
    def domain(self) -> Any:
        """Return where values live."""

    @property
    def epsilon(self) -> float:
        """Return its local budget."""

    @property
    def low(self) -> Points:
        """Return the least value of each number of a report."""

    @property
    def high(self) -> Points:
        """Return the largest value of each number of a report."""

    @property
    def near(self) -> "Near | None":
        """Return the branch that tells something, if it is uniform on a box of reports."""

    def density(self, reports: Any, points: Points) -> Floats:
        """Return how likely each report is from each point."""


@dataclass(frozen=True)
class Near:
    """The branch of a mechanism that tells something: uniform on a box of reports.

    With probability `mixing` a report is uniform within `reach` of `centers(point)` along each
    axis, else between the least and the largest report.
    """

    mixing: float
    centers: Callable[[Points], Points]
    reach: int


# -- channels: how likely each bin of reports is from each cell


@dataclass(frozen=True, eq=False)
class BoxChannel:
    """The channel of a mechanism whose branches are boxes: one small matrix per axis."""

    mixing: float
    near: tuple[Floats, ...]
    far: tuple[Floats, ...]

    def forward(self, density: Floats) -> Floats:
        """Return how likely each bin is if people are spread like this."""
        found = density.reshape([matrix.shape[1] for matrix in self.near])
        for axis, matrix in enumerate(self.near):
            found = np.moveaxis(np.tensordot(matrix, found, axes=(1, axis)), 0, axis)
        return self.mixing * found.ravel() + (1 - self.mixing) * self._anywhere

    def backward(self, weights: Floats) -> Floats:
        """Return for each cell the sum of weights over bins, times the odds of each bin."""
        found = weights.reshape([matrix.shape[0] for matrix in self.near])
        for axis, matrix in enumerate(self.near):
            found = np.moveaxis(np.tensordot(matrix, found, axes=(0, axis)), 0, axis)
        return self.mixing * found.ravel() + (1 - self.mixing) * float(self._anywhere @ weights)

    def likely(self, bins: Bins) -> Floats:
        """Return how likely these bins are from each cell: (bins, cells)."""
        index = np.unravel_index(bins, [len(matrix) for matrix in self.near])
        rows = self.near[0][index[0]]
        for matrix, along in zip(self.near[1:], index[1:], strict=True):
            rows = (rows[:, :, None] * matrix[along][:, None, :]).reshape(len(bins), -1)
        return self.mixing * rows + (1 - self.mixing) * self._anywhere[bins][:, None]

    @cached_property
    def _anywhere(self) -> Floats:
        whole = self.far[0]
        for far in self.far[1:]:
            whole = np.outer(whole, far).ravel()
        return whole


@dataclass(frozen=True, eq=False)
class DenseChannel:
    """The channel of any mechanism, by its density: one row per bin that was reported."""

    rows: Floats

    def forward(self, density: Floats) -> Floats:
        """Return how likely each bin is if people are spread like this."""
        return np.asarray(self.rows @ density)

    def backward(self, weights: Floats) -> Floats:
        """Return for each cell the sum of weights over bins, times the odds of each bin."""
        return np.asarray(weights @ self.rows)

    def likely(self, bins: Bins) -> Floats:
        """Return how likely these bins are from each cell: (bins, cells)."""
        return self.rows[bins]


Channel = BoxChannel | DenseChannel


def cells_for(made: Mechanism) -> Cells:
    """Return cells that are as fine as the reports of a mechanism can tell apart."""
    most = _MANY if made.epsilon >= _LOUD else _FEW
    if made.near is None:
        most //= 2  # the whole matrix is needed
    if made.domain.dimension == 1:
        most = _LINE
    grid = made.near is not None and made.near.reach == 0
    whole = tuple((made.high - made.low + 1).tolist()) if grid else ()
    return Cells.of(made.domain, most=most, whole=whole)


def channel_of(made: Mechanism, cells: Cells) -> BoxChannel | None:
    """Return the channel of a mechanism whose branches are boxes; none of another."""
    if made.near is None:
        return None
    matrices, shares = [], []
    for axis, places in enumerate(cells.axes):
        edges = _edges(made, cells, axis)
        points = np.repeat(places.reshape(-1, 1), made.domain.dimension, axis=1)
        centers = made.near.centers(points)[:, axis].reshape(places.shape)
        low, high = centers - made.near.reach, centers + made.near.reach
        shared = np.minimum(edges[1:, None, None], high + 1) - np.maximum(
            edges[:-1, None, None], low
        )
        matrices.append((np.maximum(shared, 0) / (high + 1 - low)).mean(axis=2))
        shares.append(np.diff(edges) / (edges[-1] - edges[0]))
    return BoxChannel(made.near.mixing, tuple(matrices), tuple(shares))


def binned(made: Mechanism, reports: Any, cells: Cells) -> tuple[Channel, Bins]:
    """Return the channel for a batch, and the bin of each report."""
    boxes = channel_of(made, cells)
    if len(reports) and not ((made.low <= reports) & (reports <= made.high)).all():
        raise Misuse("there are reports that the mechanism does not give from any place")
    edges = [_edges(made, cells, min(axis, len(cells.axes) - 1)) for axis in range(len(made.low))]
    index = [
        np.searchsorted(ends, column, side="right") - 1
        for ends, column in zip(edges, reports.T, strict=True)
    ]
    which = np.ravel_multi_index(tuple(index), [len(ends) - 1 for ends in edges])
    if boxes is not None:
        return boxes, which
    # A bin stands for the least of its reports, whatever the order in which they came.
    order = np.lexsort((*reports.T[::-1], which))
    _, first, where = np.unique(which[order], return_index=True, return_inverse=True)
    bins = np.empty_like(which)
    bins[order] = where
    return DenseChannel(_rows(made, reports[order[first]], cells.points)), bins


def _edges(made: Mechanism, cells: Cells, axis: int) -> Points:
    """Return where the bins of reports along an axis begin, and where the last one ends."""
    low, high = int(made.low[axis]), int(made.high[axis]) + 1
    most = len(cells.axes[axis])
    if len(made.low) < len(cells.axes):  # the numbers of a report are no coordinates
        most = _MOST_NAMES
    count = min(high - low, most)
    return np.asarray(np.rint(np.linspace(low, high, count + 1)), dtype=np.int64)


def _rows(made: Mechanism, reports: Any, points: Points) -> Floats:
    rows = np.empty((len(reports), len(points)))
    size = max(1, _PAIRS // len(points))
    for start in range(0, len(reports), size):
        some = reports[start : start + size]
        pairs = np.repeat(some, len(points), axis=0), np.tile(points, (len(some), 1))
        rows[start : start + size] = made.density(*pairs).reshape(len(some), -1)
    return np.asarray(rows / np.maximum(rows.max(axis=1, keepdims=True), 1e-300))


# -- learning


def learn(channel: Channel, counts: Floats, cells: Cells, start: Floats) -> Floats:
    """Return the share of people in each cell that explains the counts of the bins best.

    What is smoothed is the ratio to `start`, so that a prior keeps its edges.
    """
    total = counts.sum()
    shares = counts / total
    seen = shares > 0
    density, before = start, -math.inf
    for _ in range(_STEPS):
        odds = channel.forward(density)
        explained = float(total * (shares[seen] @ np.log(odds[seen])))
        if explained - before < _STILL:
            break
        before = explained
        weights = np.divide(shares, odds, out=np.zeros_like(shares), where=seen)
        density = cells.smooth(density * channel.backward(weights) / start) * start
        density = density / density.sum()
    return density


def gained(channel: Channel, bins: Bins, cells: Cells, start: Floats) -> float:
    """Return how much better than `start` half of a batch explains the other, in nats.

    Both halves learn and both judge. They are drawn from the sorted batch by a fixed seed, so the
    order of the reports changes nothing. Above 0 there is something to learn from.
    """
    count = len(channel.forward(start))
    first = seeded(len(bins)).uniforms(len(bins)) < 0.5
    ordered = np.sort(bins)
    halves = [
        np.bincount(ordered[rows], minlength=count).astype(np.float64) for rows in (first, ~first)
    ]
    if not all(half.any() for half in halves):
        return -math.inf
    gain = 0.0
    for own, other in (halves, halves[::-1]):
        seen = other > 0
        odds = channel.forward(learn(channel, own, cells, start))[seen]
        gain += float(other[seen] @ np.log(odds / channel.forward(start)[seen]))
    return gain


def never_zero(density: Floats, cells: Cells) -> Floats:
    """Return a prior mixed with a little of the even one, so that no place is impossible."""
    return np.asarray((1 - _EVEN_SHARE) * density / density.sum() + _EVEN_SHARE * cells.even)
