"""Tables flincentive1 and flincentive3, compared with the sheet and written out beside ours."""

import math
from statistics import fmean, stdev
from typing import Any, Final

from study.conventions import IMPLIED
from study.federated import ROUNDS
from study.findings import BETTER, NO, PARTLY, YES, Finding, expected, graded, number, only
from study.sheets import Row
from study.tables import markdown

_MODELS: Final = (
    *("none", "local", "pic", "sound", "read", "secret", "projected", "blind", "best"),
)
_NAMES: Final = ("laplace", "minkowski", "privunit", "staircase", "square-wave", "privhs")
_POOR: Final = ("staircase", "square-wave", "minkowski")
_COLUMNS: Final = {
    "accuracy": "accuracy, %",
    "gradient_error": "gradient error",
    "shapley_scaled": "Shapley error by range",
    "shapley_raw": "Shapley error",
    "shapley_correlation": "correlation",
}
_SEEDS: Final = (
    "accuracy moves by several points from seed to seed; start and order are not printed"
)
WITHIN: Final = "no worse, within the seeds"
_FITTED: Final = "the local ε was fitted to the printed error, so that only accuracy can tell"
_IMPLIED: Final = "the printed error implies another local budget than the row can have"
_SOUND: Final = "a sound account leaves a smaller local budget than the printed row used"


def _runs(rows: list[Row], column: str, **wanted: object) -> list[float]:
    return [number(row, column) for row in only(rows, **wanted)]


def _doubt(values: list[float]) -> float:
    """Return two standard errors over seeds; infinite with one seed."""
    return 2 * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def _mean_text(values: list[float], scale: float = 1.0) -> str:
    """Write a mean and the standard deviation over seeds."""
    if not values:
        return "not run"
    text = f"{scale * fmean(values):.3g}"
    return text + (f" ± {scale * stdev(values):.2g}" if len(values) > 1 else "")


def flincentive(rows: list[Row], *, budget: int) -> list[Finding]:
    """Gradient error and accuracy of the reproducible rows, the order of all, and ours."""
    paper = expected(f"flincentive{budget}")
    if any(row["rounds"] != ROUNDS for row in rows):
        what = f"only {rows[0]['rounds']} of {ROUNDS} rounds"
        return [Finding(what, "", "", "", "", "a quick run shows that it works, not how well")]
    findings = [_reproduced(rows, paper, budget, name) for name in paper["reproducible"]]
    return [
        *(one for one in findings if one),
        *_orders(rows, paper["claims"], budget),
        *_best(rows, paper, budget),
    ]


def _reproduced(rows: list[Row], paper: dict[str, Any], budget: int, name: str) -> Finding | None:
    settings = {"budget": budget, "model": "pic", "mechanism": name}
    accuracy, error = (_runs(rows, column, **settings) for column in ("accuracy", "gradient_error"))
    if not accuracy:
        return None
    points, printed, _ = paper["rows"]["pic"][name]
    near = abs(fmean(error) / printed - 1) <= paper["tolerance"]["gradient_error"]
    close = abs(100 * fmean(accuracy) - points) <= paper["tolerance"]["accuracy_points"]
    epsilon = _runs(rows, "local_epsilon", **settings)[0]
    seeds = f"{len(accuracy)} seeds, local ε {epsilon:.3g}"
    return Finding(
        f"PIC, {name}",
        f"gradient error {printed}, accuracy {points} %",
        f"{_mean_text(error)}, {_mean_text(accuracy, 100)} % ({seeds})",
        "",
        YES if near and close else PARTLY if near or close else NO,
        _why(near=near, close=close, fitted=(name, budget) in IMPLIED),
    )


def _why(*, near: bool, close: bool, fitted: bool) -> str:
    reasons = [_FITTED] if fitted else []
    reasons += [] if near and close else [_SEEDS] if near else [_IMPLIED]
    return "; ".join(reasons)


def _orders(rows: list[Row], claims: dict[str, str], budget: int) -> list[Finding]:
    """Compare the order of the mechanisms, and of the two models, with the text."""
    means = {
        (model, name): {column: fmean(_runs(measured, column)) for column in _COLUMNS}
        for model in ("local", "pic")
        for name in _NAMES
        if (measured := only(rows, budget=budget, model=model, mechanism=name))
    }
    if len(means) < 2 * len(_NAMES):
        return []
    columns = {"accuracy": 1, "gradient_error": -1, "shapley_raw": -1}
    firsts = []
    for c, sign in columns.items():
        values = {name: sign * means["pic", name][c] for name in _NAMES}
        firsts.append(max(values, key=values.__getitem__))
    not_so = [
        f"{name}: {_COLUMNS[c]} {means['pic', name][c]:.3g} in the crowd, "
        f"{means['local', name][c]:.3g} alone"
        for name in _NAMES
        for c, sign in columns.items()
        if sign * (means["pic", name][c] - means["local", name][c]) <= 0
    ]
    every = len(_NAMES) * len(columns)
    poor = max(means["local", name]["gradient_error"] for name in ("laplace", "privunit", "privhs"))
    poorer = [means["local", n]["gradient_error"] > poor for n in _POOR]
    best = sum(name == "minkowski" for name in firsts)
    first_places = ", ".join(f"{name} in {c}" for c, name in zip(columns, firsts, strict=True))
    return [
        Finding(
            "PIC: order", claims["order"], f"first: {first_places}", "", graded(best, len(firsts))
        ),
        Finding(
            "PIC beside LDP",
            claims["gain"],
            f"in {every - len(not_so)} of {every} mechanisms and measures",
            "",
            graded(every - len(not_so), every),
            "; ".join(not_so),
        ),
        Finding(
            "LDP: order",
            claims["local"],
            f"larger gradient error in {sum(poorer)} of 3",
            "",
            graded(sum(poorer), 3),
            "Minkowski's radius is the one that fits the printed row",
        ),
    ]


def _best(rows: list[Row], paper: dict[str, Any], budget: int) -> list[Finding]:
    """Compare ours with the printed Minkowski row, under a sound account of the same promise."""
    settings = {"budget": budget, "model": "best", "mechanism": "minkowski"}
    accuracy, error, shapley = (
        _runs(rows, column, **settings)
        for column in ("accuracy", "gradient_error", "shapley_scaled")
    )
    if not accuracy:
        return []
    points, printed, rewards = paper["rows"]["pic"]["minkowski"]
    row = {"budget": budget, "model": "pic", "mechanism": "minkowski"}
    theirs = {column: _runs(rows, column, **row) for column in _COLUMNS}
    blind = _runs(rows, "gradient_error", budget=budget, model="blind")
    epsilon = _runs(rows, "local_epsilon", **settings)[0]
    return [
        Finding(
            "ours: gradient error",
            f"{printed} (Minkowski)",
            f"{_mean_text(theirs['gradient_error'])}; {_mean_text(blind)} without any report",
            f"{_mean_text(error)} ({len(error)} seeds, local ε {epsilon:.3g})",
            _compared(error, printed, theirs["gradient_error"], higher=False),
            "mostly by the reading: see the rows read and projected",
        ),
        Finding(
            "ours: Shapley error, by range",
            f"{rewards} (Minkowski)",
            _mean_text(theirs["shapley_scaled"]),
            _mean_text(shapley),
            _compared(shapley, rewards, theirs["shapley_scaled"], higher=False),
            "mostly by the reading: see the rows read and projected",
        ),
        Finding(
            "ours: accuracy",
            f"{points} % (Minkowski)",
            f"{_mean_text(theirs['accuracy'], 100)} %",
            f"{_mean_text(accuracy, 100)} %",
            _compared(accuracy, points / 100, theirs["accuracy"], higher=True),
        ),
    ]


def _compared(ours: list[float], printed: float, theirs: list[float], *, higher: bool) -> str:
    """Return whether ours is beyond two standard errors of the printed row and of its rerun."""
    sign, doubt = (1 if higher else -1), _doubt(ours)
    joint = math.hypot(doubt, _doubt(theirs) if theirs else math.inf)
    against = [(printed, doubt), (fmean(theirs) if theirs else printed, joint)]
    gains = [(sign * (fmean(ours) - other), room) for other, room in against]
    if all(gain > room for gain, room in gains):
        return BETTER
    return WITHIN if all(gain > -room for gain, room in gains) else NO


def flincentive_table(rows: list[Row], *, budget: int) -> list[str]:
    """Write every row, paper / ours, with the local budget that ours had."""
    measured = [row for row in rows if row["budget"] in {budget, 0}]
    keys = sorted({(_MODELS.index(str(row["model"])), str(row["mechanism"])) for row in measured})
    lines = [_line(measured, _MODELS[model], name, budget) for model, name in keys]
    return markdown(["model", "mechanism", "local ε", "seeds", *_COLUMNS.values()], lines)


def _line(rows: list[Row], model: str, name: str, budget: int) -> list[str]:
    printed = expected(f"flincentive{budget}")["rows"].get(model, {}).get(name, ())
    cells = []
    for number_, column in enumerate(_COLUMNS):
        values = _runs(rows, column, model=model, mechanism=name)
        ours = _mean_text(values, 100 if column == "accuracy" else 1)
        cells.append(f"{printed[number_]} / {ours}" if number_ < len(printed) else ours)
    epsilon = _runs(rows, "local_epsilon", model=model, mechanism=name)
    return [model, name, f"{epsilon[0]:.3g}", str(len(epsilon)), *cells]
