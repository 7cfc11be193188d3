"""The items of the paper's evaluation: the sheet, the findings, the table and the view of each."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from study import (
    claims,
    federated,
    incentives,
    learning,
    lessons,
    lists,
    locations,
    matchings,
    places,
    rewards,
    rounds,
    steps,
    tables,
    timing,
)
from study.findings import Finding, expected, number, only
from study.sheets import Row, Sheet, cells, missing, rows

LOCAL: Final = "ε of one report"
GLOBAL: Final = "$ε_c$, the promise of the crowd"
_SC: Final = {
    "distance": ("best",),
    "cost": ("expected", "best"),
    "success": ("task", "expected", "best"),
}


@dataclass(frozen=True)
class View:
    """The view of a sheet in a figure: one panel for each combination of the `split` columns."""

    measure: str
    label: str
    log: bool
    models: tuple[str, ...]
    split: tuple[str, ...]
    fixed: dict[str, float] = field(default_factory=dict)
    ours: tuple[str, ...] = ("best",)


@dataclass(frozen=True)
class Item:
    """A table or a figure of the paper.

    Attributes:
        name: its name on the command line.
        kind: table or figure.
        title: its caption.
        findings: compares the paper's statements with the rows of the sheet.
        table: writes out the rows.
        view: how a figure is drawn.
    """

    name: str
    kind: str
    title: str
    sheet: Sheet
    findings: Callable[[list[Row]], list[Finding]]
    table: Callable[[list[Row]], list[str]] | None = None
    view: View | None = None


def _sc(name: str, title: str, measure: str, label: str, *, log: bool) -> Item:
    readers = {"distance": claims.sc_distance, "cost": claims.sc_cost, "success": claims.sc_success}
    view = View(measure, label, log, ("local", "pic"), ("model", "dataset"), ours=_SC[measure])
    return Item(name, "figure", title, matchings.CROWDSOURCING, readers[measure], view=view)


def _lbs(name: str, title: str, measure: str, model: str, radius: float) -> Item:
    findings: Callable[[list[Row]], list[Finding]]
    if measure == "distance":
        findings = (
            claims.lbs_distance_local
            if model == "local"
            else partial(claims.lbs_distance_shuffle, radius=radius, item=name)
        )
    else:
        one = claims.lbs_f1_local if model == "local" else claims.lbs_f1_shuffle
        findings = partial(one, radius=radius, item=name)
    models = ("local",) if model == "local" else ("pic", "honest")
    label = "mean l2 error of a report" if measure == "distance" else "F1 of the neighbours"
    ours = ("task", "best") if (measure, model) == ("f1", "pic") else ("best",)
    split, fixed = ("dataset", "size"), {"radius": radius}
    view = View(measure, label, measure == "distance", models, split, fixed, ours)
    return Item(name, "figure", title, locations.SOCIAL, findings, view=view)


ITEMS: Final = (
    Item(
        "errortime",
        "table",
        "errors and times of one report on [-1, 1]²",
        timing.ERRORTIME,
        tables.errortime,
        tables.errortime_table,
        view=View(
            "error", "mean l2 error of a report", log=True, models=("local",), split=("samples",)
        ),
    ),
    Item(
        "timecomm",
        "table",
        "time and bytes of every step of a round",
        rounds.SHEET,
        tables.timecomm,
        tables.timecomm_table,
    ),
    _sc(
        "sc-distance",
        "crowdsourcing: errors of single reports",
        "distance",
        "mean l2 error of a report",
        log=True,
    ),
    _sc(
        "sc-cost",
        "crowdsourcing: travel costs of the least-cost matching",
        "cost",
        "travel cost",
        log=False,
    ),
    _sc(
        "sc-success",
        "crowdsourcing: success ratio of the maximum matching",
        "success",
        "matched within the radius",
        log=False,
    ),
    Item(
        "sc-clustered",
        "table",
        "crowdsourcing on places that cluster",
        matchings.CLUSTERED,
        places.clustered,
        places.clustered_table,
        view=View(
            "cost", "travel cost", log=False, models=("pic",), split=("dataset",), ours=_SC["cost"]
        ),
    ),
    Item(
        "sc-steps",
        "table",
        "crowdsourcing: from the paper's mechanism to ours, step by step",
        steps.SHEET,
        places.steps,
        places.steps_table,
    ),
    _lbs("lbs-distance-local", "check-ins: errors, local model", "distance", "local", 0.2),
    _lbs("lbs-distance-shuffle", "check-ins: errors, PIC, τ = 0.2", "distance", "pic", 0.2),
    _lbs("lbs-f1-local", "check-ins: F1, local model, τ = 0.2", "f1", "local", 0.2),
    _lbs("lbs-f1-shuffle", "check-ins: F1, PIC, τ = 0.2", "f1", "pic", 0.2),
    _lbs("lbs-f1-local-01", "check-ins: F1, local model, τ = 0.1", "f1", "local", 0.1),
    _lbs("lbs-distance-shuffle-01", "check-ins: errors, PIC, τ = 0.1", "distance", "pic", 0.1),
    _lbs("lbs-f1-shuffle-01", "check-ins: F1, PIC, τ = 0.1", "f1", "pic", 0.1),
    Item(
        "lbs-f1-reading",
        "table",
        "check-ins: a reading under which the printed F1 scores come out",
        locations.READING,
        claims.lbs_f1_reading,
        claims.lbs_f1_reading_table,
    ),
    Item(
        "lbs-lists",
        "figure",
        "check-ins: lists as they are given out, at most 16 each",
        lists.SHEET,
        places.lists,
        places.lists_table,
        view=View("f1", "F1 of the lists", log=False, models=("pic",), split=("dataset", "radius")),
    ),
    *(
        Item(
            f"flincentive{budget}",
            "table",
            f"federated learning with incentives, ε_c = {budget}",
            federated.SHEET,
            partial(incentives.flincentive, budget=budget),
            partial(incentives.flincentive_table, budget=budget),
        )
        for budget in (1, 3)
    ),
    *(
        Item(
            f"learning-{part}",
            "table",
            title,
            learning.SHEET,
            getattr(lessons, part),
            partial(lessons.part_tables, part=part),
        )
        for part, title in (
            ("network", "learning: the paper's network by whole gradients, MNIST, 80 rounds"),
            ("linear", "learning: fixed features and a linear model, MNIST, 80 rounds"),
            ("law", "learning: real reports beside noise of their stated variance"),
            ("ablations", "learning: what each idea brings"),
        )
    ),
    Item(
        "learning-rewards",
        "table",
        "learning: how rewards follow the true Shapley values",
        rewards.SHEET,
        lessons.rewards,
        lessons.rewards_table,
    ),
    Item(
        "exact-f1",
        "table",
        "exact F1 of all check-ins: pairs, time and memory",
        timing.SCALE,
        tables.exact_f1,
        tables.exact_f1_table,
    ),
    Item(
        "mpec", "table", "costs of a round, computed", timing.MPEC, tables.mpec, tables.mpec_table
    ),
)


def listed() -> list[str]:
    """Return the list of items, with the number of rows of each that are on file."""
    lines = []
    for item in ITEMS:
        every = len(cells(item.sheet, quick=False))
        on_file = every - len(missing(item.sheet, quick=False))
        lines.append(f"{item.kind:<6} {item.name:<24} {on_file:>4} of {every:<4} {item.title}")
    return lines


def shown(item: Item, *, quick: bool) -> list[str]:
    """Return an item as lines for a terminal."""
    measured = rows(item.sheet, quick=quick)
    if not measured:
        return [f"{item.name}: nothing on file yet"]
    lines = [f"== {item.name}: {item.title} ({expected(item.name)['where']})"]
    for finding in item.findings(measured):
        lines += [f"{finding.what} [{finding.verdict or 'no number to compare'}]"]
        for who, text in (
            ("paper", finding.paper),
            ("ours", finding.ours),
            ("best", finding.best),
            ("why", finding.reason),
        ):
            lines += [f"    {who:<6}{text}"] if text else []
    return lines + (item.table(measured) if item.table else [])


def draw(item: Item, *, quick: bool, folder: Path) -> None:
    """Draw a figure from the rows on file."""
    from study import figures  # noqa: PLC0415 - matplotlib only where something is drawn

    every, view = rows(item.sheet, quick=quick), item.view
    if view is None or not every:
        return
    every = [{"model": "local", **row} for row in only(every, **view.fixed)]
    panels: dict[tuple[object, ...], list[Row]] = {}
    for row in every:
        if row["model"] not in view.models:
            continue
        panels.setdefault(tuple(_half(row, name) for name in view.split), []).append(row)
    drawn = [
        figures.Panel(
            ", ".join(map(str, key)),
            panel_rows,
            LOCAL if panel_rows[0]["model"] == "local" else GLOBAL,
            _level(every, panel_rows[0], view.measure, "blind"),
            _level(every, panel_rows[0], view.measure, "clear"),
            tables.printed_errors() if item.name == "errortime" else {},
            view.ours,
        )
        for key, panel_rows in panels.items()
    ]
    figures.draw(item.name, drawn, view.measure, label=view.label, log=view.log, folder=folder)


def _level(every: list[Row], row: Row, measure: str, name: str) -> float | None:
    """Return the level without any report, or with true places, where it is known."""
    if "samples" in row:  # one report on the square: the mean distance to its middle
        return (math.sqrt(2) + math.asinh(1)) / 3 if name == "blind" else None
    same = {name: row[name] for name in ("dataset", "size", "radius") if name in row}
    rows = only(every, mechanism=name, **same)
    level = number(rows[0], measure) if rows else None
    return None if level == 0 else level  # a log scale has no 0


def _half(row: Row, name: str) -> object:
    if name == "samples":
        return f"values uniform on the square, {row['samples']:,} a point"
    if name == "model":
        return {"local": "LDP", "pic": "PIC"}[str(row["model"])]
    if name == "radius":
        return f"τ = {row['radius']}"
    if name == "size":
        return "all check-ins" if row["size"] == 0 else f"{row['size']:,} check-ins"
    return row[name]
