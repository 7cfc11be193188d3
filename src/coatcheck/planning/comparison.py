"""Every mechanism side by side: how far from the truth one report is, and how long it takes.

Values are uniform on the domain, the error is the mean l2 distance between value and estimate.
The paper's figures (Table `errortime`) stand beside the mechanisms that reproduce them: its
Minkowski response has a radius in (0, 1] that is best at 0, its PrivUnit the sufficient
conditions of Bhowmick et al. This file draws from a seed: it is a SIMULATION, not for people.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from coatcheck.domains import Ball, Box, Floats
from coatcheck.entropy import Entropy, seeded, source
from coatcheck.errors import Misuse
from coatcheck.randomizers import (
    BoundedResponse,
    Decode,
    GridResponse,
    MinkowskiResponse,
    Randomizer,
    choose,
    tuned,
)
from coatcheck.randomizers.baselines import BASELINES, PrivUnit, published_minkowski
from coatcheck.randomizers.choice import misses
from coatcheck.randomizers.prediction import unit_ball

DOMAINS: Final = {
    "square": Box((-1, -1), (1, 1)),
    "line": Box((-1,), (1,)),
    "cube": Box((-1, -1, -1), (1, 1, 1)),
}
OURS: Final = ("minkowski", "bounded", "grid", "choose")

# Table `errortime` of the paper: unbiased estimates, values uniform on [-1, 1]^2.
_BUDGETS: Final = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0)
PAPER: Final = {
    "minkowski-paper": (10.42, 4.50, 1.78, 0.98, 0.39, 0.14, 0.074),
    "privunit-bhowmick": (8.94, 4.68, 2.25, 1.44, 0.81, 0.32, 0.18),
    "privunitg": (8.73, 4.63, 2.27, 1.51, 0.96, 0.63, 0.53),
    "laplace": (12.97, 6.56, 3.27, 2.13, 1.30, 0.81, 0.64),
    "planar-laplace": (11.17, 5.63, 2.84, 1.88, 1.14, 0.71, 0.56),
    "staircase": (13.19, 6.40, 3.13, 2.01, 1.05, 0.46, 0.28),
    "square-wave": (11.87, 5.72, 2.65, 1.68, 0.92, 0.53, 0.42),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One mechanism, read one way, at one ε.

    Attributes:
        mechanism: a name of the registry, `choose` for the one with the least predicted error,
            or `minkowski-paper` and `privunit-bhowmick` for those with the paper's conventions.
        mean_error: mean l2 distance between value and estimate, in the unit of the domain.
        paper: the paper's figure for it, if it has one.
        exact: whether only integers lie between value and report.
        microseconds: time per report, drawn in bulk, snapping included.
    """

    mechanism: str
    decode: Decode
    epsilon: float
    mean_error: float
    paper: float | None
    exact: bool
    microseconds: float


def compare(
    *,
    epsilons: Sequence[float],
    domain: Box | Ball = DOMAINS["square"],
    samples: int = 200_000,
    entropy: Entropy | int = 7,
) -> list[Row]:
    """Return the measured error and time of every mechanism and decode, ours first.

    `entropy` is a source, or a seed, which gives the same errors each time. All mechanisms draw
    alike: from a seed that is drawn from it.

    >>> rows = compare(epsilons=[3.0], samples=1000)
    >>> min(rows, key=lambda row: row.mean_error).mechanism in OURS
    True
    """
    if not (isinstance(samples, int) and samples >= 1):
        raise Misuse(f"a comparison needs at least 1 sample, got {samples!r}")
    if not epsilons:
        raise Misuse("a comparison needs at least one epsilon, such as 1.0")
    seed = source(entropy).seed()
    values = _uniform_values(domain, samples, seed)
    return [
        row
        for epsilon in epsilons
        for name, made, decodes in _contenders(domain, epsilon)
        for row in _measure(name, made, decodes, values, seed)
    ]


def _uniform_values(domain: Box | Ball, samples: int, seed: int) -> Floats:
    d = domain.dimension
    uniforms = seeded(seed).uniforms(samples * (d + 1)).reshape(samples, d + 1)
    return domain.from_unit(unit_ball(domain.p, uniforms))


def _contenders(
    domain: Box | Ball, epsilon: float
) -> Iterator[tuple[str, Randomizer, tuple[Decode, ...]]]:
    """Yield each mechanism with the ways to read it; ours are tuned for each way."""
    best = choose(epsilon=epsilon, domain=domain)
    yield "choose", best.randomizer, (best.how,)
    families: list[Any] = [GridResponse] if isinstance(domain, Box) else []
    for family in [*families, BoundedResponse, MinkowskiResponse]:
        for how in tuned(family, domain=domain, epsilon=epsilon).plain_decodes:
            made = tuned(family, domain=domain, epsilon=epsilon, decode=how)
            yield made.name, made, (how,)
    published = published_minkowski(domain=domain, epsilon=epsilon)
    yield "minkowski-paper", published, ("unbiased",)
    for kind in BASELINES:
        made = kind(domain=domain, epsilon=epsilon)
        yield made.name, made, made.plain_decodes
        if kind is PrivUnit and domain.dimension > 1:  # the conditions hold from a plane up
            made = PrivUnit(domain=domain, epsilon=epsilon, conditions="bhowmick")
            yield "privunit-bhowmick", made, made.plain_decodes


def _measure(
    name: str, made: Randomizer, decodes: tuple[Decode, ...], values: Floats, seed: int
) -> Iterator[Row]:
    """Draw once, read in every way."""
    made.randomize(values[:1], seeded(seed))  # what is computed once is not the time of a report
    entropy = seeded(seed + 1)
    start = time.perf_counter()
    reports = made.randomize(values, entropy)
    microseconds = (time.perf_counter() - start) / len(values) * 1e6
    for how in decodes:
        yield Row(
            mechanism=name,
            decode=how,
            epsilon=made.epsilon,
            mean_error=float(misses(made.domain, made.estimate(reports, how), values).mean()),
            paper=_paper(name, made, how),
            exact=made.exact,
            microseconds=microseconds,
        )


def _paper(name: str, made: Randomizer, how: Decode) -> float | None:
    if name not in PAPER or how != "unbiased" or made.domain != DOMAINS["square"]:
        return None
    figures = zip(_BUDGETS, PAPER[name], strict=True)
    return next((figure for budget, figure in figures if math.isclose(budget, made.epsilon)), None)
