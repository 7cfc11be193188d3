"""The text's statements on the figures, compared with the sheets: crowdsourcing and check-ins."""

import math
from itertools import pairwise
from typing import Final

from study.conventions import BASELINES, MECHANISMS, PUBLISHED
from study.findings import (
    BETTER,
    LEAST,
    NO,
    NOT_YET,
    PARTLY,
    YES,
    Count,
    Finding,
    against_nothing,
    best_first,
    expected,
    graded,
    number,
    only,
    published_first,
    ranges,
)
from study.locations import SUBSET
from study.sheets import Row
from study.tables import markdown

_UNFIT: Final = "as it is written; lbs-f1-reading has a reading with other scores"
_SLACK: Final = 0.05  # of a score that the text states in words


def _ranking(rows: list[Row], measure: str, text: str, *, higher: bool, most: bool) -> Finding:
    """Compare the paper's ranking with ours."""
    first = published_first(rows, measure, higher=higher)
    verdict = (first.most if most else first.verdict) if text else ""
    return Finding("ranking", text, f"Minkowski {first}", "", verdict, first.exceptions)


def _ours(
    rows: list[Row], measure: str, *, higher: bool, ours: str = "best", model: str = "pic"
) -> list[Finding]:
    """Compare ours with the paper's Minkowski response, and with no report at all.

    In the crowd, also from a budget of 0.5 on, where ours has to be ahead everywhere.
    """
    same_model = [row for row in rows if row["model"] in {model, "none"}]
    if model == "local":
        return [_mine("ours, one report alone", same_model, measure, higher=higher, ours=ours)]
    fair = [row for row in same_model if row["model"] == "none" or number(row, "epsilon") >= LEAST]
    return [
        _mine("ours", same_model, measure, higher=higher, ours=ours),
        _mine(f"ours, ε_c from {LEAST:g}", fair, measure, higher=higher, ours=ours),
    ]


def _mine(what: str, rows: list[Row], measure: str, *, higher: bool, ours: str) -> Finding:
    best = best_first(rows, measure, higher=higher, ours=ours)
    nothing, theirs = (
        against_nothing(rows, measure, higher=higher, ours=name) for name in (ours, PUBLISHED)
    )
    summary = f"against Minkowski {best}; against everybody in the middle {nothing}"
    truth = [number(row, measure) for row in only(rows, mechanism="clear")]
    if any(truth):  # an error of 0 needs no mention
        summary += f"; true places: {' and '.join(f'{value:.3g}' for value in truth)}"
    reason = "; ".join(part for part in (best.exceptions, nothing.exceptions) if part)
    middle = f"Minkowski against everybody in the middle {theirs}"
    return Finding(what, "", middle, summary, _both(best, nothing), reason)


def _both(best: Count, nothing: Count) -> str:
    """Return `better` only if ours is ahead of the paper's and of no report in every setting."""
    if best.verdict == YES and nothing.verdict in {YES, NOT_YET}:
        return BETTER
    return PARTLY if YES in {best.verdict, nothing.verdict} else best.verdict


def sc_distance(rows: list[Row]) -> list[Finding]:
    """Errors of single reports on the crowdsourcing data."""
    paper, local, pic = expected("sc-distance"), only(rows, model="local"), only(rows, model="pic")
    claims = paper["claims"]
    large = [row for row in local if number(row, "epsilon") >= 2]
    first = published_first(large, "distance", higher=False)
    worst = max(_behind(local, epsilon) for epsilon in (0.5, 1.0))
    confirmed = (first.verdict == YES) + (worst <= paper["on_par"])
    return [
        Finding(
            "LDP: ranking",
            claims["local"],
            f"ε ≤ 1: {worst:.2f} times the best of the others at most; ε ≥ 2: {first}",
            f"ours {best_first(local, 'distance', higher=False)}",
            graded(confirmed, 2) if math.isfinite(worst) else NOT_YET,
            first.exceptions,
        ),
        _ranking(pic, "distance", claims["pic"], higher=False, most=False),
        _growing(pic, claims["growing"]),
        _gain(rows, "distance", claims["gain"], higher=False),
        *_ours(rows, "distance", higher=False),
        *_ours(rows, "distance", higher=False, model="local"),
    ]


def _behind(rows: list[Row], epsilon: float) -> float:
    """Return the largest ratio of Minkowski's error to the least of the others'."""
    ratios = []
    for published in only(rows, mechanism=PUBLISHED, epsilon=epsilon):
        others = [
            number(row, "distance")
            for row in only(rows, dataset=published["dataset"], epsilon=epsilon)
            if row["mechanism"] in BASELINES
        ]
        ratios.append(number(published, "distance") / min(others))
    return max(ratios, default=math.inf)


def _growing(pic: list[Row], text: str) -> Finding:
    """Return whether the best of the others falls behind as the budget grows."""
    budgets = sorted({number(row, "epsilon") for row in pic})
    ratios = [1 / _behind(pic, epsilon) for epsilon in budgets]
    by_budget = ", ".join(
        f"{ratio:.2f} (ε {e:g})" for ratio, e in zip(ratios, budgets, strict=True)
    )
    steps = [a <= b * 1.02 for a, b in pairwise(ratios)]
    ours = f"best of the others over Minkowski: {by_budget}"
    return Finding("advantage", text, ours, "", graded(sum(steps), len(steps)))


def _gain(rows: list[Row], measure: str, text: str, *, higher: bool) -> Finding:
    """Compare each of the paper's mechanisms at the same ε in the crowd and alone."""
    sign, every = (1 if higher else -1), 0
    not_so = []
    for row in only(rows, model="pic"):
        same = {k: row[k] for k in ("dataset", "mechanism", "epsilon")}
        same |= {k: row[k] for k in ("size", "radius") if k in row}
        for alone in only(rows, model="local", **same):
            if alone["mechanism"] in MECHANISMS:
                every += 1
                crowd, one = number(row, measure), number(alone, measure)
                if sign * (crowd - one) <= 0:
                    who = f"{row['dataset']} ε {row['epsilon']:g}, {row['mechanism']}"
                    not_so.append(f"{who}: {crowd:.3g} in the crowd, {one:.3g} alone")
    better = every - len(not_so)
    ours, reason = f"in {better} of {every} settings", "; ".join(not_so)
    return Finding("PIC beside LDP", text, ours, "", graded(better, every), reason)


def sc_cost(rows: list[Row]) -> list[Finding]:
    """Travel costs of the least-cost matching."""
    text = expected("sc-cost")["claims"]["pic"]
    ranking = _ranking(only(rows, model="pic"), "cost", text, higher=False, most=False)
    return [ranking, *_ours(rows, "cost", higher=False, ours="expected")]


def sc_success(rows: list[Row]) -> list[Finding]:
    """Success ratios of the maximum matching."""
    claims = expected("sc-success")["claims"]
    pic = only(rows, model="pic", epsilon=3.0)
    clear = [number(row, "success") for row in only(rows, mechanism="clear")]
    return [
        Finding(
            "clear data",
            claims["clear"],
            " and ".join(f"{100 * ratio:g}%" for ratio in clear),
            "",
            YES if clear and min(clear) == 1 else NO,
        ),
        _ranking(only(rows, model="pic"), "success", claims["pic"], higher=True, most=False),
        _gain(rows, "success", claims["gain"], higher=True),
        Finding(
            "ε_c = 3",
            claims["level"],
            ranges(pic, "success", mechanism=PUBLISHED),
            "; ".join(f"{ranges(pic, 'success', mechanism=m)} ({m})" for m in ("task", "expected")),
            "",
            "a picture: no number is printed",
        ),
        *_ours(rows, "success", higher=True, ours="task"),
    ]


def lbs_distance_local(rows: list[Row]) -> list[Finding]:
    """Errors of single check-ins in the local model."""
    local = only(rows, model="local", radius=0.2)
    text = expected("lbs-distance-local")["claims"]["first"]
    return [
        _ranking(local, "distance", text, higher=False, most=False),
        *_ours(only(rows, radius=0.2), "distance", higher=False, model="local"),
    ]


def _better(count: Count) -> str:
    return BETTER if count.verdict == YES else count.verdict


def lbs_distance_shuffle(rows: list[Row], *, radius: float, item: str) -> list[Finding]:
    """Errors of single check-ins in PIC."""
    claims, rows = expected(item)["claims"], only(rows, radius=radius)
    text = claims.get("first") or claims["most"]
    pic = only(rows, model="pic")
    findings = [_ranking(pic, "distance", text, higher=False, most="most" in claims)]
    theirs = only(pic, mechanism=PUBLISHED, epsilon=1.0)
    small, every = ([r for r in theirs if (r["size"] == 0) == whole] for whole in (False, True))
    if "crowd" in claims and every:
        few, all_ = _values(small, "distance"), _values(every, "distance")
        ours = f"ε_c = 1: {few} with {SUBSET:,}, {all_} with all"
        less = max(number(r, "distance") for r in every) < min(number(r, "distance") for r in small)
        findings.append(
            Finding("size of the crowd", claims["crowd"], ours, "", YES if less else NO)
        )
    return [
        *findings,
        *_ours(rows, "distance", higher=False),
        _honest(rows, "distance", higher=False, ours="best"),
    ]


def _values(rows: list[Row], measure: str) -> str:
    return " and ".join(f"{number(row, measure):.3g}" for row in rows)


def _honest(rows: list[Row], measure: str, *, higher: bool, ours: str) -> Finding:
    """Count as a crowd only those whom no list identifies, the longest by truth or by report."""
    honest = only(rows, model="honest")
    best = best_first(honest, measure, higher=higher, ours=ours)
    return Finding(
        "honest exposure",
        "leaves 90 % (τ 0.2) or 98 % (τ 0.1) to hide among",
        f"one corrupted person's list leaves {_share(honest, PUBLISHED)}",
        f"{_share(honest, ours)} left; against Minkowski {best}",
        _better(best),
        best.exceptions,
    )


def _share(rows: list[Row], mechanism: str) -> str:
    left = [number(r, "anonymous") / number(r, "crowd") for r in only(rows, mechanism=mechanism)]
    if not left:
        return NOT_YET
    low, high = f"{min(left):.0%}", f"{max(left):.0%}"
    return low if low == high else f"{low} to {high}"


def lbs_f1_local(rows: list[Row], *, radius: float, item: str) -> list[Finding]:
    """F1 scores in the local model."""
    paper, every = expected(item), only(rows, model="local")
    comparisons = _ours(only(rows, radius=radius), "f1", higher=True, model="local")
    local = only(every, radius=radius)
    most = max((number(r, "f1") for r in local if r["mechanism"] != "best"), default=math.nan)
    best = max((number(r, "f1") for r in only(local, mechanism="best")), default=math.nan)
    if math.isnan(best):
        return []
    if "lower" in paper["claims"]:
        sizes = {row["size"] for row in local}
        wider = [r for r in only(every, radius=0.2) if r["size"] in sizes]
        wider = [r for r in wider if r["mechanism"] in MECHANISMS]
        less = [number(r, "f1") < number(w, "f1") for r, w in _pairs(local, wider)]
        ours = f"in {sum(less)} of {len(less)} settings; at most {most:.3f}"
        verdict = graded(sum(less), len(less))
        level = Finding("τ = 0.1", paper["claims"]["lower"], ours, f"at most {best:.3f}", verdict)
        return [level, *comparisons]
    low = YES if most < paper["low"] else NO
    level = Finding(
        "level", paper["claims"]["low"], f"at most {most:.3f}", f"at most {best:.3f}", low
    )
    whole = [r for r in local if r["size"] == 0 and r["mechanism"] in MECHANISMS]
    gaps = [
        abs(number(r, "f1") - number(w, "f1")) for r, w in _pairs(only(local, size=SUBSET), whole)
    ]
    if not gaps:
        return [level, *comparisons]
    ours = f"differs by at most {max(gaps):.3f}"
    verdict = YES if max(gaps) <= paper["same"] else NO
    return [
        level,
        Finding("size of the crowd", paper["claims"]["size"], ours, "", verdict),
        *comparisons,
    ]


def _pairs(rows: list[Row], others: list[Row]) -> list[tuple[Row, Row]]:
    """Pair rows by data set, mechanism and budget, and by size if both sides have the same."""
    names: tuple[str, ...] = ("dataset", "mechanism", "epsilon")
    sizes = {other["size"] for other in others} == {row["size"] for row in rows}
    names += ("size",) if sizes else ()
    keyed = {tuple(other[n] for n in names): other for other in others}
    keys = [(row, tuple(row[n] for n in names)) for row in rows]
    return [(row, keyed[key]) for row, key in keys if key in keyed]


def lbs_f1_shuffle(rows: list[Row], *, radius: float, item: str) -> list[Finding]:
    """F1 scores in PIC, exact over all pairs."""
    paper, rows = expected(item), only(rows, radius=radius)
    claims, pic = paper["claims"], only(rows, model="pic")
    findings = []
    if "gain" in claims:
        findings.append(_gain(rows, "f1", claims["gain"], higher=True))
    findings.append(_ranking(pic, "f1", claims.get("most", ""), higher=True, most=True))
    for budget, aim in paper["f1"].items():
        theirs, ours = (
            [number(r, "f1") for r in only(pic, mechanism=m, epsilon=float(budget), size=0)]
            for m in (PUBLISHED, "task")
        )
        if theirs:
            reached = min(theirs) >= aim - paper["slack"]
            a, b = (" and ".join(f"{value:.3f}" for value in values) for values in (theirs, ours))
            what, text = f"all check-ins, ε_c = {budget}", paper["printed"][budget]
            verdict, reason = (YES, "") if reached else (NO, _UNFIT)
            findings.append(Finding(what, text, a, b, verdict, reason))
    return [
        *findings,
        *_ours(rows, "f1", higher=True, ours="task"),
        _honest(rows, "f1", higher=True, ours="task"),
    ]


def lbs_f1_reading(rows: list[Row]) -> list[Finding]:
    """Compare the stated F1 scores with an interpretation that the paper does not spell out."""
    if any(row["size"] for row in rows):
        return [Finding(f"only {rows[0]['size']:,} check-ins", "", "", reason="a quick run")]
    findings = []
    for radius, printed in expected("lbs-f1-reading")["f1"].items():
        for setting, (text, least, most) in printed.items():
            model, _, budget = setting.partition(" ")
            scored = only(rows, radius=float(radius), model=model, epsilon=float(budget))
            if not scored:
                continue
            values = [number(row, "both") for row in scored]
            near = least - _SLACK <= min(values) and max(values) <= most + _SLACK
            ours = f"{_values(scored, 'both')}; as it is written {_values(scored, 'as_written')}"
            what = f"τ = {radius}, {'LDP, ε' if model == 'local' else 'PIC, ε_c'} = {budget}"
            reason = "found by fitting, not said in the paper" if near else "against the reading"
            findings.append(Finding(what, text, ours, "", YES if near else NO, reason))
    return findings


def lbs_f1_reading_table(rows: list[Row]) -> list[str]:
    """Write the score under each half of the interpretation."""
    columns = {
        "as_written": "as it is written",
        "asked_from_truth": "asked from the true place",
        "unit_square": "τ on the unit square",
        "both": "both",
    }
    printed = expected("lbs-f1-reading")["f1"]
    lines = [
        [
            f"{row['dataset']}, τ = {row['radius']}",
            "LDP" if row["model"] == "local" else "PIC",
            f"{row['epsilon']:g}",
            f"{number(row, 'local_epsilon'):.3g}",
            printed[f"{row['radius']}"][f"{row['model']} {row['epsilon']:g}"][0],
            *(f"{number(row, column):.3f}" for column in columns),
        ]
        for row in rows
    ]
    return markdown(["data set", "model", "ε", "local ε", "text", *columns.values()], lines)
