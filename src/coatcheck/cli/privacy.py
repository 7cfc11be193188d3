"""`coatcheck amplify`, `calibrate`, `curve` and `compose`: what a crowd guarantees.

`amplify` goes from the budget of one report to the guarantee for everybody, `calibrate` the other
way. `curve` gives every δ with its ε, and `compose` what many rounds cost together.
"""

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

_BASELINES: Final = (
    "privunit",
    "privunitg",
    "privhs",
    "laplace",
    "planar-laplace",
    "staircase",
    "square-wave",
)
MECHANISMS: Final = ("any", "minkowski", "bounded", "grid", "sphere", *_BASELINES)
_COUNTS: Final = ("delta", "method", "crowd", "local_epsilon", "corrupted", "exposed", "lost")
_WORDS: Final = (
    "anonymous",
    "amplified",
    "least",
    "adjacency",
    "assumptions",
    "caveat",
    "disclosure",
)


_Pairs = list[tuple[int, float]]


def _pairs(text: str) -> _Pairs:
    pairs = [field.split(":") for field in text.split(",")]
    return [(int(labels), float(budget)) for labels, budget in pairs]


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """The people, and how their guarantee is computed."""

    crowd: Annotated[int, WHOLE, "Number of people, yourself included."]
    delta: Annotated[float, "The δ of the guarantee, its chance of failure."]
    method: Annotated[str, " | ".join(METHODS)] = "mechanism"
    corrupted: Annotated[int, WHOLE, "Number of people who help the server."] = 0
    exposed: Annotated[int, WHOLE, "Number of people whom the answers identify."] = 0
    lost: Annotated[int, WHOLE, "Number of people who do not report."] = 0


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """The randomizer of everybody's report."""

    mechanism: Annotated[str, one_of(MECHANISMS), " | ".join(MECHANISMS)] = "any"
    radius: Annotated[float | None, "Radius of a cap; the domain has radius 1."] = None
    dimension: Annotated[int, WHOLE, "Number of axes of the domain."] = 2
    norm: Annotated[float, "Norm of the domain: 2 is a ball, inf a cube."] = math.inf
    cells: Annotated[int | None, WHOLE, "Number of cells of a grid, or of labels."] = None
    rate: Annotated[float | None, "Probability with which each person reports."] = None

    def at(self, epsilon: float) -> Law:
        """Return the law of a report with this local ε."""
        return self.thinned(self._make()(epsilon))

    def thinned(self, law: AnyLdp | TwoLevel | Fieldwise | Ratios) -> Law:
        """Return the law if each person reports with probability `rate` only."""
        return law if self.rate is None else OwnCoin(law=law, rate=self.rate)

    def _make(self) -> Callable[[float], AnyLdp | TwoLevel | Fieldwise | Ratios]:
        if self.mechanism == "any":
            return any_ldp
        if self.mechanism == "grid":
            if self.cells is None:
                raise Misuse(
                    "`--mechanism grid` needs `--cells`; `coatcheck plan` finds the best number"
                )
            return partial(laws.grid, cells=self.cells)
        domain = Ball(radius=1.0, p=self.norm, dimension=self.dimension)
        if self.mechanism in {"sphere", *_BASELINES}:
            kind = _without_shape(self.mechanism)
            return lambda epsilon: kind(domain=domain, epsilon=epsilon).law
        radius = self.radius
        if radius is None:
            raise Misuse(
                f"`--mechanism {self.mechanism}` needs `--radius`; `coatcheck plan` finds the best"
            )
        if self.mechanism == "bounded" and radius > 1:
            raise Misuse(
                f"with `--mechanism bounded` `--radius` must be at most 1, that of the domain, got"
                f" {radius}"
            )
        kind = MinkowskiResponse if self.mechanism == "minkowski" else BoundedResponse
        # The law of the randomizer of a round: on its lattice the caps are a little larger.
        return lambda epsilon: kind(domain=domain, epsilon=epsilon, radius=radius).law


_FIELDS = Reader(_pairs, "must be LABELS:EPSILON separated by commas, such as 10:1,10:1")


def _without_shape(name: str) -> Any:
    """Return the class of a mechanism that needs neither a radius nor cells."""
    if name == SphereResponse.name:
        return SphereResponse
    from coatcheck.randomizers.baselines import BASELINES  # noqa: PLC0415 - only when named

    return next(kind for kind in BASELINES if kind.name == name)


@dataclass(frozen=True, kw_only=True)
class Report(Mechanism):
    """A randomizer and what one report spends."""

    local_epsilon: Annotated[float | None, "Local ε of one report."] = None
    fields: Annotated[
        _Pairs | None, _FIELDS, "Instead of `--local-epsilon`: LABELS:EPSILON of each field."
    ] = None

    @property
    def name(self) -> str:
        """Name what the law belongs to."""
        return self.mechanism if self.fields is None else "fields"

    def law(self) -> Law:
        """Return the law of a report."""
        if self.local_epsilon is not None and self.fields is None:
            return self.at(self.local_epsilon)
        if self.local_epsilon is None and self.fields is not None:
            each = tuple(laws.grid(budget, cells=labels) for labels, budget in self.fields)
            return self.thinned(Fieldwise(laws=each))
        raise Misuse("give either `--local-epsilon` or `--fields`")


@command()
def amplify(
    *,
    lower: Annotated[bool, "Also give a lower bound: an ε that some data set reaches."] = False,
    certify: Annotated[bool, "Also check the result in interval arithmetic."] = False,
    people: Crowd,
    report: Report,
    as_json: Json = False,
) -> None:
    """Compute the guarantee of a crowd from the budget of one report."""
    law = report.law()
    guarantee = amplified(law, **asdict(people), lower=lower, certify=certify)
    if lower and guarantee.least is None:
        raise Misuse("no lower bound is known for this mechanism; leave out `--lower`")
    epsilon, local = (_rounded(x, ROUND_CEILING) for x in (guarantee.epsilon, law.epsilon))
    _show_guarantee(
        guarantee, f"ε = {epsilon} from local ε = {local}", report.name, as_json=as_json
    )


@command()
def calibrate(
    *,
    epsilon: Annotated[float, "The ε promised to everybody."],
    people: Crowd,
    report: Mechanism,
    as_json: Json = False,
) -> None:
    """Find the largest budget of one report that keeps a promise to everybody."""
    guarantee = calibrated(report.at, epsilon=epsilon, **asdict(people))
    local = _rounded(guarantee.local_epsilon, ROUND_FLOOR)
    _show_guarantee(
        guarantee, f"local ε = {local} for ε = {epsilon:g}", report.mechanism, as_json=as_json
    )


def _show_guarantee(guarantee: Guarantee, headline: str, mechanism: str, *, as_json: bool) -> None:
    conditions = f"δ = {guarantee.delta:g}, {guarantee.crowd:,} people ({guarantee.method})"
    document = {"mechanism": mechanism, **guarantee_document(guarantee)}
    show(document, as_json=as_json, text=f"{headline} at {conditions}\n\n{guarantee}")


def guarantee_document(guarantee: Guarantee) -> dict[str, Any]:
    """Return a guarantee as plain data; a certified one includes its interval."""
    document = {name: getattr(guarantee, name) for name in ("epsilon", *_COUNTS, *_WORDS)}
    return document | asdict(guarantee.certificate) if guarantee.certificate else document


def _rounded(value: float, way: str) -> str:
    """Write five digits, rounded up or down as `way` says."""
    return f"{float(Context(prec=5, rounding=way).create_decimal(value)):.5g}"


_END: Final = 1e-12  # the δ where a curve ends
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
    options: dict[str, Any] = {name: read(number) for (name, read), number in shape}
    report = Report(mechanism=mechanism, local_epsilon=float(epsilon), **options)
    return whole(count), report, whole(crowd)


_KIND = Reader(
    _kind,
    f"must be COUNT:MECHANISM:EPSILON:CROWD, such as 20:any:1:10000, with a MECHANISM of"
    f" {' | '.join(_SHAPES)}; a grid adds :CELLS, minkowski and bounded add :RADIUS",
)

CrowdSize = Annotated[int | None, WHOLE, "Number of honest, anonymous people, yourself included."]
Rounds = Annotated[int, WHOLE, "Number of rounds, all alike."]
Sampled = Annotated[float, "Share of a population drawn secretly for each round."]


@command()
def curve(
    *,
    crowd: CrowdSize = None,
    report: Report,
    rounds: Rounds = 1,
    sampled: Sampled = 1.0,
    points: Annotated[int, WHOLE, "Number of points to print."] = 21,
    orders: Annotated[Sequence[float], numbers("2,4,8"), "Orders of the Rényi curve."] = _ORDERS,
    as_json: Json = False,
    plot: Annotated[Path | None, "Also draw the curves into this file."] = None,
) -> None:
    """Print δ against ε and the Rényi curve, for one round or for many alike."""
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
        raise Misuse("give `--crowd`, the number of honest and anonymous people of a round")
    return anonymous(crowd=crowd)


def _assumed(sampled: float) -> list[str]:
    """Return the assumptions of the figures."""
    return [*_ASSUMED, *([_SAMPLED] if sampled < 1 else [])]


def _curve(
    law: Law, crowd: int, rounds: int, sampled: float, count: int
) -> tuple[list[float], list[float]]:
    """Return values of ε from 0 to where δ is negligible, and the δ of each."""
    if rounds == 1 and sampled == 1:
        end = max(1e-6, central(law, size=crowd, delta=_END))
        at = [end * k / (count - 1) for k in range(count)]
        return at, [float(x) for x in delta_curve(law, epsilons=at, crowd=crowd)]
    joint = all_losses([(law, crowd, rounds)], delta=_END, sampled=sampled)
    end = max(1e-6, joint.epsilon(_END))
    at = [end * k / (count - 1) for k in range(count)]
    return at, [joint.delta(x) for x in at]


def _text(document: dict[str, Any]) -> Iterator["str | Table"]:
    attained = document["attained"] or ()
    headings = ("ε", "δ at most", *(("attained",) if attained else ()))
    rows = [
        (f"{at['epsilon']:.5g}", f"{at['delta']:.4g}", *(f"{x:.3g}" for x in attained[i : i + 1]))
        for i, at in enumerate(document["curve"])
    ]
    yield table(headings, rows, right=headings)
    yield ""
    headings = ("order", "Rényi at most")
    bounds = [(f"{at['order']:g}", f"{at['epsilon']:.5g}") for at in document["renyi"]]
    yield table(headings, bounds, right=headings)
    yield f"\n{_conditions(document)}"


def _conditions(document: dict[str, Any]) -> str:
    assumptions = "; that ".join(document["assumptions"])
    return f"For {document['adjacency']}. Assumes that {assumptions}."


@command()
def compose(
    *,
    delta: Annotated[float, "The δ of all rounds together, their chance of failure."],
    kinds: Annotated[
        tuple[_Kind, ...],
        _KIND,
        "--round",
        "Instead, once per kind of round: COUNT:MECHANISM:EPSILON:CROWD[:SHAPE].",
    ] = (),
    crowd: CrowdSize = None,
    report: Report,
    rounds: Rounds = 1,
    sampled: Sampled = 1.0,
    as_json: Json = False,
) -> None:
    """Compute what rounds cost together, if they are fixed in advance.

    Describe rounds that are all alike by options, and different ones by `--round`, such as
    20:any:1:10000, 5:grid:2:4000:16 (16 cells) or 3:minkowski:3:2000:0.5 (radius 0.5).
    """
    if kinds:
        if (crowd, report, rounds, sampled) != (None, Report(), 1, 1.0):
            raise Misuse("describe the rounds by options or by `--round`, not by both")
        listed = [(kind.law(), people, count) for count, kind, people in kinds]
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
        f"  {kind['rounds']:,} of local ε = {kind['local_epsilon']:.4g} among {kind['crowd']:,} "
        f"people: ε = {kind['epsilon']:.4g} for each on its own"
        for kind in document["kinds"]
    ]
    show(
        document,
        as_json=as_json,
        text="\n".join([f"{head}\n", *lines, f"\n{_conditions(document)}"]),
    )
