"""Learning together: the mean of sampled gradients, and a reward for what each one contributed.

Everybody reports a gradient on a few coordinates, drawn without looking at the data and named in
the note (a wallet address may follow). The server's private direction, a validation gradient,
judges them; the reward is the Shapley value of the cosine game. *All* sampled coordinates are
randomized: passing zeros through, as the paper says, is not locally private when zeros depend on
data. Sees gradients and notes, never keys. Paper, federated learning with incentives.
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

# HOUSE-DOC tasks.descent: "Descent: how a model moves from one private mean gradient to the next, on the server's side.\n\nA person clips a gradient before it is reported. The server keeps a model, and a step follows each\nround's private mean: momentum SGD whose step falls linearly to 0 over the planned rounds. A large\nstep suits noisy means: momentum averages them, and the fall of the step quiets the rest. Knows\nnumbers only. Paper, federated learning with incentives.\n"
_MOMENTUM: Final = 0.9


def clipped(gradient: Any, *, dimension: int, clip: float) -> Floats:
    """Return gradients, (d,) or (n, d), each shortened to a length of at most `clip`.

    *Guarantee:* nothing but finite numbers of the stated dimension gets to a report.
    """
    if not clip > 0 or not np.isfinite(clip):
        raise Misuse(f"a clip is a length above 0, got {clip!r}")
    try:
        numbers = np.asarray(gradient, dtype=np.float64)
    except (TypeError, ValueError):
        raise Misuse("a gradient is a list of numbers: flatten the model's arrays first") from None
    if numbers.ndim not in {1, 2} or numbers.shape[-1] != dimension:
        raise Misuse(
            f"the model has {dimension} parameters, this gradient has the shape {numbers.shape}:"
            " flatten it in the order of the model, and use the model that the round names"
        )
    if not np.all(np.isfinite(numbers)):
        raise Misuse(
            "the gradient has numbers that are not finite: lower your learning rate or check your"
            " data, and do not report"
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
        numbers = np.array(parameters, dtype=np.float64)
        if numbers.ndim != 1 or not np.all(np.isfinite(numbers)):
            raise Misuse("a model is one row of finite numbers")
        return Model(parameters=numbers, velocity=np.zeros_like(numbers), descent=self)


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


_WORD = 4  # bytes that name a coordinate in a note


@dataclass(frozen=True, kw_only=True)
class Learning:
    """Reward everybody by the Shapley value of their gradient; optionally share the mean.

    A reward comes with an error bar, the spread of all rewards: what noise does to a reward is at
    most that, for the spread is what noise and real differences make together.

    Attributes:
        dimension: the parameters of the model.
        sampled: how many coordinates one report has; 0 for whole gradients and no notes.
        wallet: the bytes of a wallet address behind the coordinates in a note.
        share_mean: whether every answer also holds the mean gradient.
        game: what a coalition is worth: `cosine`, how well the sum of its gradients points along
            the direction; or `progress`, how far it goes along it, per person of the crowd. With
            progress a report may be one number, how far your own gradient goes along a direction
            that the server has published; it then needs none here.
        rewards: whether people are rewarded; without rewards the server needs no direction.
        direction: what gradients are judged by; the server's own, never in the terms.
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
        if self.dimension < 1 or not 0 <= self.sampled <= self.dimension or self.wallet < 0:
            raise Misuse("learning needs a dimension, and samples at most so many coordinates")
        if self.game not in {"cosine", "progress"}:
            raise Misuse(f"the games are cosine and progress, not {self.game!r}")
        if not (self.rewards or self.share_mean):
            raise Misuse("learning answers with rewards, with the mean, or with both")
        if self.direction is None:
            return
        # It may come as a list, from a file that only the server reads.
        object.__setattr__(self, "direction", np.asarray(self.direction, dtype=np.float64))
        if np.shape(self.direction) != (self.dimension,):
            raise Misuse(f"the direction must have {self.dimension} numbers")

    @classmethod
    def example(cls) -> "Learning":
        """A task to check."""
        return cls(dimension=5, sampled=2, share_mean=True).judged_by(np.arange(1.0, 6.0))

    def judged_by(self, direction: Floats) -> "Learning":
        """The same task on the server, which knows the validation gradient."""
        return replace(self, direction=np.asarray(direction, dtype=np.float64))

    @property
    def width(self) -> int:
        """The numbers in one report."""
        return self.sampled or self.dimension

    @property
    def dimensions(self) -> tuple[int]:
        """The numbers in one report of each group."""
        return (self.width,)

    @property
    def note_size(self) -> int:
        """The bytes of a note: the coordinates, then the wallet."""
        return _WORD * self.sampled + self.wallet

    def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
        """Reward whole gradients."""
        if self.sampled:
            raise Misuse("sampled gradients are nothing without the notes that name coordinates")
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
        """The unbiased mean gradient: sampled values are scaled up by the sampling rate."""
        if note is None or not self.sampled:
            return self._fits(values).mean(axis=0) if len(values) else np.zeros(self.dimension)
        where = self.coordinates(note).ravel()
        summed = np.bincount(where, self._fits(values).ravel(), minlength=self.dimension)
        return summed / max(len(values), 1) * (self.dimension / self.sampled)

    def exposed(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:  # noqa: ARG002 - nobody in any crowd
        """A reward refers to nobody."""
        return ((0,),)

    def answer_size(self, dimensions: Sequence[int]) -> tuple[AnswerSize, ...]:  # noqa: ARG002 - the model's counts
        """A reward with its error bar, and the mean if it is shared."""
        return (AnswerSize(numbers=2 * self.rewards + self.dimension * self.share_mean),)

    def params(self) -> dict[str, object]:
        """Parameters for the terms; the direction stays with the server."""
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
        """The distance of the mean gradient from the true mean on the reported coordinates."""
        error = float(np.linalg.norm(estimates[0].mean(axis=0) - truth[0].mean(axis=0)))
        return Score(name="mean gradient error", value=error, higher_is_better=False)

    def draw_coordinates(self, count: int, *, entropy: "Entropy") -> Positions:
        """Draw `sampled` different coordinates for each of `count` people.

        *Guarantee:* data-independent, so that naming them in a note costs no privacy.
        """
        where = np.zeros((count, self.sampled), dtype=np.int64)
        again = np.arange(count)
        while len(again):
            drawn = entropy.below(self.dimension, len(again) * self.sampled)
            where[again] = np.sort(drawn.reshape(len(again), self.sampled), axis=1)
            again = again[np.any(np.diff(where[again], axis=1) == 0, axis=1)]
        return where

    def notes(self, coordinates: Positions, wallets: Notes | None = None) -> Notes:
        """The notes that name these coordinates, one row of bytes per person."""
        words = np.ascontiguousarray(coordinates.astype("<u4"))
        named = words.view(np.uint8).reshape(len(coordinates), -1)
        behind = np.zeros((len(named), self.wallet), np.uint8) if wallets is None else wallets
        return np.concatenate([named, behind], axis=1)

    def coordinates(self, note: Notes) -> Positions:
        """The coordinates that notes name, taken modulo the dimension: no note is malformed."""
        if note.shape[1] != self.note_size:
            raise Misuse(f"notes have {note.shape[1]} bytes; this task reads {self.note_size}")
        words = np.ascontiguousarray(note[:, : _WORD * self.sampled]).view("<u4")
        return words.astype(np.int64) % self.dimension

    def _fits(self, values: Floats) -> Floats:
        if values.ndim != 2 or values.shape[1] != self.width:
            raise Misuse(f"reports have shape {values.shape}; this task reads {self.width} numbers")
        return values

    def _judge(self) -> Floats:
        if not self.rewards or (self.game == "progress" and self.dimension == 1):
            return np.ones(self.dimension)  # nobody is judged, or the number is the judgement
        if self.direction is None:
            raise Misuse("no direction to judge gradients by; the server gives it by `judged_by`")
        return self.direction

    def _answer(self, game: Game) -> list[Answers]:
        data = np.empty((len(game), 0))
        if self.rewards:
            # The game of progress is a sum, so that a person's value is their own part of it.
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


# HOUSE-DOC tasks.means: 'The mean of whole gradients, a part of the reports at a time.\n\nA model has thousands of parameters and a crowd a million people: the table of all estimates would\nbe many gigabytes, and to sort it takes longer than to add it up. A task that tells everybody the\nmean and nothing else needs neither. Sees reports and estimates, never keys.\n'
_NUMBERS: Final = 2**20  # estimates that are read at a time: 8 MB, and as much again to read them


def answers_mean_only(task: Task) -> TypeGuard[Learning]:
    """Tell whether it is learning without rewards, of whole gradients."""
    return isinstance(task, Learning) and not (task.rewards or task.sampled)


def mean_of(
    task: Learning, reports: NDArray[Any], read: Callable[[NDArray[Any]], Floats]
) -> Values:
    """Answer all reports with the mean of their estimates, as the task does.

    `read` estimates some reports, each by itself. They are added up in the order of their content,
    so that the order in which they came does not matter.
    """
    ordered = reports[canonical_order(reports)]
    total, rows = np.zeros(task.dimension), max(1, _NUMBERS // task.dimension)
    for start in range(0, len(ordered), rows):
        part = ordered[start : start + rows]
        total += task.mean(read(part)) * len(part)
    if not np.all(np.isfinite(total)):
        raise Misuse(f"estimates of group {task.groups[0]} are not all finite")
    return Values(np.empty((len(reports), 0)), total / max(1, len(reports)))
