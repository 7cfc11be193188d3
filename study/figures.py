"""Figures as pictures: one color and mark per mechanism in all panels, the paper's claim below.

Colors are those of `coatcheck.planning.comparison`. Bars are two standard errors over seeds, where
several seeds were drawn; most are smaller than the marks. Needs matplotlib (extra `charts`).
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl

from coatcheck.planning.comparison import COLORS
from study.conventions import MECHANISMS
from study.findings import expected, number, only
from study.sheets import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

_OURS: Final = {"best": COLORS["choose"], "task": "#1B7F3B", "expected": "#7A3E9D"}
_LABELS: Final = {
    "minkowski-paper": "Minkowski (the paper's)",
    "privunit-bhowmick": "PrivUnit",
    "privunitg": "PrivUnitG",
    "laplace": "Laplace",
    "planar-laplace": "planar Laplace",
    "staircase": "staircase",
    "square-wave": "square wave",
    "best": "ours, planned for the mean error",
    "task": "ours, planned for this score",
    "expected": "ours, matched by expected cost",
    "honest": "ours, honest exposure",
}
_MARKS: Final = {
    "minkowski-paper": "s",
    "privunit-bhowmick": "^",
    "privunitg": "v",
    "laplace": "o",
    "planar-laplace": "D",
    "staircase": "P",
    "square-wave": "X",
    "best": "o",
    "task": "*",
    "expected": "d",
    "honest": "o",
}
_NOBODY: Final = "no reports: everybody in the middle"
_TRUE: Final = "true places, no privacy"
_PRINTED: Final = "the paper's figure"
_OPEN: Final[dict[str, Any]] = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 9,
    "markerfacecolor": "none",
    "zorder": 5,
    "label": _PRINTED,
}
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "svg.hashsalt": "coatcheck",
}


@dataclass(frozen=True)
class Panel:
    """One set of axes.

    Attributes:
        budget: the label of the horizontal axis.
        level: the result without any report, where that was measured.
        truth: the result with true places, where that was measured.
        marks: the paper's printed figures, by mechanism.
        ours: our lines, the main one first.
    """

    title: str
    rows: list[Row]
    budget: str
    level: float | None = None
    truth: float | None = None
    marks: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    ours: tuple[str, ...] = ("best",)


def draw(
    item: str, panels: Sequence[Panel], measure: str, *, label: str, log: bool, folder: Path
) -> None:
    """Draw panels of a measure against the budget into a PNG and an SVG file."""
    panels = [panel for panel in panels if panel.rows]
    if not panels:
        return
    columns = 2 if len(panels) > 1 else 1
    lines = -(-len(panels) // columns)
    with plt.rc_context(_STYLE):
        figure, grid = plt.subplots(
            lines, columns, figsize=(10.5, 3.5 * lines + 1.9), squeeze=False, sharey="row"
        )
        for axes, panel in zip(grid.flat, panels, strict=False):
            _panel(axes, panel, measure, log=log)
        for row in grid:
            row[0].set_ylabel(label)
            if not log:
                row[0].set_ylim(0, 1.06 * max(axes.dataLim.y1 for axes in row))
        _finish(figure, _caption(item), folder / item)


def _caption(item: str) -> str:
    paper = expected(item)
    words = "; ".join(f"“{claim}”" for claim in paper["claims"].values())
    if not words:
        return f"{paper['where']}."
    scores = ", ".join(f"{text} at ε_c = {b}" for b, text in paper.get("printed", {}).items())
    return f"The paper's text: {words}." + (f" F1 with all check-ins: {scores}." if scores else "")


def _panel(axes: "Axes", panel: Panel, measure: str, *, log: bool) -> None:
    axes.set_title(panel.title)
    budgets = sorted({number(row, "epsilon") for row in panel.rows})
    ours = [name for name in panel.ours if only(panel.rows, mechanism=name)]
    for name in (*MECHANISMS, *reversed(ours)):
        color = _OURS[name] if name in _OURS else COLORS[name]
        _line(axes, only(panel.rows, mechanism=name), measure, name, color)
    honest = only(panel.rows, mechanism=ours[0], model="honest") if ours else []
    if honest:
        again = [{**row, "model": "pic"} for row in honest]
        _line(axes, again, measure, "honest", _OURS[ours[0]])
    for name, marks in panel.marks.items():
        axes.plot(*zip(*marks, strict=True), color=COLORS[name], **_OPEN)
    if panel.level is not None:
        axes.axhline(panel.level, color="#777777", linestyle="--", linewidth=1.2, label=_NOBODY)
    if panel.truth is not None:
        axes.axhline(panel.truth, color="#777777", linestyle="-.", linewidth=1.2, label=_TRUE)
    axes.set_xscale("log")
    axes.set_xticks(budgets, [f"{budget:g}" for budget in budgets])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(panel.budget)
    axes.grid(visible=True, color="#E4E4E4", linewidth=0.8)
    axes.set_axisbelow(True)
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())


def _line(axes: "Axes", rows: list[Row], measure: str, name: str, color: str) -> None:
    shown = [row for row in rows if row["model"] != "honest"]
    if not shown:
        return
    shown.sort(key=lambda row: number(row, "epsilon"))
    bold = name in {*_OURS, "minkowski-paper"}
    axes.errorbar(
        [number(row, "epsilon") for row in shown],
        [number(row, measure) for row in shown],
        yerr=[2 * number(row, f"{measure}_se") for row in shown],
        color=color,
        linestyle=":" if name == "honest" else "-",
        linewidth=2.4 if bold else 1.3,
        marker=_MARKS[name],
        markersize=8 if name == "task" else 5.5 if bold else 4.5,
        markerfacecolor="white" if name == "honest" else None,
        capsize=2,
        zorder=4 if bold else 3,
        label=_LABELS[name],
    )


def _finish(figure: "Figure", caption: str, path: Path) -> None:
    handles: dict[str, Any] = {}
    for one in figure.axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    for last in (_PRINTED, _NOBODY, _TRUE):
        if last in handles:
            handles[last] = handles.pop(last)
    height = figure.get_size_inches()[1]
    below = textwrap.fill(caption, 150).replace("ε_c", "$ε_c$")
    lines = below.count("\n") + 1
    room = (0.75 + 0.19 * lines) / height
    figure.legend(
        handles.values(),
        handles.keys(),
        ncols=4,  # five of the longest labels are wider than the page
        frameon=False,
        fontsize=9,
        loc="lower center",
        bbox_to_anchor=(0.5, (0.12 + 0.19 * lines) / height),
    )
    figure.text(0.02, 0.1 / height, below, fontsize=9, color="#444444", va="bottom", style="italic")
    figure.tight_layout(rect=(0, room, 1, 1), w_pad=2)
    figure.savefig(path.with_suffix(".png"), dpi=115)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    plt.close(figure)
