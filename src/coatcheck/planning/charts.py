"""Pictures: error against ε, with the paper's figures as marks.

Needs the extra `charts` (matplotlib), which is loaded only when something is drawn. Colors are
those of Okabe and Ito (2008), told apart by color-blind readers; a mechanism keeps its color in
every picture.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from coatcheck.errors import Misuse
from coatcheck.planning import Plan
from coatcheck.planning.comparison import OURS, Row
from coatcheck.planning.search import Curves, against_crowd, against_epsilon
from coatcheck.planning.words import told_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Line: TypeAlias = tuple[list[float], list[float]]
"""The places along an axis, and the height at each."""

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
    """Return matplotlib's pyplot, or say what is wrong with a file before the work is done."""
    if path.suffix.lower() not in _KINDS:
        raise Misuse(f"a picture's file ends in {' | '.join(_KINDS)}, got {path.name!r}")
    if not path.parent.is_dir():
        raise Misuse(f"there is no folder {path.parent} to draw into")
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra
    except ImportError:
        raise Misuse("pictures need matplotlib: pip install 'coatcheck[charts]'") from None
    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415 - an extra

    return plt


@contextmanager
def _figure(path: Path, rows: int, size: tuple[float, float], **share: Any) -> Iterator[Any]:
    """Open a figure of two columns, and write it into a file when it is done."""
    plt = check_file(path)
    with plt.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure, panels = plt.subplots(rows, 2, figsize=size, squeeze=False, **share)
        try:
            yield figure, panels
            figure.savefig(path, dpi=160)
        except OSError as error:
            raise Misuse(f"cannot draw into {path}: {error.strerror or error}") from error
        finally:
            plt.close(figure)


def draw_errors(rows: list[Row], path: Path) -> None:
    """Draw mean error against ε, on logarithmic axes: unbiased on the left, least on the right.

    Open circles are the paper's figures.
    """
    unbiased = [row for row in rows if row.decode == "unbiased" and row.mechanism in COLORS]
    # The least comes last, and a later row of the same mechanism and ε replaces an earlier one.
    least = {(r.mechanism, r.epsilon): r for r in sorted(rows, key=lambda r: -r.mean_error)}
    with _figure(path, 1, (11, 6), sharex=True, sharey=True) as (figure, ((left, right),)):
        for axes, shown, title in (
            (left, unbiased, "Read without bias, as in the paper"),
            (right, least.values(), "Each mechanism, read with the least error"),
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
        raise Misuse("a plan for a task was scored at one crowd and one ε: there is no curve")
    rows = len(plan.groups)
    with _figure(path, rows, (11, 0.8 + 4.2 * rows), sharey="row") as (figure, grid):
        for group, (left, right) in zip(plan.groups, grid, strict=True):
            promised, domain = group.promise, group.group.domain
            title = f"{group.name}: {group.best.randomizer.name} has the least error"
            _panel(left, against_crowd(promised, domain=domain, goal=goal), title)
            _panel(right, against_epsilon(promised, domain=domain, goal=goal), "")
            for axes, x in ((left, promised.crowd), (right, promised.epsilon)):
                axes.plot(x, group.best.error, "ko", label="this plan", zorder=5)
            left.set_ylabel(told_unit(domain, goal))
            left.set_xlabel(f"people in the least crowd, at ε = {promised.epsilon:g}")
            right.set_xlabel(f"promised ε, with {promised.crowd:,} people")
            right.legend(frameon=False)
        figure.tight_layout(w_pad=3)


def draw_curve(
    upper: Line, lower: list[float] | None, renyi: Line, path: Path, *, title: str
) -> None:
    """Draw δ against ε, with what a data set attains, and beside it the Rényi curve."""
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
    """Give a title, and thin lines behind the curves."""
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(visible=True, which="major", color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
