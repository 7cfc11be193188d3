"""`coatcheck curve` and `compose`: δ against ε, and what many rounds cost together."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from coatcheck.accounting.amplification import central, delta_curve
from coatcheck.accounting.attainable import known
from coatcheck.accounting.composition import compose as composed
from coatcheck.accounting.composition import compose_all, losses
from coatcheck.accounting.exchange import renyi
from coatcheck.accounting.guarantee import ADJACENCY
from coatcheck.accounting.laws import Law
from coatcheck.accounting.limits import check_count, check_rounds
from coatcheck.cli.numbers import numbers
from coatcheck.cli.options import JSON
from coatcheck.cli.privacy import MECHANISMS, WHOLE, Asked
from coatcheck.errors import Misuse

# Where a curve ends, and the orders of the Rényi curve.
_END: Final = 1e-12
_ORDERS: Final = "1.5,2,3,4,6,8,12,16,24,32"
_ROUND: Final = "COUNT:MECHANISM:EPSILON:CROWD[:SHAPE]"
_ASSUMED: Final = (
    "the rounds, their laws and crowds are fixed in advance",
    "each round keeps its own promise, as `coatcheck amplify` states it",
)
_SAMPLED: Final = "nobody in the population is corrupted or learns who was drawn for a round"


@dataclass(frozen=True, kw_only=True)
class _Rounds:
    """What both commands are told of rounds that are all alike."""

    local_epsilon: float | None
    fields: str | None
    crowd: int | None
    mechanism: str
    radius: float | None
    dimension: int
    norm: float
    cells: int | None
    rate: float | None
    sampled: float
    rounds: int
    as_json: bool

    def law(self) -> Law:
        """Return the law that the options describe."""
        if (self.local_epsilon is None) == (self.fields is None):
            raise Misuse("give either --local-epsilon or --fields")
        check_rounds(self.rounds)
        asked = _asked(self)
        if self.fields is not None:
            return asked.fieldwise(self.fields)
        return asked.law()(self.local_epsilon or 0.0)

    def people(self) -> int:
        """Return the crowd, which has to be given."""
        if self.crowd is None:
            raise Misuse("give --crowd, the honest and anonymous people of a round")
        return self.crowd

    def assumptions(self) -> list[str]:
        """List what the figures rely on."""
        return [*_ASSUMED, *([_SAMPLED] if self.sampled < 1 else [])]


def _asked(rounds: _Rounds) -> Asked:
    """Return the options that describe a law, as `amplify` takes them."""
    return Asked(
        crowd=rounds.people(),
        delta=_END,
        mechanism=rounds.mechanism,
        radius=rounds.radius,
        dimension=rounds.dimension,
        norm=rounds.norm,
        cells=rounds.cells,
        method="mechanism",
        rate=rounds.rate,
        corrupted=0,
        exposed=0,
        lost=0,
        as_json=rounds.as_json,
    )


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which rounds are meant, and hand them over as one value."""

    @wraps(command)
    def run(**given: Any) -> None:
        shared = {field.name: given.pop(field.name) for field in fields(_Rounds)}
        command(_Rounds(**shared), **given)

    options = [
        click.option("--local-epsilon", type=float, help="Budget of one report."),
        click.option("--fields", help="Instead, labels and budget of each field: 10:1,10:1."),
        click.option("--crowd", type=WHOLE, help="Honest, anonymous people, yourself included."),
        click.option("--mechanism", default="any", show_default=True, help=" | ".join(MECHANISMS)),
        click.option("--radius", type=float, help="Of a cap; the domain has radius 1."),
        click.option("--dimension", type=WHOLE, default=2, show_default=True),
        click.option(
            "--norm", type=float, default=math.inf, help="2: a ball; inf (usual): a cube."
        ),
        click.option("--cells", type=WHOLE, help="Of a grid, or labels."),
        click.option("--rate", type=float, help="Chance with which each person reports."),
        click.option("--sampled", type=float, default=1.0, help="Share drawn in secret per round."),
        click.option("--rounds", type=WHOLE, default=1, show_default=True, help="How many alike."),
        JSON,
    ]
    for option in reversed(options):
        run = option(run)
    return run


@click.command()
@_options
@click.option("--points", type=WHOLE, default=21, show_default=True, help="How many to print.")
@click.option("--orders", default=_ORDERS, show_default=True, help="Of the Rényi curve.")
@click.option("--plot", type=click.Path(path_type=Path), help="Also draw them into this file.")
def curve(asked: _Rounds, *, points: int, orders: str, plot: Path | None) -> None:
    """Print δ against ε, and the Rényi curve, of one round or of many alike."""
    law, crowd = asked.law(), asked.people()
    check_count(points, "points")
    wanted = numbers(orders, "--orders", example="2,4,8")
    if plot is not None:
        from coatcheck.planning.charts import check_file, draw_curve  # noqa: PLC0415 - an extra

        check_file(plot)
    upper = _curve(asked, law, points)
    bound = renyi(law, crowd=crowd, orders=wanted, rounds=asked.rounds, sampled=asked.sampled)
    by_order = list(zip(wanted, bound, strict=True))
    lower: list[float] | None = None
    if asked.rounds == 1 and asked.sampled == 1 and known(law):
        at = [epsilon for epsilon, _ in upper]
        lower = [float(x) for x in delta_curve(law, epsilons=at, crowd=crowd, lower=True)]
    if asked.as_json:
        told = {
            "mechanism": "fields" if asked.fields else asked.mechanism,
            "local_epsilon": law.epsilon,
            "crowd": crowd,
            "rounds": asked.rounds,
            "adjacency": ADJACENCY,
            "assumptions": asked.assumptions(),
            "curve": [{"epsilon": epsilon, "delta": delta} for epsilon, delta in upper],
            "attained": lower,
            "renyi": [{"order": order, "epsilon": epsilon} for order, epsilon in by_order],
        }
        click.echo(json.dumps(told, indent=1))
    else:
        _print(upper, lower, by_order)
    if plot is not None:
        name = "one round" if asked.rounds == 1 else f"{asked.rounds:,} rounds"
        title = f"{name} of local ε = {law.epsilon:.4g}, {crowd:,} people"
        draw_curve(upper, lower, by_order, plot, title=title)
        click.echo(f"coatcheck: drew {plot}", err=True)


def _curve(asked: _Rounds, law: Law, points: int) -> list[tuple[float, float]]:
    """Return (ε, δ) from ε = 0 to where δ is below anything that one promises."""
    crowd, count = asked.people(), max(2, points)
    if asked.rounds == 1 and asked.sampled == 1:
        end = max(1e-6, central(law, size=crowd, delta=_END))
        at = [end * k / (count - 1) for k in range(count)]
        return list(zip(at, map(float, delta_curve(law, epsilons=at, crowd=crowd)), strict=True))
    total = composed(law, crowd=crowd, delta=_END, rounds=asked.rounds, sampled=asked.sampled)
    end = max(1e-6, total)
    one = max(1e-9, math.log1p(asked.sampled * math.expm1(central(law, size=crowd, delta=_END))))
    step = max(min(end / 1000, one / 60), law.epsilon / 40_000)
    joint = losses(law, crowd=crowd, step=step, sampled=asked.sampled).times(asked.rounds)
    return [(end * k / (count - 1), joint.delta(end * k / (count - 1))) for k in range(count)]


def _print(
    upper: list[tuple[float, float]],
    lower: list[float] | None,
    by_order: list[tuple[float, float]],
) -> None:
    more = "" if lower is None else "    attained"
    click.echo(f"{'ε':>10}  {'δ at most':>12}{more}")
    for place, (epsilon, delta) in enumerate(upper):
        reached = "" if lower is None else f"  {lower[place]:10.3g}"
        click.echo(f"{epsilon:10.5g}  {delta:12.4g}{reached}")
    click.echo(f"\n{'order':>10}  {'Rényi at most':>13}")
    for order, epsilon in by_order:
        click.echo(f"{order:10g}  {epsilon:13.5g}")
    click.echo(f"\nFor {ADJACENCY}; --json lists what is assumed.")


@click.command()
@_options
@click.option("--delta", type=float, required=True, help="Chance of failure over all rounds.")
@click.option("--round", "kinds", multiple=True, help=f"Instead, of each kind: {_ROUND}.")
def compose(asked: _Rounds, *, delta: float, kinds: tuple[str, ...]) -> None:
    """Say what rounds cost together, if they are fixed in advance.

    Rounds that are all alike are described by options. Different ones are listed by --round, such
    as 20:any:1:10000, 5:grid:2:4000:16 (16 cells) or 3:minkowski:3:2000:0.5 (radius 0.5).
    """
    if kinds:
        if asked.crowd or asked.local_epsilon is not None or asked.fields or asked.rounds != 1:
            raise Misuse("describe rounds that are alike by options, or all by --round: not both")
        listed = [_kind(text, asked) for text in kinds]
        total = compose_all(listed, delta=delta)
    else:
        law = asked.law()
        listed = [(law, asked.people(), asked.rounds)]
        total = composed(
            law, crowd=asked.people(), delta=delta, rounds=asked.rounds, sampled=asked.sampled
        )
    rounds = sum(count for _, _, count in listed)
    each = [central(law, size=crowd, delta=delta) for law, crowd, _ in listed]
    if asked.as_json:
        told = {
            "epsilon": total,
            "delta": delta,
            "rounds": rounds,
            "kinds": [
                {"rounds": count, "local_epsilon": law.epsilon, "crowd": crowd, "epsilon": one}
                for one, (law, crowd, count) in zip(each, listed, strict=True)
            ],
            "adjacency": ADJACENCY,
            "assumptions": asked.assumptions(),
        }
        click.echo(json.dumps(told, indent=1))
        return
    click.echo(f"{rounds:,} rounds together: ε = {total * (1 + 5e-6):.5g} at δ = {delta:g}\n")
    for one, (law, crowd, count) in zip(each, listed, strict=True):
        click.echo(
            f"  {count:,} of local ε = {law.epsilon:.4g} among {crowd:,} people: "
            f"ε = {one:.4g} each, were it the only one"
        )
    click.echo(f"\nFor {ADJACENCY}. Assumes that {'; that '.join(asked.assumptions())}.")


def _kind(text: str, asked: _Rounds) -> tuple[Law, int, int]:
    """Read one kind of rounds."""
    count, mechanism, epsilon, crowd, *shape = [*text.split(":"), "", "", ""]
    try:
        given: dict[str, Any] = {"mechanism": mechanism, "local_epsilon": float(epsilon)}
        given |= {"rounds": WHOLE.convert(count, None, None)}
        given |= {"crowd": WHOLE.convert(crowd, None, None)}
        if mechanism == "grid" and shape[0]:
            given["cells"] = WHOLE.convert(shape[0], None, None)
        elif shape[0]:
            given["radius"] = float(shape[0])
    except ValueError:
        raise Misuse(f"--round is {_ROUND}, such as 20:any:1:10000, got {text!r}") from None
    kind = replace(asked, **given)
    return kind.law(), kind.people(), kind.rounds
