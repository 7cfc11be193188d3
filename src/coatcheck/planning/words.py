"""What a plan says in words and units."""

from typing import Final, Literal

from coatcheck.domains import Ball, Box, Categories, Domain
from coatcheck.planning.search import Design
from coatcheck.randomizers import FieldwiseResponse, Goal, Randomizer
from coatcheck.randomizers.choice import AVERAGES, EVENLY
from coatcheck.randomizers.reading import LEARNED

Aim = Goal | Literal["task"]

GOALS: Final[dict[Aim, str]] = {
    "mean": "mean distance",
    "squared": "root mean squared distance",
    "median": "distance within which half of all people are read",
    "worst": "mean distance at the worst value",
    "unbiased": "root mean squared error at the worst value, unbiased",
    "task": "what a round of the task loses, tried on a prior",
}


def shape(made: Randomizer) -> str:
    """Name the radius or the grid of a mechanism, if it has one."""
    given = made.params()
    if "radius" in given:
        return f"radius {given['radius']:.4g}"
    if "points" in given:
        return f"{len(given['points'])} points"
    return f"cells {' x '.join(map(str, given['cells']))}" if "cells" in given else ""


def described(design: Design) -> str:
    """Name a mechanism with its parameters."""
    made = design.randomizer
    if not design.worth_a_report:
        return "no report, the same place for everybody"
    told = (f"{made.name} with local ε = {made.epsilon:.4g}", shape(made), f"read by {design.how}")
    return ", ".join(part for part in told if part)


def told_error(design: Design, goal: Aim = "mean") -> str:
    """Tell the error in the unit of the domain, or of the score; a product has one per field."""
    made = design.randomizer
    if goal == "task":
        return f"{design.error:.4g} ± {2 * (design.standard_error or 0):.2g}"
    if isinstance(made, FieldwiseResponse):
        parts = made.parts.items()
        return ", ".join(f"{name} {_size(part.expected_error(), part)}" for name, part in parts)
    return _size(design.error, made)


def told_assumption(design: Design) -> list[str]:
    """Say for whom the error holds, and within which distance most people are read."""
    if not design.worth_a_report:
        told = f"everybody is answered the same place, with this error for {design.people}"
        return [f"No report is worth asking for: {told}. Ask for a larger ε or a larger crowd."]
    found = []
    errors = design.errors if design.goal in GOALS and design.goal != "task" else None
    if errors is not None and not isinstance(design.randomizer.domain, Categories):
        near, far = (
            _size(x, design.randomizer) for x in (errors.percentile_90, errors.percentile_99)
        )
        whom = design.people if design.goal in AVERAGES else EVENLY
        found.append(f"For {whom}: 90 % are read within {near}, 99 % within {far}.")
    if design.how in LEARNED and design.prior is None:
        found.append(
            "Reports are read by where the batch shows people to be, so the error is less where "
            "people crowd together."
        )
    return found


def _size(error: float, made: Randomizer) -> str:
    if isinstance(made.domain, Categories):
        return f"{error:.1%} wrong labels"
    unit = made.domain.unit if isinstance(made.domain, Box | Ball) else ""
    return f"{error:,.0f} {unit}" if unit and error >= 100 else f"{error:.4g} {unit}".rstrip()


def told_unit(domain: Domain, goal: Aim) -> str:
    """Say what the error is for a goal, and in which unit."""
    if goal == "task":
        return "lost by a round"
    if isinstance(domain, Categories):
        return "share of wrong labels"
    unit = domain.unit if isinstance(domain, Box | Ball) else ""
    name = {
        "mean": "mean error",
        "squared": "rms error",
        "median": "median error",
        "worst": "worst mean error",
        "unbiased": "worst rms error",
    }
    return name[goal] + (f" ({unit})" if unit else "")
