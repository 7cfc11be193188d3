"""`coatcheck plan` and `coatcheck compare`: which mechanism keeps a promise with the least error.

`plan` takes two of the promised ε, the number of people and the error, and finds the third.
`compare` measures the error of one report, mechanism by mechanism, beside the paper's figures.
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
from coatcheck.cli.privacy import guarantee_document
from coatcheck.domains import Ball, Box, Categories, Domain
from coatcheck.errors import Misuse
from coatcheck.planning import Design, Group, Plan, Promise, Recommendation
from coatcheck.planning import plan as make_plan
from coatcheck.planning.budget_search import Sampling, usual_delta
from coatcheck.planning.comparison import DOMAINS, OURS, Row, check_file, draw_errors, draw_plan
from coatcheck.planning.comparison import compare as measure
from coatcheck.planning.many_rounds import epsilon_for, people_for
from coatcheck.planning.plans import GOALS, Aim, error_text, shape, unit_text
from coatcheck.randomizers import Prior
from coatcheck.simulation.quality import names_many
from coatcheck.simulation.settling import ROUNDS, Forecast, forecast_settling
from coatcheck.tasks import Task, from_params
from coatcheck.tasks.contract import scale_of

if TYPE_CHECKING:
    from rich.table import Table

_CITY: Final = (-0.045, -0.045, 0.045, 0.045)  # 10 km by 10 km


def _length(text: str) -> tuple[float, bool]:
    """Parse a length above 0, and whether it is in metres: 300m, 1.2km, or 0.3."""
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


_BOX = Reader(_corners, "must be LO,LO:HI,HI, such as 0,0:4,2")
_DEGREES = numbers("31,121,31.5,122 (SOUTH,WEST,NORTH,EAST)", count=4)
_GROUP = Reader(_group, "must be NAME:CROWD[:EXPECTED[:CORRUPTED]], such as riders:400")
_ERROR = Reader(_length, "must be a length such as 300m, 1.2km or 0.3")


@dataclass(frozen=True, kw_only=True)
class Values:
    """The domain of the values."""

    dimension: Annotated[int, WHOLE, "Number of axes d of the domain [-1, 1]^d."] = 2
    box: Annotated[list[Any] | None, _BOX, "Box LO,LO:HI,HI in your own units."] = None
    geographic: Annotated[
        list[float] | None, _DEGREES, "Box SOUTH,WEST,NORTH,EAST in degrees; errors are in metres."
    ] = None
    ball: Annotated[float | None, "Radius of an l2 ball of `--dimension` axes."] = None
    labels: Annotated[str | None, "Labels, separated by commas."] = None

    @property
    def stated(self) -> int:
        """How many domains the options describe."""
        options = (self.box, self.geographic, self.ball, self.labels)
        return sum(option is not None for option in options)

    def domain(self) -> Domain:
        """Return the domain that the options describe."""
        if self.stated > 1:
            raise Misuse("give only one of `--box`, `--geographic`, `--ball` and `--labels`")
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
            raise Misuse(f"`--dimension` must be at least 1, got {self.dimension}")
        return Box((-1.0,) * self.dimension, (1.0,) * self.dimension)


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """How often people take part."""

    rounds: Annotated[int, WHOLE, "Number of rounds that the promise is for."] = 1
    rate: Annotated[float, "Probability with which each person reports in a round."] = 1.0
    sampling: Annotated[
        Sampling,
        one_of(get_args(Sampling)),
        "Who reports: by each person's coin (coins), or by a secret draw (secret).",
    ] = "coins"


@command(doing="comparing mechanisms for your crowd")
def plan(
    *,
    epsilon: Annotated[float | None, "The ε promised to everybody, over all rounds."] = None,
    delta: Annotated[
        float | None, "The δ of the promise; by default 1 in 100 times the crowd, or less."
    ] = None,
    crowd: Annotated[
        int | None, WHOLE, "--crowd", "--people", "Minimum crowd of a single group, named `all`."
    ] = None,
    error: Annotated[
        tuple[float, bool] | None,
        _ERROR,
        "The error to reach, such as 300m, instead of `--epsilon` or `--people`.",
    ] = None,
    repeated: Repeated,
    expected: Annotated[int | None, WHOLE, "Number of people that you expect."] = None,
    corrupted: Annotated[int, WHOLE, "Number of people who may help the server."] = 0,
    group: Annotated[
        tuple[Any, ...],
        _GROUP,
        "Instead of `--crowd`, once per group: NAME:CROWD[:EXPECTED[:CORRUPTED]].",
    ] = (),
    goal: Annotated[Aim, one_of(GOALS), " | ".join(GOALS)] = "mean",
    values: Values,
    task_name: Annotated[
        str | None, "--task", "The task: what to compute. Some answers identify people."
    ] = None,
    task_params: Annotated[
        dict[str, Any] | None, OBJECT, "Parameters of the task, as JSON."
    ] = None,
    prior: Annotated[Path | None, "CSV or GeoJSON of public places; never private ones."] = None,
    as_json: Json = False,
    plot: Annotated[Path | None, "Also draw the curves into this file."] = None,
) -> None:
    """Choose mechanism, local budget and radius or grid together, and predict the error.

    `--error` with `--epsilon` finds the number of people, `--error` with `--people` finds ε.
    """
    if error is not None and error[1] and not values.stated:
        hint("without `--geographic`, a city of 10 km by 10 km is assumed")
        values = replace(values, geographic=list(_CITY))
    domain = values.domain()
    known_places = None if prior is None else Prior.from_file(prior)
    if error is not None:
        if group or task_name or goal == "task":
            raise Misuse(
                "`--error` is for one group without a task; leave out `--group` and `--task`"
            )
        _check_unit(domain, metres=error[1])
        promise = partial(_promise, delta=delta, corrupted=corrupted, repeated=repeated)
        search = {"domain": domain, "goal": goal, "prior": known_places}
        epsilon, crowd = _solve(error[0], epsilon, crowd, promise, search)
    if epsilon is None:
        raise Misuse("give `--epsilon`, or `--people` and `--error` to find it")
    if bool(group) == (crowd is not None):
        raise Misuse("give `--crowd` for one group, or `--group` for each of several groups")
    if crowd is not None:
        group = (("all", (crowd, expected, corrupted)),)
    groups = {name: Group(domain, *counts) for name, counts in group}
    if plot is not None:
        check_file(plot)
    task = None if task_name is None else _task(task_name, task_params or {}, list(groups), domain)
    if delta is None:
        delta = usual_delta([group.crowd for group in groups.values()])
    promised = {"epsilon": epsilon, "delta": delta, **asdict(repeated)}
    result = make_plan(groups, **promised, goal=goal, task=task, prior=known_places)
    forecasts = [] if task is None or not names_many(task) else forecast_settling(result, task)
    document = {**_document(result), "settling": [asdict(forecast) for forecast in forecasts]}
    show(document, as_json=as_json, text=lambda: _text(result, error, forecasts))
    if plot is not None:
        draw_plan(result, plot)
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
    """Reject metres where the domain has none, and plain numbers where it has."""
    metric = isinstance(domain, Box) and domain.unit == "m"
    if metres != metric:
        unit = "in metres, such as 300m" if metric else "a plain number in the domain's own units"
        raise Misuse(f"`--error` on this domain must be {unit}")


def _solve(
    error: float,
    epsilon: float | None,
    crowd: int | None,
    promise: Callable[[float, int], Promise],
    search: dict[str, Any],
) -> tuple[float, int]:
    """Return ε and the number of people, after finding the one that is missing."""
    if epsilon is None and crowd is not None:
        return epsilon_for(error, promise(1.0, crowd), **search), crowd
    if epsilon is not None and crowd is None:
        return epsilon, people_for(error, partial(promise, epsilon), **search)
    raise Misuse(
        "with `--error` give either `--epsilon`, to find the number of people, or `--people`, to"
        " find the ε"
    )


def _task(name: str, params: dict[str, Any], groups: list[str], domain: Domain) -> Task:
    task = from_params({**params, "name": name, "groups": tuple(groups)})
    if isinstance(domain, Box) and "scale" in task.params() and "scale" not in params:
        return from_params({**task.params(), "scale": list(scale_of(domain))})
    return task


def _document(plan: Plan) -> dict[str, Any]:
    groups = [
        {
            "name": group.name,
            "people": group.group.crowd,
            "total": group.total,
            "season": asdict(group.repeated) if group.repeated else None,
            "recommended": group.best.plain(),
            "reason": group.reason,
            "alternatives": [other.plain() for other in group.designs[1:]],
            "unit": unit_text(group.group.domain, plan.goal),
            "prior": group.prior.source if group.prior else None,
            "report_free": group.best.report_free,
            "guarantee": guarantee_document(group.best.guarantee),
            "expected": guarantee_document(group.expected) if group.group.expected else None,
            "assumptions": group.assumptions,
            "fading": {f"{share:g}": left for share, left in group.fading.items()},
            "warnings": group.warnings,
        }
        for group in plan.groups
    ]
    return {
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "goal": plan.goal,
        "rounds": plan.rounds,
        "people": sum(group.group.crowd for group in plan.groups),
        "groups": groups,
        "terms": [group.params() for group in plan.groups],
    }


def _text(
    plan: Plan, target: tuple[float, bool] | None, forecasts: Sequence[Forecast]
) -> Iterator["str | Table"]:
    if target is not None:
        group = plan.groups[0]
        error = error_text(replace(group.best, error=target[0]), plan.goal)
        people = f"{group.group.crowd:,} people"
        yield f"An error of {error} takes {people} at ε = {plan.epsilon:g}."
    yield plan.headline
    for group in plan.groups:
        yield f"\n[bold]{group.name}[/]"
        headings = ("", "mechanism", "local ε", "shape", "decoder", "error", "")
        designs = table(headings, map(partial(_design_row, group), group.designs), right=())
        designs.rows[0].style = "bold"
        yield designs
        yield from group.sentences
    if forecasts:
        yield "\n[bold]Settling by letter[/]"
        headings = ("candidates", "asks", "letters", "paired", "mean distance", "median", "near")
        yield table(headings, map(_forecast_row, forecasts), right=headings)
        yield (
            f"Means of {ROUNDS} crowds that had no part in the plan, ± two standard errors; near"
            " is within the task's radius, or a fifth of the box. One candidate is the partner"
            " that the server would name."
        )


def _design_row(group: Recommendation, design: Design) -> tuple[str, ...]:
    randomizer, best = design.randomizer, design is group.best
    more = group.reason if best else f"{design.error / group.best.error - 1:+.1%}"
    return (
        "→" if best else "",
        randomizer.name,
        f"{randomizer.epsilon:.3f}",
        shape(randomizer),
        design.how,
        error_text(design, group.goal),
        more,
    )


def _forecast_row(forecast: Forecast) -> tuple[str, ...]:
    paired, mean, median, near = (2 * error for error in forecast.standard_errors)
    return (
        f"{forecast.candidates}",
        ", ".join(map(str, forecast.asks)) or "–",
        f"{forecast.letters}",
        f"{forecast.paired:.1%} ± {paired:.1%}",
        f"{forecast.mean_distance:.4g} ± {mean:.2g}",
        f"{forecast.median_distance:.4g} ± {median:.2g}",
        f"{forecast.within:.1%} ± {near:.1%}",
    )


# -- compare

_BUDGETS = (0.5, 1, 2, 3, 5, 8, 10)


@command(doing="measuring mechanisms")
def compare(
    *,
    epsilon: Annotated[Sequence[float], numbers("0.5,1,2"), "Values of ε."] = _BUDGETS,
    domain: Annotated[str, one_of(DOMAINS), " | ".join(DOMAINS)] = "square",
    samples: Annotated[int, "Number of uniform values per figure."] = 200_000,
    seed: Annotated[int, "Seed; the same seed gives the same errors."] = 7,
    as_json: Json = False,
    plot: Annotated[Path | None, "Also draw the errors into this file."] = None,
) -> None:
    """Compare the errors of all randomizers, simulated on uniform values.

    For each decoder: the mean l2 distance between value and estimate, the paper's figure if it has
    one, and the time per report.
    """
    if len(set(epsilon)) != len(epsilon):
        raise Misuse(
            f"`--epsilon` must name each budget once, got {','.join(f'{x:g}' for x in epsilon)}"
        )
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
        "ours in [bold]bold[/] where it is the least."
    )
    if any(row.paper is not None for row in rows):
        yield "[dim]Dim[/]: the paper's figure (Table errortime, 1,000 repetitions)."
    yield "✓ exact: only integers between value and report. µs: time per report, in bulk."


def _lines(rows: list[Row], budgets: Sequence[float]) -> Iterator[list[str]]:
    """Yield one line per mechanism and decoder; what `choose` picks is one line."""
    least = {b: min(row.mean_error for row in rows if row.epsilon == b) for b in budgets}
    mechanisms: dict[str, dict[str, dict[float, Row]]] = {}  # by decoder and budget
    for row in rows:
        decoder = "" if row.mechanism == "choose" else row.decode
        mechanisms.setdefault(row.mechanism, {}).setdefault(decoder, {})[row.epsilon] = row
    for mechanism, decoders in mechanisms.items():
        exact = all(row.exact for line in decoders.values() for row in line.values())
        label = mechanism + (" [green]✓[/]" if exact else "")
        if len(decoders) > 1:
            yield [label]
        for how, line in decoders.items():
            cells = [_cell(line[budget], least[budget]) for budget in budgets]
            time = statistics.median(row.microseconds for row in line.values())
            yield [f"  {how}" if len(decoders) > 1 else label, *cells, f"{time:.2f}"]
        if mechanism == "minkowski-paper":
            yield []  # baselines follow


def _cell(row: Row, least: float) -> str:
    """Write three significant digits, and the paper's figure as printed, without leading zeros."""
    error, paper = row.mean_error, ""
    digits = 1 if error >= 10 else 2 if error >= 1 else 3 if error >= 0.1 else 4
    figure = f"{error:.{digits}f}".removeprefix("0")
    if row.paper is not None:
        paper = f"{row.paper:.{2 if row.paper >= 0.1 else 3}f}".removeprefix("0")
    style = "bold" if row.mechanism in OURS and error <= least else "default"
    return f"[{style}]{figure:<4}[/] [dim]{paper}[/]"
