"""Descent: how a model moves from one private mean gradient to the next, on the server's side.

A person clips a gradient before it is reported. The server keeps a model, and a step follows each
round's private mean: momentum SGD whose step falls linearly to 0 over the planned rounds. A large
step suits noisy means: momentum averages them, and the fall of the step quiets the rest. Knows
numbers only. Paper, federated learning with incentives.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from coatcheck.errors import Misuse
from coatcheck.tasks.answers import Floats

_MOMENTUM: Final = 0.9


def clipped(gradient: Any, *, dimension: int, clip: float) -> Floats:
    """Return gradients, (d,) or (n, d), each shortened to a length of at most `clip`.

    *Guarantee:* nothing but finite numbers of the stated dimension gets to a report.
    """
    if not clip > 0 or not np.isfinite(clip):
        raise Misuse(f"a clip is a length above 0, got {clip!r}")
    try:
        found = np.asarray(gradient, dtype=np.float64)
    except (TypeError, ValueError):
        raise Misuse("a gradient is a list of numbers: flatten the model's arrays first") from None
    if found.ndim not in {1, 2} or found.shape[-1] != dimension:
        raise Misuse(
            f"the model has {dimension} parameters, this gradient has the shape {found.shape}:"
            " flatten it in the order of the model, and use the model that the round names"
        )
    if not np.all(np.isfinite(found)):
        raise Misuse(
            "the gradient has numbers that are not finite: lower your learning rate or check your"
            " data, and do not report"
        )
    longest = np.max(np.abs(found), axis=-1, keepdims=True, initial=0.0)
    scaled = found / np.where(longest > 0, longest, 1.0)  # so that no square overflows
    length = longest * np.linalg.norm(scaled, axis=-1, keepdims=True)
    # A hair below the clip, so that rounding never leaves the ball.
    return np.asarray(found * np.minimum(1.0, clip * (1 - 1e-12) / np.where(length, length, 1.0)))


@dataclass(frozen=True, kw_only=True)
class Descent:
    """Momentum SGD over a planned number of rounds.

    Attributes:
        step: how far the model goes against a steady mean gradient in the first round.
        rounds: how many there are; the step is 0 after the last.
        momentum: how much of the earlier means is kept.
    """

    step: float
    rounds: int
    momentum: float = _MOMENTUM

    def __post_init__(self) -> None:
        if not (self.step > 0 and np.isfinite(self.step)) or self.rounds < 1:
            raise Misuse(f"descent has a step above 0 and rounds, not {self.step}, {self.rounds}")
        if not 0 <= self.momentum < 1:
            raise Misuse(f"momentum is from 0 to below 1, got {self.momentum}")

    def start(self, parameters: Any) -> "Model":
        """Return the model before the first round: zeros, a draw, or learned from public data."""
        found = np.array(parameters, dtype=np.float64)
        if found.ndim != 1 or not np.all(np.isfinite(found)):
            raise Misuse("a model is one row of finite numbers")
        return Model(parameters=found, velocity=np.zeros_like(found), descent=self)


@dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """A model between two rounds: what the server publishes, and what it keeps for the next step.

    Attributes:
        parameters: what people compute their gradients at.
        velocity: the running mean of the private means.
        done: how many means it has followed.
    """

    parameters: Floats
    velocity: Floats
    descent: Descent
    done: int = 0

    def after(self, mean: Any) -> "Model":
        """Return the model after a round; one whose mean is no mean leaves it as it was."""
        slope = np.asarray(mean, dtype=np.float64)
        if slope.shape != self.parameters.shape or not np.all(np.isfinite(slope)):
            raise Misuse(
                f"this is no mean gradient of {len(self.parameters)} finite numbers: the model"
                " stays as it was"
            )
        how = self.descent
        if self.done >= how.rounds:
            raise Misuse(f"all {how.rounds} planned rounds are done: more need a new plan")
        velocity = how.momentum * self.velocity + (1 - how.momentum) * slope
        step = how.step * (1 - self.done / how.rounds)
        return replace(
            self,
            parameters=self.parameters - step * velocity,
            velocity=velocity,
            done=self.done + 1,
        )
