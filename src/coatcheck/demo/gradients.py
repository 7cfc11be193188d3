"""A tiny model that a crowd teaches in a few rounds: logistic regression, a gradient per person.

A quarter of the people learned from wrong labels, which their rewards should show. Data is made
up from a seed; nobody real is in it. Paper, federated learning with incentives.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from coatcheck.domains import Floats
from coatcheck.entropy import Entropy, source
from coatcheck.tasks.descent import Descent, Model, clipped

PARAMETERS: Final = 4
SEED: Final = 2026
_TRUTH: Final = np.array([1.6, -1.1, 0.7, 0.3])
_EXAMPLES: Final = 24
CLIP: Final = 0.5
"""The longest gradient that a person reports; public, stated in the terms."""
ROUNDS: Final = 4
RATE: Final = 0.8
"""The chance with which a person speaks in a round; who does not is silent."""
DESCENT: Final = Descent(step=4.0, rounds=ROUNDS, momentum=0.5)

Examples = tuple[Floats, Floats]


@dataclass(frozen=True, eq=False)
class Lesson:
    """What the people and the server know before a round of learning.

    Attributes:
        people: each person's examples: features and labels.
        misled: whose labels were wrong.
        judges: the server's own examples, which it keeps to itself.
        features: what the model is tried on.
        labels: the right answers to it.
        model: the model of this round.
    """

    people: tuple[Examples, ...]
    misled: NDArray[np.bool_]
    judges: Examples
    features: Floats
    labels: Floats
    model: Model

    @property
    def gradients(self) -> Floats:
        """Everybody's gradient at the model of this round, clipped."""
        return np.array([self._gradient(examples) for examples in self.people])

    @property
    def direction(self) -> Floats:
        """The server's own gradient, by which the others are judged."""
        return self._gradient(self.judges)

    def after(self, mean: Floats) -> "Lesson":
        """Return the lesson of the next round."""
        return replace(self, model=self.model.after(mean))

    def _gradient(self, examples: Examples) -> Floats:
        features, labels = examples
        raw = features.T @ (expit(features @ self.model.parameters) - labels) / len(labels)
        return clipped(raw, dimension=PARAMETERS, clip=CLIP)

    def accuracy(self, weights: Floats) -> float:
        """Return the share of the trial set that a model gets right."""
        return float(((self.features @ weights > 0) == (self.labels > 0.5)).mean())


def lesson(people: int, *, entropy: Entropy | int) -> Lesson:
    """Make the data of so many people, and a model of all zeros."""
    drawn = source(entropy)
    misled = drawn.uniforms(people) < 0.25
    everybody = []
    for wrong in misled:
        features, labels = _examples(_EXAMPLES, drawn)
        everybody.append((features, 1 - labels if wrong else labels))
    features, labels = _examples(2_000, drawn)
    judges = _examples(400, drawn)
    start = DESCENT.start(np.zeros(PARAMETERS))
    return Lesson(tuple(everybody), misled, judges, features, labels, start)


def _examples(count: int, entropy: Entropy) -> Examples:
    features = np.asarray(ndtri(entropy.uniforms(count * PARAMETERS))).reshape(count, PARAMETERS)
    labels = (entropy.uniforms(count) < expit(features @ _TRUTH)).astype(np.float64)
    return features, labels
