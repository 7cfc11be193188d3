"""Tables flincentive1 and flincentive3, held against the sheet, and written out beside ours."""

import math
from statistics import fmean, stdev
from typing import Any, Final

from study.federated import ROUNDS
from study.findings import BETTER, NO, PARTLY, YES, Finding, expected, number, only
from study.sheets import Row
from study.tables import markdown

_MODELS: Final = ("none", "local", "pic", "sound", "secret", "projected", "best")
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
_IMPLIED: Final = "the printed error implies another local budget than the row can have"
_SOUND: Final = "a sound account leaves a smaller local budget than the printed row used"


def _runs(rows: list[Row], column: str, **wanted: object) -> list[float]:
    return [number(row, column) for row in only(rows, **wanted)]


def _spread(values: list[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


def _doubt(values: list[float]) -> float:
    """Return two standard errors over seeds; with one seed nothing is clear."""
    return 2 * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def _told(values: list[float], scale: float = 1.0) -> str:
    """Tell a mean and the standard deviation over seeds."""
    if not values:
        return "not run"
    text = f"{scale * fmean(values):.3g}"
    return text + (f" ± {scale * stdev(values):.2g}" if len(values) > 1 else "")


def flincentive(rows: list[Row], *, budget: int) -> list[Finding]:
    """Gradient error and accuracy of the reproducible rows, the order of all, and ours."""
    told = expected(f"flincentive{budget}")
    if any(row["rounds"] != ROUNDS for row in rows):
        what = f"only {rows[0]['rounds']} of {ROUNDS} rounds"
        return [Finding(what, "", "", "", "", "a quick run shows that it works, not how well")]
    found = [_reproduced(rows, told, budget, name) for name in told["reproducible"]]
    return [*(one for one in found if one), *_best(rows, told, budget)]


def _reproduced(rows: list[Row], told: dict[str, Any], budget: int, name: str) -> Finding | None:
    mine = {"budget": budget, "model": "pic", "mechanism": name}
    accuracy, error = (_runs(rows, column, **mine) for column in ("accuracy", "gradient_error"))
    if not accuracy:
        return None
    points, printed, _ = told["rows"]["pic"][name]
    near = abs(fmean(error) / printed - 1) <= told["tolerance"]["gradient_error"]
    close = abs(100 * fmean(accuracy) - points) <= told["tolerance"]["accuracy_points"]
    epsilon = _runs(rows, "local_epsilon", **mine)[0]
    seeds = f"{len(accuracy)} seeds, local ε {epsilon:.3g}"
    return Finding(
        f"PIC, {name}",
        f"gradient error {printed}, accuracy {points} %",
        f"{_told(error)}, {_told(accuracy, 100)} % ({seeds})",
        "",
        YES if near and close else PARTLY if near or close else NO,
        "" if near and close else _SEEDS if near else _IMPLIED,
    )


def _best(rows: list[Row], told: dict[str, Any], budget: int) -> list[Finding]:
    """Compare ours with the printed Minkowski row, under a sound account of the same promise."""
    mine = {"budget": budget, "model": "best", "mechanism": "minkowski"}
    accuracy, error, shapley = (
        _runs(rows, column, **mine) for column in ("accuracy", "gradient_error", "shapley_scaled")
    )
    if not accuracy:
        return []
    points, printed, rewards = told["rows"]["pic"]["minkowski"]
    row = {"budget": budget, "model": "pic", "mechanism": "minkowski"}
    theirs = {column: _runs(rows, column, **row) for column in _COLUMNS}
    epsilon = _runs(rows, "local_epsilon", **mine)[0]
    mean = 100 * fmean(accuracy)
    near = mean + 100 * _spread(accuracy) >= points
    lower = fmean(shapley) < rewards
    clearly = fmean(shapley) + _doubt(shapley) < rewards
    return [
        Finding(
            "ours: gradient error",
            f"{printed} (Minkowski)",
            _told(theirs["gradient_error"]),
            f"{_told(error)} ({len(error)} seeds, local ε {epsilon:.3g})",
            BETTER if max(error) < printed else NO,
        ),
        Finding(
            "ours: Shapley error, by range",
            f"{rewards} (Minkowski)",
            _told(theirs["shapley_scaled"]),
            _told(shapley),
            BETTER if clearly else WITHIN if lower else NO,
            "" if lower else _range(theirs["shapley_scaled"], rewards),
        ),
        Finding(
            "ours: accuracy",
            f"{points} % (Minkowski)",
            f"{_told(theirs['accuracy'], 100)} %",
            f"{_told(accuracy, 100)} %",
            BETTER if mean - 100 * _doubt(accuracy) > points else WITHIN if near else NO,
            "" if near else _SOUND,
        ),
    ]


def _range(theirs: list[float], printed: float) -> str:
    """Say why a Shapley error by range is not lower: by the budget, or by the measure."""
    if theirs and fmean(theirs) + _spread(theirs) >= printed:
        return (
            "the printed row, rerun with the larger budget that it implies, is not lower beyond "
            "its seeds either: the range that divides is set by the two most extreme people"
        )
    return _SOUND


def flincentive_table(rows: list[Row], *, budget: int) -> list[str]:
    """Write every row, paper / ours, with the local budget that ours had."""
    there = [row for row in rows if row["budget"] in {budget, 0}]
    keys = sorted({(_MODELS.index(str(row["model"])), str(row["mechanism"])) for row in there})
    lines = [_line(there, _MODELS[model], name, budget) for model, name in keys]
    return markdown(["model", "mechanism", "local ε", "seeds", *_COLUMNS.values()], lines)


def _line(rows: list[Row], model: str, name: str, budget: int) -> list[str]:
    printed = expected(f"flincentive{budget}")["rows"].get(model, {}).get(name, ())
    cells = []
    for number_, column in enumerate(_COLUMNS):
        values = _runs(rows, column, model=model, mechanism=name)
        ours = _told(values, 100 if column == "accuracy" else 1)
        cells.append(f"{printed[number_]} / {ours}" if number_ < len(printed) else ours)
    epsilon = _runs(rows, "local_epsilon", model=model, mechanism=name)
    return [model, name, f"{epsilon[0]:.3g}", str(len(epsilon)), *cells]
