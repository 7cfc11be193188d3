"""`coatcheck amplify` and `calibrate`: what a crowd guarantees, and what it allows."""

import json
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import click

from coatcheck.accounting import laws
from coatcheck.accounting.amplification import METHODS, Guarantee
from coatcheck.accounting.amplification import amplify as amplified
from coatcheck.accounting.amplification import calibrate as calibrated
from coatcheck.accounting.laws import AnyLdp, Law, OwnCoin, TwoLevel
from coatcheck.domains import Ball
from coatcheck.errors import Misuse
from coatcheck.randomizers import BoundedResponse, MinkowskiResponse

MECHANISMS: Final = ("any", "minkowski", "bounded", "grid")
Command = TypeVar("Command", bound=Callable[..., Any])
Make: TypeAlias = Callable[[float], AnyLdp | TwoLevel]


if TYPE_CHECKING:
    _Type = click.ParamType[int]
else:  # older versions of click do not take the argument
    _Type = click.ParamType


class _Whole(_Type):
    """A whole number, also written as 1e6."""

    name = "number"

    def convert(
        self,
        value: str | float,
        param: click.Parameter | None,  # noqa: ARG002 - click's signature
        ctx: click.Context | None,  # noqa: ARG002 - click's signature
    ) -> int:
        try:
            number = float(value)
            if number.is_integer():
                return int(number)
        except (ValueError, OverflowError):
            pass
        raise Misuse(f"a number of people is whole, such as 10000 or 1e6, not {value!r}")


WHOLE: Final = _Whole()
_MECHANISMS: Final = " | ".join(MECHANISMS)
_METHODS: Final = " | ".join(METHODS)


def _options(command: Command) -> Command:
    """Add the options that `amplify` and `calibrate` share."""
    for option in reversed(
        [
            click.option("--crowd", type=WHOLE, required=True, help="People, oneself included."),
            click.option("--delta", type=float, required=True, help="Chance of failure."),
            click.option("--mechanism", default="any", show_default=True, help=_MECHANISMS),
            click.option("--radius", type=float, help="Of a cap; the domain has radius 1."),
            click.option("--dimension", type=WHOLE, default=2, show_default=True),
            click.option("--norm", type=float, default=math.inf, help="2 ball, inf (usual) cube."),
            click.option("--cells", type=WHOLE, help="Of a grid, or labels."),
            click.option("--method", default="mechanism", show_default=True, help=_METHODS),
            click.option("--rate", type=float, help="Each reports with this chance, else silence."),
            click.option("--corrupted", type=WHOLE, default=0, help="Of the crowd."),
            click.option("--exposed", type=WHOLE, default=0, help="Given away by answers."),
            click.option("--lost", type=WHOLE, default=0, help="Who do not report."),
            click.option("--json", "as_json", is_flag=True, help="Print one object instead."),
        ]
    ):
        command = option(command)
    return command


@click.command()
@click.option("--local-epsilon", type=float, required=True, help="Budget of one report.")
@click.option("--lower", is_flag=True, help="Also an epsilon that some data set does reach.")
@_options
def amplify(
    *,
    local_epsilon: float,
    lower: bool,
    crowd: int,
    delta: float,
    mechanism: str,
    radius: float | None,
    dimension: int,
    norm: float,
    cells: int | None,
    method: str,
    rate: float | None,
    corrupted: int,
    exposed: int,
    lost: int,
    as_json: bool,
) -> None:
    """Say what a crowd guarantees: from the budget of one report to an epsilon for everybody."""
    if lower and mechanism in {"minkowski", "bounded"} and norm != math.inf and dimension > 1:
        raise Misuse("--lower knows on the cube only which epsilon is reached: leave out --norm")
    make = _law(mechanism, radius=radius, dimension=dimension, norm=norm, cells=cells, rate=rate)
    found = amplified(
        make(local_epsilon),
        crowd=crowd,
        delta=delta,
        method=method,
        corrupted=corrupted,
        exposed=exposed,
        lost=lost,
        lower=lower,
    )
    headline = f"ε = {_up(found.epsilon)} from local ε = {local_epsilon:g}"
    _print(found, mechanism, headline, as_json=as_json)


@click.command()
@click.option("--epsilon", type=float, required=True, help="The promise to everybody.")
@_options
def calibrate(
    *,
    epsilon: float,
    crowd: int,
    delta: float,
    mechanism: str,
    radius: float | None,
    dimension: int,
    norm: float,
    cells: int | None,
    method: str,
    rate: float | None,
    corrupted: int,
    exposed: int,
    lost: int,
    as_json: bool,
) -> None:
    """Find the largest budget of one report that keeps a promise to everybody."""
    found = calibrated(
        _law(mechanism, radius=radius, dimension=dimension, norm=norm, cells=cells, rate=rate),
        epsilon=epsilon,
        crowd=crowd,
        delta=delta,
        method=method,
        corrupted=corrupted,
        exposed=exposed,
        lost=lost,
    )
    headline = f"local ε = {_down(found.local_epsilon)} for ε = {epsilon:g}"
    _print(found, mechanism, headline, as_json=as_json)


def _law(
    mechanism: str,
    *,
    radius: float | None,
    dimension: int,
    norm: float,
    cells: int | None,
    rate: float | None,
) -> Callable[[float], Law]:
    """Find the law that the options describe, as a function of the local epsilon."""
    if mechanism not in MECHANISMS:
        raise Misuse(f"--mechanism is one of {_MECHANISMS}, not {mechanism!r}")
    make: Make = _any
    if mechanism == "grid":
        if cells is None:
            raise Misuse("grid needs --cells; `coatcheck plan` finds how many")
        make = partial(laws.grid, cells=cells)
    elif mechanism != "any":
        if radius is None:
            raise Misuse(f"{mechanism} needs --radius; `coatcheck plan` finds the best one")
        if mechanism == "bounded" and radius > 1:
            raise Misuse(f"a cap inside the domain has a radius of at most 1, not {radius}")
        domain = Ball(radius=1.0, p=norm, dimension=dimension)
        make = partial(_on_lattice, mechanism, domain, radius)
    return make if rate is None else partial(_silent, make, rate)


def _any(epsilon: float) -> AnyLdp:
    return AnyLdp(epsilon=epsilon)


def _on_lattice(mechanism: str, domain: Ball, radius: float, epsilon: float) -> TwoLevel:
    """Give the law of the randomizer that a round would use: its caps are a little larger."""
    kind = MinkowskiResponse if mechanism == "minkowski" else BoundedResponse
    return kind(domain=domain, epsilon=epsilon, radius=radius).law


def _silent(make: Make, rate: float, epsilon: float) -> OwnCoin:
    return OwnCoin(law=make(epsilon), rate=rate)


def _print(found: Guarantee, mechanism: str, headline: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"mechanism": mechanism} | plain(found), indent=1))
        return
    click.echo(f"{headline} at δ = {found.delta:g}, {found.crowd:,} people ({found.method})\n")
    click.echo(str(found))


def plain(found: Guarantee) -> dict[str, Any]:
    """Give a guarantee as plain data."""
    return {
        "epsilon": found.epsilon,
        "delta": found.delta,
        "method": found.method,
        "crowd": found.crowd,
        "local_epsilon": found.local_epsilon,
        "corrupted": found.corrupted,
        "exposed": found.exposed,
        "lost": found.lost,
        "anonymous": found.anonymous,
        "amplified": found.amplified,
        "least": found.least,
        "adjacency": found.adjacency,
        "assumptions": list(found.assumptions),
        "caveat": found.caveat,
    }


def _up(value: float) -> str:
    """Round up to five digits."""
    text = f"{value:.5g}"
    return text if float(text) >= value else f"{value * (1 + 5e-5):.5g}"


def _down(value: float) -> str:
    """Round down to five digits."""
    text = f"{value:.5g}"
    return text if float(text) <= value else f"{value * (1 - 5e-5):.5g}"
