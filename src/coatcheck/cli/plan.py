"""`coatcheck plan`: which mechanism, local budget and radius or grid keep a promise best."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from coatcheck.cli.options import OBJECT, WHOLE, Json, Reader, command, numbers, one_of, whole
from coatcheck.cli.output import hint, show, table
from coatcheck.cli.privacy import plain
from coatcheck.domains import Ball, Box, Categories, Domain
from coatcheck.errors import Misuse
from coatcheck.planning import Design, Group, Plan, Recommendation
from coatcheck.planning import plan as planned
from coatcheck.planning.charts import check_file, draw_plan
from coatcheck.planning.words import GOALS, Aim, shape, told_error, told_unit
from coatcheck.randomizers import Prior
from coatcheck.tasks import Task, from_params
from coatcheck.tasks.distances import scale_of

if TYPE_CHECKING:
    from rich.table import Table


def _corners(text: str) -> list[tuple[float, ...]]:
    low, high = text.split(":")
    return [tuple(float(x) for x in corner.split(",")) for corner in (low, high)]


def _group(text: str) -> tuple[str, list[int]]:
    name, *counts = text.split(":")
    if not name or not 1 <= len(counts) <= 3:
        raise ValueError
    return name, [whole(count) for count in counts]


_BOX = Reader(_corners, "is LO,LO:HI,HI, such as 0,0:4,2")
_DEGREES = numbers("31,121,31.5,122 (SOUTH,WEST,NORTH,EAST)", count=4)
_GROUP = Reader(_group, "is NAME:CROWD[:EXPECTED[:CORRUPTED]]")


@dataclass(frozen=True, kw_only=True)
class Values:
    """The domain of everybody's value."""

    dimension: Annotated[int, WHOLE, "Axes of [-1, 1]^d."] = 2
    box: Annotated[list[Any] | None, _BOX, "LO,LO:HI,HI in your own units."] = None
    geographic: Annotated[
        list[float] | None, _DEGREES, "SOUTH,WEST,NORTH,EAST in degrees; errors are in metres."
    ] = None
    ball: Annotated[float | None, "Radius of an l2 ball with --dimension."] = None
    labels: Annotated[str | None, "Labels, separated by commas."] = None

    def domain(self) -> Domain:
        """Return the domain that the options describe."""
        given = (self.box, self.geographic, self.ball, self.labels)
        if sum(one is not None for one in given) > 1:
            options = "--box, --geographic, --ball, --labels"
            raise Misuse(f"values live in one domain: give one of {options}")
        if self.labels is not None:
            return Categories(tuple(label.strip() for label in self.labels.split(",")))
        if self.ball is not None:
            return Ball(radius=self.ball, p=2, dimension=self.dimension)
        if self.geographic is not None:
            south, west, north, east = self.geographic
            return Box.geographic(south=south, west=west, north=north, east=east)
        if self.box is not None:
            return Box(*self.box)
        if self.dimension < 1:
            raise Misuse(f"--dimension is at least 1, not {self.dimension}")
        return Box((-1.0,) * self.dimension, (1.0,) * self.dimension)


@command()
def plan(
    *,
    epsilon: Annotated[float, "The ε promised to everybody."],
    delta: Annotated[float, "The chance that the promise fails."],
    crowd: Annotated[int | None, WHOLE, "The smallest crowd of one group, named `all`."] = None,
    expected: Annotated[int | None, WHOLE, "How many people are likely to come."] = None,
    corrupted: Annotated[int, WHOLE, "How many members may help the server."] = 0,
    group: Annotated[
        tuple[Any, ...], _GROUP, "NAME:CROWD[:EXPECTED[:CORRUPTED]], once per group."
    ] = (),
    goal: Annotated[Aim, one_of(GOALS), " | ".join(GOALS)] = "mean",
    values: Values,
    task_name: Annotated[
        str | None, "--task", "What will be computed; answers give some people away."
    ] = None,
    task_params: Annotated[dict[str, Any] | None, OBJECT, "Its parameters as JSON."] = None,
    prior: Annotated[Path | None, "CSV or GeoJSON of public places; never private ones."] = None,
    as_json: Json = False,
    plot: Annotated[Path | None, "Also draw curves into this file."] = None,
) -> None:
    """Choose mechanism, local budget and radius or grid together, and say what they give."""
    domain = values.domain()
    if bool(group) == (crowd is not None):
        raise Misuse("say who takes part: --crowd for one group, or --group for each of several")
    if crowd is not None:
        group = (("all", (crowd, expected, corrupted)),)
    asked = {name: Group(domain, *counts) for name, counts in group}
    if plot is not None:
        check_file(plot)
    task = None if task_name is None else _task(task_name, task_params or {}, list(asked), domain)
    known = None if prior is None else Prior.from_file(prior)
    found = planned(asked, epsilon=epsilon, delta=delta, goal=goal, task=task, prior=known)
    show(_document(found), as_json=as_json, text=lambda: _text(found))
    if plot is not None:
        draw_plan(found, plot)
        hint(f"drew {plot}")


def _task(name: str, given: dict[str, Any], groups: list[str], domain: Domain) -> Task:
    made = from_params({**given, "name": name, "groups": tuple(groups)})
    if isinstance(domain, Box) and "scale" in made.params() and "scale" not in given:
        return from_params({**made.params(), "scale": list(scale_of(domain))})
    return made


def _document(found: Plan) -> dict[str, Any]:
    groups = [
        {
            "name": group.name,
            "recommended": group.best.plain(),
            "reason": group.reason,
            "alternatives": [other.plain() for other in group.designs[1:]],
            "unit": told_unit(group.group.domain, found.goal),
            "prior": group.prior.source if group.prior else None,
            "report_free": group.blind,
            "guarantee": plain(group.best.guarantee),
            "expected": plain(group.expected) if group.group.expected else None,
            "fading": {f"{share:g}": left for share, left in group.fading.items()},
            "warnings": group.warnings,
        }
        for group in found.groups
    ]
    terms = [group.params() for group in found.groups]
    head = {"epsilon": found.epsilon, "delta": found.delta, "goal": found.goal}
    return {**head, "groups": groups, "terms": terms}


def _text(found: Plan) -> Iterator["str | Table"]:
    yield found.headline
    for group in found.groups:
        yield f"\n[bold]{group.name}[/]"
        headings = ("", "mechanism", "local ε", "shape", "read by", "error", "")
        made = table(headings, map(partial(_row, group), group.designs), right=())
        made.rows[0].style = "bold"
        yield made
        yield from group.sentences


def _row(group: Recommendation, design: Design) -> tuple[str, ...]:
    made, best = design.randomizer, design is group.best
    more = group.reason if best else f"{design.error / group.best.error - 1:+.1%}"
    error = told_error(design, group.goal)
    cells = (made.name, f"{made.epsilon:.3f}", shape(made), design.how, error, more)
    return ("→" if best else "", *cells)
