"""Tests for a mechanism of your own: `python -m coatcheck.testing my.module:MyResponse`.

They hold for every mechanism of this package. On small lattices the promise is checked over every
pair of values and every report, in exact fractions; draws are compared with what the mechanism
says of itself, by fixed seeds. A test that fails names what is wrong; passing all of them is no
proof. The class needs the classmethod `fitted` (see `coatcheck.randomizers.installed`).
"""

import itertools
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from coatcheck.accounting.amplification import delta_curve
from coatcheck.domains import Ball, Box, Categories, Domain, Floats, domain_from_params
from coatcheck.entropy import seeded
from coatcheck.errors import Error, Misuse
from coatcheck.randomizers import Randomizer, errors_under
from coatcheck.randomizers.choice import crowd_of

DOMAINS: Final[tuple[Domain, ...]] = (
    Box((0.0,), (5.0,)),
    Box((-1.0, -1.0), (1.0, 1.0)),
    Box.geographic(south=31.0, west=121.0, north=31.5, east=122.0),
    Ball(radius=2.0, p=2, dimension=3),
    Ball(radius=0.1, p=1, dimension=2),
    Categories(("a", "b", "c")),
)
SMALL: Final[tuple[Domain, ...]] = (
    Box((0.0,), (5.0,), steps=8),
    Box((-1.0, -1.0), (1.0, 1.0), steps=4),
    Ball(radius=2.0, p=2, dimension=2, steps=4),
    Categories(("a", "b", "c")),
)
EPSILON: Final = 1.5
_PEOPLE: Final = 4_000
_DRAWS: Final = 20_000
_MOST: Final = 1 << 14  # pairs of a value and a report that are counted
_CROWD: Final = 30


class Wrong(AssertionError):
    """A mechanism does not keep its contract; the message says how."""


def must(holds: object, what: str) -> None:
    """Say what is wrong unless it holds."""
    if not holds:
        raise Wrong(what)


# -- on every domain


def parameters(made: Randomizer) -> None:
    """Plain data makes an equal mechanism."""
    given = json.loads(json.dumps(made.params()))
    must(given.pop("name", None) == made.name, "params() lacks the mechanism's name")
    domain = domain_from_params(given.pop("domain"))
    kind: Any = type(made)
    given = {key: tuple(one) if isinstance(one, list) else one for key, one in given.items()}
    must(kind(domain=domain, **given).params() == made.params(), "params() do not make it again")


def budgets(made: Randomizer) -> None:
    """It spends no more than it was given, and its law says what it spends."""
    must(0 <= made.epsilon_spent <= made.epsilon <= EPSILON, "it spends more than its ε")
    must(made.law.epsilon <= made.epsilon_spent * (1 + 1e-9), "its law has another ε")
    must(0 <= made.total_variation <= 1, "its total variation is no share")


def reports(made: Randomizer) -> None:
    """Reports have one shape, stay in their range and depend on the seed alone."""
    values = crowd_of(made.domain, None, 300)
    drawn = made.randomize(values, seeded(1), clamp=True)
    must(drawn.shape == (len(values), made.width), "a report does not have `width` numbers")
    must((drawn == made.randomize(values, seeded(1), clamp=True)).all(), "a seed gives two batches")
    if made.exact:
        must(np.issubdtype(drawn.dtype, np.integer), "an exact mechanism reports floats")
        must(((made.low <= drawn) & (drawn <= made.high)).all(), "a report leaves low .. high")
    try:
        made.randomize(values, object(), clamp=True)  # type: ignore[arg-type]
    except Misuse:
        return
    raise Wrong("it takes any object as its randomness, not only what coatcheck.entropy gives")


def readings(made: Randomizer) -> None:
    """Each decode gives one finite estimate per report, whatever the order of the batch."""
    values = crowd_of(made.domain, None, 300)
    drawn = made.randomize(values, seeded(2), clamp=True)
    must(made.decode in made.decodes, f"it is read by {made.decode}, which is not one of its ways")
    turned = np.arange(len(drawn))[::-1]
    for how in made.decodes:
        read = np.asarray(made.estimate(drawn, how))
        must(len(read) == len(drawn), f"{how} does not give one estimate per report")
        if isinstance(made.domain, Box | Ball):
            must(np.isfinite(read).all(), f"{how} gives an estimate that is no number")
        again = np.asarray(made.estimate(drawn[turned], how))
        must((again == read[turned]).all(), f"{how} depends on the order of the reports")


def errors(made: Randomizer) -> None:
    """The predicted error is the measured one, and no value is read worse than `worst_error`."""
    how = made.decode
    told, found = made.expected_error(how), errors_under(made, how, people=_PEOPLE)
    noise = 5 * found.squared / math.sqrt(_PEOPLE) + 0.01 * told
    must(abs(found.mean - told) <= noise, f"it predicts {told:.4g}, {found.mean:.4g} is measured")
    must(made.worst_error(how) >= told * (1 - 1e-6), "its worst error is below the mean one")


# -- on small lattices, over every value and every report


@dataclass(frozen=True)
class Table:
    """The exact mass of every report from every value of a small lattice."""

    made: Randomizer

    @cached_property
    def points(self) -> list[tuple[int, ...]]:
        """Every value."""
        domain = self.made.domain
        if isinstance(domain, Categories):
            return [(label,) for label in range(len(domain.labels))]
        half = domain.steps // 2  # type: ignore[union-attr] # a Box or a Ball
        every = itertools.product(range(-half, half + 1), repeat=domain.dimension)
        return [point for point in every if domain.holds(np.array([point]))]

    @cached_property
    def reports(self) -> list[tuple[int, ...]]:
        """Every report."""
        low, high = self.made.low.tolist(), self.made.high.tolist()
        sides = [range(a, b + 1) for a, b in zip(low, high, strict=True)]
        if math.prod(map(len, sides)) * len(self.points) > _MOST:
            raise Misuse("there are too many reports to count")
        return list(itertools.product(*sides))

    @cached_property
    def masses(self) -> list[list[Fraction]]:
        """One row per value."""
        return [[self.made.mass(y, point) for y in self.reports] for point in self.points]


def masses(made: Randomizer) -> None:
    """Each value's masses sum to one, and no two values differ by more than e^ε."""
    table = Table(made)
    must(all(sum(row) == 1 for row in table.masses), "the masses of a value do not sum to 1")
    for report, column in zip(table.reports, zip(*table.masses, strict=True), strict=True):
        if any(column):
            must(min(column) > 0, f"report {report} comes from some values only: no ε at all")
            ratio = math.log(max(column) / min(column))
            must(ratio <= made.epsilon_spent * (1 + 1e-12), f"report {report} tells {ratio:.6g}")
    apart = max(
        sum(abs(a - b) for a, b in zip(one, other, strict=True)) / 2
        for one, other in itertools.combinations(table.masses, 2)
    )
    must(float(apart) <= made.total_variation * (1 + 1e-9), "its total variation is understated")


def laws(made: Randomizer) -> None:
    """What the accountant makes of its law is never below what two values lose in a crowd.

    One person holds the first value or the second, as everybody else does, and an onlooker counts
    the reports that the first makes likelier.
    """
    rows = [np.array(row, dtype=np.float64) for row in Table(made).masses]
    if not made.epsilon_spent:
        return
    levels = [share * made.epsilon_spent for share in (0.2, 0.6)]
    told = delta_curve(made.law, epsilons=levels, crowd=_CROWD)
    for one, other in itertools.permutations(rows, 2):
        lost = [_lost(one, other, level) for level in levels]
        must((lost <= told * (1 + 1e-9) + 1e-12).all(), "its law promises more privacy than it has")


def _lost(one: Floats, other: Floats, epsilon: float) -> float:
    """Return the δ at an ε of that count: with the person at one value against the other."""
    from scipy.stats import binom  # noqa: PLC0415 - slow to import

    likelier = one > other
    counts = np.arange(_CROWD + 1)
    rest = binom.pmf(counts, _CROWD - 1, other[likelier].sum())
    own = one[likelier].sum()
    with_one = (1 - own) * rest + own * np.concatenate([[0.0], rest[:-1]])
    with_other = binom.pmf(counts, _CROWD, other[likelier].sum())
    return float(np.maximum(with_one - math.exp(epsilon) * with_other, 0.0).sum())


def draws(made: Randomizer) -> None:
    """Draws in bulk and one by one follow the masses: chi-square, false alarm 1e-6."""
    from scipy.stats import chi2  # noqa: PLC0415 - slow to import

    table = Table(made)
    index = {report: k for k, report in enumerate(table.reports)}
    for point, row in list(zip(table.points, table.masses, strict=True))[:: len(table.points) // 2]:
        bulk = made.respond(np.array([point] * _DRAWS, dtype=np.int64), seeded(3)).tolist()
        entropy = seeded(4)
        single = [made.respond_one(point, entropy) for _ in range(_DRAWS // 10)]
        for drawn in (bulk, single):
            counts = np.bincount([index[tuple(y)] for y in drawn], minlength=len(index))
            mean = np.array(row, dtype=np.float64) * len(drawn)
            must(not counts[mean == 0].any(), f"a report of mass 0 was drawn from {point}")
            seen = mean > 0
            far: Floats = (counts[seen] - mean[seen]) ** 2 / mean[seen]
            limit = chi2.isf(1e-6, max(1, int(seen.sum()) - 1))
            must(far.sum() <= limit, f"draws from {point} do not follow their masses")


EVERYWHERE: Final[tuple[Callable[[Randomizer], None], ...]] = (
    parameters,
    budgets,
    reports,
    readings,
    errors,
)
COUNTED: Final[tuple[Callable[[Randomizer], None], ...]] = (masses, laws, draws)


# -- running them


def checks(kind: Any) -> Iterator[tuple[str, str]]:
    """Run every test of a class; yield its name and what is wrong, which is empty if it passes."""
    served = 0
    for domains, tests in ((DOMAINS, EVERYWHERE), (SMALL, COUNTED)):
        for domain in domains:
            try:
                made = kind.fitted(domain=domain, epsilon=EPSILON, goal="mean")
            except Misuse:
                continue  # it does not serve this domain
            if tests is COUNTED and not made.exact:
                continue
            served += 1
            for test in tests:
                yield f"{test.__name__} on {domain}", wrong(test, made)
    if not served:
        yield "fitted", "it serves none of the domains that are tried"


def wrong(test: Callable[[Randomizer], None], made: Randomizer) -> str:
    """Return what a test finds wrong, or nothing."""
    try:
        test(made)
    except (Wrong, Error) as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - a mechanism fails in its own ways
        return f"{type(error).__name__}: {error}"
    return ""


def main(arguments: Sequence[str]) -> int:
    """Test the class named `module:Class`; return 1 if a test fails, 2 if there is no such."""
    module, _, name = arguments[0].partition(":") if len(arguments) == 1 else ("", "", "")
    sys.path.insert(0, str(Path.cwd()))
    try:
        kind = getattr(import_module(module), name)
        kind.fitted  # noqa: B018 - it must be there
    except (ImportError, AttributeError, ValueError) as error:
        sys.stdout.write(f"usage: python -m coatcheck.testing my.module:MyResponse\n{error}\n")
        return 2
    failed = 0
    for test, what in checks(kind):
        failed += bool(what)
        sys.stdout.write(f"FAIL  {test}: {what}\n" if what else f"pass  {test}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
