"""`coatcheck curve` and `compose`: δ against ε, and what many rounds cost together."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from coatcheck.accounting.amplification import anonymous, central, delta_curve
from coatcheck.accounting.attainable import known
from coatcheck.accounting.composition import all_losses, compose_all
from coatcheck.accounting.exchange import renyi
from coatcheck.accounting.guarantee import ADJACENCY
from coatcheck.accounting.laws import Law
from coatcheck.accounting.limits import check_count, check_rounds
from coatcheck.cli.options import WHOLE, Json, Reader, command, numbers, whole
from coatcheck.cli.output import hint, show, table
from coatcheck.cli.privacy import Report
from coatcheck.errors import Misuse
from coatcheck.planning.charts import check_file, draw_curve

if TYPE_CHECKING:
    from rich.table import Table

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

Crowd = Annotated[int | None, WHOLE, "Honest, anonymous people, yourself included."]
Rounds = Annotated[int, WHOLE, "How many rounds, all alike."]
Sampled = Annotated[float, "The share of a population that is drawn in secret per round."]


@command()
def curve(
    *,
    crowd: Crowd = None,
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
    if single and known(law):
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
    crowd: Crowd = None,
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
