"""What the study says of clustered places, and of each step from the paper's mechanism to ours."""

from typing import Final

from study.conventions import PUBLISHED
from study.findings import NOT_YET, Finding, against_nothing, best_first, expected, number, only
from study.sheets import Row
from study.tables import markdown

_MEASURES: Final = {"distance": "error", "cost": "travel cost", "success": "success ratio"}
_LOW: Final = 0.5  # from this budget on, ours is asked to be ahead everywhere


def clustered(rows: list[Row]) -> list[Finding]:
    """Ours on places that cluster, against the paper's mechanism and against no report."""
    found = []
    for measure, name in _MEASURES.items():
        higher, ours = measure == "success", "task" if measure == "success" else "best"
        there = [r for r in rows if r["model"] == "none" or number(r, "epsilon") >= _LOW]
        for what, count in (
            ("the paper's Minkowski", best_first(there, measure, higher=higher, ours=ours)),
            ("no report", against_nothing(there, measure, higher=higher, ours=ours)),
            (
                "no report, for the paper's",
                against_nothing(there, measure, higher=higher, ours=PUBLISHED),
            ),
        ):
            told = f"{name} against {what}, ε_c from {_LOW:g}"
            mine = what != "no report, for the paper's"
            verdict = count.verdict if mine else ""
            texts = ("", str(count)) if mine else (f"Minkowski {count}", "")
            found.append(Finding(told, "", *texts, verdict, count.exceptions))
    return found


def clustered_table(rows: list[Row]) -> list[str]:
    """Write out every row with its standard errors."""
    lines = [
        [
            str(row["dataset"]),
            str(row["mechanism"]),
            f"{number(row, 'epsilon'):g}" if row["model"] != "none" else "",
            *(_told(row, measure) for measure in _MEASURES),
        ]
        for row in rows
    ]
    return markdown(["data set", "mechanism", "ε_c", *_MEASURES.values()], lines)


def _told(row: Row, measure: str) -> str:
    return f"{number(row, measure):.3g} ± {number(row, f'{measure}_se'):.2g}"


def steps(rows: list[Row]) -> list[Finding]:
    """Say what all steps together bring."""
    found = []
    for dataset in dict.fromkeys(str(row["dataset"]) for row in rows):
        there = {str(row["step"]): row for row in only(rows, dataset=dataset)}
        if not {"paper", "candidates"} <= {*there}:
            found.append(Finding(dataset, "", NOT_YET))
            continue
        first, last = there["paper"], there["candidates"]
        found.append(
            Finding(
                f"{dataset}: success ratio from the paper's to candidates",
                "",
                _told(first, "success"),
                _told(last, "success"),
            )
        )
    return found


def steps_table(rows: list[Row]) -> list[str]:
    """Write out step by step."""
    told = expected("sc-steps")["steps"]
    lines = [
        [
            str(row["dataset"]),
            told[str(row["step"])],
            str(row["randomizer"]),
            f"{number(row, 'local_users'):.2f}",
            *(_told(row, measure) for measure in _MEASURES),
        ]
        for row in rows
    ]
    return markdown(["data set", "step", "mechanism", "local ε", *_MEASURES.values()], lines)
