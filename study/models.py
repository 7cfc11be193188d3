"""The two models that a crowd teaches here: the paper's network, and a small linear one.

The linear one sees 128 fixed features: the strength of edges in each of 8 directions in each of
4 x 4 cells of an image. They are not learned, so they spend no privacy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from study import datasets, network

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

_DIRECTIONS: Final = 8
_CELLS: Final = 4
FEATURES: Final = _DIRECTIONS * _CELLS**2
_BIAS: Final = 0.2


@cache
def part(name: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return images and labels of a part of MNIST: train, validate or test."""
    return datasets.mnist()[name]


@cache
def features(name: str) -> Floats:
    """Return the features of a part of MNIST: unit length, one row per image."""
    return edges(part(name)[0])


def edges(images: NDArray[np.float32]) -> Floats:
    """Return the square roots of edge strengths by direction and cell, at unit length."""
    rows = np.empty((len(images), FEATURES))
    weights = _cells()
    for start in range(0, len(images), 1000):
        some = np.pad(images[start : start + 1000].astype(np.float64), ((0, 0), (1, 1), (1, 1)))
        down = some[:, 2:, 1:-1] - some[:, :-2, 1:-1]
        across = some[:, 1:-1, 2:] - some[:, 1:-1, :-2]
        strength = np.hypot(down, across)
        turn = (np.arctan2(down, across) % (2 * np.pi)) / (2 * np.pi) * _DIRECTIONS
        lower = np.floor(turn).astype(np.int64) % _DIRECTIONS
        share = turn - np.floor(turn)
        maps = []
        for direction in range(_DIRECTIONS):
            own = np.where(lower == direction, 1 - share, 0.0)
            own += np.where((lower + 1) % _DIRECTIONS == direction, share, 0.0)
            maps.append(weights.T @ (own * strength) @ weights)
        stacked = np.sqrt(np.stack(maps, axis=1).reshape(len(some), -1))
        length = np.linalg.norm(stacked, axis=1, keepdims=True)
        rows[start : start + 1000] = stacked / np.maximum(length, 1e-12)
    return rows


def _cells() -> Floats:
    """Return the weight of each of 28 lines in each of 4 cells, fading into the next cell."""
    middles = (np.arange(_CELLS) + 0.5) * 28 / _CELLS
    apart = np.abs(np.arange(28)[:, None] + 0.5 - middles) / (28 / _CELLS)
    return np.maximum(0.0, 1 - apart)


@dataclass(frozen=True)
class Model:
    """A model by its functions: its start, people's gradients, and its accuracy."""

    dimension: int
    start: Callable[[int], Floats]
    gradients: Callable[[Floats, str, Rows], NDArray[Any]]
    accuracy: Callable[[Floats, str], float]


def edge_start(seed: int) -> Floats:
    """Return the start with the 8 filters of the first layer set by hand to 8 directions of edges.

    It uses no data. The other layers are random.
    """
    parameters = network.initial(seed).astype(np.float64)
    across = np.arange(4) - 1.5
    filters = np.empty((4, 4, 8))
    for number in range(8):
        angle = number * np.pi / 4
        slope = np.cos(angle) * across[None, :] + np.sin(angle) * across[:, None]
        filters[:, :, number] = 2 * slope / np.abs(slope).sum()
    parameters[:128] = filters.ravel()
    return parameters


def whole_network(*, edges_first: bool = True) -> Model:
    """Return the paper's network, all of whose 4,292 parameters are learned."""

    def gradients(at: Floats, name: str, rows: Rows) -> NDArray[Any]:
        images, labels = part(name)
        return network.gradients(at.astype(np.float32), images[rows], labels[rows])

    return Model(
        network.DIMENSION,
        edge_start if edges_first else lambda seed: network.initial(seed).astype(np.float64),
        gradients,
        lambda at, name: network.accuracy(at.astype(np.float32), *part(name)),
    )


def _basis() -> Floats:
    """Return 9 orthonormal rows across the vector of ones: slopes of a softmax add up to 0."""
    whole = np.eye(10) - 0.1
    return np.linalg.svd(whole)[2][:9]


def linear(middle: Floats) -> Model:
    """Return softmax regression on features less their middle, with a bias: 9 x 129 parameters."""
    basis = _basis()
    reach = max(1e-6, 1 - float(middle @ middle)) ** 0.5

    @cache
    def seen(name: str) -> Floats:
        centred = (features(name) - middle) / reach
        return np.concatenate([centred, np.full((len(centred), 1), _BIAS)], axis=1)

    def logits(at: Floats, inputs: Floats) -> Floats:
        logits: Floats = inputs @ at.reshape(9, FEATURES + 1).T @ basis
        return logits

    def gradients(at: Floats, name: str, rows: Rows) -> Floats:
        inputs = seen(name)[rows]
        miss = logits(at, inputs)
        miss = np.exp(miss - miss.max(axis=1, keepdims=True))
        miss /= miss.sum(axis=1, keepdims=True)
        miss[np.arange(len(rows)), part(name)[1][rows]] -= 1
        slopes: Floats = ((miss @ basis.T)[:, :, None] * inputs[:, None, :]).reshape(len(rows), -1)
        return slopes

    def accuracy(at: Floats, name: str) -> float:
        guesses = logits(at, seen(name)).argmax(axis=1)
        return float((guesses == part(name)[1]).mean())

    size = 9 * (FEATURES + 1)
    return Model(size, lambda _: np.zeros(size), gradients, accuracy)
