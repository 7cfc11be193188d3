"""Learning together: the mean gradient, rewards for contributions, and the model update.

Everybody reports a gradient on a few coordinates, drawn independently of the data and named in the
note (a wallet address may follow). The server judges gradients by a private direction, its own
validation gradient; the reward is the Shapley value of the cosine game. *All* sampled coordinates
are randomized: passing zeros through, as in the paper, is not locally private when zeros depend on
data. The task sees gradients and notes, never keys. Paper, federated learning with incentives.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeGuard

import numpy as np
from numpy.typing import NDArray

from coatcheck.errors import Misuse
from coatcheck.tasks.contract import (
    Answers,
    AnswerSize,
    Floats,
    Notes,
    Positions,
    Score,
    Task,
    Values,
)
from coatcheck.tasks.execution import canonical_order
from coatcheck.tasks.shapley import DOUBT, Game, rewards

if TYPE_CHECKING:
    from coatcheck.entropy import Entropy

# -- descent: how the server moves a model from one private mean gradient to the next
#
# A person clips a gradient before reporting it. The server keeps a model, and takes a step after
# the private mean of each round: momentum SGD whose step falls linearly to 0 over the planned
# rounds. A large step suits noisy means: momentum averages them, and the falling step removes the
# rest.
_MOMENTUM: Final = 0.9


def clipped(gradient: Any, *, dimension: int, clip: float) -> Floats:
    """Shorten gradients, (d,) or (n, d), each to a length of at most `clip`.

    *Guarantee:* only finite numbers of the stated dimension get into a report.
    """
    if not clip > 0 or not np.isfinite(clip):
        raise Misuse(f"`clip` must be a finite number above 0, got {clip!r}")
    try:
        numbers = np.asarray(gradient, dtype=np.float64)
    except (TypeError, ValueError):
        raise Misuse("a gradient must be a list of numbers; flatten the model's arrays") from None
    if numbers.ndim not in {1, 2} or numbers.shape[-1] != dimension:
        raise Misuse(
            f"the model has {dimension} parameters, this gradient has the shape {numbers.shape};"
            " flatten it in the order of the model, and use the model that the round names"
        )
    if not np.all(np.isfinite(numbers)):
        raise Misuse(
            "the gradient has numbers that are not finite; do not report it, and lower your"
            " learning rate or check your data"
        )
    longest = np.max(np.abs(numbers), axis=-1, keepdims=True, initial=0.0)
    scaled = numbers / np.where(longest > 0, longest, 1.0)  # so that no square overflows
    length = longest * np.linalg.norm(scaled, axis=-1, keepdims=True)
    # A hair below the clip, so that rounding never leaves the ball.
    return np.asarray(numbers * np.minimum(1.0, clip * (1 - 1e-12) / np.where(length, length, 1.0)))


@dataclass(frozen=True, kw_only=True)
class Descent:
    """Momentum SGD over a planned number of rounds.

    Attributes:
        step: how far the model moves against a constant mean gradient in the first round.
        rounds: how many rounds are planned; the step is 0 after the last.
        momentum: the weight of the earlier means.
    """

    step: float
    rounds: int
    momentum: float = _MOMENTUM

    def __post_init__(self) -> None:
        if not (self.step > 0 and np.isfinite(self.step)):
            raise Misuse(f"`step` must be a finite number above 0, got {self.step}")
        if self.rounds < 1:
            raise Misuse(f"`rounds` must be at least 1, got {self.rounds}")
        if not 0 <= self.momentum < 1:
            raise Misuse(f"`momentum` must be from 0 to below 1, got {self.momentum}")

    def start(self, parameters: Any) -> "Model":
        """Return the model before the first round: zeros, random, or learned from public data."""
        numbers = np.array(parameters, dtype=np.float64)
        if numbers.ndim != 1 or not np.all(np.isfinite(numbers)):
            raise Misuse("the parameters of a model must be one row of finite numbers")
        return Model(parameters=numbers, velocity=np.zeros_like(numbers), descent=self)


@dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """A model between two rounds: the published parameters, and the state for the next step.

    Attributes:
        parameters: where people compute their gradients.
        velocity: the running mean of the private means.
        done: how many rounds are done.
    """

    parameters: Floats
    velocity: Floats
    descent: Descent
    done: int = 0

    def after(self, mean: Any) -> "Model":
        """Return the model after a round; an invalid mean is an error and changes nothing."""
        slope = np.asarray(mean, dtype=np.float64)
        if slope.shape != self.parameters.shape or not np.all(np.isfinite(slope)):
            raise Misuse(
                f"a mean gradient must have {len(self.parameters)} finite numbers; the model stays"
                " as it was"
            )
        how = self.descent
        if self.done >= how.rounds:
            raise Misuse(f"all {how.rounds} planned rounds are done; start a new Descent for more")
        velocity = how.momentum * self.velocity + (1 - how.momentum) * slope
        step = how.step * (1 - self.done / how.rounds)
        return replace(
            self,
            parameters=self.parameters - step * velocity,
            velocity=velocity,
            done=self.done + 1,
        )


_WORD = 4  # bytes that name a coordinate in a note


@dataclass(frozen=True, kw_only=True)
class Learning:
    """Reward everybody by the Shapley value of their gradient; optionally share the mean.

    A reward comes with an error bar, the spread of all rewards. Noise and real differences together
    make up that spread, so the noise of a reward is at most as large.

    Attributes:
        dimension: how many parameters the model has, at least 1.
        sampled: how many coordinates one report has; 0 for whole gradients and no notes.
        wallet: how many bytes of a wallet address follow the coordinates in a note.
        share_mean: whether every answer also holds the mean gradient.
        game: the value of a coalition: `cosine`, how well the sum of its gradients points along
            the direction; or `progress`, how far it goes along it, per person of the crowd. With
            progress a report may be one number, how far your own gradient goes along a direction
            that the server has published; the task then needs no direction.
        rewards: whether people are rewarded; without rewards the server needs no direction.
        direction: the direction by which gradients are judged; the server's own, never in terms.
    """

    dimension: int
    sampled: int = 0
    wallet: int = 0
    share_mean: bool = False
    rewards: bool = True
    game: Literal["cosine", "progress"] = "cosine"
    groups: tuple[str] = ("people",)
    direction: Floats | None = field(default=None, repr=False, compare=False)

    name = "learning"

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(self.groups))
        if self.dimension < 1:
            raise Misuse(f"`dimension` must be at least 1, got {self.dimension}")
        if not 0 <= self.sampled <= self.dimension:
            raise Misuse(f"`sampled` must be from 0 to {self.dimension}, got {self.sampled}")
        if self.wallet < 0:
            raise Misuse(f"`wallet` must be at least 0, got {self.wallet}")
        if self.game not in {"cosine", "progress"}:
            raise Misuse(f"`game` must be cosine or progress, got {self.game!r}")
        if not (self.rewards or self.share_mean):
            raise Misuse("`rewards`, `share_mean` or both must be true")
        if self.direction is None:
            return
        # It may come as a list, from a file that only the server reads.
        object.__setattr__(self, "direction", np.asarray(self.direction, dtype=np.float64))
        if np.shape(self.direction) != (self.dimension,):
            raise Misuse(
                f"`direction` must have {self.dimension} numbers, got the shape "
                f"{np.shape(self.direction)}"
            )

    @classmethod
    def example(cls) -> "Learning":
        """Return a task to check."""
        return cls(dimension=5, sampled=2, share_mean=True).judged_by(np.arange(1.0, 6.0))

    def judged_by(self, direction: Floats) -> "Learning":
        """Return the same task with the server's validation gradient as its direction."""
        return replace(self, direction=np.asarray(direction, dtype=np.float64))

    @property
    def width(self) -> int:
        """Return the numbers in one report."""
        return self.sampled or self.dimension

    @property
    def dimensions(self) -> tuple[int]:
        """Return the numbers in one report of each group."""
        return (self.width,)

    @property
    def note_size(self) -> int:
        """Return the bytes of a note: the coordinates, then the wallet."""
        return _WORD * self.sampled + self.wallet

    def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
        """Reward whole gradients."""
        if self.sampled:
            raise Misuse(
                "sampled gradients need the notes that name their coordinates; pass `notes`"
            )
        (gradients,) = estimates
        return self._answer(Game.dense(self._fits(gradients), self._judge()))

    def with_notes(self, estimates: Sequence[Floats], notes: Sequence[Notes]) -> list[Answers]:
        """Reward gradients on the coordinates that the notes name."""
        if not self.sampled:
            return self(estimates)
        (values,), (note,) = estimates, notes
        where = self.coordinates(note)
        game = Game(coordinates=where, values=self._fits(values), direction=self._judge())
        return self._answer(game)

    def mean(self, values: Floats, note: Notes | None = None) -> Floats:
        """Return the unbiased mean gradient: sampled values are scaled up by the sampling rate."""
        if note is None or not self.sampled:
            return self._fits(values).mean(axis=0) if len(values) else np.zeros(self.dimension)
        where = self.coordinates(note).ravel()
        summed = np.bincount(where, self._fits(values).ravel(), minlength=self.dimension)
        return summed / max(len(values), 1) * (self.dimension / self.sampled)

    def exposed(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:  # noqa: ARG002 - nobody in any crowd
        """Return 0: a reward refers to nobody."""
        return ((0,),)

    def answer_size(self, dimensions: Sequence[int]) -> tuple[AnswerSize, ...]:  # noqa: ARG002 - the model's counts
        """Return two numbers for a reward with its error bar, and the mean if it is shared."""
        return (AnswerSize(numbers=2 * self.rewards + self.dimension * self.share_mean),)

    def params(self) -> dict[str, object]:
        """Return the parameters for the terms; the direction stays with the server."""
        return {
            "name": self.name,
            "dimension": self.dimension,
            "sampled": self.sampled,
            "wallet": self.wallet,
            "share_mean": self.share_mean,
            "rewards": self.rewards,
            "game": self.game,
            "groups": list(self.groups),
        }

    def score(
        self,
        truth: Sequence[Floats],
        *,
        estimates: Sequence[Floats],
        answers: Sequence[Answers] | None = None,  # noqa: ARG002 - the mean is judged
    ) -> Score:
        """Return the distance of the mean gradient from the true mean, where reported."""
        error = float(np.linalg.norm(estimates[0].mean(axis=0) - truth[0].mean(axis=0)))
        return Score(name="mean gradient error", value=error, higher_is_better=False)

    def draw_coordinates(self, count: int, *, entropy: "Entropy") -> Positions:
        """Draw `sampled` different coordinates for each of `count` people.

        *Guarantee:* the draw is independent of the data, so naming it in a note costs no privacy.
        """
        where = np.zeros((count, self.sampled), dtype=np.int64)
        again = np.arange(count)
        while len(again):
            draws = entropy.below(self.dimension, len(again) * self.sampled)
            where[again] = np.sort(draws.reshape(len(again), self.sampled), axis=1)
            again = again[np.any(np.diff(where[again], axis=1) == 0, axis=1)]
        return where

    def notes(self, coordinates: Positions, wallets: Notes | None = None) -> Notes:
        """Return the notes that name these coordinates, one row of bytes per person."""
        words = np.ascontiguousarray(coordinates.astype("<u4"))
        named = words.view(np.uint8).reshape(len(coordinates), -1)
        behind = np.zeros((len(named), self.wallet), np.uint8) if wallets is None else wallets
        return np.concatenate([named, behind], axis=1)

    def coordinates(self, note: Notes) -> Positions:
        """Return the coordinates that notes name, modulo the dimension: no note is malformed."""
        if note.shape[1] != self.note_size:
            raise Misuse(
                f"notes must have {self.note_size} bytes for this task, got {note.shape[1]}"
            )
        words = np.ascontiguousarray(note[:, : _WORD * self.sampled]).view("<u4")
        return words.astype(np.int64) % self.dimension

    def _fits(self, values: Floats) -> Floats:
        if values.ndim != 2 or values.shape[1] != self.width:
            raise Misuse(
                f"a report must have {self.width} numbers for this task, got {values.shape}"
            )
        return values

    def _judge(self) -> Floats:
        if not self.rewards or (self.game == "progress" and self.dimension == 1):
            return np.ones(
                self.dimension
            )  # nobody is judged, or the report is the judgement itself
        if self.direction is None:
            raise Misuse(
                "the task has no `direction` to judge gradients by; set it with `judged_by`"
            )
        return self.direction

    def _answer(self, game: Game) -> list[Answers]:
        data = np.empty((len(game), 0))
        if self.rewards:
            # The game of progress is a sum, so a person's value is their own summand.
            progress = self.game == "progress"
            shapley = None if progress else rewards(game)
            values = game.along() / max(len(game), 1) if shapley is None else shapley.values
            spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
            if shapley is not None and shapley.doubtful:
                spread *= 1 + DOUBT
            data = np.stack([values, np.full(len(values), spread)], axis=1)
        if not self.share_mean:
            return [Values(data)]
        scale = self.dimension / self.width / max(len(game), 1)
        return [Values(data, game.sum() * scale)]


# -- the mean of whole gradients, a part of the reports at a time
#
# A model has thousands of parameters and a crowd a million people: the table of all estimates would
# take many gigabytes, and longer to sort than to add up. A task that answers with the mean alone
# needs neither.
_NUMBERS: Final = 2**20  # estimates at a time: 8 MB, and as much again to decode them


def answers_mean_only(task: Task) -> TypeGuard[Learning]:
    """Return whether this is learning without rewards, from whole gradients."""
    return isinstance(task, Learning) and not (task.rewards or task.sampled)


def mean_of(
    task: Learning, reports: NDArray[Any], decode: Callable[[NDArray[Any]], Floats]
) -> Values:
    """Answer all reports with the mean of their estimates, as the task does.

    `decode` estimates a part of the reports, each by itself. They are added up in the order of
    their content, so that the order in which they came does not matter.
    """
    ordered = reports[canonical_order(reports)]
    total, rows = np.zeros(task.dimension), max(1, _NUMBERS // task.dimension)
    for start in range(0, len(ordered), rows):
        part = ordered[start : start + rows]
        total += task.mean(decode(part)) * len(part)
    if not np.all(np.isfinite(total)):
        raise Misuse(
            f"estimates of group {task.groups[0]} are not all finite; a task needs finite numbers"
        )
    return Values(np.empty((len(reports), 0)), total / max(1, len(reports)))
