"""`coatcheck curve` and `compose`: δ against ε, and what many rounds cost together."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from coatcheck.accounting import laws
from coatcheck.accounting.amplification import (
    METHODS,
    Guarantee,
    anonymous,
    any_ldp,
    central,
    delta_curve,
    reaches_a_delta,
)
from coatcheck.accounting.amplification import amplify as amplified
from coatcheck.accounting.amplification import calibrate as calibrated
from coatcheck.accounting.composition import all_losses, compose_all, renyi
from coatcheck.accounting.guarantee import ADJACENCY
from coatcheck.accounting.laws import AnyLdp, Fieldwise, Law, OwnCoin, Ratios, TwoLevel
from coatcheck.accounting.numerics import check_count, check_rounds
from coatcheck.cli.options import WHOLE, Json, Reader, command, numbers, one_of, whole
from coatcheck.cli.output import hint, show, table
from coatcheck.domains import Ball
from coatcheck.errors import Misuse
from coatcheck.planning.comparison import check_file, draw_curve
from coatcheck.randomizers import BoundedResponse, MinkowskiResponse, SphereResponse

if TYPE_CHECKING:
    from rich.table import Table

# HOUSE-DOC cli.privacy: '`coatcheck amplify` and `calibrate`: what a crowd guarantees, and what it allows.'
_BASELINES: Final = (
    *("privunit", "privunitg", "privhs", "laplace", "planar-laplace", "staircase", "square-wave"),
)
MECHANISMS: Final = ("any", "minkowski", "bounded", "grid", "sphere", *_BASELINES)
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
        if self.mechanism in {"sphere", *_BASELINES}:
            kind = _without_shape(self.mechanism)
            return lambda epsilon: kind(domain=domain, epsilon=epsilon).law
        radius = self.radius
        if radius is None:
            raise Misuse(f"{self.mechanism} needs --radius; `coatcheck plan` finds the best one")
        if self.mechanism == "bounded" and radius > 1:
            raise Misuse(f"a cap inside the domain has a radius of at most 1, not {radius}")
        kind = MinkowskiResponse if self.mechanism == "minkowski" else BoundedResponse
        # The law of the randomizer that a round would use: on its lattice caps are a little larger.
        return lambda epsilon: kind(domain=domain, epsilon=epsilon, radius=radius).law


_FIELDS = Reader(_pairs, "is LABELS:EPSILON by comma, such as 10:1,10:1")


def _without_shape(name: str) -> Any:
    """Return the class of a mechanism that needs neither a radius nor cells."""
    if name == SphereResponse.name:
        return SphereResponse
    from coatcheck.randomizers.baselines import BASELINES  # noqa: PLC0415 - only when named

    return next(kind for kind in BASELINES if kind.name == name)


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


_END: Final = 1e-12  # the δ at which a curve ends
_ORDERS: Final = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)
_ASSUMED: Final = (
    "the rounds, their laws and crowds are fixed in advance",
    "each round keeps its own promise, as `coatcheck amplify` states it",
)
_SAMPLED: Final = "nobody in the population is corrupted or learns who was drawn for a round"

_SHAPES: Final[dict[str, dict[str, Callable[[str], float]]]] = {
    "any": {},
    "grid": {"cells": whole},
    "minkowski": {"radius": float},
    "bounded": {"radius": float},
}
_Kind = tuple[int, Report, int]


def _kind(text: str) -> _Kind:
    count, mechanism, epsilon, crowd, *numbers = text.split(":")
    shape = zip(_SHAPES[mechanism].items(), numbers, strict=True)
    given: dict[str, Any] = {name: read(number) for (name, read), number in shape}
    report = Report(mechanism=mechanism, local_epsilon=float(epsilon), **given)
    return whole(count), report, whole(crowd)


_KIND = Reader(
    _kind,
    f"is COUNT:MECHANISM:EPSILON:CROWD, such as 20:any:1:10000, with a mechanism of"
    f" {' | '.join(_SHAPES)}; a grid adds :CELLS, minkowski and bounded add :RADIUS",
)

CrowdSize = Annotated[int | None, WHOLE, "Honest, anonymous people, yourself included."]
Rounds = Annotated[int, WHOLE, "How many rounds, all alike."]
Sampled = Annotated[float, "The share of a population that is drawn in secret per round."]


@command()
def curve(
    *,
    crowd: CrowdSize = None,
    report: Report,
    rounds: Rounds = 1,
    sampled: Sampled = 1.0,
    points: Annotated[int, WHOLE, "How many to print."] = 21,
    orders: Annotated[Sequence[float], numbers("2,4,8"), "Of the Rényi curve."] = _ORDERS,
    as_json: Json = False,
    plot: Annotated[Path | None, "Also draw them into this file."] = None,
) -> None:
    """Print δ against ε, and the Rényi curve, of one round or of many alike."""
    law, people = report.law(), _people(crowd)
    check_rounds(rounds)
    check_count(points, "points")
    if plot is not None:
        check_file(plot)
    single = rounds == 1 and sampled == 1
    at, upper = _curve(law, people, rounds, sampled, max(2, points))
    lower = None
    if single and reaches_a_delta(law):
        lower = [float(x) for x in delta_curve(law, epsilons=at, crowd=people, lower=True)]
    bounds = renyi(law, crowd=people, orders=orders, rounds=rounds, sampled=sampled)
    document: dict[str, Any] = {
        "mechanism": report.name,
        "local_epsilon": law.epsilon,
        "crowd": people,
        "rounds": rounds,
        "adjacency": ADJACENCY,
        "assumptions": _assumed(sampled),
        "curve": [{"epsilon": x, "delta": y} for x, y in zip(at, upper, strict=True)],
        "attained": lower,
        "renyi": [{"order": x, "epsilon": y} for x, y in zip(orders, bounds, strict=True)],
    }
    show(document, as_json=as_json, text=lambda: _text(document))
    if plot is not None:
        name = "one round" if rounds == 1 else f"{rounds:,} rounds"
        title = f"{name} of local ε = {law.epsilon:.4g}, {people:,} people"
        draw_curve((at, upper), lower, (list(orders), bounds), plot, title=title)
        hint(f"drew {plot}")


def _people(crowd: int | None) -> int:
    if crowd is None:
        raise Misuse("give --crowd, the honest and anonymous people of a round")
    return anonymous(crowd=crowd)


def _assumed(sampled: float) -> list[str]:
    """List what the figures rely on."""
    return [*_ASSUMED, *([_SAMPLED] if sampled < 1 else [])]


def _curve(
    law: Law, crowd: int, rounds: int, sampled: float, count: int
) -> tuple[list[float], list[float]]:
    """Return ε from 0 to where δ is below anything that one promises, and each δ."""
    if rounds == 1 and sampled == 1:
        end = max(1e-6, central(law, size=crowd, delta=_END))
        at = [end * k / (count - 1) for k in range(count)]
        return at, [float(x) for x in delta_curve(law, epsilons=at, crowd=crowd)]
    joint = all_losses([(law, crowd, rounds)], delta=_END, sampled=sampled)
    end = max(1e-6, joint.epsilon(_END))
    at = [end * k / (count - 1) for k in range(count)]
    return at, [joint.delta(x) for x in at]


def _text(found: dict[str, Any]) -> Iterator["str | Table"]:
    attained = found["attained"] or ()
    headings = ("ε", "δ at most", *(("attained",) if attained else ()))
    rows = [
        (f"{one['epsilon']:.5g}", f"{one['delta']:.4g}", *(f"{x:.3g}" for x in attained[i : i + 1]))
        for i, one in enumerate(found["curve"])
    ]
    yield table(headings, rows, right=headings)
    yield ""
    headings = ("order", "Rényi at most")
    bounds = [(f"{one['order']:g}", f"{one['epsilon']:.5g}") for one in found["renyi"]]
    yield table(headings, bounds, right=headings)
    yield f"\n{_told(found)}"


def _told(found: dict[str, Any]) -> str:
    return f"For {found['adjacency']}. Assumes that {'; that '.join(found['assumptions'])}."


@command()
def compose(
    *,
    delta: Annotated[float, "Chance of failure over all rounds."],
    kinds: Annotated[
        tuple[_Kind, ...],
        _KIND,
        "--round",
        "Instead, each kind: COUNT:MECHANISM:EPSILON:CROWD[:SHAPE].",
    ] = (),
    crowd: CrowdSize = None,
    report: Report,
    rounds: Rounds = 1,
    sampled: Sampled = 1.0,
    as_json: Json = False,
) -> None:
    """Say what rounds cost together, if they are fixed in advance.

    Rounds that are all alike are described by options. Different ones are listed by --round, such
    as 20:any:1:10000, 5:grid:2:4000:16 (16 cells) or 3:minkowski:3:2000:0.5 (radius 0.5).
    """
    if kinds:
        if (crowd, report, rounds, sampled) != (None, Report(), 1, 1.0):
            raise Misuse("describe rounds that are alike by options, or all by --round: not both")
        listed = [(one.law(), people, count) for count, one, people in kinds]
    else:
        listed = [(report.law(), _people(crowd), rounds)]
    total = compose_all(listed, delta=delta, sampled=sampled)
    document: dict[str, Any] = {
        "epsilon": total,
        "delta": delta,
        "rounds": sum(count for _, _, count in listed),
        "kinds": [
            {
                "rounds": count,
                "local_epsilon": law.epsilon,
                "crowd": people,
                "epsilon": central(law, size=people, delta=delta),
            }
            for law, people, count in listed
        ],
        "adjacency": ADJACENCY,
        "assumptions": _assumed(sampled),
    }
    head = f"{document['rounds']:,} rounds together: ε = {total * (1 + 5e-6):.5g} at δ = {delta:g}"
    lines = [
        f"  {one['rounds']:,} of local ε = {one['local_epsilon']:.4g} among {one['crowd']:,} "
        f"people: ε = {one['epsilon']:.4g} each, were it the only one"
        for one in document["kinds"]
    ]
    show(document, as_json=as_json, text="\n".join([f"{head}\n", *lines, f"\n{_told(document)}"]))
