"""The paper's tables, compared with the sheets and written out beside ours."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from study.conventions import MECHANISMS, PUBLISHED
from study.findings import BETTER, NO, PARTLY, YES, Finding, expected, graded, number, only
from study.sheets import Row, read


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


# -- errortime


def _errortime_cells(rows: list[Row]) -> list[tuple[str, float, str, float, bool]]:
    """List mechanism, budget, printed error, our error, and whether they agree."""
    paper = expected("errortime")
    lines = []
    for name, printed in paper["error"].items():
        for epsilon, text in zip(paper["epsilon"], printed, strict=True):
            for row in only(rows, mechanism=name, epsilon=epsilon):
                ours = number(row, "error")
                digits = len(text.split(".")[1])
                room = paper["standard_errors"] * number(row, "spread") / math.sqrt(paper["draws"])
                agrees = abs(ours - float(text)) <= room + 0.5 * 10**-digits
                lines.append((name, epsilon, text, ours, agrees))
    return lines


def errortime(rows: list[Row]) -> list[Finding]:
    """Errors and times of one report on the square."""
    cells = _errortime_cells(rows)
    right = sum(agrees for *_, agrees in cells)
    wrong = "; ".join(f"{n} ε {e:g}: {o:.3g} for {t}" for n, e, t, o, ok in cells if not ok)
    best = {number(row, "epsilon"): number(row, "error") for row in only(rows, mechanism="best")}
    errors = ", ".join(f"{error:.3g}" for error in best.values())
    theirs = only(rows, mechanism=PUBLISHED)
    ahead = all(best[number(row, "epsilon")] < number(row, "error") for row in theirs)
    bulk, one = ([number(row, n) for row in theirs] for n in ("bulk_us", "one_us"))
    swift = [number(row, "one_us") for row in only(rows, mechanism="best")]
    plain = [number(row, "bulk_us") for row in only(rows, mechanism="laplace")]
    return [
        Finding(
            "mean l2 errors",
            f"{len(cells)} printed cells",
            f"{right} agree with the paper's 1000 draws",
            f"at the same ε {errors}",
            graded(right, len(cells)),
            wrong,
        ),
        Finding(
            "Minkowski against ours",
            "Minkowski has the least error from ε = 1",
            _least(rows),
            "less at every ε" if ahead else "not less everywhere",
            BETTER if ahead else NO,
        ),
        Finding(
            "time of a Minkowski report",
            "0.6 to 0.8 µs, Laplace 0.1 µs, on its CPU",
            f"in bulk at most {max(bulk):.2g} µs, Laplace {max(plain):.2g} µs on the same machine",
            f"alone at most {max(swift):.2g} µs, Minkowski {max(one):.2g} µs",
            "",
            "integers on a lattice, from a generator fit for secrets in products; alone, a call of "
            "Python costs more than the draw",
        ),
    ]


def _least(rows: list[Row]) -> str:
    """Return the published mechanism with the least error at each budget."""
    names = []
    for epsilon in sorted({number(row, "epsilon") for row in rows}):
        at_budget = [row for row in only(rows, epsilon=epsilon) if row["mechanism"] in MECHANISMS]
        names.append(str(min(at_budget, key=lambda row: number(row, "error"))["mechanism"]))
    won = sum(name == PUBLISHED for name in names)
    return f"least of the published ones at {won} of {len(names)} budgets"


def printed_errors() -> dict[str, list[tuple[float, float]]]:
    """Return the paper's cells as points, by mechanism."""
    paper = expected("errortime")
    return {
        name: [(epsilon, float(text)) for epsilon, text in zip(paper["epsilon"], row, strict=True)]
        for name, row in paper["error"].items()
    }


def errortime_table(rows: list[Row]) -> list[str]:
    """Write paper / ours for each mechanism and budget."""
    paper = expected("errortime")
    cells = {(n, e): (t, o) for n, e, t, o, _ in _errortime_cells(rows)}
    lines = [
        [name, *(f"{t} / {o:.3g}" for e in paper["epsilon"] for t, o in [cells[name, e]])]
        for name in paper["error"]
    ]
    best = {number(row, "epsilon"): row for row in only(rows, mechanism="best")}
    told_best = [
        f"**{number(best[e], 'error'):.3g}** ({best[e]['randomizer']})" for e in paper["epsilon"]
    ]
    errors = markdown(
        ["paper / ours", *(f"ε = {e:g}" for e in paper["epsilon"])],
        [*lines, ["ours, best", *told_best]],
    )
    return [*errors, "", *_times(rows)]


def _times(rows: list[Row]) -> list[str]:
    """Write the time of one report: the paper's, and ours in bulk and alone."""
    paper = expected("errortime")
    lines = []
    for name in (*paper["microseconds"], "best"):
        printed = paper["microseconds"].get(name, [""] * len(paper["epsilon"]))
        measured = {number(row, "epsilon"): row for row in only(rows, mechanism=name)}
        ours = [
            f"{number(measured[e], 'bulk_us'):.2g}, {number(measured[e], 'one_us'):.2g}"
            for e in paper["epsilon"]
        ]
        pairs = zip(printed, ours, strict=True)
        lines.append([name, *(f"{theirs} / {ours}" if theirs else ours for theirs, ours in pairs)])
    head = [f"ε = {e:g}" for e in paper["epsilon"]]
    return markdown(["µs, paper / ours in bulk, alone", *head], lines)


# -- timecomm

_BARE: Final = {
    "location randomization": ("randomize_us", 1, "laplace_us", "a bare Laplace draw"),
    "encrypt information": ("join_us", 2, "seal_us", "two bare seals"),
    "decrypt one message": ("open_us", 1, "unseal_us", "a bare opening"),
    "key agreement with worker": ("write_us", 1, "seal_us", "a bare seal"),
}
_SENT: Final = {
    "send message to shuffler": (
        "upload_bytes",
        "a grid's report is 4 bytes shorter than that of a place, which makes 220",
    ),
    "retrieve matching result": (
        "board_bytes",
        (
            "everybody fetches the whole board (GMission here), so that nobody sees whose entry is "
            "whose; one entry has 192 bytes"
        ),
    ),
}


def timecomm(rows: list[Row]) -> list[Finding]:
    """Compare times with a baseline of the same run, and bytes with the paper's."""
    paper, row = expected("timecomm"), rows[0]
    steps = paper["steps"]
    findings = []
    for step, (column, times, bare, words) in _BARE.items():
        ours, least = number(row, column), times * number(row, bare)
        text = f"{ours:.3g} µs; {words} {least:.3g} µs on the same machine"
        findings.append(Finding(step, f"{steps[step]['us']:,} µs on its CPU", text))
    findings += [
        _bytes(step, steps[step]["bytes"], number(row, column), why)
        for step, (column, why) in _SENT.items()
    ]
    for one in rows:
        aim = paper["tasks"][one["dataset"]][one["task"]]
        ours, scipy = number(one, "task_ms"), number(one, "scipy_ms")
        text = f"{ours:.3g} ms; scipy {scipy:.3g} ms on the same machine"
        verdict = BETTER if ours <= scipy else NO
        what = f"{one['task']}, {one['dataset']}"
        findings.append(Finding(what, f"{aim['ms']} ms on its CPU", text, "", verdict))
        if one["task"] == "least-cost-matching":
            board = number(one, "board_bytes")
            findings.append(_bytes(f"bulletin, {one['dataset']}", aim["bytes"], board))
    return findings


def _bytes(what: str, paper: float, ours: float, why: str = "") -> Finding:
    verdict = BETTER if ours <= paper else NO
    return Finding(what, f"{paper:,} bytes", f"{ours:,.0f} bytes", "", verdict, why)


def timecomm_table(rows: list[Row]) -> list[str]:
    """Write every step that was timed."""
    names = [n for n in rows[0] if n not in {"dataset", "task", "epsilon", "seconds", "code"}]
    head = ["step", *(f"{row['dataset']}, {row['task']}" for row in rows)]
    return markdown(head, [[name, *(f"{number(r, name):,.4g}" for r in rows)] for name in names])


# -- the exact F1 of all check-ins


def exact_f1(rows: list[Row]) -> list[Finding]:
    """Compare the memory of the exact count with its goal."""
    most, pairs = (max(number(row, c) for row in rows) for c in ("peak_megabytes", "true_pairs"))
    aim = expected("exact-f1")["megabytes"]
    ours = f"at most {most:,.0f} MB for up to {pairs:.2g} true pairs, none stored"
    verdict = YES if most < aim else NO
    levels = " and ".join(f"{naming_everybody(row):.2f} (τ {row['radius']})" for row in rows[:2])
    return [
        Finding("memory of the exact F1", f"{aim:,} MB asked for", ours, "", verdict),
        Finding(
            "F1 without looking",
            "",
            f"answering everybody with everybody scores {levels} on {rows[0]['dataset']}",
            "",
            "",
            "neighbourhoods are that large here: scores near these say little",
        ),
    ]


def naming_everybody(row: Row) -> float:
    """Return the F1 of naming everybody to everybody, as a baseline of a score."""
    people = number(row, "check_ins")
    share = number(row, "true_pairs") / (people * (people - 1))
    return 2 * share / (1 + share)


def exact_f1_table(rows: list[Row]) -> list[str]:
    """Write the pairs, the time and the memory of each count."""
    names = [name for name in rows[0] if name not in {"size", "seconds", "code"}]
    lines = [[*(_plain(row[n]) for n in names), _plain(naming_everybody(row))] for row in rows]
    return markdown([*names, "F1 of naming everybody"], lines)


def _plain(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# -- mpec


def mpec(rows: list[Row]) -> list[Finding]:
    """Return our costs as computed statements."""
    paper = expected("mpec")
    findings = _mpec_costs(paper["claims"])
    for d in sorted({int(row["dimension"]) for row in rows}):
        measured = only(rows, dimension=d)
        n, error = (
            np.log([number(row, c) for row in measured]) for c in ("crowd", "squared_error")
        )
        slope = float(np.polyfit(n[-3:], error[-3:], 1)[0])
        aim = -2 / (d + 2)
        last = measured[-1]
        alone, crowd = number(last, "alone_squared_error"), int(last["crowd"])
        findings.append(
            Finding(
                f"squared error in the crowd, d = {d}",
                f"n^{aim:.3f}",
                f"n^{slope:.3f} over the largest three crowds",
                f"{number(last, 'squared_error'):.3g} at n = {crowd:,}, {alone:.3g} alone",
                YES if slope <= aim + paper["slack"] else NO,
                "an upper bound: falling faster keeps it" if slope < aim - paper["slack"] else "",
            )
        )
    return findings


def _mpec_costs(claims: dict[str, str]) -> list[Finding]:
    """Return what a round costs a client and the server, from the measured rounds."""
    rounds = read("timecomm", quick=False)
    if not rounds:
        return []
    up, down, board = (
        int(number(rounds[0], name)) for name in ("upload_bytes", "entry_bytes", "board_bytes")
    )
    people = {
        int(row["people"]): number(row, "open_us") + number(row, "answer_us") for row in rounds
    }
    times = ", ".join(f"{us:.0f} µs a report with {n:,}" for n, us in sorted(people.items()))
    even = max(people.values()) <= 1.5 * min(people.values())
    return [
        Finding("client: rounds", claims["rounds"], "one message up, one answer down", "", YES),
        Finding(
            "client: bits",
            claims["bits"],
            f"{up} bytes up, {down} bytes for an entry, but {board:,} for the board of "
            f"{int(number(rounds[0], 'people')):,} people",
            "",
            PARTLY,
            "fetching all entries hides which is one's own; a relay would leave one",
        ),
        Finding("server: work", claims["orchestrator"], times, "", YES if even else NO),
    ]


def mpec_table(rows: list[Row]) -> list[str]:
    """Write the squared error of one report by dimension and crowd, at ε = 1 and δ = 1e-9."""
    crowds = sorted({int(row["crowd"]) for row in rows})
    lines = []
    for d in sorted({int(row["dimension"]) for row in rows}):
        by_crowd = {int(row["crowd"]): row for row in only(rows, dimension=d)}
        lines.append(
            [
                str(d),
                str(by_crowd[crowds[0]]["report_bits"]),
                f"{number(by_crowd[crowds[0]], 'alone_squared_error'):.3g}",
                *(f"{number(by_crowd[n], 'squared_error'):.3g}" for n in crowds),
            ]
        )
    return markdown(["d", "bits of a report", "alone", *(f"n = {n:,}" for n in crowds)], lines)
