"""Pictures: error against ε, with the paper's figures as marks.

Needs the extra `charts` (matplotlib), which is loaded only when something is drawn. Colors are
those of Okabe and Ito (2008), told apart by color-blind readers; a mechanism keeps its color in
every picture.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from coatcheck.errors import Misuse
from coatcheck.planning import Plan
from coatcheck.planning.comparison import OURS, Row
from coatcheck.planning.search import against_crowd, against_epsilon
from coatcheck.planning.words import told_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
_DASHED: Final = ("minkowski-paper", "privunit-bhowmick")
_MARK: Final[dict[str, Any]] = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 6,
    "markerfacecolor": "white",
}
_KINDS: Final = (".png", ".svg", ".pdf")


def check_file(path: Path) -> None:
    """Say what is wrong with a file to draw into, before the work is done."""
    if path.suffix.lower() not in _KINDS:
        raise Misuse(f"a picture's file ends in {' | '.join(_KINDS)}, got {path.name!r}")
    if not path.parent.is_dir():
        raise Misuse(f"there is no folder {path.parent} to draw into")
    _pyplot()


def _pyplot() -> Any:
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
    check_file(path)
    plt = _pyplot()
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
    with _figure(path, 1, (11, 6), sharex=True, sharey=True) as (figure, ((left, right),)):
        _panel(left, [row for row in rows if row.decode == "unbiased" and row.mechanism in COLORS])
        left.set_title("Read without bias, as in the paper", loc="left", fontsize=11)
        _panel(right, _least(rows))
        right.set_title("Each mechanism, read with the least error", loc="left", fontsize=11)
        left.set_ylabel("mean l2 error of one report")
        handles = _legend(left, right)
        figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=5, frameon=False)
        figure.tight_layout(rect=(0, 0.15, 1, 1), w_pad=3)


def _least(rows: list[Row]) -> list[Row]:
    """Return for each mechanism and budget the reading with the least error."""
    best: dict[tuple[str, float], Row] = {}
    for row in rows:
        key = (row.mechanism, row.epsilon)
        if key not in best or row.mean_error < best[key].mean_error:
            best[key] = row
    return list(best.values())


def _panel(axes: "Axes", rows: list[Row]) -> None:
    by_name: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.epsilon):
        by_name.setdefault(row.mechanism, []).append(row)
    for name in reversed([name for name in COLORS if name in by_name]):
        line = by_name[name]
        mine = name in OURS
        axes.plot(
            [row.epsilon for row in line],
            [row.mean_error for row in line],
            color=COLORS[name],
            linestyle=_style(name),
            linewidth=2.6 if mine else 1.4,
            marker="o" if len(line) == 1 else None,
            label=name,
        )
        marked = {row.epsilon: row.paper for row in line if row.paper is not None}
        axes.plot(list(marked), list(marked.values()), color=COLORS[name], **_MARK)
    _axes(axes, sorted({row.epsilon for row in rows}))


def _style(name: str) -> Any:
    if name == "choose":
        return (0, (1, 1.5))
    return "--" if name in _DASHED else "-"


def _axes(axes: "Axes", budgets: list[float]) -> None:
    from matplotlib.ticker import FuncFormatter, NullLocator  # noqa: PLC0415 - an extra

    axes.loglog()
    axes.set_xticks(budgets, [f"{budget:g}" for budget in budgets])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axes.set_xlabel("ε of one report")
    _ruled(axes)


def _ruled(axes: "Axes") -> None:
    axes.grid(visible=True, which="major", color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)


def _legend(*panels: "Axes") -> dict[str, Any]:
    """Return one handle per label over all panels, in the order of `COLORS`, the paper's last."""
    from matplotlib.lines import Line2D  # noqa: PLC0415 - an extra

    found: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            found.setdefault(label, handle)
    ordered = {name: found[name] for name in COLORS if name in found}
    return {**ordered, "the paper's figure": Line2D([], [], color="#555555", **_MARK)}


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
            by_crowd = against_crowd(promised, domain=domain, goal=goal)
            by_epsilon = against_epsilon(promised, domain=domain, goal=goal)
            _plan_panel(left, by_crowd, (promised.crowd, group.best.error))
            _plan_panel(right, by_epsilon, (promised.epsilon, group.best.error))
            left.set_ylabel(told_unit(domain, goal))
            left.set_xlabel(f"people in the least crowd, at ε = {promised.epsilon:g}")
            right.set_xlabel(f"promised ε, with {promised.crowd:,} people")
            title = f"{group.name}: {group.best.randomizer.name} has the least error"
            left.set_title(title, loc="left", fontsize=11)
            right.legend(frameon=False)
        figure.tight_layout(w_pad=3)


def draw_curve(
    upper: list[tuple[float, float]],
    lower: list[float] | None,
    by_order: list[tuple[float, float]],
    path: Path,
    *,
    title: str,
) -> None:
    """Draw δ against ε, with what a data set attains, and beside it the Rényi curve."""
    with _figure(path, 1, (11, 4.6)) as (figure, ((left, right),)):
        at = [epsilon for epsilon, _ in upper]
        left.plot(*zip(*upper, strict=True), color=COLORS["bounded"], linewidth=2, label="at most")
        if lower is not None:
            color = COLORS["minkowski"]
            left.plot(at, lower, color=color, linewidth=1.4, linestyle="--", label="attained")
        left.set_yscale("log")
        left.set_ylim(bottom=max(1e-16, upper[-1][1] / 3))
        left.set_xlabel("ε")
        left.set_ylabel("δ")
        left.set_title(title, loc="left", fontsize=11)
        left.legend(frameon=False)
        right.plot(*zip(*by_order, strict=True), color=COLORS["grid"], linewidth=2, marker="o")
        right.loglog()
        orders = [order for order, _ in by_order]
        right.set_xticks(orders, [f"{order:g}" for order in orders])
        right.set_xticks([], minor=True)
        right.set_xlabel("order")
        right.set_ylabel("Rényi divergence, at most")
        for axes in (left, right):
            _ruled(axes)
        figure.tight_layout(w_pad=3)


def _plan_panel(
    axes: "Axes", lines: dict[str, list[tuple[float, float]]], dot: tuple[float, float]
) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: PLC0415 - extra

    for name, line in lines.items():
        axes.plot(*zip(*line, strict=True), color=COLORS.get(name), linewidth=2, label=name)
    axes.plot(*dot, color="black", marker="o", linestyle="none", label="this plan", zorder=5)
    axes.loglog()
    for axis, marks in ((axes.xaxis, (1.0, 3.0)), (axes.yaxis, (1.0, 2.0, 5.0))):
        axis.set_major_locator(LogLocator(base=10, subs=marks))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axis.set_minor_formatter(NullFormatter())
    _ruled(axes)
