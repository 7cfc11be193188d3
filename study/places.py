"""Findings on clustered places, on lists as given out, and on each step to ours."""

from typing import Final

from study.conventions import PUBLISHED
from study.findings import (
    LEAST,
    NOT_YET,
    Count,
    Finding,
    against_nothing,
    best_first,
    expected,
    number,
    only,
)
from study.sheets import Row
from study.tables import markdown

_MEASURES: Final = {"distance": "error", "cost": "travel cost", "success": "success ratio"}
_OURS: Final = {"distance": "best", "cost": "expected", "success": "task"}
_ROUNDING: Final = 1e-9
_PAPERS: Final = "no report, for the paper's"


def clustered(rows: list[Row]) -> list[Finding]:
    """Compare ours on clustered places with the paper's mechanism and with no report."""
    return [
        one
        for measure, name in _MEASURES.items()
        for one in _held(rows, measure, name, higher=measure == "success", ours=_OURS[measure])
    ]


def lists(rows: list[Row]) -> list[Finding]:
    """Compare lists as people get them with the paper's mechanism and with no report."""
    return _held(rows, "f1", "F1 of the lists", higher=True, ours="best")


def _held(rows: list[Row], measure: str, name: str, *, higher: bool, ours: str) -> list[Finding]:
    with_budget = [r for r in rows if r["model"] == "none" or number(r, "epsilon") >= LEAST]

    def nothing(who: str) -> Count:
        return against_nothing(with_budget, measure, higher=higher, ours=who)

    counts = {
        "the paper's Minkowski": best_first(with_budget, measure, higher=higher, ours=ours),
        "no report": nothing(ours),
        _PAPERS: nothing(PUBLISHED),
    }
    visits = []
    for what, count in counts.items():
        is_ours = what != _PAPERS
        texts = ("", str(count)) if is_ours else (f"Minkowski {count}", "")
        comparison = f"{name} against {what}, ε_c from {LEAST:g}"
        verdict = count.verdict if is_ours else ""
        visits.append(Finding(comparison, "", *texts, verdict, count.exceptions))
    return visits


def clustered_table(rows: list[Row]) -> list[str]:
    """Write out every row with its standard errors."""
    lines = [
        [
            str(row["dataset"]),
            str(row["mechanism"]),
            f"{number(row, 'epsilon'):g}" if row["model"] != "none" else "",
            *(_mean_text(row, measure) for measure in _MEASURES),
        ]
        for row in rows
    ]
    return markdown(["data set", "mechanism", "ε_c", *_MEASURES.values()], lines)


def lists_table(rows: list[Row]) -> list[str]:
    """Write out every row: the score, the length of a list, and the most lists with one person."""
    lines = [
        [
            f"{row['dataset']}, τ = {row['radius']}",
            str(row["mechanism"]),
            f"{number(row, 'epsilon'):g}" if row["model"] != "none" else "",
            str(row["randomizer"]),
            _mean_text(row, "f1"),
            f"{number(row, 'listed'):.1f}",
            str(row["most_listed"]),
        ]
        for row in rows
    ]
    head = ["data set", "row", "ε_c", "mechanism", "F1 of the lists", "on a list", "one is on"]
    return markdown(head, lines)


def _mean_text(row: Row, measure: str) -> str:
    error = number(row, f"{measure}_se")
    # A value that is the same for every seed has a rounding error only.
    return f"{number(row, measure):.3g} ± {0 if error < _ROUNDING else error:.2g}"


def steps(rows: list[Row]) -> list[Finding]:
    """Return the gain of all steps together, beside no report and true places."""
    visits = []
    for dataset in dict.fromkeys(str(row["dataset"]) for row in rows):
        by_step = {str(row["step"]): row for row in only(rows, dataset=dataset)}
        if not {"no report", "paper", "as shipped", "true places"} <= {*by_step}:
            visits.append(Finding(dataset, "", NOT_YET))
            continue
        for step in ("paper", "as shipped"):
            row = by_step[step]
            by_step[step] = {**row, "mechanism": step, "model": "pic"}
        blind = {**by_step["no report"], "mechanism": "blind", "model": "none"}
        count = against_nothing(
            [by_step["as shipped"], blind], "success", higher=True, ours="as shipped"
        )
        lines = f"{_mean_text(blind, 'success')} without a report, 1 by true places"
        visits.append(
            Finding(
                f"{dataset}: success ratio from the paper's to candidates as shipped",
                "",
                f"{_mean_text(by_step['paper'], 'success')}; {lines}",
                _mean_text(by_step["as shipped"], "success"),
                count.verdict,
                count.exceptions,
            )
        )
    return visits


def steps_table(rows: list[Row]) -> list[str]:
    """Write out step by step."""
    steps = expected("sc-steps")["steps"]
    lines = [
        [
            str(row["dataset"]),
            steps[str(row["step"])],
            str(row["randomizer"]),
            f"{number(row, 'local_users'):.2f}",
            *(_mean_text(row, measure) for measure in _MEASURES),
            f"{number(row, 'paired'):.1%}",
        ]
        for row in rows
    ]
    head = ["data set", "step", "mechanism", "local ε", *_MEASURES.values(), "paired"]
    return markdown(head, lines)
