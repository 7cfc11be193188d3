"""The cells that a domain is cut into where a density of people is counted."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from coatcheck.domains import Ball, Box, Categories, Floats, Points

_WITHIN: Final = 8  # places along an axis of a cell over which a law is averaged
_SMOOTHING: Final = 0.1
_FEW: Final = 64  # so few parts need no smoothing: every report speaks of them


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of a domain.

    Attributes:
        domain: what is cut.
        axes: for each axis the lattice points at which a law is averaged, (cells, places).
        inside: which cells of the whole grid lie in the domain.
        blocks: along each axis how many cells in a row no report can tell apart.
    """

    domain: Box | Ball | Categories
    axes: tuple[Points, ...]
    inside: NDArray[np.bool_]
    blocks: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, domain: Box | Ball | Categories, *, most: int, whole: tuple[int, ...] = ()
    ) -> "Cells":
        """Cut a domain into at most about so many cells, as near to squares as they can be.

        `whole` says into how many parts a mechanism cuts each axis, so that cells divide those.
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
        """One lattice point of each cell of the domain, its middle: (m, d)."""
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
        """The density of people who are as likely to be anywhere."""
        count = int(self.inside.sum())
        return np.full(count, 1 / count)

    def count(self, points: Points, weights: Floats | None = None) -> Floats:
        """Return how much weight of lattice points falls into each cell; nothing falls outside."""
        index = [
            np.clip(np.searchsorted(axis[:, 0], column, side="right") - 1, 0, len(axis) - 1)
            for axis, column in zip(self.axes, points.T, strict=True)
        ]
        flat = np.ravel_multi_index(tuple(index), self.inside.shape)
        number = np.cumsum(self.inside.ravel()) - 1
        held = np.bincount(np.maximum(number[flat], 0), weights, minlength=int(number[-1]) + 1)
        return np.asarray(held, dtype=np.float64)

    def smooth(self, density: Floats) -> Floats:
        """Return a density of which a little went over to each neighbouring cell.

        Cells that no report can tell apart stay alike; a few large ones are left as they are.
        """
        apart = self.inside.size // math.prod(self.blocks or (1,))
        if isinstance(self.domain, Categories) or apart <= _FEW:
            return density
        whole = np.zeros(self.inside.shape)
        whole[self.inside] = density
        for axis, block in enumerate(self.blocks):
            whole = np.add.reduceat(whole, np.arange(0, whole.shape[axis], block), axis=axis)
        whole = _blur(whole)
        for axis, block in enumerate(self.blocks):
            whole = np.repeat(whole / block, block, axis=axis)
        moved = whole / self._blurred
        found: Floats = moved[self.inside]
        return np.asarray(found / found.sum())

    @cached_property
    def _blurred(self) -> Floats:
        """Return what of an even density stays, so that the border keeps what it cannot give."""
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
