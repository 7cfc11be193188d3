"""The density of people, estimated from their noisy reports, and reports decoded under it.

The domain is cut into cells. A channel gives the probability of each bin of reports from each
cell, by the mechanism's own law. Expectation maximisation with a little smoothing (EMS, as in the
server of square wave) finds the shares of people in the cells that explain the batch best;
`decode_batch` then estimates each value under that density. Everything here is computed from
reports, so it costs no privacy. It depends on the batch as a set: the order of reports changes
nothing.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from coatcheck.domains import Ball, Box, Categories, Floats, Points
from coatcheck.entropy import seeded
from coatcheck.errors import Misuse

# -- the cells of a domain, in which people are counted

_WITHIN: Final = 8  # places along an axis of a cell over which a law is averaged
_SMOOTHING: Final = 0.1
_FEW_CELLS: Final = 64  # with no more cells each gets many reports and needs no smoothing


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of a domain.

    Attributes:
        domain: the domain that is cut.
        axes: for each axis the lattice points at which a law is averaged, (cells, places).
        inside: which cells of the whole grid are in the domain.
        blocks: for each axis how many neighbouring cells no report can distinguish.
    """

    domain: Box | Ball | Categories
    axes: tuple[Points, ...]
    inside: NDArray[np.bool_]
    blocks: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, domain: Box | Ball | Categories, *, most: int, whole: tuple[int, ...] = ()
    ) -> "Cells":
        """Cut a domain into at most about `most` cells, as close to squares as possible.

        `whole` is the number of parts into which a mechanism cuts each axis; cells divide those.
        """
        if isinstance(domain, Categories):
            count = len(domain.labels)
            return cls(domain, (np.arange(count)[:, None],), np.ones(count, dtype=np.bool_))
        scale, half = domain.scale, domain.steps // 2
        side = (float(np.prod(scale)) / most) ** (1 / domain.dimension)
        counts = [int(min(max(1, round(length / side)), 2 * half + 1)) for length in scale]
        blocks = (1,) * len(counts)
        if whole and math.prod(whole) <= most:
            blocks = tuple(
                max(1, round(count / own)) for count, own in zip(counts, whole, strict=True)
            )
            counts = [own * block for own, block in zip(whole, blocks, strict=True)]
        axes = tuple(_lattice(half, count) for count in counts)
        middles = [axis[:, _WITHIN // 2] for axis in axes]
        points = np.stack(np.meshgrid(*middles, indexing="ij"), axis=-1)
        inside = np.ones(counts, dtype=np.bool_)
        if domain.p != math.inf and domain.dimension > 1:
            inside = np.linalg.norm(points, ord=domain.p, axis=-1) <= half
        return cls(domain, axes, inside, blocks)

    @cached_property
    def points(self) -> Points:
        """The lattice point in the middle of each cell of the domain: (m, d)."""
        middles = [axis[:, axis.shape[1] // 2] for axis in self.axes]
        grid = np.stack(np.meshgrid(*middles, indexing="ij"), axis=-1)
        points: Points = grid[self.inside]
        return points

    @cached_property
    def places(self) -> Floats:
        """The middle of each cell of the domain on the unit ball: (m, d)."""
        domain = self.domain
        half = 1 if isinstance(domain, Categories) else domain.steps // 2
        middles = [axis.mean(axis=1) / half for axis in self.axes]
        grid = np.stack(np.meshgrid(*middles, indexing="ij"), axis=-1)
        return np.asarray(grid[self.inside], dtype=np.float64)

    @property
    def even(self) -> Floats:
        """The even density: people are equally likely to be anywhere in the domain."""
        count = int(self.inside.sum())
        return np.full(count, 1 / count)

    def count(self, points: Points, weights: Floats | None = None) -> Floats:
        """Return the weight of the lattice points in each cell; every point belongs to a cell."""
        index = [
            np.clip(np.searchsorted(axis[:, 0], column, side="right") - 1, 0, len(axis) - 1)
            for axis, column in zip(self.axes, points.T, strict=True)
        ]
        flat = np.ravel_multi_index(tuple(index), self.inside.shape)
        number = np.cumsum(self.inside.ravel()) - 1
        held = np.bincount(np.maximum(number[flat], 0), weights, minlength=int(number[-1]) + 1)
        return np.asarray(held, dtype=np.float64)

    def smooth(self, density: Floats) -> Floats:
        """Return a density of which each cell has passed a little to its neighbours.

        Cells that no report can distinguish stay equal; a few large cells are not smoothed.
        """
        apart = self.inside.size // math.prod(self.blocks or (1,))
        if isinstance(self.domain, Categories) or apart <= _FEW_CELLS:
            return density
        whole = np.zeros(self.inside.shape)
        whole[self.inside] = density
        for axis, block in enumerate(self.blocks):
            whole = np.add.reduceat(whole, np.arange(0, whole.shape[axis], block), axis=axis)
        whole = _blur(whole)
        for axis, block in enumerate(self.blocks):
            whole = np.repeat(whole / block, block, axis=axis)
        moved = whole / self._blurred
        smoothed: Floats = moved[self.inside]
        return np.asarray(smoothed / smoothed.sum())

    @cached_property
    def _blurred(self) -> Floats:
        """Return what an even density becomes, to correct for cells at the border."""
        if math.prod(self.blocks) > 1:
            small = _blur(
                np.ones([n // b for n, b in zip(self.inside.shape, self.blocks, strict=True)])
            )
            for axis, block in enumerate(self.blocks):
                small = np.repeat(small, block, axis=axis)
            return small
        return np.maximum(_blur(self.inside.astype(np.float64)), 1e-300)


def _lattice(half: int, count: int) -> Points:
    edges = np.linspace(-half, half + 1, count + 1)
    within = (np.arange(_WITHIN) + 0.5) / _WITHIN
    places = np.floor(edges[:-1, None] + within * (edges[1] - edges[0]))
    return np.asarray(places, dtype=np.int64)


def _blur(grid: Floats) -> Floats:
    for axis in range(grid.ndim):
        sides = np.zeros_like(grid)
        after, before = [slice(None)] * grid.ndim, [slice(None)] * grid.ndim
        after[axis], before[axis] = slice(1, None), slice(None, -1)
        sides[tuple(after)] += grid[tuple(before)]
        sides[tuple(before)] += grid[tuple(after)]
        grid = (1 - _SMOOTHING) * grid + _SMOOTHING / 2 * sides
    return grid


_FEW: Final = 1_200  # cells below `_LOUD`
_MANY: Final = 2_304
_MOST: Final = 4_096  # cells from `_LOUDEST` on
_LINE: Final = 512  # cells of a line
_LOUD: Final = 4.0  # the local ε from which finer cells are worth the time
_LOUDEST: Final = 7.0
_PAIRS: Final = 1 << 17  # of a report and a place at a time
_MOST_NAMES: Final = 1 << 16
_STEPS: Final = 800
_STILL: Final = 0.002  # nats of the whole batch: a step that gains less is the last
_EVEN_SHARE: Final = 0.01  # mixed into a prior, so that no place is impossible

Bins = NDArray[np.intp]


class Mechanism(Protocol):
    """The part of the randomizer contract that this file needs."""

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
        """Return the branch that depends on the value, if it is uniform on a box of reports."""

    def density(self, reports: Any, points: Points) -> Floats:
        """Return how likely each report is from each point."""


@dataclass(frozen=True)
class Near:
    """The branch of a mechanism that depends on the value: uniform on a box of reports.

    With probability `mixing` a report is uniform within `reach` of `centers(point)` along each
    axis, else uniform between the least and the largest report.
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
        odds = density.reshape([matrix.shape[1] for matrix in self.near])
        for axis, matrix in enumerate(self.near):
            odds = np.moveaxis(np.tensordot(matrix, odds, axes=(1, axis)), 0, axis)
        return self.mixing * odds.ravel() + (1 - self.mixing) * self._anywhere

    def backward(self, weights: Floats) -> Floats:
        """Return for each cell the sum of weights over bins, times the odds of each bin."""
        sums = weights.reshape([matrix.shape[0] for matrix in self.near])
        for axis, matrix in enumerate(self.near):
            sums = np.moveaxis(np.tensordot(matrix, sums, axes=(0, axis)), 0, axis)
        return self.mixing * sums.ravel() + (1 - self.mixing) * float(self._anywhere @ weights)

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
    tallest: Floats
    """What each row was divided by."""

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


def cells_for(mechanism: Mechanism) -> Cells:
    """Return cells that are as fine as the reports of a mechanism can distinguish."""
    most = _MANY if mechanism.epsilon >= _LOUD else _FEW
    most = _MOST if mechanism.epsilon >= _LOUDEST else most
    if mechanism.near is None:
        most //= 2  # the whole matrix is needed
    if mechanism.domain.dimension == 1:
        most = _LINE
    grid = mechanism.near is not None and mechanism.near.reach == 0
    whole = tuple((mechanism.high - mechanism.low + 1).tolist()) if grid else ()
    return Cells.of(mechanism.domain, most=most, whole=whole)


def channel_of(mechanism: Mechanism, cells: Cells) -> BoxChannel | None:
    """Return the channel of a mechanism whose branches are boxes; None for any other."""
    if mechanism.near is None:
        return None
    matrices, shares = [], []
    for axis, places in enumerate(cells.axes):
        edges = _edges(mechanism, cells, axis)
        points = np.repeat(places.reshape(-1, 1), mechanism.domain.dimension, axis=1)
        centers = mechanism.near.centers(points)[:, axis].reshape(places.shape)
        low, high = centers - mechanism.near.reach, centers + mechanism.near.reach
        shared = np.minimum(edges[1:, None, None], high + 1) - np.maximum(
            edges[:-1, None, None], low
        )
        matrices.append((np.maximum(shared, 0) / (high + 1 - low)).mean(axis=2))
        shares.append(np.diff(edges) / (edges[-1] - edges[0]))
    return BoxChannel(mechanism.near.mixing, tuple(matrices), tuple(shares))


def binned(mechanism: Mechanism, reports: Any, cells: Cells) -> tuple[Channel, Bins]:
    """Return the channel for a batch, and the bin of each report."""
    boxes = channel_of(mechanism, cells)
    if len(reports) and not ((mechanism.low <= reports) & (reports <= mechanism.high)).all():
        raise Misuse("some reports are impossible: the mechanism does not give them from any place")
    edges = [
        _edges(mechanism, cells, min(axis, len(cells.axes) - 1))
        for axis in range(len(mechanism.low))
    ]
    index = [
        np.searchsorted(ends, column, side="right") - 1
        for ends, column in zip(edges, reports.T, strict=True)
    ]
    which = np.ravel_multi_index(tuple(index), [len(ends) - 1 for ends in edges])
    if boxes is not None:
        return boxes, which
    # The least report of a bin represents it, so the order of the reports does not matter.
    order = np.lexsort((*reports.T[::-1], which))
    _, first, where = np.unique(which[order], return_index=True, return_inverse=True)
    bins = np.empty_like(which)
    bins[order] = where
    rows = _rows(mechanism, reports[order[first]], cells.points)
    tallest = np.maximum(rows.max(axis=1), 1e-300)
    return DenseChannel(rows / tallest[:, None], tallest), bins


def _edges(mechanism: Mechanism, cells: Cells, axis: int) -> Points:
    """Return where the bins of reports along an axis begin, and where the last one ends."""
    low, high = int(mechanism.low[axis]), int(mechanism.high[axis]) + 1
    most = len(cells.axes[axis])
    if len(mechanism.low) < len(cells.axes):  # the numbers of a report are not coordinates
        most = _MOST_NAMES
    count = min(high - low, most)
    return np.asarray(np.rint(np.linspace(low, high, count + 1)), dtype=np.int64)


def _rows(mechanism: Mechanism, reports: Any, points: Points) -> Floats:
    rows = np.empty((len(reports), len(points)))
    size = max(1, _PAIRS // len(points))
    for start in range(0, len(reports), size):
        some = reports[start : start + size]
        pairs = np.repeat(some, len(points), axis=0), np.tile(points, (len(some), 1))
        rows[start : start + size] = mechanism.density(*pairs).reshape(len(some), -1)
    return rows


def among_decoys(mechanism: Any, decoys: int) -> Any:
    """Return the mechanism of a message, if everybody sends so many decoys beside the report.

    A message is a decoy, uniform, more often than not. So it is drawn as if its sender had a report
    of a smaller ε: the cap has its chance over all messages of a person.
    """
    if not decoys:
        return mechanism
    share = mechanism.mixing / (decoys + 1)
    odds = share / (1 - share) * (1 - mechanism.mixing) / mechanism.mixing
    return replace(mechanism, epsilon=math.log1p(math.expm1(mechanism.epsilon) * odds))


# -- learning


def learn(channel: Channel, counts: Floats, cells: Cells, start: Floats) -> Floats:
    """Return the share of people in each cell that explains the counts of the bins best.

    The ratio to `start` is smoothed, so that a prior keeps its edges.
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
    """Return by how many nats half of a batch explains the other half better than `start`.

    Each half learns once and judges once. They are drawn from the sorted batch by a fixed seed, so
    the order of the reports changes nothing. Above 0 there is something to learn.
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


# -- decoding a batch by the density that the batch itself shows
#
# The estimate of a report is the posterior median (or mean) of its value, under the density of all
# reports together. It is an estimator of the batch: permuted reports get permuted estimates, and
# the same batch always gets the same ones. In a batch too small to learn from, and with a grid of a
# few large cells, each report is decoded by itself; `DecodedBatch.words` says which.
LEARNED: Final = ("learned", "learned-mean")
"""Decoders that use the whole batch: by the median, which minimises the mean distance, and by the
mean, which minimises the mean squared distance."""
DIMENSIONS: Final = 3  # with more, cells are too coarse to say anything
_PARTS: Final = 9  # cells of a grid: with fewer, a learned decoder can be worse than a plain one
_ENOUGH: Final = 2.0  # nats by which half of a batch must explain the other better
_ROUNDS: Final = 8  # of Weiszfeld's iteration
_CHUNK: Final = 1 << 18  # pairs of a bin and a cell at a time


class Weights(Protocol):
    """The method of a prior that decoding needs."""

    def on(self, cells: Cells) -> Floats:
        """Return its weight in each cell."""


@dataclass(frozen=True, eq=False)
class DecodedBatch:
    """A batch, decoded by the density of people that it shows.

    Attributes:
        places: one per report on the unit ball, (n, d); on categories the position of a label,
            (n, 1). None if each report should be decoded by itself: the batch was too small to
            learn from, there was no prior, and the mechanism has a formula for an even density.
        density: the share of people in each cell under which reports were decoded.
        cells: the cells.
        gain: by how many nats half of the batch explains the other half better than the prior
            (or an even density) does.
        learned: whether that was enough to learn from.
        has_prior: whether there was a prior.
    """

    places: Floats | None
    density: Floats
    cells: Cells
    gain: float
    learned: bool
    has_prior: bool

    @property
    def words(self) -> str:
        """Return in words how the batch was decoded."""
        if self.learned:
            return "decoded by the density of people that the reports themselves show"
        if self.has_prior:
            return "too few reports to learn where people are; decoded by the prior alone"
        return "too few reports, or cells, to learn where people are; each was decoded by itself"


def decode_batch(
    mechanism: Mechanism,
    reports: Any,
    *,
    mean: bool = False,
    prior: Weights | None = None,
    prior_is_exact: bool = False,
    decoys: int = 0,
) -> DecodedBatch:
    """Decode a batch by the density that it shows, starting from a prior if there is one.

    Nothing is learned from the batch if the prior is exact. With decoys the density is that of
    people, and each message is decoded as if it was a report.
    """
    cells, has_prior = cells_for(mechanism), prior is not None
    start = cells.even if prior is None else never_zero(prior.on(cells), cells)
    if len(reports) == 0:
        return DecodedBatch(None, start, cells, gain=-np.inf, learned=False, has_prior=has_prior)
    channel, bins = binned(among_decoys(mechanism, decoys), reports, cells)
    gain = -np.inf if prior_is_exact else gained(channel, bins, cells, start)
    learned = gain > _ENOUGH and (has_prior or not too_coarse(mechanism))
    density, places = start, None
    if learned:
        size = len(channel.forward(start))
        counts = np.bincount(bins, minlength=size).astype(np.float64)
        density = learn(channel, counts, cells, start)
    if learned or has_prior or mechanism.near is None:
        distinct, where = np.unique(bins, return_inverse=True)
        if decoys:
            channel, _ = binned(mechanism, reports, cells)
        places = posterior(channel, distinct, cells, density, mean=mean)[where]
    return DecodedBatch(places, density, cells, gain=gain, learned=learned, has_prior=has_prior)


def too_coarse(mechanism: Mechanism) -> bool:
    """Return whether reports name one of a few large cells, too few to learn a density from."""
    if isinstance(mechanism.domain, Categories) or mechanism.near is None or mechanism.near.reach:
        return False
    return bool(np.prod(mechanism.high - mechanism.low + 1.0) < _PARTS)


def posterior(
    channel: Channel, bins: Bins, cells: Cells, density: Floats, *, mean: bool = False
) -> Floats:
    """Return the estimate for each bin, on the unit ball; on categories, the label's position."""
    middle = _middle(cells, mean=mean)
    estimates = np.empty((len(bins), cells.places.shape[1]))
    size = max(1, _CHUNK // len(density))
    for start in range(0, len(bins), size):
        rows = slice(start, start + size)
        estimates[rows] = middle(_weights(channel, bins[rows], density))
    return estimates


@dataclass(frozen=True, eq=False)
class BatchBelief:
    """The posterior of each value of a batch.

    Attributes:
        kinds: the kind of each report, (n,).
        weights: the probability of each place given each kind, (kinds, m).
        places: the places on the unit ball, (m, d).
        real: for each kind the chance that a message is a report and not a decoy.
    """

    kinds: Bins
    weights: Floats
    places: Floats
    real: Floats


def batch_belief(
    mechanism: Mechanism, reports: Any, *, prior: Weights | None = None, decoys: int = 0
) -> BatchBelief:
    """Return the posterior of each value of a batch, under the density that it shows or a prior."""
    decoded = decode_batch(mechanism, reports, prior=prior, decoys=decoys)
    channel, bins = binned(mechanism, reports, decoded.cells)
    distinct, kinds = np.unique(bins, return_inverse=True)
    real = np.ones(len(distinct))
    if decoys:
        messages, _ = binned(among_decoys(mechanism, decoys), reports, decoded.cells)
        whole = (decoys + 1) * _odds(messages, decoded.density)[distinct]
        real = np.clip(_odds(channel, decoded.density)[distinct] / whole, 0.0, 1.0)
    weights = _weights(channel, distinct, decoded.density)
    return BatchBelief(kinds.reshape(-1), weights, decoded.cells.places, real)


def _odds(channel: Channel, density: Floats) -> Floats:
    """Return how likely each bin is, up to one factor for all mechanisms of a domain."""
    odds = channel.forward(density)
    return odds * channel.tallest if isinstance(channel, DenseChannel) else odds


def _weights(channel: Channel, bins: Bins, density: Floats) -> Floats:
    """Return the posterior probability of each cell given each bin, (bins, cells)."""
    weights = channel.likely(bins) * density
    return np.asarray(weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300))


def _middle(cells: Cells, *, mean: bool) -> Callable[[Floats], Floats]:
    """Return the function from rows of weights on the cells to places."""
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

    People within a cell are some distance apart; taking that into account also keeps the iteration
    from getting stuck at the middle of a cell.
    """
    span = np.ptp(places, axis=0)
    blur = float(np.prod(np.maximum(span, 1e-300)) / len(places)) ** (2 / places.shape[1]) / 16
    lengths = (places**2).sum(axis=1)
    medians = weights @ places
    for _ in range(_ROUNDS):
        squares = (medians**2).sum(axis=1)[:, None] + lengths - 2 * medians @ places.T
        pull = weights / np.sqrt(np.maximum(squares, 0.0) + blur)
        medians = (pull @ places) / np.maximum(pull.sum(axis=1, keepdims=True), 1e-300)
    return medians
