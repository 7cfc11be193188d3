"""`coatcheck plan`: which mechanism, local budget and radius or grid keep a promise best.

Of the promised ε, the people and the error two are given; the third is what is found.
"""

import json
import math
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from coatcheck.cli.files import hint
from coatcheck.cli.numbers import numbers, read_length
from coatcheck.cli.privacy import WHOLE, plain
from coatcheck.domains import Ball, Box, Categories, Domain
from coatcheck.errors import Misuse
from coatcheck.planning import Design, Group, Plan, Promise, Recommendation
from coatcheck.planning import plan as planned
from coatcheck.planning.seasons import epsilon_for, people_for
from coatcheck.planning.words import GOALS, shape, told_error, told_promise, told_unit
from coatcheck.tasks import Task, from_params
from coatcheck.tasks.metric import scale_of

if TYPE_CHECKING:
    from rich.table import Table

_WIDTH: Final = 100
_CITY: Final = "-0.045,-0.045,0.045,0.045"


@click.command()
@click.option("--epsilon", type=float, help="The ε promised to everybody, over all rounds.")
@click.option(
    "--delta", type=float, help="The chance that it fails; else 1 in 100 times the people."
)
@click.option(
    *("--crowd", "--people", "crowd"),
    type=WHOLE,
    help="The smallest crowd of a single group, called `all`.",
)
@click.option("--error", help="Instead of --epsilon or --crowd: the error to reach, such as 300m.")
@click.option("--rounds", type=WHOLE, default=1, help="How many rounds the promise is for.")
@click.option("--rate", type=float, default=1.0, help="Chance that a person reports in a round.")
@click.option("--sampling", default="coins", show_default=True, help="Of the rate: coins | secret")
@click.option("--expected", type=WHOLE, help="How many people are likely to come.")
@click.option("--corrupted", type=WHOLE, default=0, help="How many members may help the server.")
@click.option("--group", "groups", multiple=True, help="NAME:CROWD[:EXPECTED[:CORRUPTED]], each.")
@click.option("--goal", default="mean", show_default=True, help=" | ".join(GOALS))
@click.option("--dimension", type=WHOLE, default=2, show_default=True, help="Axes of [-1, 1]^d.")
@click.option("--box", help="LO,LO:HI,HI in your own units.")
@click.option("--geographic", help="SOUTH,WEST,NORTH,EAST in degrees; errors are in metres.")
@click.option("--ball", type=float, help="Radius of an l2 ball with --dimension.")
@click.option("--labels", help="Labels, separated by commas.")
@click.option("--task", "task_name", help="What will be computed; answers give some people away.")
@click.option("--task-params", default="{}", help="Its parameters as a JSON object.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@click.option("--plot", type=click.Path(path_type=Path), help="Also draw curves into this file.")
def plan(
    *,
    epsilon: float | None,
    delta: float | None,
    crowd: int | None,
    error: str | None,
    rounds: int,
    rate: float,
    sampling: Any,
    expected: int | None,
    corrupted: int,
    groups: tuple[str, ...],
    goal: str,
    dimension: int,
    box: str | None,
    geographic: str | None,
    ball: float | None,
    labels: str | None,
    task_name: str | None,
    task_params: str,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Choose mechanism, local budget and radius or grid together, and say what they give.

    With --error and --epsilon it says how many people that takes; with --error and --people, which
    epsilon.
    """
    if goal not in GOALS:
        raise Misuse(f"--goal is one of {' | '.join(GOALS)}, not {goal!r}")
    reach = None if error is None else read_length(error, "--error")
    if reach and reach[1] and not any((box, geographic, ball, labels)):
        hint("no --geographic is given: a city of 10 km by 10 km is assumed")
        geographic = _CITY
    domain = _domain(dimension, box, geographic, ball, labels)
    season = {"rounds": rounds, "rate": rate, "sampling": sampling}
    if reach is not None:
        if groups or task_name or goal == "task":
            raise Misuse("--error is asked for one group and no task: leave out --group and --task")
        _check_unit(domain, metres=reach[1])
        asking = _Backwards(reach[0], delta, corrupted, domain, goal, season)
        epsilon, crowd = asking.answer(epsilon, crowd)
    if epsilon is None:
        raise Misuse("give --epsilon, the promise, or --people and --error to find it")
    asked = _groups(groups, crowd, expected, corrupted, domain)
    if plot is not None:
        from coatcheck.planning.charts import check_file, draw_plan  # noqa: PLC0415 - needs an extra

        check_file(plot)
    task = _task(task_name, task_params, list(asked), domain)
    if delta is None:
        delta = _delta(sum(group.crowd for group in asked.values()))
    found = planned(asked, epsilon=epsilon, delta=delta, goal=goal, task=task, **season)
    if as_json:
        click.echo(json.dumps(_plain(found), indent=1))
    else:
        _print(found, reached=None if reach is None else reach[0])
    if plot is not None:
        draw_plan(found, plot)
        click.echo(f"coatcheck: drew {plot}", err=True)


def _delta(people: int) -> float:
    """Choose a usual chance of failure: one over a hundred times the people."""
    return 0.01 / max(1, people)


def _check_unit(domain: Domain, *, metres: bool) -> None:
    """Refuse metres where the domain has none, and plain numbers where it has."""
    metric = isinstance(domain, Box) and domain.unit == "m"
    if metres != metric:
        unit = "in metres, such as 300m" if metric else "a plain number in the domain's own units"
        raise Misuse(f"the error on this domain is {unit}")


@dataclass(frozen=True)
class _Backwards:
    """What is asked backwards: the error, and everything but ε or the people."""

    error: float
    delta: float | None
    corrupted: int
    domain: Domain
    goal: Any
    season: dict[str, Any]

    def promise(self, epsilon: float, crowd: int) -> Promise:
        delta = _delta(crowd) if self.delta is None else self.delta
        corrupted = min(self.corrupted, crowd - 1)
        return Promise(
            epsilon=epsilon, delta=delta, crowd=crowd, corrupted=corrupted, **self.season
        )

    def answer(self, epsilon: float | None, crowd: int | None) -> tuple[float, int]:
        """Find what is missing, the ε or the people, and give both."""
        how = {"domain": self.domain, "goal": self.goal}
        if epsilon is None and crowd is not None:
            return epsilon_for(self.error, self.promise(1.0, crowd), **how), crowd
        if epsilon is not None and crowd is None:
            return epsilon, people_for(self.error, partial(self.promise, epsilon), **how)
        raise Misuse(
            "with --error give either --epsilon, to be told how many people, or --people, to be"
            " told which epsilon"
        )


def _domain(
    dimension: int,
    box: str | None,
    geographic: str | None,
    ball: float | None,
    labels: str | None,
) -> Domain:
    if sum(one is not None for one in (box, geographic, ball, labels)) > 1:
        raise Misuse("values live in one domain: give one of --box, --geographic, --ball, --labels")
    if labels is not None:
        return Categories(tuple(label.strip() for label in labels.split(",")))
    if ball is not None:
        return Ball(radius=ball, p=2, dimension=dimension)
    if geographic is not None:
        told = "--geographic SOUTH,WEST,NORTH,EAST"
        sides = numbers(geographic, told, how_many=4, example="31,121,31.5,122")
        return Box.geographic(south=sides[0], west=sides[1], north=sides[2], east=sides[3])
    if box is not None:
        low, _, high = box.partition(":")
        told = "each side of --box LO,LO:HI,HI"
        return Box(*(tuple(numbers(part, told, example="0,0")) for part in (low, high)))
    if dimension < 1:
        raise Misuse(f"--dimension is at least 1, not {dimension}")
    return Box((-1.0,) * dimension, (1.0,) * dimension)


def _groups(
    texts: tuple[str, ...],
    crowd: int | None,
    expected: int | None,
    corrupted: int,
    domain: Domain,
) -> dict[str, Group]:
    if bool(texts) == (crowd is not None):
        raise Misuse("say who takes part: --crowd for one group, or --group for each of several")
    if crowd is not None:
        return {"all": Group(domain, crowd, expected, corrupted)}
    found = {}
    for text in texts:
        name, *counts = text.split(":")
        if not name or not 1 <= len(counts) <= 3:
            raise Misuse(f"--group is NAME:CROWD[:EXPECTED[:CORRUPTED]], got {text!r}")
        numbers = [WHOLE.convert(count, None, None) for count in counts]
        found[name] = Group(domain, numbers[0], *numbers[1:])
    return found


def _task(name: str | None, params: str, groups: list[str], domain: Domain) -> Task | None:
    if name is None:
        return None
    try:
        given = json.loads(params)
    except json.JSONDecodeError as error:
        raise Misuse(f'--task-params is a JSON object such as {{"limit": 9}}: {error}') from None
    if not isinstance(given, dict):
        raise Misuse(f'--task-params is a JSON object such as {{"limit": 9}}, got {params}')
    made = from_params({**given, "name": name, "groups": tuple(groups)})
    if isinstance(domain, Box) and "scale" in made.params() and "scale" not in given:
        return from_params({**made.params(), "scale": list(scale_of(domain))})
    return made


def _plain(found: Plan) -> dict[str, Any]:
    return {
        "epsilon": found.epsilon,
        "delta": found.delta,
        "goal": found.goal,
        "rounds": found.rounds,
        "people": sum(group.group.crowd for group in found.groups),
        "groups": [
            {
                "name": group.name,
                "people": group.group.crowd,
                "total": group.total,
                "season": None if group.season is None else asdict(group.season),
                "recommended": _design(group.best),
                "reason": group.reason,
                "alternatives": [_design(other) for other in group.designs[1:]],
                "unit": told_unit(group.group.domain, found.goal),
                "guarantee": plain(group.best.guarantee),
                "expected": plain(group.expected) if group.group.expected else None,
                "fading": {f"{share:g}": left for share, left in group.fading.items()},
                "warnings": list(group.warnings),
            }
            for group in found.groups
        ],
        "terms": [group.params() for group in found.groups],
    }


def _design(design: Design) -> dict[str, Any]:
    made = design.randomizer
    return {
        "mechanism": made.name,
        "local_epsilon": made.epsilon,
        "decode": design.how,
        "error": design.error if math.isfinite(design.error) else None,
        "parameters": made.params(),
    }


def _print(found: Plan, *, reached: float | None) -> None:
    from rich.console import Console  # noqa: PLC0415 - only where a table is printed

    console = Console(highlight=False)
    console.width = max(console.width, _WIDTH)
    if reached is not None:
        group = found.groups[0]
        error = told_error(replace(group.best, error=reached), found.goal)
        people = f"{group.group.crowd:,} people"
        console.print(f"An error of {error} takes {people} at ε = {found.epsilon:g}.")
    console.print(told_promise(found.epsilon, found.delta, found.rounds, found.goal))
    for group in found.groups:
        console.print(_table(group))
        _print_rest(group, console.print)


def _table(group: Recommendation) -> "Table":
    from rich import box  # noqa: PLC0415 - only where a table is printed
    from rich.table import Table  # noqa: PLC0415 - only where a table is printed

    table = Table(box=box.SIMPLE_HEAD, title=f"\n{group.name}", title_justify="left")
    for heading in ("", "mechanism", "local ε", "shape", "read by", "error", ""):
        table.add_column(heading, no_wrap=bool(heading))
    for design in group.designs:
        best = design is group.best
        more = f"{design.error / group.best.error - 1:+.1%}" if not best else group.reason
        made = design.randomizer
        error = told_error(design, group.goal)
        cells = (made.name, f"{made.epsilon:.3f}", shape(made), design.how, error)
        table.add_row("→" if best else "", *cells, more, style="bold" if best else "")
    return table


def _print_rest(group: Recommendation, say: Any) -> None:
    best = group.best.guarantee
    say(
        f"At least {best.crowd:,} people, {best.anonymous:,} honest and anonymous: "
        f"ε = {best.epsilon:.4g}{' per round' if group.season else ''}"
    )
    if group.season:
        say(str(group.season))
    for share, left in group.fading.items():
        say(f"  {share:.0%} of them lost: ε = {left:.4g}")
    if group.group.expected is not None:
        say(f"With {group.group.expected:,} people: ε = {group.expected.epsilon:.4g}")
    if best.caveat:
        say(best.caveat)
    for warning in group.warnings:
        say(f"[yellow]Warning:[/] {warning}")
