"""`coatcheck plan`: which mechanism, local budget and radius or grid keep a promise best.

Of the promised ε, the people and the error two are given; the third is what is found.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

from coatcheck.cli.options import OBJECT, WHOLE, Json, Reader, command, numbers, one_of, whole
from coatcheck.cli.output import hint, show, table
from coatcheck.cli.privacy import plain
from coatcheck.domains import Ball, Box, Categories, Domain
from coatcheck.errors import Misuse
from coatcheck.planning import Design, Group, Plan, Promise, Recommendation
from coatcheck.planning import plan as planned
from coatcheck.planning.budget_search import Sampling, usual_delta
from coatcheck.planning.comparison import DOMAINS, OURS, Row, check_file, draw_errors, draw_plan
from coatcheck.planning.comparison import compare as measure
from coatcheck.planning.many_rounds import epsilon_for, people_for
from coatcheck.planning.plans import GOALS, Aim, error_text, shape, unit_text
from coatcheck.randomizers import Prior
from coatcheck.simulation.quality import names_many
from coatcheck.simulation.settling import ROUNDS, Forecast, forecast
from coatcheck.tasks import Task, from_params
from coatcheck.tasks.contract import scale_of

if TYPE_CHECKING:
    from rich.table import Table

_CITY: Final = (-0.045, -0.045, 0.045, 0.045)  # 10 km by 10 km


def _length(text: str) -> tuple[float, bool]:
    """Read a length above 0, and whether it is in metres: 300m, 1.2km, or 0.3 as it is."""
    number, metres = text.strip().removesuffix("m"), text.strip().endswith("m")
    length = (
        float(number.removesuffix("k")) * 1_000 if metres and number[-1:] == "k" else float(number)
    )
    if not 0 < length < math.inf:
        raise ValueError
    return length, metres


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
_ERROR = Reader(_length, "is a length such as 300m, 1.2km or 0.3")


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

    @property
    def given(self) -> int:
        """How many domains the options describe."""
        options = (self.box, self.geographic, self.ball, self.labels)
        return sum(one is not None for one in options)

    def domain(self) -> Domain:
        """Return the domain that the options describe."""
        if self.given > 1:
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


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """How often people take part."""

    rounds: Annotated[int, WHOLE, "How many rounds the promise is for."] = 1
    rate: Annotated[float, "The chance with which each person reports in a round."] = 1.0
    sampling: Annotated[
        Sampling, one_of(get_args(Sampling)), "How people come to report: coins | secret"
    ] = "coins"


@command(doing="mechanisms are compared for your crowd")
def plan(
    *,
    epsilon: Annotated[float | None, "The ε promised to everybody, over all rounds."] = None,
    delta: Annotated[
        float | None, "The chance that it fails; by default 1 in 100 times the crowd, or less."
    ] = None,
    crowd: Annotated[
        int | None, WHOLE, "--crowd", "--people", "The smallest crowd of one group, named `all`."
    ] = None,
    error: Annotated[
        tuple[float, bool] | None, _ERROR, "Instead of ε or people: the error to reach, as 300m."
    ] = None,
    repeated: Repeated,
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
    """Choose mechanism, local budget and radius or grid together, and say what they give.

    With --error and --epsilon it says how many people that takes; with --error and --people, which
    epsilon.
    """
    if error is not None and error[1] and not values.given:
        hint("no --geographic is given: a city of 10 km by 10 km is assumed")
        values = replace(values, geographic=list(_CITY))
    domain = values.domain()
    known = None if prior is None else Prior.from_file(prior)
    if error is not None:
        if group or task_name or goal == "task":
            raise Misuse("--error is asked for one group and no task: leave out --group and --task")
        _check_unit(domain, metres=error[1])
        asking = partial(_promise, delta=delta, corrupted=corrupted, repeated=repeated)
        search = {"domain": domain, "goal": goal, "prior": known}
        epsilon, crowd = _backwards(error[0], epsilon, crowd, asking, search)
    if epsilon is None:
        raise Misuse("give --epsilon, the promise, or --people and --error to find it")
    if bool(group) == (crowd is not None):
        raise Misuse("say who takes part: --crowd for one group, or --group for each of several")
    if crowd is not None:
        group = (("all", (crowd, expected, corrupted)),)
    asked = {name: Group(domain, *counts) for name, counts in group}
    if plot is not None:
        check_file(plot)
    task = None if task_name is None else _task(task_name, task_params or {}, list(asked), domain)
    if delta is None:
        delta = usual_delta([one.crowd for one in asked.values()])
    keep = {"epsilon": epsilon, "delta": delta, **asdict(repeated)}
    found = planned(asked, **keep, goal=goal, task=task, prior=known)
    ahead = [] if task is None or not names_many(task) else forecast(found, task)
    document = {**_document(found), "settling": [asdict(one) for one in ahead]}
    show(document, as_json=as_json, text=lambda: _text(found, error, ahead))
    if plot is not None:
        draw_plan(found, plot)
        hint(f"drew {plot}")


def _promise(
    epsilon: float, crowd: int, *, delta: float | None, corrupted: int, repeated: Repeated
) -> Promise:
    return Promise(
        epsilon=epsilon,
        delta=usual_delta([crowd]) if delta is None else delta,
        crowd=crowd,
        corrupted=corrupted,
        **asdict(repeated),
    )


def _check_unit(domain: Domain, *, metres: bool) -> None:
    """Refuse metres where the domain has none, and plain numbers where it has."""
    metric = isinstance(domain, Box) and domain.unit == "m"
    if metres != metric:
        unit = "in metres, such as 300m" if metric else "a plain number in the domain's own units"
        raise Misuse(f"the error on this domain is {unit}")


def _backwards(
    error: float,
    epsilon: float | None,
    crowd: int | None,
    promise: Callable[[float, int], Promise],
    search: dict[str, Any],
) -> tuple[float, int]:
    """Find what is missing, the ε or the people, and return both."""
    if epsilon is None and crowd is not None:
        return epsilon_for(error, promise(1.0, crowd), **search), crowd
    if epsilon is not None and crowd is None:
        return epsilon, people_for(error, partial(promise, epsilon), **search)
    raise Misuse(
        "with --error give either --epsilon, to be told how many people, or --people, to be told"
        " which epsilon"
    )


def _task(name: str, given: dict[str, Any], groups: list[str], domain: Domain) -> Task:
    made = from_params({**given, "name": name, "groups": tuple(groups)})
    if isinstance(domain, Box) and "scale" in made.params() and "scale" not in given:
        return from_params({**made.params(), "scale": list(scale_of(domain))})
    return made


def _document(found: Plan) -> dict[str, Any]:
    groups = [
        {
            "name": group.name,
            "people": group.group.crowd,
            "total": group.total,
            "season": asdict(group.repeated) if group.repeated else None,
            "recommended": group.best.plain(),
            "reason": group.reason,
            "alternatives": [other.plain() for other in group.designs[1:]],
            "unit": unit_text(group.group.domain, found.goal),
            "prior": group.prior.source if group.prior else None,
            "report_free": group.best.report_free,
            "guarantee": plain(group.best.guarantee),
            "expected": plain(group.expected) if group.group.expected else None,
            "assumptions": group.assumptions,
            "fading": {f"{share:g}": left for share, left in group.fading.items()},
            "warnings": group.warnings,
        }
        for group in found.groups
    ]
    terms = [group.params() for group in found.groups]
    head = {"epsilon": found.epsilon, "delta": found.delta, "goal": found.goal}
    people = sum(group.group.crowd for group in found.groups)
    head |= {"rounds": found.rounds, "people": people}
    return {**head, "groups": groups, "terms": terms}


def _text(
    found: Plan, asked: tuple[float, bool] | None, ahead: Sequence[Forecast]
) -> Iterator["str | Table"]:
    if asked is not None:
        group = found.groups[0]
        error = error_text(replace(group.best, error=asked[0]), found.goal)
        people = f"{group.group.crowd:,} people"
        yield f"An error of {error} takes {people} at ε = {found.epsilon:g}."
    yield found.headline
    for group in found.groups:
        yield f"\n[bold]{group.name}[/]"
        headings = ("", "mechanism", "local ε", "shape", "read by", "error", "")
        made = table(headings, map(partial(_row, group), group.designs), right=())
        made.rows[0].style = "bold"
        yield made
        yield from group.sentences
    if ahead:
        yield "\n[bold]Settling by letter[/]"
        headings = ("candidates", "asks", "letters", "paired", "mean distance", "median", "near")
        yield table(headings, map(_ahead, ahead), right=headings)
        yield (
            f"Means of {ROUNDS} crowds that had no part in the plan, ± two standard errors; near"
            " is within the task's radius, or a fifth of the box. One candidate: as the server"
            " would name."
        )


def _ahead(one: Forecast) -> tuple[str, ...]:
    paired, mean, median, near = (2 * error for error in one.standard_errors)
    return (
        f"{one.candidates}",
        ", ".join(map(str, one.asks)) or "–",
        f"{one.letters}",
        f"{one.paired:.1%} ± {paired:.1%}",
        f"{one.mean_distance:.4g} ± {mean:.2g}",
        f"{one.median_distance:.4g} ± {median:.2g}",
        f"{one.within:.1%} ± {near:.1%}",
    )


def _row(group: Recommendation, design: Design) -> tuple[str, ...]:
    made, best = design.randomizer, design is group.best
    more = group.reason if best else f"{design.error / group.best.error - 1:+.1%}"
    error = error_text(design, group.goal)
    cells = (made.name, f"{made.epsilon:.3f}", shape(made), design.how, error, more)
    return ("→" if best else "", *cells)


# HOUSE-DOC cli.compare: '`coatcheck compare`: what one report is worth, mechanism by mechanism, beside the paper.'
_BUDGETS = (0.5, 1, 2, 3, 5, 8, 10)


@command(doing="mechanisms are measured")
def compare(
    *,
    epsilon: Annotated[Sequence[float], numbers("0.5,1,2"), "Values of ε."] = _BUDGETS,
    domain: Annotated[str, one_of(DOMAINS), " | ".join(DOMAINS)] = "square",
    samples: Annotated[int, "Uniform values per figure."] = 200_000,
    seed: Annotated[int, "The same seed gives the same errors."] = 7,
    as_json: Json = False,
    plot: Annotated[Path | None, "Also draw errors into this file."] = None,
) -> None:
    """Compare the error of every randomizer: a simulation on uniform values.

    For each way to read a report: the mean l2 distance between value and estimate, the paper's
    figure where it has one, and the time per report.
    """
    if len(set(epsilon)) != len(epsilon):
        raise Misuse(f"--epsilon names a budget twice: {','.join(map(str, epsilon))}")
    if plot is not None:
        check_file(plot)
    rows = measure(epsilons=epsilon, domain=DOMAINS[domain], samples=samples, entropy=seed)
    document = [asdict(row) for row in rows]
    show(document, as_json=as_json, text=lambda: _comparison_text(rows, domain, samples))
    if plot is not None:
        draw_errors(rows, plot)
        hint(f"drew {plot}")


def _comparison_text(rows: list[Row], domain: str, samples: int) -> Iterator["str | Table"]:
    budgets = list(dict.fromkeys(row.epsilon for row in rows))
    headings = ("", *(f"ε = {budget:g}" for budget in budgets), "µs")
    yield table(headings, _lines(rows, budgets), right=("µs",), padding=0)
    axes = DOMAINS[domain].dimension
    where = "[-1, 1]" if axes == 1 else f"[-1, 1]^{axes}"
    yield (
        f"\nMean l2 error of one report over {samples:,} values uniform on {where}; "
        "ours in [bold]bold[/] where least."
    )
    if any(row.paper is not None for row in rows):
        yield "[dim]Dim[/]: the paper's figure (Table errortime, 1,000 repetitions)."
    yield "✓ exact: only integers between value and report. µs: time per report, in bulk."


def _lines(rows: list[Row], budgets: Sequence[float]) -> Iterator[list[str]]:
    """Yield one line per mechanism and way to read it; what `choose` picks is one line."""
    least = {b: min(row.mean_error for row in rows if row.epsilon == b) for b in budgets}
    readings: dict[str, dict[str, dict[float, Row]]] = {}
    for row in rows:
        way = "" if row.mechanism == "choose" else row.decode
        readings.setdefault(row.mechanism, {}).setdefault(way, {})[row.epsilon] = row
    for mechanism, ways in readings.items():
        exact = all(row.exact for line in ways.values() for row in line.values())
        label = mechanism + (" [green]✓[/]" if exact else "")
        if len(ways) > 1:
            yield [label]
        for how, line in ways.items():
            cells = [_cell(line[budget], least[budget]) for budget in budgets]
            spent = statistics.median(row.microseconds for row in line.values())
            yield [f"  {how}" if len(ways) > 1 else label, *cells, f"{spent:.2f}"]
        if mechanism == "minkowski-paper":
            yield []  # baselines follow


def _cell(row: Row, least: float) -> str:
    """Write three digits that count, and the paper's figure as it prints it, without a zero."""
    error, paper = row.mean_error, ""
    digits = 1 if error >= 10 else 2 if error >= 1 else 3 if error >= 0.1 else 4
    figure = f"{error:.{digits}f}".removeprefix("0")
    if row.paper is not None:
        paper = f"{row.paper:.{2 if row.paper >= 0.1 else 3}f}".removeprefix("0")
    style = "bold" if row.mechanism in OURS and error <= least else "default"
    return f"[{style}]{figure:<4}[/] [dim]{paper}[/]"
