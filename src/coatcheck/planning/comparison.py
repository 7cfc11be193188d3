"""All mechanisms side by side: the error of one report and its time, as rows and as charts.

Values are uniform on the domain, and the error is the mean l2 distance between value and estimate.
The paper's figures (Table `errortime`) stand beside the mechanisms that reproduce them: its
Minkowski response has the radius in (0, 1] that is best at 0, its PrivUnit the sufficient
conditions of Bhowmick et al. This file draws from a seed: it is a SIMULATION, not for people.

Charts need the extra `charts` (matplotlib), which is loaded only to draw. The colors are those of
Okabe and Ito (2008), which color-blind readers can distinguish; a mechanism has the same color in
every chart.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from coatcheck.domains import Ball, Box, Floats
from coatcheck.entropy import Entropy, seeded, source
from coatcheck.errors import Misuse
from coatcheck.planning import Plan
from coatcheck.planning.budget_search import Curves, against_crowd, against_epsilon
from coatcheck.planning.plans import unit_text
from coatcheck.randomizers import (
    BoundedResponse,
    Decode,
    GridResponse,
    MinkowskiResponse,
    Randomizer,
    choose,
    tuned,
)
from coatcheck.randomizers.choice import misses
from coatcheck.randomizers.expected_error import unit_ball

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOMAINS: Final = {
    "square": Box((-1, -1), (1, 1)),
    "line": Box((-1,), (1,)),
    "cube": Box((-1, -1, -1), (1, 1, 1)),
}
OURS: Final = ("minkowski", "bounded", "grid", "choose")

# Table `errortime` of the paper: unbiased estimates, values uniform on [-1, 1]^2.
_BUDGETS: Final = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0)
PAPER: Final = {
    "minkowski-paper": (10.42, 4.50, 1.78, 0.98, 0.39, 0.14, 0.074),
    "privunit-bhowmick": (8.94, 4.68, 2.25, 1.44, 0.81, 0.32, 0.18),
    "privunitg": (8.73, 4.63, 2.27, 1.51, 0.96, 0.63, 0.53),
    "laplace": (12.97, 6.56, 3.27, 2.13, 1.30, 0.81, 0.64),
    "planar-laplace": (11.17, 5.63, 2.84, 1.88, 1.14, 0.71, 0.56),
    "staircase": (13.19, 6.40, 3.13, 2.01, 1.05, 0.46, 0.28),
    "square-wave": (11.87, 5.72, 2.65, 1.68, 0.92, 0.53, 0.42),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One mechanism with one decoder at one ε.

    Attributes:
        mechanism: a name of the registry, `choose` for the one with the least predicted error,
            or `minkowski-paper` and `privunit-bhowmick` for those by the paper's conventions.
        mean_error: mean l2 distance between value and estimate, in the unit of the domain.
        paper: the paper's figure for it, if it has one.
        exact: whether all computation between value and report is in integers.
        microseconds: time per report, drawn in bulk, snapping included.
    """

    mechanism: str
    decode: Decode
    epsilon: float
    mean_error: float
    paper: float | None
    exact: bool
    microseconds: float


def compare(
    *,
    epsilons: Sequence[float],
    domain: Box | Ball = DOMAINS["square"],
    samples: int = 200_000,
    entropy: Entropy | int = 7,
) -> list[Row]:
    """Return the measured error and time of every mechanism and decode, ours first.

    `entropy` is a source, or a seed, which gives the same errors each time. All mechanisms use one
    seed, which is drawn from it.

    >>> rows = compare(epsilons=[3.0], samples=1000)
    >>> min(rows, key=lambda row: row.mean_error).mechanism in OURS
    True
    """
    if not (isinstance(samples, int) and samples >= 1):
        raise Misuse(f"`samples` must be a whole number, at least 1, got {samples!r}")
    if not epsilons:
        raise Misuse("`epsilons` must list at least one epsilon, such as 1.0")
    seed = source(entropy).seed()
    values = _uniform_values(domain, samples, seed)
    return [
        row
        for epsilon in epsilons
        for name, randomizer, decodes in _contenders(domain, epsilon)
        for row in _measure(name, randomizer, decodes, values, seed)
    ]


def _uniform_values(domain: Box | Ball, samples: int, seed: int) -> Floats:
    d = domain.dimension
    uniforms = seeded(seed).uniforms(samples * (d + 1)).reshape(samples, d + 1)
    return domain.from_unit(unit_ball(domain.p, uniforms))


def _contenders(
    domain: Box | Ball, epsilon: float
) -> Iterator[tuple[str, Randomizer, tuple[Decode, ...]]]:
    """Yield each mechanism with its decoders; ours are tuned for each decoder."""
    from coatcheck.randomizers.baselines import (  # noqa: PLC0415 - loaded to compare only
        BASELINES,
        PrivUnit,
        published_minkowski,
    )

    best = choose(epsilon=epsilon, domain=domain)
    yield "choose", best.randomizer, (best.how,)
    families: list[Any] = [GridResponse] if isinstance(domain, Box) else []
    for family in [*families, BoundedResponse, MinkowskiResponse]:
        for how in tuned(family, domain=domain, epsilon=epsilon).plain_decodes:
            randomizer = tuned(family, domain=domain, epsilon=epsilon, decode=how)
            yield randomizer.name, randomizer, (how,)
    published = published_minkowski(domain=domain, epsilon=epsilon)
    yield "minkowski-paper", published, ("unbiased",)
    for kind in BASELINES:
        randomizer = kind(domain=domain, epsilon=epsilon)
        yield randomizer.name, randomizer, randomizer.plain_decodes
        if kind is PrivUnit and domain.dimension > 1:  # the conditions hold from a plane up
            randomizer = PrivUnit(domain=domain, epsilon=epsilon, conditions="bhowmick")
            yield "privunit-bhowmick", randomizer, randomizer.plain_decodes


def _measure(
    name: str, randomizer: Randomizer, decodes: tuple[Decode, ...], values: Floats, seed: int
) -> Iterator[Row]:
    """Draw once, decode in every way."""
    randomizer.randomize(values[:1], seeded(seed))  # leaves one-time work out of the time
    entropy = seeded(seed + 1)
    start = time.perf_counter()
    reports = randomizer.randomize(values, entropy)
    microseconds = (time.perf_counter() - start) / len(values) * 1e6
    for how in decodes:
        yield Row(
            mechanism=name,
            decode=how,
            epsilon=randomizer.epsilon,
            mean_error=float(
                misses(randomizer.domain, randomizer.estimate(reports, how), values).mean()
            ),
            paper=_paper(name, randomizer, how),
            exact=randomizer.exact,
            microseconds=microseconds,
        )


def _paper(name: str, randomizer: Randomizer, how: Decode) -> float | None:
    if name not in PAPER or how != "unbiased" or randomizer.domain != DOMAINS["square"]:
        return None
    figures = zip(_BUDGETS, PAPER[name], strict=True)
    return next(
        (figure for budget, figure in figures if math.isclose(budget, randomizer.epsilon)), None
    )


Line: TypeAlias = tuple[list[float], list[float]]
"""Positions along the horizontal axis, and the height at each."""

COLORS: Final = {
    "choose": "#000000",
    "grid": "#009E73",
    "bounded": "#0072B2",
    "minkowski": "#D55E00",
    "minkowski-paper": "#D55E00",
    "privunit": "#CC79A7",
    "privunit-bhowmick": "#CC79A7",
    "privunitg": "#8C510A",
    "privhs": "#999999",
    "laplace": "#56B4E9",
    "planar-laplace": "#3B7EA1",
    "staircase": "#E69F00",
    "square-wave": "#B8A800",
}
_STYLES: Final = {"choose": ":", "minkowski-paper": "--", "privunit-bhowmick": "--"}
_MARK: Final[dict[str, Any]] = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 6,
    "markerfacecolor": "white",
}
_KINDS: Final = (".png", ".svg", ".pdf")


def check_file(path: Path) -> Any:
    """Return matplotlib's pyplot; reject an unusable file before the work is done."""
    if path.suffix.lower() not in _KINDS:
        raise Misuse(f"the file of a chart must end in {', '.join(_KINDS)}, got {path.name!r}")
    if not path.parent.is_dir():
        raise Misuse(f"there is no folder {path.parent}; create it, or choose another")
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra
    except ImportError:
        raise Misuse("charts need matplotlib: pip install 'coatcheck[charts]'") from None
    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415 - an extra

    return plt


@contextmanager
def _figure(path: Path, rows: int, size: tuple[float, float], **share: Any) -> Iterator[Any]:
    """Open a figure of two columns, and write it to a file at the end."""
    plt = check_file(path)
    with plt.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure, panels = plt.subplots(rows, 2, figsize=size, squeeze=False, **share)
        try:
            yield figure, panels
            figure.savefig(path, dpi=160)
        except OSError as error:
            raise Misuse(f"cannot write {path}: {error.strerror or error}") from error
        finally:
            plt.close(figure)


def draw_errors(rows: list[Row], path: Path) -> None:
    """Draw mean error against ε, on logarithmic axes: unbiased on the left, least on the right.

    Open circles are the paper's figures.
    """
    unbiased = [row for row in rows if row.decode == "unbiased" and row.mechanism in COLORS]
    # Sorted so that the least error of a mechanism and ε comes last and replaces the others.
    least = {(r.mechanism, r.epsilon): r for r in sorted(rows, key=lambda r: -r.mean_error)}
    with _figure(path, 1, (11, 6), sharex=True, sharey=True) as (figure, ((left, right),)):
        for axes, shown, title in (
            (left, unbiased, "Decoded without bias, as in the paper"),
            (right, least.values(), "Each mechanism, decoded with the least error"),
        ):
            ordered = sorted(shown, key=lambda row: row.epsilon)
            lines: Curves = {name: [] for name in COLORS}
            for row in ordered:
                lines[row.mechanism].append((row.epsilon, row.mean_error))
            _panel(axes, lines, title)
            for row in ordered:
                if row.paper is not None:
                    color = COLORS[row.mechanism]
                    axes.plot(
                        row.epsilon, row.paper, color=color, label="the paper's figure", **_MARK
                    )
            axes.set_xlabel("ε of one report")
        left.set_ylabel("mean l2 error of one report")
        handles, labels = right.get_legend_handles_labels()
        named = dict(zip(labels, handles, strict=True))
        figure.legend(named.values(), named.keys(), loc="lower center", ncols=5, frameon=False)
        figure.tight_layout(rect=(0, 0.15, 1, 1), w_pad=3)


def draw_plan(plan: Plan, path: Path) -> None:
    """Draw, for each group of a plan, the error against the crowd and against the promised ε.

    A dot marks what the plan recommends.
    """
    goal = plan.goal
    if goal == "task":
        raise Misuse(
            "a plan for goal 'task' is scored at one crowd and one ε, so it has no curve to draw;"
            " plan with another goal"
        )
    rows = len(plan.groups)
    with _figure(path, rows, (11, 0.8 + 4.2 * rows), sharey="row") as (figure, grid):
        for group, (left, right) in zip(plan.groups, grid, strict=True):
            promised, domain = group.promise, group.group.domain
            title = f"{group.name}: {group.best.randomizer.name} has the least error"
            _panel(left, against_crowd(promised, domain=domain, goal=goal), title)
            _panel(right, against_epsilon(promised, domain=domain, goal=goal), "")
            for axes, x in ((left, promised.crowd), (right, promised.epsilon)):
                axes.plot(x, group.best.error, "ko", label="this plan", zorder=5)
            left.set_ylabel(unit_text(domain, goal))
            left.set_xlabel(f"people in the least crowd, at ε = {promised.epsilon:g}")
            right.set_xlabel(f"promised ε, with {promised.crowd:,} people")
            right.legend(frameon=False)
        figure.tight_layout(w_pad=3)


def draw_curve(
    upper: Line, lower: list[float] | None, renyi: Line, path: Path, *, title: str
) -> None:
    """Draw δ against ε, with the lower bound if given, and beside it the Rényi curve."""
    with _figure(path, 1, (11, 4.6)) as (figure, ((left, right),)):
        left.plot(*upper, color=COLORS["bounded"], linewidth=2, label="at most")
        if lower is not None:
            left.plot(upper[0], lower, "--", color=COLORS["minkowski"], label="attained")
        left.set_yscale("log")
        left.set_ylim(bottom=max(1e-16, upper[1][-1] / 3))
        left.set_xlabel("ε")
        left.set_ylabel("δ")
        left.legend(frameon=False)
        right.plot(*renyi, color=COLORS["grid"], linewidth=2, marker="o")
        right.loglog()
        right.set_xticks(renyi[0], [f"{order:g}" for order in renyi[0]])
        right.set_xticks([], minor=True)
        right.set_xlabel("order")
        right.set_ylabel("Rényi divergence, at most")
        _ruled(left, title)
        _ruled(right, "")
        figure.tight_layout(w_pad=3)


def _panel(axes: "Axes", lines: Curves, title: str) -> None:
    """Draw one line per mechanism on logarithmic axes, the first one on top."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: PLC0415 - extra

    for depth, (name, line) in enumerate(lines.items()):
        if line:
            axes.plot(
                *zip(*line, strict=True),
                color=COLORS.get(name),
                linestyle=_STYLES.get(name, "-"),
                linewidth=2.6 if name in OURS else 1.4,
                marker="o" if len(line) == 1 else None,
                label=name,
                zorder=3 - depth / 100,
            )
    axes.loglog()
    _ruled(axes, title)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axis.set_minor_formatter(NullFormatter())


def _ruled(axes: "Axes", title: str) -> None:
    """Set a title, and draw thin lines behind the curves."""
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(visible=True, which="major", color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
