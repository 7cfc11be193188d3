"""A tiny model that a crowd teaches: logistic regression in numpy, one gradient per person.

A quarter of the people learned from wrong labels, which their rewards should show. Data is made
up from a seed; nobody real is in it. Paper, federated learning with incentives.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from coatcheck.domains import Floats
from coatcheck.entropy import Entropy, seeded

PARAMETERS: Final = 4
_TRUTH: Final = np.array([1.6, -1.1, 0.7, 0.3])
_EXAMPLES: Final = 24
CLIP: Final = 0.5
"""The longest gradient that a person reports; public, stated in the terms."""


@dataclass(frozen=True, eq=False)
class Lesson:
    """What the people and the server know before a round of learning.

    Attributes:
        gradients: one row per person, clipped.
        misled: whose labels were wrong.
        direction: the server's own validation gradient, which it keeps to itself.
        features: what the model is tried on.
        labels: the right answers to it.
    """

    gradients: Floats
    misled: NDArray[np.bool_]
    direction: Floats
    features: Floats
    labels: Floats

    def accuracy(self, weights: Floats) -> float:
        """Return the share of the trial set that a model gets right."""
        return float(((self.features @ weights > 0) == (self.labels > 0.5)).mean())


def lesson(people: int, *, seed: int) -> Lesson:
    """Make the data of so many people and their gradients at the model of all zeros."""
    entropy = seeded(seed)
    misled = entropy.uniforms(people) < 0.25
    gradients = []
    for wrong in misled:
        features, labels = _examples(_EXAMPLES, entropy)
        gradients.append(_gradient(features, 1 - labels if wrong else labels))
    features, labels = _examples(2_000, entropy)
    direction = _gradient(*_examples(400, entropy))
    return Lesson(np.array(gradients), misled, direction, features, labels)


def step(mean: Floats, *, rate: float = 4.0) -> Floats:
    """Return the model after one step against the mean gradient, from all zeros."""
    return np.asarray(-rate * mean)


def _examples(count: int, entropy: Entropy) -> tuple[Floats, Floats]:
    features = np.asarray(ndtri(entropy.uniforms(count * PARAMETERS))).reshape(count, PARAMETERS)
    labels = (entropy.uniforms(count) < expit(features @ _TRUTH)).astype(np.float64)
    return features, labels


def _gradient(features: Floats, labels: Floats) -> Floats:
    raw = features.T @ (0.5 - labels) / len(labels)
    return np.asarray(raw * (CLIP / max(CLIP, float(np.linalg.norm(raw)))))
