"""`coatcheck amplify` and `calibrate`: what a crowd guarantees, and what it allows."""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from coatcheck.accounting import laws
from coatcheck.accounting.amplification import METHODS, Guarantee, any_ldp
from coatcheck.accounting.amplification import amplify as amplified
from coatcheck.accounting.amplification import calibrate as calibrated
from coatcheck.accounting.laws import AnyLdp, Fieldwise, Law, OwnCoin, TwoLevel
from coatcheck.domains import Ball
from coatcheck.errors import Misuse
from coatcheck.randomizers import BoundedResponse, MinkowskiResponse

MECHANISMS: Final = ("any", "minkowski", "bounded", "grid")
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


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What `amplify` and `calibrate` are both told: the people, the mechanism and the method."""

    crowd: int
    delta: float
    mechanism: str
    radius: float | None
    dimension: int
    norm: float
    cells: int | None
    method: str
    rate: float | None
    corrupted: int
    exposed: int
    lost: int
    as_json: bool

    def law(self) -> Callable[[float], Law]:
        """Return the law that the options describe, as a function of the local epsilon."""
        make, rate = self._make(), self.rate
        return make if rate is None else lambda epsilon: OwnCoin(law=make(epsilon), rate=rate)

    def fieldwise(self, fields: str) -> Law:
        """Return the law of a report of several fields, each with a k-ary response of its own."""
        try:
            pairs = [field.split(":") for field in fields.split(",")]
            each = [
                laws.grid(float(budget), cells=WHOLE.convert(k, None, None)) for k, budget in pairs
            ]
        except ValueError as error:
            raise Misuse(
                f"--fields is LABELS:EPSILON by comma, such as 10:1,10:1 ({error})"
            ) from None
        law = Fieldwise(laws=tuple(each))
        return law if self.rate is None else OwnCoin(law=law, rate=self.rate)

    def _make(self) -> Make:
        if self.mechanism not in MECHANISMS:
            raise Misuse(f"--mechanism is one of {_MECHANISMS}, not {self.mechanism!r}")
        if self.mechanism == "any":
            return any_ldp
        if self.mechanism == "grid":
            if self.cells is None:
                raise Misuse("grid needs --cells; `coatcheck plan` finds how many")
            return partial(laws.grid, cells=self.cells)
        radius = self.radius
        if radius is None:
            raise Misuse(f"{self.mechanism} needs --radius; `coatcheck plan` finds the best one")
        if self.mechanism == "bounded" and radius > 1:
            raise Misuse(f"a cap inside the domain has a radius of at most 1, not {radius}")
        domain = Ball(radius=1.0, p=self.norm, dimension=self.dimension)
        kind = MinkowskiResponse if self.mechanism == "minkowski" else BoundedResponse
        # The law of the randomizer that a round would use: on its lattice caps are a little larger.
        return lambda epsilon: kind(domain=domain, epsilon=epsilon, radius=radius).law

    def tell(self, found: Guarantee, headline: str) -> None:
        """Print a guarantee."""
        if self.as_json:
            several = isinstance(found.law, Fieldwise)
            name = "fields" if several else self.mechanism
            click.echo(json.dumps({"mechanism": name} | plain(found), indent=1))
            return
        click.echo(f"{headline} at δ = {found.delta:g}, {found.crowd:,} people ({found.method})\n")
        click.echo(str(found))


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that `amplify` and `calibrate` share, and hand them over as one value."""

    @wraps(command)
    def run(**given: Any) -> None:
        shared = {field.name: given.pop(field.name) for field in fields(_Asked)}
        command(_Asked(**shared), **given)

    options = [
        click.option("--crowd", type=WHOLE, required=True, help="People, yourself included."),
        click.option("--delta", type=float, required=True, help="Chance of failure."),
        click.option("--mechanism", default="any", show_default=True, help=_MECHANISMS),
        click.option("--radius", type=float, help="Of a cap; the domain has radius 1."),
        click.option("--dimension", type=WHOLE, default=2, show_default=True),
        click.option(
            "--norm", type=float, default=math.inf, help="2: a ball; inf (usual): a cube."
        ),
        click.option("--cells", type=WHOLE, help="Of a grid, or labels."),
        click.option("--method", default="mechanism", show_default=True, help=_METHODS),
        click.option("--rate", type=float, help="Chance with which each person reports."),
        click.option("--corrupted", type=WHOLE, default=0, help="People who help the server."),
        click.option("--exposed", type=WHOLE, default=0, help="People the answers give away."),
        click.option("--lost", type=WHOLE, default=0, help="People who do not report."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead."),
    ]
    for option in reversed(options):
        run = option(run)
    return run


@click.command()
@click.option("--local-epsilon", type=float, help="Budget of one report.")
@click.option("--fields", help="Instead, labels and budget of each field: 10:1,10:1.")
@click.option("--lower", is_flag=True, help="Also give an epsilon that some data set reaches.")
@click.option("--certify", is_flag=True, help="Also replay it in interval arithmetic.")
@_options
def amplify(
    asked: _Asked,
    *,
    local_epsilon: float | None,
    fields: str | None,
    lower: bool,
    certify: bool,
) -> None:
    """Say what a crowd guarantees: from the budget of one report to an epsilon for everybody."""
    if (local_epsilon is None) == (fields is None):
        raise Misuse("give either --local-epsilon or --fields")
    law = asked.law()(local_epsilon or 0.0) if fields is None else asked.fieldwise(fields)
    found = amplified(
        law,
        crowd=asked.crowd,
        delta=asked.delta,
        method=asked.method,
        corrupted=asked.corrupted,
        exposed=asked.exposed,
        lost=asked.lost,
        lower=lower,
        certify=certify,
    )
    if lower and found.least is None:
        raise Misuse("which epsilon is reached is not known for this mechanism: leave out --lower")
    asked.tell(found, f"ε = {_up(found.epsilon)} from local ε = {_up(law.epsilon)}")


@click.command()
@click.option("--epsilon", type=float, required=True, help="The promise to everybody.")
@_options
def calibrate(asked: _Asked, *, epsilon: float) -> None:
    """Find the largest budget of one report that keeps a promise to everybody."""
    found = calibrated(
        asked.law(),
        epsilon=epsilon,
        crowd=asked.crowd,
        delta=asked.delta,
        method=asked.method,
        corrupted=asked.corrupted,
        exposed=asked.exposed,
        lost=asked.lost,
    )
    asked.tell(found, f"local ε = {_down(found.local_epsilon)} for ε = {epsilon:g}")


def plain(found: Guarantee) -> dict[str, Any]:
    """Give a guarantee as plain data; one that was replayed has the ends of what encloses it."""
    ends = {} if found.certificate is None else asdict(found.certificate)
    return ends | {
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
