"""The corners of the cells of points in a box: where a convex error is largest."""

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def cell_corners(points: Floats, half: Floats, p: float, closest: int = 1) -> Floats | None:
    """Return every corner of the cells inside the box -half .. half; None where it is too hard.

    A cell has the same closest points throughout.

    Mirrored in each side of the box, the points' cells end at the sides, so that the corners are
    the vertices of one Voronoi diagram.
    """
    d = len(half)
    if d > 3 or not (d == 1 or (p == math.inf and closest == 1)):
        return None
    ends = np.stack(np.meshgrid(*[[-side, side] for side in half]), axis=-1).reshape(-1, d)
    if len(points) == 1:
        return ends
    if d == 1:
        line = np.sort(points[:, 0])
        return np.concatenate([ends, ((line[closest:] + line[:-closest]) / 2)[:, None]])
    from scipy.spatial import Voronoi  # noqa: PLC0415 - slow to import, and seldom needed

    mirrored = [points]
    for axis, side in enumerate(half.tolist()):
        for edge in (-side, side):
            other = points.copy()
            other[:, axis] = 2 * edge - other[:, axis] + np.sign(edge) * 1e-9 * side
            mirrored.append(other)
    vertices = Voronoi(np.concatenate(mirrored)).vertices
    inside = (np.abs(vertices) <= half * (1 + 1e-6)).all(axis=1)
    return np.concatenate([ends, np.clip(vertices[inside], -half, half)])
