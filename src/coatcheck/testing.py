"""Contract tests for your own mechanism: `python -m coatcheck.testing my.module:MyResponse`.

Every mechanism of this package passes them. On small lattices they check the promise over every
pair of values and every report, in exact fractions. They compare draws from fixed seeds with the
probabilities that the mechanism states. A failing test says what is wrong; passing all of them
proves nothing. The class needs the classmethod `fitted` (see
`coatcheck.randomizers.installed`).
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
_MAX_PAIRS: Final = 1 << 14  # of a value and a report, on a small lattice
_CROWD: Final = 30


class Wrong(AssertionError):
    """A mechanism breaks its contract; the message says how."""


def must(holds: object, problem: str) -> None:
    """Raise `Wrong` with the problem unless the condition holds."""
    if not holds:
        raise Wrong(problem)


# -- on every domain


def parameters(mechanism: Randomizer) -> None:
    """Its parameters, as plain data, rebuild an equal mechanism."""
    params = json.loads(json.dumps(mechanism.params()))
    must(params.pop("name", None) == mechanism.name, "params() lacks the mechanism's name")
    domain = domain_from_params(params.pop("domain"))
    kind: Any = type(mechanism)
    args = {
        key: tuple(value) if isinstance(value, list) else value for key, value in params.items()
    }
    must(
        kind(domain=domain, **args).params() == mechanism.params(),
        "a mechanism rebuilt from params() has other params()",
    )


def budgets(mechanism: Randomizer) -> None:
    """It spends at most the ε it was fitted to, and its law states what it spends."""
    must(
        0 <= mechanism.epsilon_spent <= mechanism.epsilon <= EPSILON,
        "`epsilon_spent` is not from 0 to `epsilon`, or `epsilon` exceeds the ε asked for",
    )
    must(
        mechanism.law.epsilon <= mechanism.epsilon_spent * (1 + 1e-9),
        "the ε of its law exceeds `epsilon_spent`",
    )
    must(0 <= mechanism.total_variation <= 1, "`total_variation` is not from 0 to 1")


def reports(mechanism: Randomizer) -> None:
    """Reports have one shape, stay in their range and depend only on value and seed."""
    values = crowd_of(mechanism.domain, None, 300)
    drawn = mechanism.randomize(values, seeded(1), clamp=True)
    must(drawn.shape == (len(values), mechanism.width), "a report does not have `width` numbers")
    must(
        (drawn == mechanism.randomize(values, seeded(1), clamp=True)).all(),
        "one seed gives two different batches",
    )
    if mechanism.exact:
        must(np.issubdtype(drawn.dtype, np.integer), "an exact mechanism reports floats")
        must(
            ((mechanism.low <= drawn) & (drawn <= mechanism.high)).all(),
            "a report leaves low .. high",
        )
    try:
        mechanism.randomize(values, object(), clamp=True)  # type: ignore[arg-type]
    except Misuse:
        return
    raise Wrong("it accepts randomness that is not from coatcheck.entropy")


def estimates(mechanism: Randomizer) -> None:
    """Each decoder gives one finite estimate per report, whatever the order of the batch."""
    values = crowd_of(mechanism.domain, None, 300)
    drawn = mechanism.randomize(values, seeded(2), clamp=True)
    must(
        mechanism.decode in mechanism.decodes,
        f"`decode` is {mechanism.decode}, which is not in `decodes`",
    )
    backwards = np.arange(len(drawn))[::-1]
    for decode in mechanism.decodes:
        batch = np.asarray(mechanism.estimate(drawn, decode))
        must(len(batch) == len(drawn), f"{decode} does not give one estimate per report")
        if isinstance(mechanism.domain, Box | Ball):
            must(np.isfinite(batch).all(), f"{decode} gives an estimate that is not finite")
        again = np.asarray(mechanism.estimate(drawn[backwards], decode))
        must((again == batch[backwards]).all(), f"{decode} depends on the order of the reports")


def errors(mechanism: Randomizer) -> None:
    """The predicted mean error is the measured one, and `worst_error` is not below it."""
    predicted = mechanism.expected_error(mechanism.decode)
    measured = errors_under(mechanism, mechanism.decode, people=_PEOPLE)
    noise = 5 * measured.squared / math.sqrt(_PEOPLE) + 0.01 * predicted
    must(
        abs(measured.mean - predicted) <= noise,
        f"it predicts an error of {predicted:.4g}, but {measured.mean:.4g} is measured",
    )
    worst = mechanism.worst_error(mechanism.decode)
    must(worst >= predicted * (1 - 1e-6), "its worst error is below its mean error")


# -- on small lattices, over every value and every report


@dataclass(frozen=True)
class Table:
    """The exact mass of every report from every value of a small lattice."""

    mechanism: Randomizer

    @cached_property
    def points(self) -> list[tuple[int, ...]]:
        """Every value."""
        domain = self.mechanism.domain
        if isinstance(domain, Categories):
            return [(label,) for label in range(len(domain.labels))]
        half = domain.steps // 2  # type: ignore[union-attr] # a Box or a Ball
        every = itertools.product(range(-half, half + 1), repeat=domain.dimension)
        return [point for point in every if domain.holds(np.array([point]))]

    @cached_property
    def reports(self) -> list[tuple[int, ...]]:
        """Every report."""
        low, high = self.mechanism.low.tolist(), self.mechanism.high.tolist()
        sides = [range(a, b + 1) for a, b in zip(low, high, strict=True)]
        if math.prod(map(len, sides)) * len(self.points) > _MAX_PAIRS:
            raise Misuse("the lattice has too many reports to list")
        return list(itertools.product(*sides))

    @cached_property
    def masses(self) -> list[list[Fraction]]:
        """One row per value."""
        return [[self.mechanism.mass(y, point) for y in self.reports] for point in self.points]


def masses(mechanism: Randomizer) -> None:
    """Each value's masses sum to one, and those of two values differ by at most a factor e^ε."""
    table = Table(mechanism)
    must(all(sum(row) == 1 for row in table.masses), "the masses of a value do not sum to 1")
    for report, column in zip(table.reports, zip(*table.masses, strict=True), strict=True):
        if any(column):
            must(min(column) > 0, f"some values never give report {report}, so no ε holds")
            ratio = math.log(max(column) / min(column))
            must(
                ratio <= mechanism.epsilon_spent * (1 + 1e-12),
                f"report {report} has a loss of {ratio:.6g}, above ε",
            )
    variation = max(
        sum(abs(a - b) for a, b in zip(first, second, strict=True)) / 2
        for first, second in itertools.combinations(table.masses, 2)
    )
    must(
        float(variation) <= mechanism.total_variation * (1 + 1e-9),
        "its total variation is understated",
    )


def laws(mechanism: Randomizer) -> None:
    """The δ computed from its law is never below the δ that an attack on a crowd reaches.

    One person holds the first or the second value, everybody else the second, and the attacker
    counts the reports that are likelier from the first.
    """
    rows = [np.array(row, dtype=np.float64) for row in Table(mechanism).masses]
    if not mechanism.epsilon_spent:
        return
    levels = [share * mechanism.epsilon_spent for share in (0.2, 0.6)]
    bounds = delta_curve(mechanism.law, epsilons=levels, crowd=_CROWD)
    for first, second in itertools.permutations(rows, 2):
        deltas = [_attacked(first, second, level) for level in levels]
        must(
            (deltas <= bounds * (1 + 1e-9) + 1e-12).all(),
            "its law promises more privacy than it has",
        )


def _attacked(first: Floats, second: Floats, epsilon: float) -> float:
    """Return the δ of that attack at an ε."""
    from scipy.stats import binom  # noqa: PLC0415 - slow to import

    likelier = first > second
    counts = np.arange(_CROWD + 1)
    rest = binom.pmf(counts, _CROWD - 1, second[likelier].sum())
    own = first[likelier].sum()
    with_first = (1 - own) * rest + own * np.concatenate([[0.0], rest[:-1]])
    with_second = binom.pmf(counts, _CROWD, second[likelier].sum())
    return float(np.maximum(with_first - math.exp(epsilon) * with_second, 0.0).sum())


def draws(mechanism: Randomizer) -> None:
    """Bulk and single draws follow the masses."""
    table = Table(mechanism)
    index = {report: k for k, report in enumerate(table.reports)}
    for point, row in list(zip(table.points, table.masses, strict=True))[:: len(table.points) // 2]:
        bulk = mechanism.respond(np.array([point] * _DRAWS, dtype=np.int64), seeded(3)).tolist()
        entropy = seeded(4)
        single = [mechanism.respond_one(point, entropy) for _ in range(_DRAWS // 10)]
        for drawn in (bulk, single):
            _must_follow(drawn, row, index, f"from {point}")


def decoys(mechanism: Randomizer) -> None:
    """Decoys, if it has them, are uniform over all possible reports."""
    if not mechanism.takes_decoys:
        return
    table, entropy = Table(mechanism), seeded(5)
    index = {report: k for k, report in enumerate(table.reports)}
    possible = [mass > 0 for mass in table.masses[0]]
    shares = [Fraction(is_possible, sum(possible)) for is_possible in possible]
    drawn = [mechanism.decoy(entropy) for _ in range(_DRAWS)]
    _must_follow(drawn, shares, index, "as decoys")


def _must_follow(
    drawn: Sequence[Sequence[int]],
    shares: Sequence[Fraction],
    index: dict[tuple[int, ...], int],
    how: str,
) -> None:
    """Compare drawn reports with their probabilities (chi-square test, false alarms 1e-6)."""
    from scipy.stats import chi2  # noqa: PLC0415 - slow to import

    counts = np.bincount([index[tuple(y)] for y in drawn], minlength=len(index))
    mean = np.array(shares, dtype=np.float64) * len(drawn)
    must(not counts[mean == 0].any(), f"a report of mass 0 was drawn {how}")
    possible = mean > 0
    terms: Floats = (counts[possible] - mean[possible]) ** 2 / mean[possible]
    limit = chi2.isf(1e-6, max(1, int(possible.sum()) - 1))
    must(terms.sum() <= limit, f"draws {how} do not follow their masses")


EVERYWHERE: Final[tuple[Callable[[Randomizer], None], ...]] = (
    parameters,
    budgets,
    reports,
    estimates,
    errors,
)
COUNTED: Final[tuple[Callable[[Randomizer], None], ...]] = (masses, laws, draws, decoys)


# -- running them


def checks(kind: Any) -> Iterator[tuple[str, str]]:
    """Run every test on a class; yield the test's name and the problem, empty if it passes."""
    tried = 0
    for domains, tests in ((DOMAINS, EVERYWHERE), (SMALL, COUNTED)):
        for domain in domains:
            try:
                mechanism = kind.fitted(domain=domain, epsilon=EPSILON, goal="mean")
            except Misuse:
                continue  # it does not support this domain
            if tests is COUNTED and not mechanism.exact:
                continue
            tried += 1
            for test in tests:
                yield f"{test.__name__} on {domain}", wrong(test, mechanism)
    if not tried:
        yield "fitted", "it supports none of the test domains"


def wrong(test: Callable[[Randomizer], None], mechanism: Randomizer) -> str:
    """Run a test; return the problem that it finds, or an empty text."""
    try:
        test(mechanism)
    except (Wrong, Error) as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - a mechanism fails in its own ways
        return f"{type(error).__name__}: {error}"
    return ""


def main(arguments: Sequence[str]) -> int:
    """Test the class named `module:Class`; return 1 if a test fails, 2 without such a class."""
    module, _, name = arguments[0].partition(":") if len(arguments) == 1 else ("", "", "")
    sys.path.insert(0, str(Path.cwd()))
    try:
        kind = getattr(import_module(module), name)
        kind.fitted  # noqa: B018 - it must be there
    except (ImportError, AttributeError, ValueError) as error:
        sys.stdout.write(f"usage: python -m coatcheck.testing my.module:MyResponse\n{error}\n")
        return 2
    failed = 0
    for test, problem in checks(kind):
        failed += bool(problem)
        sys.stdout.write(f"FAIL  {test}: {problem}\n" if problem else f"pass  {test}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
