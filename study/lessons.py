"""Findings of the study of learning: its rows as tables, compared with goals and alternatives."""

import math
from statistics import fmean, stdev
from typing import Final

from study.findings import NO, NOT_YET, YES, Finding, expected, number, only
from study.recipes import Recipe
from study.rewards import JUDGED
from study.sheets import Row
from study.tables import markdown

_WAYS: Final = {
    "reports": "real reports",
    "law": "stated variance",
    "central": "Gaussian noise of a trusted server",
    "none": "no noise",
    "alone": "nobody takes part",
}
ALONE: Final = "server alone, 200 examples"


def _scores(rows: list[Row], **wanted: object) -> dict[int, float]:
    """Return accuracies by seed."""
    return {int(row["seed"]): number(row, "accuracy") for row in only(rows, **wanted)}


def _mean_text(scores: list[float], *, digits: int = 1) -> str:
    """Write the mean, standard error, least value and number of seeds; one seed has no error."""
    if not scores:
        return NOT_YET
    mean = f"{fmean(scores):.{digits}f}"
    if len(scores) == 1:
        return f"{mean} (one seed)"
    error = stdev(scores) / math.sqrt(len(scores))
    return f"{mean} ± {error:.{digits}f} (least {min(scores):.{digits}f}, {len(scores)} seeds)"


def _reached(rows: list[Row], part: str) -> list[Finding]:
    """Compare means with the goals that were set before anything was measured."""
    document, findings = expected(f"learning-{part}"), []
    for row, goals in document["goals"].items():
        for epsilon, goal in goals.items():
            scores = [*_scores(rows, part=part, row=row, epsilon=int(epsilon)).values()]
            paper = f"{document['paper'][epsilon]} %" if part == "network" else ""
            verdict = (YES if fmean(scores) >= goal else NO) if scores else NOT_YET
            what = f"{row}, ε = {epsilon}: at least {goal} %"
            findings.append(Finding(what, paper, "", _mean_text(scores), verdict))
    return findings


def _above_alone(rows: list[Row], part: str, named: tuple[str, ...]) -> list[Finding]:
    """Compare rows with the server alone, seed by seed."""
    alone = _scores(rows, part=part, row=ALONE)
    findings = []
    for row in named:
        for epsilon in (1, 3):
            ours = _scores(rows, part=part, row=row, epsilon=epsilon)
            gains = [ours[seed] - alone[seed] for seed in sorted({*ours} & {*alone})]
            verdict = (YES if min(gains) > 0 else NO) if gains else NOT_YET
            said = ", ".join(f"{gain:+.1f}" for gain in gains)
            what = f"{row}, ε = {epsilon}: above the server alone on every seed"
            findings.append(Finding(what, "", "", said or NOT_YET, verdict))
    return findings


def network(rows: list[Row]) -> list[Finding]:
    """The paper's network."""
    named = ("200 public examples", "no public example")
    return [*_reached(rows, "network"), *_above_alone(rows, "network", named)]


def linear(rows: list[Row]) -> list[Finding]:
    """The linear model."""
    named = ("50,000 people", "5,000 people", "5,000 people, 200 public examples")
    return [*_reached(rows, "linear"), *_above_alone(rows, "linear", named)]


def law(rows: list[Row]) -> list[Finding]:
    """Whether noise of the stated variance gives what real reports give, on the same seeds."""
    findings = []
    for row, epsilon in dict.fromkeys(
        (str(r["row"]), int(r["epsilon"])) for r in only(rows, part="law")
    ):
        part = row.split(",")[0]
        name = "no public example" if part == "network" else row.removeprefix("linear, ")
        stated = _scores(rows, part="law", row=row, epsilon=epsilon)
        real = _scores(rows, part=part, row=name, epsilon=epsilon)
        gaps = [real[seed] - stated[seed] for seed in sorted({*real} & {*stated})]
        gain, verdict = NOT_YET, NOT_YET
        if len(gaps) > 1:
            error = stdev(gaps) / math.sqrt(len(gaps))
            gain = f"{fmean(gaps):+.2f} ± {error:.2f} on {len(gaps)} seeds"
            verdict = YES if abs(fmean(gaps)) <= 2 * error else NO
        what = f"{row}, ε = {epsilon}: real reports less stated variance"
        findings.append(Finding(what, "", "", gain, verdict))
    return findings


def ablations(rows: list[Row]) -> list[Finding]:
    """Return what each idea contributes, on the seeds of both."""
    ours = _scores(rows, part="network", row="no public example", epsilon=1)
    warm = _scores(rows, part="network", row="200 public examples", epsilon=1)
    findings = []
    for row in dict.fromkeys(str(one["row"]) for one in only(rows, part="ablations")):
        other = _scores(rows, part="ablations", row=row)
        whole = warm if row.startswith("200 public") else ours
        both = sorted({*whole} & {*other})
        differences = ", ".join(f"{other[seed] - whole[seed]:+.1f}" for seed in both)
        findings.append(
            Finding(row, "", "", differences or NOT_YET, "", f"seeds {both}: other less ours")
        )
    return findings


def rewards(rows: list[Row]) -> list[Finding]:
    """Return the correlation of rewards with the true Shapley values."""
    goal = expected("learning-rewards")["goal"]
    scores = [number(row, "mean") for row in rows]
    what = f"correlation with the true Shapley values, ε = 1: at least {goal}"
    verdict = YES if fmean(scores) >= goal else NO
    return [Finding(what, "0.73, by our first design", "", _mean_text(scores, digits=3), verdict)]


def table(rows: list[Row], *, part: str) -> list[str]:
    """Write out the rows of a part: one line per row and way, ε side by side."""
    part_rows = only(rows, part=part)
    lines = []
    for row in dict.fromkeys(str(one["row"]) for one in part_rows):
        recipes = [Recipe.read(str(one["recipe"])) for one in only(part_rows, row=row)]
        epsilons = sorted({int(one["epsilon"]) for one in only(part_rows, row=row)})
        cells = {e: [*_scores(part_rows, row=row, epsilon=e).values()] for e in epsilons}
        said = [_mean_text(cells[e]) if e in cells else "" for e in (1, 3)]
        if epsilons == [0]:
            said = [_mean_text(cells[0]), "the same"]
        local = sorted({number(one, "local_epsilon") for one in only(part_rows, row=row)})
        local_epsilons = ", ".join(f"{one:.2f}" for one in local if math.isfinite(one))
        lines.append([row, *said, _WAYS[recipes[0].way], local_epsilons])
    return markdown(["row", "ε = 1", "ε = 3", "the mean is made by", "local ε"], lines)


def by_seed(rows: list[Row], *, part: str) -> list[str]:
    """Write out a part's accuracies seed by seed, beside those of the server alone."""
    part_rows = [row for row in only(rows, part=part) if "way=" not in str(row["recipe"])]
    alone = _scores(rows, part=part, row=ALONE)
    lines = [[ALONE, "", *(f"{score:.1f}" for _, score in sorted(alone.items()))]]
    seeds = sorted({int(row["seed"]) for row in only(rows, part=part)})
    for row, epsilon in dict.fromkeys((str(r["row"]), int(r["epsilon"])) for r in part_rows):
        ours = _scores(part_rows, row=row, epsilon=epsilon)
        cells_by_seed = [
            f"{ours[s]:.1f} ({ours[s] - alone[s]:+.1f})" if s in ours and s in alone else ""
            for s in seeds
        ]
        lines.append([row, str(epsilon), *cells_by_seed])
    head = ["row (and its distance to the server alone)", "ε", *(f"seed {s}" for s in seeds)]
    return markdown(head, lines)


def part_tables(rows: list[Row], *, part: str) -> list[str]:
    """Write out a part by means, and also by seeds where the server alone stands beside it."""
    means = table(rows, part=part)
    return [*means, "", *by_seed(rows, part=part)] if part in {"network", "linear"} else means


def rewards_table(rows: list[Row]) -> list[str]:
    """Write out the correlations round by round."""
    head = ["seed", "local ε", *(f"round {number + 1}" for number in JUDGED), "mean"]
    names = ["local_epsilon", *(f"round_{number + 1}" for number in JUDGED), "mean"]
    return markdown(
        head, [[str(row["seed"]), *(f"{number(row, name):.3f}" for name in names)] for row in rows]
    )
