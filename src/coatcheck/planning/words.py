"""What a plan says in words and units."""

from typing import Final, Literal

from coatcheck.domains import Ball, Box, Categories, Domain
from coatcheck.planning.search import Design
from coatcheck.randomizers import FieldwiseResponse, Goal, Prior, Randomizer
from coatcheck.randomizers.reading import LEARNED

Aim = Goal | Literal["task"]

GOALS: Final[dict[Aim, str]] = {
    "mean": "mean distance, values uniform on the domain",
    "worst": "mean distance at the worst value",
    "unbiased": "root mean squared error at the worst value, unbiased",
    "task": "what a round of the task loses, tried on a prior",
}


def shape(made: Randomizer) -> str:
    """Name the radius or the grid of a mechanism, if it has one."""
    given = made.params()
    if "radius" in given:
        return f"radius {given['radius']:.4g}"
    return f"cells {' x '.join(map(str, given['cells']))}" if "cells" in given else ""


def described(design: Design) -> str:
    """Name a mechanism with its parameters."""
    made = design.randomizer
    told = (f"{made.name} with local ε = {made.epsilon:.4g}", shape(made), f"read by {design.how}")
    return ", ".join(part for part in told if part)


def told_error(design: Design, goal: Aim = "mean") -> str:
    """Tell the error in the unit of the domain, or of the score; a product has one per field."""
    made = design.randomizer
    if goal == "task":
        return f"{design.error:.4g} ± {2 * (design.standard_error or 0):.2g}"
    if isinstance(made, FieldwiseResponse):
        fields = (
            f"{name} {_size(part.expected_error(), part)}" for name, part in made.parts.items()
        )
        return f"error {', '.join(fields)}"
    return _size(design.error, made)


def told_assumption(design: Design, prior: Prior | None) -> list[str]:
    """Say under which assumption the error holds, where that is not the goal's own."""
    found = []
    errors = design.under_prior
    if errors is not None and prior is not None:
        near, far = (
            _size(x, design.randomizer) for x in (errors.percentile_90, errors.percentile_99)
        )
        found.append(
            f"The error is for people as the prior says ({prior.source}): 90 % of them are read "
            f"within {near}, 99 % within {far}."
        )
    if design.how in LEARNED and errors is None:
        found.append(
            "The error is for people spread evenly. Reports are read by where the batch shows "
            "people to be, so it is less where people crowd together."
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
    name = {"mean": "mean error", "worst": "worst mean error", "unbiased": "worst rms error"}
    return name[goal] + (f" ({unit})" if unit else "")
