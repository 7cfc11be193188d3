"""Randomizers composed of others: one per field of a product, or one behind a participation coin.

Fieldwise response: the reports of the fields stand side by side, and their budgets add up (simple
composition), so each field is ε_field-LDP and the whole report ε-LDP.

Participation coin: a person takes part with a stated chance, and silence is a report like any
other. Such a report has one more number in front: 1 and then the report of the part, or 0 and then
the part's lowest numbers. The coin does not depend on the value, so silence costs no privacy, and
silent people still hide the others. All messages have one size, and only the server sees which are
silent. SPEC section 13; the accountant's law is `OwnCoin`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from coatcheck.accounting.laws import AnyLdp, Fieldwise, OwnCoin, TwoLevel
from coatcheck.domains import Domain, Floats, Points, Product, side_by_side
from coatcheck.entropy import Entropy
from coatcheck.errors import Misuse
from coatcheck.randomizers.contract import (
    TOSSES,
    Decode,
    Randomizer,
    Reports,
    check_epsilon,
    is_number,
)
from coatcheck.randomizers.density import LEARNED, Weights


@dataclass(frozen=True, kw_only=True)
class FieldwiseResponse(Randomizer):
    """A randomizer for every field of a `Product`, in the product's order."""

    name: ClassVar[str] = "fieldwise"
    decode: ClassVar[Decode] = "raw"  # type: ignore[misc] # every field by its own part's decode
    decodes: ClassVar[tuple[Decode, ...]] = ("raw", *LEARNED)
    domain: Product
    parts: Mapping[str, Randomizer]

    def __post_init__(self) -> None:
        if not isinstance(self.domain, Product):
            raise Misuse(f"fieldwise works on a Product, not on {self.domain}")
        parts = dict(self.parts)
        if list(parts) != list(self.domain.fields):
            raise Misuse(
                f"`parts` must have one randomizer per field, {list(self.domain.fields)}, in that "
                f"order, got {list(parts)}"
            )
        for name, part in parts.items():
            if part.domain != self.domain.fields[name]:
                raise Misuse(
                    f"the randomizer of {name!r} must work on {self.domain.fields[name]}, not on "
                    f"{part.domain}"
                )
            if part.name == "coin":
                raise Misuse(
                    f"field {name!r} has a participation coin; put the coin before the whole report"
                )
        object.__setattr__(self, "parts", parts)

    def __hash__(self) -> int:
        return hash((self.domain, tuple(self.parts.items())))

    def at(self, epsilon: float) -> "FieldwiseResponse":
        """Return the same shapes at another budget, which the domain splits among the fields."""
        shares = self.domain.split(check_epsilon(epsilon))
        parts = {name: _with_epsilon(part, shares[name]) for name, part in self.parts.items()}
        return replace(self, parts=parts)

    @property
    def epsilon(self) -> float:  # type: ignore[override] # the sum of its parts
        """Return the budget of all fields together, rounded up."""
        return _sum_above(part.epsilon for part in self.parts.values())

    @property
    def epsilon_spent(self) -> float:
        """Return an upper bound on the ε that all fields together cost."""
        return _sum_above(part.epsilon_spent for part in self.parts.values())

    @property
    def exact(self) -> bool:
        """Return whether every part is exact."""
        return all(part.exact for part in self.parts.values())

    @property
    def law(self) -> Fieldwise | AnyLdp:
        """Return the product of the fields' laws; if one has no law of its own, only the sum."""
        laws: list[TwoLevel] = []
        for part in self.parts.values():
            match part.law:
                case TwoLevel() as law:
                    laws.append(law)
                case Fieldwise() as product:
                    laws += product.laws
                case _:
                    return AnyLdp(epsilon=self.epsilon_spent)
        return Fieldwise(laws=tuple(laws))

    @property
    def total_variation(self) -> float:
        """Return an upper bound: no field's reports coincide, or some do not."""
        return 1 - math.prod(1 - part.total_variation for part in self.parts.values())

    @property
    def width(self) -> int:
        """Return how many numbers a report has over all fields."""
        return sum(part.width for part in self.parts.values())

    @property
    def _columns(self) -> dict[str, slice]:
        return side_by_side({name: part.width for name, part in self.parts.items()})

    @property
    def _dtype(self) -> type[np.int64] | type[np.float64]:
        return np.int64 if self.exact else np.float64

    @property
    def low(self) -> Points:
        """Return the least value of each number of a report."""
        return np.concatenate([part.low for part in self.parts.values()])

    @property
    def high(self) -> Points:
        """Return the largest value of each number of a report."""
        return np.concatenate([part.high for part in self.parts.values()])

    def _respond(self, points: Points, entropy: Entropy) -> Reports:
        columns = self.domain.columns
        drawn = [part.respond(points[:, columns[n]], entropy) for n, part in self.parts.items()]
        return np.concatenate(drawn, axis=1)

    def randomize_one(self, value: Mapping[str, Any], entropy: Entropy) -> tuple[Any, ...]:
        """Return the report of one person's fields."""
        if value.keys() != self.parts.keys():
            raise Misuse(f"a value must have the fields {list(self.parts)}, got {list(value)}")
        drawn = [part.randomize_one(value[name], entropy) for name, part in self.parts.items()]
        return tuple(number for report in drawn for number in report)

    def estimate(
        self,
        reports: Reports,
        how: Decode | None = None,
        *,
        prior: Mapping[str, Weights] | None = None,  # type: ignore[override] # one per field
    ) -> dict[str, Any]:
        """Return estimates in the user's units, one entry per field, each decoded by itself.

        `learned` learns the density of each field alone; a prior is a mapping from field to prior.
        """
        how, priors = self._check_decode(how), dict(prior or {})
        return {
            name: part.estimate(column, self.part_decode(part, how), prior=priors.get(name))
            for (name, part), column in zip(
                self.parts.items(), self.split_reports(reports), strict=True
            )
        }

    def split_reports(self, reports: Reports) -> list[Reports]:
        """Return the reports of each field."""
        return [self._check_reports(reports)[:, columns] for columns in self._columns.values()]

    @staticmethod
    def part_decode(part: Randomizer, how: Decode | None) -> Decode | None:
        """Return the decoder of a field: `how` if it uses the batch and the field has it."""
        return how if how in part.learns and how in part.decodes else None

    def density(self, reports: Reports, points: Points) -> Floats:
        """Return how likely each report is from each point: the product over the fields."""
        report_columns, point_columns = self._columns, self.domain.columns
        whole = np.ones(len(reports))
        for name, part in self.parts.items():
            whole = whole * part.density(
                reports[:, report_columns[name]], points[:, point_columns[name]]
            )
        return whole

    def mass(self, report: Sequence[int], point: Sequence[int]) -> Fraction:
        """Return the exact probability of one report from one point."""
        report_columns, point_columns = self._columns, self.domain.columns
        masses = [
            part.mass(report[report_columns[n]], point[point_columns[n]])
            for n, part in self.parts.items()
        ]
        return math.prod(masses, start=Fraction(1))

    def expected_error(self, how: Decode | None = None, *, power: int = 1) -> float:
        """Refuse: fields have different units; call `parts[name].expected_error()`."""
        del how, power
        raise Misuse("each field has its own error and unit; call parts[name].expected_error()")

    def worst_error(self, how: Decode | None = None, *, power: int = 1) -> float:
        """Refuse: fields have different units; call `parts[name].worst_error()`."""
        del how, power
        raise Misuse("each field has its own error and unit; call parts[name].worst_error()")


def _with_epsilon(part: Randomizer, epsilon: float) -> Randomizer:
    rescaled: Randomizer = (
        part.at(epsilon) if isinstance(part, FieldwiseResponse) else replace(part, epsilon=epsilon)  # type: ignore[type-var] # every randomizer is a dataclass
    )
    return rescaled


def _sum_above(numbers: Any) -> float:
    total = math.fsum(parts := list(numbers))
    exact = sum(map(Fraction, parts))
    return total if Fraction(total) >= exact else math.nextafter(total, math.inf)


@dataclass(frozen=True, kw_only=True)
class CoinResponse(Randomizer):
    """Report by the part with probability `rate`, else be silent.

    The probability is heads / 2^64 with heads = floor(rate 2^64), so never above `rate`. Reporting
    less often is the same as dropping some reports unseen, which reveals no more.
    """

    name: ClassVar[str] = "coin"
    part: Randomizer
    rate: float

    def __post_init__(self) -> None:
        if not isinstance(self.part, Randomizer) or isinstance(self.part, CoinResponse):
            raise Misuse(f"`part` must be a mechanism without a coin, got {self.part!r}")
        if not self.part.exact:
            raise Misuse(f"`part` must be an exact mechanism; {self.part.name} draws floats")
        if not is_number(self.rate) or not 2.0**-32 <= self.rate < 1:
            raise Misuse(f"`rate` must be a number from 2^-32 to below 1, got {self.rate!r}")
        object.__setattr__(self, "rate", float(self.rate))

    # -- taken from its part

    @property
    def domain(self) -> Domain:  # type: ignore[override] # the part's
        """Return where values live."""
        return self.part.domain

    @property
    def epsilon(self) -> float:  # type: ignore[override] # the part's
        """Return the budget of a report that is not silent."""
        return self.part.epsilon

    @property
    def epsilon_spent(self) -> float:
        """Return an upper bound on the ε that a report really costs; silence adds none."""
        return self.part.epsilon_spent

    @property
    def decode(self) -> Decode:  # type: ignore[override] # the part's
        """Return the default decoder."""
        return self.part.decode

    @property
    def decodes(self) -> tuple[Decode, ...]:
        """Return the decoders of the part."""
        return self.part.decodes

    @property
    def exact(self) -> bool:
        """Return True: the part is exact, and the coin is drawn in integers."""
        return True

    # -- the promise

    @cached_property
    def heads(self) -> int:
        """Return how many of 2^64 tosses mean to report."""
        return math.floor(Fraction(self.rate) * TOSSES)

    @property
    def law(self) -> OwnCoin:
        """Return the law of the part in a crowd in which everybody tosses the coin."""
        law = self.part.law
        if isinstance(law, OwnCoin):  # a mechanism of another package that tosses already
            raise Misuse(f"{self.part.name} already has a participation coin; leave this one out")
        return OwnCoin(law=law, rate=self.rate)

    @property
    def total_variation(self) -> float:
        """Return an upper bound on the total variation distance between two values' reports."""
        return self.rate * self.part.total_variation

    def density(self, reports: Reports, points: Points) -> Floats:
        """Return the probability of each report from each point."""
        reports = np.asarray(reports)
        speaks, said = reports[:, 0], reports[:, 1:]
        share = self.heads / TOSSES
        silent = (speaks == 0) & (said == self.part.low).all(axis=1)
        spoken = share * self.part.density(said, points)
        return np.where(speaks == 1, spoken, np.where(silent, 1 - share, 0.0))

    def mass(self, report: Sequence[int], point: Sequence[int]) -> Fraction:
        """Return the exact probability of one report from one point."""
        share = Fraction(self.heads, TOSSES)
        if report[0] == 1:
            return share * self.part.mass(report[1:], point)
        return (1 - share) * (tuple(report) == self._silence)

    @property
    def _silence(self) -> tuple[int, ...]:
        return (0, *(int(number) for number in self.part.low))

    # -- the client's side

    @property
    def width(self) -> int:
        """Return how many numbers a report has: the coin and those of the part."""
        return 1 + self.part.width

    @property
    def low(self) -> Points:
        """Return the least value of each number of a report: the report of silence."""
        return np.array(self._silence, dtype=np.int64)

    @property
    def high(self) -> Points:
        """Return the largest value of each number of a report."""
        return np.concatenate([np.ones(1, dtype=np.int64), self.part.high])

    def _respond(self, points: Points, entropy: Entropy) -> Reports:
        # The part's report is always drawn, so that the work does not reveal how the coin fell.
        speaks = entropy.coins(self.heads, len(points))
        part_reports = self.part.respond(points, entropy)
        spoken = np.concatenate([np.ones((len(points), 1), dtype=np.int64), part_reports], axis=1)
        return np.where(speaks[:, None], spoken, self.low)

    def respond_one(self, point: tuple[int, ...], entropy: Entropy) -> tuple[Any, ...]:
        """Return the report of one lattice point."""
        speaks = entropy.coin(self.heads)
        part_report = self.part.respond_one(point, entropy)
        return (1, *part_report) if speaks else self._silence

    # -- the server's side

    def estimate(
        self, reports: Reports, how: Decode | None = None, *, prior: Weights | None = None
    ) -> Any:
        """Return estimates; silent reports are an error, so call `spoken_reports` first."""
        rows, said = spoken_reports(self, self._check_reports(reports))
        if len(rows) < len(reports):
            raise Misuse(
                f"{len(reports) - len(rows)} of {len(reports)} reports are silent and say nothing; "
                "drop them with `spoken_reports(randomizer, reports)`"
            )
        return self.part.estimate(said, how, prior=prior)

    def squared_error(self, place: Floats) -> float:
        """Return the mean squared error of the unbiased estimate, silence left out."""
        return self.part.squared_error(place)

    def expected_error(self, how: Decode | None = None, *, power: int = 1) -> float:
        """Return the mean of |estimate - value|^power over reports that are not silent."""
        return self.part.expected_error(how, power=power)

    def worst_error(self, how: Decode | None = None, *, power: int = 1) -> float:
        """Return the largest mean of |estimate - value|^power over values."""
        return self.part.worst_error(how, power=power)


def without_coin(randomizer: Randomizer) -> Randomizer:
    """Return the part behind a participation coin, or the mechanism itself."""
    return randomizer.part if isinstance(randomizer, CoinResponse) else randomizer


def spoken_reports(randomizer: Randomizer, reports: Reports) -> tuple[Points, Reports]:
    """Return the rows of reports that are not silent, and these as reports of the part."""
    if not isinstance(randomizer, CoinResponse):
        return np.arange(len(reports)), reports
    rows = np.flatnonzero(reports[:, 0] == 1)
    return rows, reports[rows, 1:]
