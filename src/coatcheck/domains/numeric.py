"""`Box` and `Ball`: domains of vectors, in the user's units."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coatcheck.errors import Misuse, OutsideDomain

Points = NDArray[np.int64]
Floats = NDArray[np.float64]

STEPS: Final = 2**20
_MAX_STEPS: Final = 2**24
_METRES_A_DEGREE: Final = math.pi / 180 * 6_371_008.8  # mean radius of the earth, IUGG
_SLACK: Final = 1e-9  # relative rounding error up to which a norm still counts as inside


@dataclass(frozen=True)
class Box:
    """A box in the user's units, from `lo` to `hi` along each axis.

    >>> city = Box.geographic(south=31.0, west=121.0, north=31.5, east=122.0)
    >>> city.snap([(31.25, 121.5)])
    array([[0, 0]])
    """

    lo: tuple[float, ...]
    hi: tuple[float, ...]
    p: ClassVar[float] = math.inf  # the norm of which this is the unit ball
    steps: int = field(default=STEPS, kw_only=True)
    degrees: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        low, high = _floats(self.lo, "lo"), _floats(self.hi, "hi")
        if not low or len(low) != len(high):
            raise Misuse(
                f"both corners of a box need one number per axis, got {len(low)} and {len(high)}"
            )
        for axis, (a, b) in enumerate(zip(low, high, strict=True)):
            if not (a < b and math.isfinite(b - a)):
                raise Misuse(f"axis {axis}: `lo` must be below `hi`, got {a} and {b}")
        if not isinstance(self.degrees, bool):
            raise Misuse(f"`degrees` must be true or false, got {self.degrees!r}")
        if self.degrees and not (
            len(low) == 2 and -90 <= low[0] and high[0] <= 90 and -180 <= low[1] and high[1] <= 180
        ):
            raise Misuse(
                f"degrees must be within -90..90 (latitude) and -180..180 (longitude), got {low} "
                f"to {high}; split a box that crosses the 180th meridian"
            )
        object.__setattr__(self, "lo", low)
        object.__setattr__(self, "hi", high)
        _check_steps(self.steps)

    @classmethod
    def geographic(
        cls, *, south: float, west: float, north: float, east: float, steps: int = STEPS
    ) -> "Box":
        """Return a box of (latitude, longitude) in degrees, with errors in metres."""
        return cls((south, west), (north, east), steps=steps, degrees=True)

    def _corners(self) -> tuple[Floats, Floats]:
        return np.array(self.lo, dtype=np.float64), np.array(self.hi, dtype=np.float64)

    @property
    def dimension(self) -> int:
        """Return the number of axes."""
        return len(self.lo)

    @property
    def unit(self) -> str:
        """Return the unit of errors."""
        return "m" if self.degrees else ""

    @property
    def scale(self) -> Floats:
        """Return the length of one unit of the unit ball along each axis, in the unit of errors."""
        low, high = self._corners()
        half = (high - low) / 2
        if self.degrees:
            half *= _METRES_A_DEGREE
            half[1] *= math.cos(math.radians((self.lo[0] + self.hi[0]) / 2))
        return half

    def snap(self, values: ArrayLike, *, clamp: bool = False) -> Points:
        """Return the nearest lattice points; reject a value outside the box unless `clamp`."""
        array = _rows(values, self.dimension)
        if clamp:
            array = np.clip(array, *self._corners())
        half = self.steps // 2
        points = np.empty(array.shape, dtype=np.int64)
        # Axis by axis is twice as fast as by rows, whose inner loops are too short.
        for axis, (a, b) in enumerate(zip(self.lo, self.hi, strict=True)):
            column = array[:, axis]
            if len(column) and not (a <= column.min() and column.max() <= b):
                self._refuse(array)
            place = column - (a + b) / 2
            place /= (b - a) / 2
            place *= half
            points[:, axis] = np.clip(np.rint(place, out=place), -half, half, out=place)
        return points

    def _refuse(self, array: Floats) -> NoReturn:
        low, high = self._corners()
        row, axis = np.argwhere(~((array >= low) & (array <= high)))[0]
        raise OutsideDomain(
            f"value {row}, axis {axis}: {array[row, axis]} is outside "
            f"{self.lo[axis]}..{self.hi[axis]}; widen the box, or pass clamp=True"
        )

    def snap_one(self, value: Sequence[float]) -> tuple[int, ...]:
        """Return the lattice point of one value, without the cost of an array."""
        if len(value) != len(self.lo):
            raise Misuse(f"a value must have {len(self.lo)} coordinates, got {len(value)}")
        half = self.steps // 2
        sides = list(zip(value, self.lo, self.hi, strict=True))
        if not all(a <= x <= b for x, a, b in sides):
            self.snap([value])  # raises with the coordinate
        return tuple([round((x - (a + b) / 2) / ((b - a) / 2) * half) for x, a, b in sides])

    def holds(self, points: Points) -> bool:
        """Return whether every point is on the lattice."""
        half = self.steps // 2
        return points.size == 0 or bool(-half <= points.min() and points.max() <= half)

    def from_unit(self, places: Floats) -> Floats:
        """Convert points of the unit ball to the user's units."""
        low, high = self._corners()
        return (low + high) / 2 + places * ((high - low) / 2)

    def values(self, points: Points) -> Floats:
        """Convert lattice points to the user's units."""
        return self.from_unit(points / (self.steps // 2))

    def params(self) -> dict[str, Any]:
        """Return plain data from which `domain_from_params` builds an equal box."""
        plain = {"kind": "box", "lo": list(self.lo), "hi": list(self.hi), "steps": self.steps}
        return {**plain, "degrees": self.degrees}


@dataclass(frozen=True, kw_only=True)
class Ball:
    """The l_p ball of a radius around 0, in the user's units; the domain of clipped gradients."""

    radius: float
    p: float
    dimension: int
    steps: int = STEPS
    unit: ClassVar[str] = ""

    def __post_init__(self) -> None:
        # A JSON flag is not a number, although Python counts it as one.
        for name in ("radius", "p", "dimension"):
            if isinstance(getattr(self, name), bool):
                raise Misuse(f"`{name}` of a ball must be a number, not true or false")
        if not (math.isfinite(self.radius) and self.radius > 0):
            raise Misuse(f"`radius` must be a number above 0, got {self.radius}")
        if not self.p >= 1:
            raise Misuse(f"`p` must be at least 1, or inf, got {self.p}")
        if self.dimension < 1 or self.dimension != int(self.dimension):
            raise Misuse(f"`dimension` must be a whole number, at least 1, got {self.dimension}")
        object.__setattr__(self, "dimension", int(self.dimension))
        object.__setattr__(self, "radius", float(self.radius))
        object.__setattr__(self, "p", float(self.p))
        _check_steps(self.steps)

    @property
    def scale(self) -> Floats:
        """Return the length of one unit of the unit ball along each axis."""
        return np.full(self.dimension, self.radius)

    def snap(self, values: ArrayLike, *, clamp: bool = False) -> Points:
        """Return lattice points, rounded towards the center so that none leaves the ball.

        `clamp` shortens vectors that are too long, as gradient clipping does.
        """
        unit = _rows(values, self.dimension) / self.radius
        norms = np.linalg.norm(unit, ord=self.p, axis=1)
        if clamp:
            unit /= np.maximum(norms, 1.0)[:, None]
        elif not (norms <= 1 + _SLACK).all():
            row = int(np.argmax(~(norms <= 1 + _SLACK)))
            raise OutsideDomain(
                f"value {row}: its l{self.p:g} norm {norms[row] * self.radius:g} is above the "
                f"radius {self.radius:g}; shorten it, or pass clamp=True"
            )
        half = self.steps // 2
        points = np.trunc(unit * half).astype(np.int64)
        self._pull_in(points, half)
        return points

    def _pull_in(self, points: Points, half: int) -> None:
        """Shorten in place points that float rounding left outside, one integer step at a time."""
        if self.p == math.inf:
            np.clip(points, -half, half, out=points)
            return
        for row in np.flatnonzero(np.linalg.norm(points, ord=self.p, axis=1) > half * (1 - _SLACK)):
            while not lattice_norm_within(points[row].tolist(), self.p, half):
                longest = int(np.argmax(np.abs(points[row])))
                points[row, longest] -= np.sign(points[row, longest])

    def snap_one(self, value: Sequence[float]) -> tuple[int, ...]:
        """Return the lattice point of one value."""
        return tuple(int(i) for i in self.snap([value])[0])

    def holds(self, points: Points) -> bool:
        """Return whether every point is on the lattice; exact in integers for p in 1, 2 and inf."""
        half = self.steps // 2
        # Check coordinates first: the square of a huge one would overflow and look small.
        if points.size == 0 or points.min() < -half or points.max() > half:
            return points.size == 0
        if self.p == math.inf:
            return True
        if self.p in {1.0, 2.0}:
            power = int(self.p)
            return bool((np.abs(points) ** power).sum(axis=1).max() <= half**power)
        return bool(np.linalg.norm(points, ord=self.p, axis=1).max() <= half)

    def from_unit(self, places: Floats) -> Floats:
        """Convert points of the unit ball to the user's units."""
        return places * self.radius

    def values(self, points: Points) -> Floats:
        """Convert lattice points to the user's units."""
        return self.from_unit(points / (self.steps // 2))

    def params(self) -> dict[str, Any]:
        """Return plain data from which `domain_from_params` builds an equal ball."""
        p = "inf" if self.p == math.inf else self.p
        plain = {"kind": "ball", "radius": self.radius, "p": p, "dimension": self.dimension}
        return {**plain, "steps": self.steps}


def lattice_norm_within(point: Sequence[int], p: float, reach: int) -> bool:
    """Return whether |point|_p <= reach; exact in integers for p in 1, 2 and inf."""
    if p == math.inf:
        return max(map(abs, point)) <= reach
    if p == 1:
        return sum(map(abs, point)) <= reach
    if p == 2:
        return sum(i * i for i in point) <= reach * reach
    return math.fsum(abs(i / reach) ** p for i in point) <= 1 if reach else not any(point)


def _rows(values: ArrayLike, dimension: int) -> Floats:
    """Return values as a finite (n, dimension) array; name the first that is not finite."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise Misuse(f"values must be numbers, {dimension} per row: {error}") from error
    if array.ndim == 1 and dimension == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] != dimension:
        raise Misuse(f"values must have the shape (n, {dimension}), got {array.shape}")
    if not np.isfinite(array).all():
        row, axis = np.argwhere(~np.isfinite(array))[0]
        raise OutsideDomain(f"value {row}, axis {axis}: {array[row, axis]} is not a finite number")
    return array


def _floats(numbers: Sequence[float], name: str) -> tuple[float, ...]:
    if isinstance(numbers, Sequence) and any(isinstance(x, bool) for x in numbers):
        raise Misuse(f"`{name}` must be a list of numbers, not of true or false")
    try:
        return tuple(float(x) for x in numbers)
    except (TypeError, ValueError) as error:
        raise Misuse(
            f"`{name}` must be a list of numbers, one per axis, got {numbers!r}"
        ) from error


def _check_steps(steps: int) -> None:
    if not (isinstance(steps, int) and 2 <= steps <= _MAX_STEPS and steps % 2 == 0):
        raise Misuse(f"`steps` must be an even number from 2 to 2^24, got {steps}")
