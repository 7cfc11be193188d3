"""What the text says of the figures, held against the sheets: crowdsourcing and social systems."""

import math
from itertools import pairwise
from typing import Any, Final

from study.conventions import MECHANISMS, PUBLISHED
from study.findings import (
    BETTER,
    NO,
    PARTLY,
    YES,
    Count,
    Finding,
    best_first,
    expected,
    number,
    only,
    published_first,
    ranges,
)
from study.locations import SUBSET
from study.sheets import Row
from study.tables import markdown

_UNFIT: Final = (
    "as it is written; lbs-f1-reading has a reading under which the printed scores come out"
)
_SLACK: Final = 0.05  # of a score that the text tells in words


def _verdict(count: Count) -> str:
    return BETTER if count.verdict == YES else count.verdict


def _pic(rows: list[Row], measure: str, text: str, *, higher: bool, ours: str = "best") -> Finding:
    """Hold the paper's ranking in PIC against ours, and our best against its mechanism."""
    pic = only(rows, model="pic")
    first = published_first(pic, measure, higher=higher)
    best = best_first(pic, measure, higher=higher, ours=ours)
    reason = "; ".join(part for part in (first.exceptions, best.exceptions) if part)
    return Finding(
        "PIC: ranking", text, f"Minkowski {first}", f"ours {best}", first.verdict, reason
    )


def sc_distance(rows: list[Row]) -> list[Finding]:
    """Errors of single reports on the crowdsourcing data."""
    told = expected("sc-distance")
    local = only(rows, model="local")
    large = published_first(
        [r for r in local if number(r, "epsilon") >= 2], "distance", higher=False
    )
    worst = max(_behind(local, epsilon) for epsilon in (0.5, 1.0))
    best = best_first(local, "distance", higher=False)
    kept = large.verdict == YES and worst <= told["on_par"]
    return [
        Finding(
            "local: ranking",
            told["claims"]["local"],
            f"ε ≤ 1: at most {worst:.2f} times the best of the others; ε ≥ 2: {large}",
            f"ours {best}",
            YES if kept else PARTLY,
            large.exceptions,
        ),
        _pic(rows, "distance", told["claims"]["pic"], higher=False),
        _growing(rows, told["claims"]["growing"]),
        _gain(rows, "distance", told["claims"]["gain"], higher=False),
    ]


def _behind(rows: list[Row], epsilon: float) -> float:
    """Return the largest ratio of Minkowski's error to the least of the others'."""
    worst = 0.0
    for mine in only(rows, mechanism=PUBLISHED, epsilon=epsilon):
        others = [
            number(row, "distance")
            for row in only(rows, dataset=mine["dataset"], epsilon=epsilon)
            if row["mechanism"] in MECHANISMS and row["mechanism"] != PUBLISHED
        ]
        worst = max(worst, number(mine, "distance") / min(others))
    return worst


def _growing(rows: list[Row], text: str) -> Finding:
    """See whether the best of the others falls behind as the budget grows."""
    pic = only(rows, model="pic")
    budgets = sorted({number(row, "epsilon") for row in pic})
    ratios = [1 / max(_behind(pic, epsilon), 1e-300) for epsilon in budgets]
    told = ", ".join(
        f"{ratio:.2f} (ε {epsilon:g})" for ratio, epsilon in zip(ratios, budgets, strict=True)
    )
    grows = all(a <= b * 1.02 for a, b in pairwise(ratios))
    return Finding(
        "PIC: advantage",
        text,
        f"best of the others over Minkowski: {told}",
        "",
        YES if grows else PARTLY,
    )


def _gain(rows: list[Row], measure: str, text: str, *, higher: bool) -> Finding:
    """Compare each mechanism at the same ε in the crowd and alone."""
    sign, better, every = (1 if higher else -1), 0, 0
    for row in only(rows, model="pic"):
        same = {k: row[k] for k in ("dataset", "mechanism", "epsilon")}
        same |= {k: row[k] for k in ("size", "radius") if k in row}
        for alone in only(rows, model="local", **same):
            every += 1
            better += sign * (number(row, measure) - number(alone, measure)) > 0
    verdict = YES if better == every else PARTLY
    return Finding("PIC against LDP", text, f"in {better} of {every} settings", "", verdict)


def sc_cost(rows: list[Row]) -> list[Finding]:
    """Travel costs of the least-cost matching."""
    return [_pic(rows, "cost", expected("sc-cost")["claims"]["pic"], higher=False)]


def sc_success(rows: list[Row]) -> list[Finding]:
    """Success ratios of the maximum matching."""
    told = expected("sc-success")["claims"]
    pic = only(rows, model="pic", epsilon=3.0)
    return [
        _pic(rows, "success", told["pic"], higher=True, ours="task"),
        _gain(rows, "success", told["gain"], higher=True),
        Finding(
            "PIC, ε_c = 3",
            "an acceptable level for practical use",
            ranges(pic, "success", mechanism=PUBLISHED),
            ranges(pic, "success", mechanism="task"),
            "",
            "a picture: no number is printed",
        ),
    ]


def lbs_distance_local(rows: list[Row]) -> list[Finding]:
    """Errors of single check-ins in the local model."""
    local = only(rows, model="local", radius=0.2)
    first = published_first(local, "distance", higher=False)
    best = best_first(local, "distance", higher=False)
    text = expected("lbs-distance-local")["claims"]["first"]
    reason = first.exceptions
    return [
        Finding("local: ranking", text, f"Minkowski {first}", f"ours {best}", first.verdict, reason)
    ]


def lbs_distance_shuffle(rows: list[Row], *, radius: float, item: str) -> list[Finding]:
    """Errors of single check-ins in PIC."""
    told, rows = expected(item)["claims"], only(rows, radius=radius)
    found = [_pic(rows, "distance", told["first"], higher=False)]
    small, every = [
        [
            r
            for r in only(rows, model="pic", mechanism=PUBLISHED, epsilon=1.0)
            if (r["size"] == 0) == whole
        ]
        for whole in (False, True)
    ]
    if every:
        few, all_ = _values(small, "distance"), _values(every, "distance")
        ours = f"ε_c = 1: {few} with {SUBSET:,}, {all_} with all"
        less = max(number(r, "distance") for r in every) < min(number(r, "distance") for r in small)
        found.append(Finding("size of the crowd", told["crowd"], ours, "", YES if less else NO))
    return [*found, _honest(rows, "distance", higher=False)]


def _values(rows: list[Row], measure: str) -> str:
    return " and ".join(f"{number(row, measure):.3g}" for row in rows)


def _honest(rows: list[Row], measure: str, *, higher: bool, ours: str = "best") -> Finding:
    """Hide only among those whom no neighbour's list gives away."""
    honest = only(rows, model="honest")
    best = best_first(honest, measure, higher=higher, ours=ours)
    shares = [number(row, "anonymous") / number(row, "crowd") for row in honest]
    who = f"{min(shares):.0%} to {max(shares):.0%}" if shares else "none measured"
    return Finding(
        "honest exposure",
        "assumes 90 % (τ 0.2) or 98 % (τ 0.1) left to hide among",
        f"one corrupted person's list leaves {who}",
        f"ours {best} against its Minkowski there",
        _verdict(best),
        best.exceptions,
    )


def lbs_f1_local(rows: list[Row], *, radius: float, item: str) -> list[Finding]:
    """F1 scores in the local model."""
    told, local = expected(item), only(rows, model="local", radius=radius)
    most = max((number(r, "f1") for r in local if r["mechanism"] != "best"), default=math.nan)
    best = max((number(r, "f1") for r in only(local, mechanism="best")), default=math.nan)
    if math.isnan(best):
        return []
    low = Finding(
        "local: level",
        told["claims"]["low"],
        f"at most {most:.3f}",
        f"at most {best:.3f}",
        YES if most < told["low"] else NO,
    )
    return [low, *_sizes(local, told)]


def _sizes(local: list[Row], told: dict[str, Any]) -> list[Finding]:
    """Compare the subset with all check-ins."""
    gaps = []
    for row in (r for r in local if r["size"] == 0 and r["mechanism"] != "best"):
        same = {k: row[k] for k in ("dataset", "mechanism", "epsilon")}
        gaps += [abs(number(row, "f1") - number(r, "f1")) for r in only(local, size=SUBSET, **same)]
    if not gaps:
        return []
    verdict = YES if max(gaps) <= told["same"] else NO
    ours = f"differs by at most {max(gaps):.3f}"
    return [Finding("size of the crowd", told["claims"]["size"], ours, "", verdict)]


def lbs_f1_shuffle(rows: list[Row], *, radius: float, item: str) -> list[Finding]:
    """F1 scores in PIC, exact over all pairs."""
    told, rows = expected(item), only(rows, radius=radius)
    found = [_pic(rows, "f1", told["claims"]["first"], higher=True, ours="task")]
    for budget, aim in told["f1"].items():
        asked = [
            [
                number(row, "f1")
                for row in only(rows, model="pic", mechanism=m, epsilon=float(budget))
                if row["size"] == 0
            ]
            for m in (PUBLISHED, "task")
        ]
        if asked[0]:
            reached = min(asked[0]) >= aim - told["slack"]
            ours, best = (" and ".join(f"{value:.3f}" for value in values) for values in asked)
            found.append(
                Finding(
                    f"all check-ins, ε_c = {budget}",
                    told["printed"][budget],
                    ours,
                    best,
                    YES if reached else NO,
                    "" if reached else _UNFIT,
                )
            )
    return [*found, _honest(rows, "f1", higher=True, ours="task")]


def lbs_f1_reading(rows: list[Row]) -> list[Finding]:
    """Hold the printed F1 scores against a reading that the paper does not spell out."""
    if any(row["size"] for row in rows):
        return [Finding(f"only {rows[0]['size']:,} check-ins", "", "", reason="a quick run")]
    found = []
    for radius, printed in expected("lbs-f1-reading")["f1"].items():
        for budget, (text, least, most) in printed.items():
            there = only(rows, radius=float(radius), epsilon=float(budget))
            if not there:
                continue
            values = [number(row, "both") for row in there]
            near = least - _SLACK <= min(values) and max(values) <= most + _SLACK
            found.append(
                Finding(
                    f"τ = {radius}, ε_c = {budget}",
                    text,
                    f"{_values(there, 'both')}; as it is written {_values(there, 'as_written')}",
                    "",
                    YES if near else NO,
                    "found by fitting, not said in the paper" if near else "",
                )
            )
    return found


def lbs_f1_reading_table(rows: list[Row]) -> list[str]:
    """Write the score under each half of the reading."""
    columns = {
        "as_written": "as it is written",
        "asked_from_truth": "asked from the true place",
        "unit_square": "τ on the unit square",
        "both": "both",
    }
    printed = expected("lbs-f1-reading")["f1"]
    lines = [
        [
            str(row["dataset"]),
            f"{row['radius']}",
            f"{row['epsilon']:g}",
            f"{number(row, 'local_epsilon'):.3g}",
            printed[f"{row['radius']}"][f"{row['epsilon']:g}"][0],
            *(f"{number(row, column):.3f}" for column in columns),
        ]
        for row in rows
    ]
    return markdown(["data set", "τ", "ε_c", "local ε", "printed", *columns.values()], lines)
