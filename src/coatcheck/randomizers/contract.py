"""The contract of every local randomizer: noisy reports, estimates from them, and a promise.

Client and server build the same object from its parameters. The client calls `randomize`, where
the value is; the server calls `estimate`, which needs no secret. A mechanism states its privacy
law: a test checks the sampler against it, and the accountant amplifies it.

`MixedResponse` is the base of the exact mechanisms: a biased coin chooses between a cap of
reports around the value and all reports.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from coatcheck.accounting.laws import AnyLdp, Fieldwise, OwnCoin, Ratios, TwoLevel
from coatcheck.domains import Ball, Box, Categories, Domain, Floats, Points
from coatcheck.entropy import Entropy
from coatcheck.errors import Misuse
from coatcheck.randomizers.density import DIMENSIONS, LEARNED, Near, Weights, decode_batch
from coatcheck.randomizers.expected_error import corners, evenly, extremes
from coatcheck.randomizers.lattice_balls import LatticeBall

Decode = Literal["unbiased", "project", "raw", "median", "learned", "learned-mean"]
Goal = Literal["mean", "squared", "median", "worst", "unbiased"]
Reports = NDArray[Any]  # int64 from an exact mechanism, float64 from a baseline

GOALS: Final = get_args(Goal)
CHUNK: Final = 1 << 15  # reports at a time: what they need fits a core's cache
LARGEST_EPSILON: Final = 64.0
_NODES: Final = 1 << 13


class Randomizer(ABC):
    """A local randomizer: ε-LDP for every pair of values of its domain.

    Attributes:
        name: its name in terms and commands.
        domain: the values it takes.
        epsilon: the budget it was built for; `epsilon_spent` bounds the cost of its integer coin.
        decode: the decoder that `estimate` uses by default.
    """

    name: ClassVar[str]
    domain: Domain
    epsilon: float
    decode: Decode

    # -- the promise

    @property
    @abstractmethod
    def exact(self) -> bool:
        """Return whether reports are drawn in integers only; services accept no other mechanism."""

    @property
    @abstractmethod
    def law(self) -> TwoLevel | Fieldwise | Ratios | AnyLdp | OwnCoin:
        """Return the privacy law of one report, for the accountant."""

    @property
    @abstractmethod
    def total_variation(self) -> float:
        """Return the largest total variation distance between the reports of two values."""

    @property
    def epsilon_spent(self) -> float:
        """Return an upper bound on the ε that the mechanism really costs."""
        return self.epsilon

    @abstractmethod
    def density(self, reports: Reports, points: Points) -> Floats:
        """Return how likely each report is from each point: mass on a lattice, else density."""

    def mass(self, report: Sequence[int], point: Sequence[int]) -> Fraction:  # noqa: ARG002 - for mechanisms that have one
        """Return the exact probability of a report; only exact mechanisms have one."""
        raise Misuse(f"{self.name} draws floats and has no exact mass; use density()")

    # -- the client's side

    def randomize(self, values: Any, entropy: Entropy, *, clamp: bool = False) -> Reports:
        """Return one report per value, (n, width), from values (n, d) in the user's units.

        Guarantee: each report is ε-LDP in its value, exactly if `exact`.
        """
        _check_entropy(entropy)
        if not hasattr(values, "__getitem__") or not hasattr(values, "__len__"):
            values = np.asarray(values)
        if not (isinstance(self.domain, Box | Ball) and len(values) > CHUNK):
            return self._respond(self.domain.snap(values, clamp=clamp), entropy)
        values = np.asarray(values)
        try:
            return self._in_chunks(
                len(values), entropy, lambda rows: self.domain.snap(values[rows], clamp=clamp)
            )
        except Misuse:
            self.domain.snap(values, clamp=clamp)  # the error names the row in the whole input
            raise

    def respond(self, points: Points, entropy: Entropy) -> Reports:
        """Return one report per lattice point: what `randomize` does after snapping."""
        _check_entropy(entropy)
        self._check_points(points)
        return self._in_chunks(len(points), entropy, lambda rows: points[rows])

    def _in_chunks(self, size: int, entropy: Entropy, points: Callable[[slice], Points]) -> Reports:
        reports = np.empty((size, self.width), dtype=self._dtype)
        for start in range(0, size, CHUNK):
            rows = slice(start, start + CHUNK)
            reports[rows] = self._respond(points(rows), entropy)
        return reports

    def respond_one(self, point: tuple[int, ...], entropy: Entropy) -> tuple[Any, ...]:
        """Return the report of one lattice point; exact mechanisms use no arrays for it."""
        return tuple(self.respond(np.array([point], dtype=np.int64), entropy)[0].tolist())

    def randomize_one(self, value: Any, entropy: Entropy) -> tuple[Any, ...]:
        """Return the report of one value in the user's units."""
        _check_entropy(entropy)
        if isinstance(self.domain, Box | Ball | Categories):
            return self.respond_one(self.domain.snap_one(value), entropy)
        return tuple(self.randomize(value, entropy)[0].tolist())

    @abstractmethod
    def _respond(self, points: Points, entropy: Entropy) -> Reports:
        """Return one report per point of a chunk; all points are on the lattice."""

    @property
    def takes_decoys(self) -> bool:
        """Return whether the mechanism has decoys: reports as it draws them from everywhere."""
        return False

    def decoy(self, entropy: Entropy) -> tuple[int, ...]:  # noqa: ARG002 - for mechanisms that have one
        """Return a decoy: a report drawn uniformly from all reports, whatever anybody's value."""
        raise Misuse(
            f"{self.name} has no decoys: choose a grid, a codebook, a sphere, or an exact minkowski"
            " or bounded response, or leave `decoys` out"
        )

    def _check_points(self, points: Points) -> None:
        if points.ndim != 2 or points.shape[1] != self.domain.dimension:
            raise Misuse(
                f"points must have the shape (n, {self.domain.dimension}), got {points.shape}"
            )
        if not np.issubdtype(points.dtype, np.integer):
            raise Misuse(
                f"points must be integers of the lattice, got {points.dtype}; snap() values first"
            )
        if not self.domain.holds(points):
            raise Misuse("points must lie on the lattice of the domain; snap() the values first")

    @property
    def width(self) -> int:
        """Return how many numbers a report has."""
        return self.domain.dimension

    @property
    def _dtype(self) -> type[np.int64] | type[np.float64]:
        return np.int64

    @property
    def low(self) -> Points:
        """Return the least value of each number of a report, for a fixed width on the wire."""
        return -self.high

    @property
    def high(self) -> Points:
        """Return the largest value of each number of a report."""
        raise Misuse(f"{self.name} reports are floats, which have no fixed range")

    @property
    def report_bits(self) -> int:
        """Return how many bits a report needs at a fixed width."""
        spans = (self.high - self.low).tolist()
        return sum(int(span).bit_length() for span in spans)

    # -- the server's side

    @property
    @abstractmethod
    def decodes(self) -> tuple[Decode, ...]:
        """Return the decoders that `estimate` can use, the default first."""

    @property
    def plain_decodes(self) -> tuple[Decode, ...]:
        """Return the decoders that take each report by itself."""
        return tuple(how for how in self.decodes if how not in LEARNED)

    @property
    def learns(self) -> tuple[Decode, ...]:
        """Return the decoders that use the whole batch; none where cells would be too coarse."""
        return LEARNED if self.domain.dimension <= DIMENSIONS else ()

    @property
    def near(self) -> Near | None:
        """Return the branch that depends on the value, if it is uniform on a box of reports."""
        return None

    def estimate(
        self, reports: Reports, how: Decode | None = None, *, prior: Weights | None = None
    ) -> Any:
        """Return estimates in the user's units.

        `unbiased` is right on average; `project` is the place of the domain nearest to the raw
        report; `raw` takes the report as it is; `median` is the posterior median of the value
        under an even prior. `learned` and `learned-mean` are the posterior median and mean under
        the density of people that the whole batch shows, starting from the prior if there is
        one. A batch too small to learn from is decoded by the prior, or each report by itself.
        """
        reports, how = self._check_reports(reports), self._check_decode(how)
        if prior is not None and how not in LEARNED:
            raise Misuse(f"only the decoders {' and '.join(LEARNED)} use a prior, not {how}")
        if how in LEARNED:
            places = decode_batch(self, reports, mean=how == LEARNED[1], prior=prior).places
            if places is not None:
                return self._numeric.from_unit(places)
        return self._numeric.from_unit(self._decode(self._frame(reports), self.plain_decode(how)))

    def plain_decode(self, how: Decode) -> Decode:
        """Return the decoder to use where the batch does not help."""
        if how not in LEARNED:
            return how
        return "median" if "median" in self.decodes else self.decodes[0]

    def _check_reports(self, reports: Reports) -> Reports:
        reports = np.asarray(reports)
        if reports.ndim != 2 or reports.shape[1] != self.width:
            raise Misuse(f"reports must have the shape (n, {self.width}), got {reports.shape}")
        return reports

    def _check_decode(self, how: Decode | None) -> Decode:
        how = how or self.decode
        if how not in self.decodes:
            raise Misuse(
                f"{self.name} reports are decoded by {' | '.join(self.decodes)} here, got {how!r}"
            )
        return how

    def _frame(self, reports: Reports) -> Floats:
        """Return reports in the frame in which `_decode` works."""
        raise NotImplementedError(f"{self.name} must define `_frame` or override `estimate`")

    def _decode(self, reports: Floats, how: Decode) -> Floats:
        """Return places of the unit ball for reports in the frame."""
        raise NotImplementedError(f"{self.name} must define `_decode` or override `estimate`")

    @property
    def _numeric(self) -> Box | Ball:
        if not isinstance(self.domain, Box | Ball):
            raise Misuse(f"{self.name} works on a Box or a Ball, not on {self.domain}")
        return self.domain

    # -- the error, predicted without drawing

    def expected_error(self, how: Decode | None = None, *, power: int = 1) -> float:
        """Return the mean of |estimate - value|^power for a value uniform on the domain.

        In the unit of the domain (metres for a geographic box), by a closed form where there is
        one, else by a fixed quadrature that is accurate to about 0.3 %. For uniform values the
        batch holds nothing to learn, so a learned decoder has the error of the plain one.
        """
        how = self.plain_decode(self._check_decode(how))
        if how == "unbiased" and power == 2:
            d = self._numeric.dimension
            spread = LatticeBall(self._numeric.p, d).spread
            return self.squared_error(np.full(d, math.sqrt(spread / d)))
        return float(self._mean_errors(*self._nodes(_NODES), how, power).mean())

    def worst_error(self, how: Decode | None = None, *, power: int = 1) -> float:
        """Return the largest mean of |estimate - value|^power over values of the domain."""
        how = self.plain_decode(self._check_decode(how))
        ball = self._numeric
        if how == "unbiased" and power == 2:
            return max(map(self.squared_error, extremes(ball.dimension, ball.p)))
        places = corners(ball.dimension, ball.p, alike=self._axes_alike)
        draws = self._draws_at(_NODES // 8)
        every = np.repeat(places, len(draws), axis=0), np.tile(draws, (len(places), 1))
        errors = self._mean_errors(*every, how, power)
        return float(errors.reshape(len(places), -1).mean(axis=1).max())

    @property
    def _axes_alike(self) -> bool:
        """Return whether swapping two axes changes no error."""
        return bool(np.ptp(self._numeric.scale) == 0)

    def squared_error(self, place: Floats) -> float:
        """Return the mean squared error of the unbiased estimate at a place of the unit ball.

        In closed form, and linear in the squared coordinates of the place, so that its mean and
        its maximum over the domain are its values at a few places.
        """
        del place
        raise Misuse(f"{self.name} has no unbiased estimate, so no squared error; use minkowski")

    def _nodes(self, size: int) -> tuple[Floats, Floats]:
        """Return places of the unit ball and, for each, the draws that `_outcomes` takes."""
        ball = self._numeric
        return evenly(size, dimension=ball.dimension, p=ball.p, extra=self._draws)

    def _draws_at(self, size: int) -> Floats:
        """Return about `size` draws for one place; `_nodes` spreads them over many places."""
        return self._nodes(size)[1]

    def _mean_errors(self, places: Floats, draws: Floats, how: Decode, power: int) -> Floats:
        scale = self._numeric.scale
        errors = np.zeros(len(places))
        for weight, reports in self._outcomes(places, draws):
            misses = np.linalg.norm((self._decode(reports, how) - places) * scale, axis=1)
            errors += weight * misses**power
        return errors

    @property
    def _draws(self) -> int:
        """Return how many uniforms one report takes."""
        return self.domain.dimension + 1

    def _outcomes(self, places: Floats, draws: Floats) -> list[tuple[float, Floats]]:
        """Return the weight of each branch of the mechanism, and its reports in the frame."""
        raise NotImplementedError(f"{self.name} must define `_outcomes` or override its errors")

    # -- parameters

    def params(self) -> dict[str, Any]:
        """Return plain data from which `from_params` builds an equal object."""
        mechanism: Any = self  # every mechanism is a dataclass
        values = {field.name: getattr(self, field.name) for field in fields(mechanism)}
        return {"name": self.name, **{name: _plain(value) for name, value in values.items()}}


def _plain(value: Any) -> Any:
    """Return a parameter as JSON data: domains and parts by their own parameters."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value.params() if hasattr(value, "params") else value


def check_epsilon(epsilon: float) -> float:
    """Return a budget as a float, or raise `Misuse`."""
    number = float(epsilon) if is_number(epsilon) else math.nan
    if not (math.isfinite(number) and number > 0):
        raise Misuse(f"`epsilon` must be a number above 0, got {epsilon!r}")
    if number > LARGEST_EPSILON:
        raise Misuse(
            f"`epsilon` must be at most {LARGEST_EPSILON:g}, got {epsilon}: more protects nothing"
        )
    return number


def is_number(value: object) -> bool:
    """Return whether this is a real number of Python or numpy; a bool is not one."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _check_entropy(entropy: object) -> None:
    if not isinstance(entropy, Entropy):
        raise Misuse(
            f"`entropy` must come from coatcheck.entropy, system() for people or seeded(n) for a "
            f"simulation, got a {type(entropy).__name__}"
        )


def check_goal(goal: str) -> None:
    """Raise `Misuse` unless this is a goal."""
    if goal not in GOALS:
        raise Misuse(f"a goal is one of {' | '.join(GOALS)}, got {goal!r}")


# -- the coin that chooses between the cap and everywhere, computed in integers
#
# A mechanism answers from a cap of `cap` lattice points with probability heads / 2^64, otherwise
# from all `whole` points. A point of the cap is then 1 + heads whole / ((2^64 - heads) cap) times
# as likely as one outside it, and `heads` is the largest integer that keeps this at most e^ε.
TOSSES: Final = 1 << 64
_BITS: Final = 160  # of the fraction of e^ε; far below the 2^-64 of the coin


def exp_below(epsilon: float) -> Fraction:
    """Return a rational number at most e^epsilon, closer to it than the coin can resolve."""
    exponent = Fraction(epsilon)
    term = total = 1 << _BITS
    order = 0
    while term:
        order += 1
        # Every term is positive and rounded down, so the sum stays below e^epsilon.
        term = term * exponent.numerator // (exponent.denominator * order)
        total += term
    return Fraction(total, 1 << _BITS)


def heads_for(epsilon: float, *, cap: int, whole: int) -> int:
    """Return the coin's heads out of 2^64.

    Guarantee: heads whole <= (e^epsilon - 1) cap (2^64 - heads). With gain = (e^epsilon - 1) cap
    that is heads (gain + whole) <= 2^64 gain, of which this is the largest solution.
    """
    gain = (exp_below(epsilon) - 1) * cap
    return math.floor(TOSSES * gain / (gain + whole))


def spent(heads: int, *, cap: int, whole: int) -> float:
    """Return an upper bound on ln(1 + heads whole / ((2^64 - heads) cap)), within a few ulp."""
    if heads == 0:  # as where a cap is too small to count and `cap` is 0
        return 0.0
    excess = Fraction(heads * whole, (TOSSES - heads) * cap)
    return math.log1p(float(excess)) * (1 + 4 * 2.0**-52)


def float_above(ratio: Fraction) -> float:
    """Return a float that is at least this ratio, by at most one ulp more."""
    near = float(ratio)
    return near if Fraction(near) >= ratio else math.nextafter(near, math.inf)


def counted_law(epsilon: float, *, cap: int, whole: int) -> TwoLevel:
    """Return the law of caps of `cap` of `whole` reports that overlap as little as they can.

    The part of one cap outside another is at most the whole cap, and at most all reports outside
    the other.
    """
    if cap == whole:
        return TwoLevel(epsilon=0.0, cap=1.0, apart=0.0, kernel=1.0)
    heads = heads_for(epsilon, cap=cap, whole=whole)
    each = Fraction(TOSSES - heads, TOSSES * whole)
    return TwoLevel(
        epsilon=min(spent(heads, cap=cap, whole=whole), epsilon),
        cap=float_above(cap * each),
        apart=float_above(min(cap, whole - cap) * each),
        reached=cap == 1,
        binary=(cap, whole) == (1, 2),
    )


class MixedResponse(Randomizer):
    """A mechanism that answers from a value's cap with probability β, else from everywhere.

    The law here is for caps that overlap as little as their sizes allow; a mechanism whose caps
    always overlap overrides it with a smaller one.
    """

    _disjoint: ClassVar[bool] = True  # whether caps of one report each are disjoint

    @property
    @abstractmethod
    def _counts(self) -> tuple[int, int]:
        """Return how many reports a cap has, and how many reports there are."""

    @cached_property
    def heads(self) -> int:
        """Return how many of 2^64 tosses of the coin choose the cap."""
        cap, whole = self._counts
        return heads_for(self.epsilon, cap=cap, whole=whole)

    @property
    def mixing(self) -> float:
        """Return β, the probability of an answer from the cap."""
        return self.heads / TOSSES

    @property
    def epsilon_spent(self) -> float:
        """Return an upper bound on the ε that the mechanism really costs."""
        cap, whole = self._counts
        if cap == whole:
            return 0.0
        return min(spent(self.heads, cap=cap, whole=whole), self.epsilon)

    @property
    def law(self) -> TwoLevel:
        """Return the two-level law of the counts."""
        cap, whole = self._counts
        law = counted_law(self.epsilon, cap=cap, whole=whole)
        return law if self._disjoint else replace(law, reached=False, binary=False)

    @property
    def total_variation(self) -> float:
        """Return the total variation distance of the two values whose caps overlap least."""
        return self.mixing * self.law.apart / self.law.cap
