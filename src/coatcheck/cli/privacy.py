"""`coatcheck amplify` and `calibrate`: what a crowd guarantees, and what it allows."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from functools import partial
from typing import Annotated, Any, Final

from coatcheck.accounting import laws
from coatcheck.accounting.amplification import METHODS, Guarantee, any_ldp
from coatcheck.accounting.amplification import amplify as amplified
from coatcheck.accounting.amplification import calibrate as calibrated
from coatcheck.accounting.laws import AnyLdp, Fieldwise, Law, OwnCoin, Ratios, TwoLevel
from coatcheck.cli.options import WHOLE, Json, Reader, command, one_of
from coatcheck.cli.output import show
from coatcheck.domains import Ball
from coatcheck.errors import Misuse
from coatcheck.randomizers import BoundedResponse, MinkowskiResponse, SphereResponse
from coatcheck.randomizers.baselines import BASELINES

_WITHOUT_SHAPE: Final[dict[str, Any]] = {SphereResponse.name: SphereResponse} | {
    kind.name: kind for kind in BASELINES
}
MECHANISMS: Final = ("any", "minkowski", "bounded", "grid", *_WITHOUT_SHAPE)
_COUNTS: Final = ("delta", "method", "crowd", "local_epsilon", "corrupted", "exposed", "lost")
_TOLD: Final = ("anonymous", "amplified", "least", "adjacency", "assumptions", "caveat")


_Pairs = list[tuple[int, float]]


def _pairs(text: str) -> _Pairs:
    pairs = [field.split(":") for field in text.split(",")]
    return [(int(labels), float(budget)) for labels, budget in pairs]


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """The people, and how their guarantee is computed."""

    crowd: Annotated[int, WHOLE, "People, yourself included."]
    delta: Annotated[float, "Chance of failure."]
    method: Annotated[str, " | ".join(METHODS)] = "mechanism"
    corrupted: Annotated[int, WHOLE, "People who help the server."] = 0
    exposed: Annotated[int, WHOLE, "People the answers give away."] = 0
    lost: Annotated[int, WHOLE, "People who do not report."] = 0


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """The randomizer of everybody's report."""

    mechanism: Annotated[str, one_of(MECHANISMS), " | ".join(MECHANISMS)] = "any"
    radius: Annotated[float | None, "Of a cap; the domain has radius 1."] = None
    dimension: Annotated[int, WHOLE, "Axes of the domain."] = 2
    norm: Annotated[float, "2: a ball; inf (usual): a cube."] = math.inf
    cells: Annotated[int | None, WHOLE, "Of a grid, or labels."] = None
    rate: Annotated[float | None, "Chance with which each person reports."] = None

    def at(self, epsilon: float) -> Law:
        """Return the law of a report with this local ε."""
        return self.thinned(self._make()(epsilon))

    def thinned(self, law: AnyLdp | TwoLevel | Fieldwise | Ratios) -> Law:
        """Return the law of people of whom each reports with a chance."""
        return law if self.rate is None else OwnCoin(law=law, rate=self.rate)

    def _make(self) -> Callable[[float], AnyLdp | TwoLevel | Fieldwise | Ratios]:
        if self.mechanism == "any":
            return any_ldp
        if self.mechanism == "grid":
            if self.cells is None:
                raise Misuse("grid needs --cells; `coatcheck plan` finds how many")
            return partial(laws.grid, cells=self.cells)
        domain = Ball(radius=1.0, p=self.norm, dimension=self.dimension)
        if self.mechanism in _WITHOUT_SHAPE:
            plain = _WITHOUT_SHAPE[self.mechanism]
            return lambda epsilon: plain(domain=domain, epsilon=epsilon).law
        radius = self.radius
        if radius is None:
            raise Misuse(f"{self.mechanism} needs --radius; `coatcheck plan` finds the best one")
        if self.mechanism == "bounded" and radius > 1:
            raise Misuse(f"a cap inside the domain has a radius of at most 1, not {radius}")
        kind = MinkowskiResponse if self.mechanism == "minkowski" else BoundedResponse
        # The law of the randomizer that a round would use: on its lattice caps are a little larger.
        return lambda epsilon: kind(domain=domain, epsilon=epsilon, radius=radius).law


_FIELDS = Reader(_pairs, "is LABELS:EPSILON by comma, such as 10:1,10:1")


@dataclass(frozen=True, kw_only=True)
class Report(Mechanism):
    """A randomizer and what one report spends."""

    local_epsilon: Annotated[float | None, "Budget of one report."] = None
    fields: Annotated[_Pairs | None, _FIELDS, "Instead, labels:budget of each field."] = None

    @property
    def name(self) -> str:
        """What the law is of."""
        return self.mechanism if self.fields is None else "fields"

    def law(self) -> Law:
        """Return the law of a report."""
        if self.local_epsilon is not None and self.fields is None:
            return self.at(self.local_epsilon)
        if self.local_epsilon is None and self.fields is not None:
            each = tuple(laws.grid(budget, cells=labels) for labels, budget in self.fields)
            return self.thinned(Fieldwise(laws=each))
        raise Misuse("give either --local-epsilon or --fields")


@command()
def amplify(
    *,
    lower: Annotated[bool, "Also give an epsilon that some data set reaches."] = False,
    certify: Annotated[bool, "Also replay it in interval arithmetic."] = False,
    people: Crowd,
    report: Report,
    as_json: Json = False,
) -> None:
    """Say what a crowd guarantees: from the budget of one report to an epsilon for everybody."""
    law = report.law()
    found = amplified(law, **asdict(people), lower=lower, certify=certify)
    if lower and found.least is None:
        raise Misuse("which epsilon is reached is not known for this mechanism: leave out --lower")
    up = [_rounded(value, ROUND_CEILING) for value in (found.epsilon, law.epsilon)]
    _tell(found, f"ε = {up[0]} from local ε = {up[1]}", report.name, as_json=as_json)


@command()
def calibrate(
    *,
    epsilon: Annotated[float, "The promise to everybody."],
    people: Crowd,
    report: Mechanism,
    as_json: Json = False,
) -> None:
    """Find the largest budget of one report that keeps a promise to everybody."""
    found = calibrated(report.at, epsilon=epsilon, **asdict(people))
    local = _rounded(found.local_epsilon, ROUND_FLOOR)
    _tell(found, f"local ε = {local} for ε = {epsilon:g}", report.mechanism, as_json=as_json)


def _tell(found: Guarantee, headline: str, mechanism: str, *, as_json: bool) -> None:
    head = f"{headline} at δ = {found.delta:g}, {found.crowd:,} people ({found.method})"
    document = {"mechanism": mechanism, **plain(found)}
    show(document, as_json=as_json, text=f"{head}\n\n{found}")


def plain(found: Guarantee) -> dict[str, Any]:
    """Return a guarantee as plain data; one that was replayed has the ends of what encloses it."""
    told = {name: getattr(found, name) for name in ("epsilon", *_COUNTS, *_TOLD)}
    return told if found.certificate is None else told | asdict(found.certificate)


def _rounded(value: float, way: str) -> str:
    """Write five digits, rounded up or down."""
    return f"{float(Context(prec=5, rounding=way).create_decimal(value)):.5g}"
