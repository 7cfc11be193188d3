"""What a plan says in words and units."""

from typing import Final, Literal

from coatcheck.domains import Ball, Box, Categories, Domain
from coatcheck.planning.search import Design
from coatcheck.randomizers import FieldwiseResponse, Goal, Randomizer

Aim = Goal | Literal["task"]

GOALS: Final[dict[Aim, str]] = {
    "mean": "mean distance, values uniform on the domain",
    "worst": "mean distance at the worst value",
    "unbiased": "root mean squared error at the worst value, unbiased",
    "task": "what a round of the task loses, tried on a prior",
}


def told_aim(aim: Aim) -> str:
    """Say what a plan makes small."""
    return GOALS[aim]


def told_promise(epsilon: float, delta: float, rounds: int, aim: Aim) -> str:
    """Say what a plan keeps, and what it makes small."""
    over = f" over {rounds:,} rounds together" if rounds > 1 else ""
    return f"To keep ε = {epsilon:g} at δ = {delta:.3g}{over} ({told_aim(aim)}):"


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
        return f"{design.error:.4g}"
    if isinstance(made, FieldwiseResponse):
        fields = (
            f"{name} {_size(part.expected_error(), part)}" for name, part in made.parts.items()
        )
        return f"error {', '.join(fields)}"
    return _size(design.error, made)


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
