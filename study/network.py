"""The network of the federated tables, without a framework: 4292 parameters, sparse gradients.

Convolution 4x4 (8 filters, stride 2), pool, convolution 5x5 (6 filters, stride 2), pool, softmax.
Both convolutions pad to the same size and both pools move by one, 28-14-14-7-7: the only reading
of the paper's Table `cnn` with 4292 parameters. A person reports 6 coordinates, so only those of
each person's gradient are computed. The test compares them with JAX.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from coatcheck import seeded

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]
Positions = NDArray[np.int64]

_SHAPES: Final = ((16, 8), (8,), (200, 6), (6,), (294, 10), (10,))
_SIZES: Final = tuple(int(np.prod(shape)) for shape in _SHAPES)
DIMENSION: Final = sum(_SIZES)
_STARTS: Final = tuple(int(start) for start in np.cumsum((0, *_SIZES)))
_CHUNK: Final = 50  # people at a time: their patches fit a core's cache


def initial(seed: int) -> Floats:
    """Draw starting parameters: Glorot's uniform weights, no biases."""
    entropy = seeded(seed)
    fans = {0: (16, 16 * 8), 2: (200, 25 * 6), 4: (294, 10)}
    parts = []
    for part, size in enumerate(_SIZES):
        reach = np.sqrt(6 / sum(fans[part])) if part in fans else 0.0
        parts.append((2 * entropy.uniforms(size) - 1) * reach)
    return np.concatenate(parts).astype(np.float32)


@dataclass(frozen=True, eq=False)
class _Pass:
    """Values of the forward pass that the backward pass needs; one row per person."""

    patches: Floats  # (n, 196, 16)
    first: Floats  # (n, 14, 14, 8) before the pool
    pooled: Floats  # (n, 14, 14, 8)
    windows: Floats  # (n, 49, 200)
    second: Floats  # (n, 7, 7, 6) before the pool
    features: Floats  # (n, 294)
    logits: Floats  # (n, 10)


def _split(parameters: Floats) -> list[Floats]:
    parts = np.split(parameters, _STARTS[1:-1])
    return [part.reshape(shape) for part, shape in zip(parts, _SHAPES, strict=True)]


def _forward(parameters: Floats, images: Floats) -> _Pass:
    w1, b1, w2, b2, w3, b3 = _split(parameters)
    n = len(images)
    padded = np.zeros((n, 30, 30), dtype=parameters.dtype)
    padded[:, 1:29, 1:29] = images
    patches = sliding_window_view(padded, (4, 4), axis=(1, 2))[:, ::2, ::2].reshape(n, 196, 16)
    first = np.maximum(patches.reshape(-1, 16) @ w1 + b1, 0.0).reshape(n, 14, 14, 8)
    pooled = _pool(first)
    wide = np.zeros((n, 17, 17, 8), dtype=parameters.dtype)
    wide[:, 1:15, 1:15] = pooled
    view = sliding_window_view(wide, (5, 5), axis=(1, 2))[:, ::2, ::2]
    windows = view.transpose(0, 1, 2, 4, 5, 3).reshape(n, 49, 200)
    second = np.maximum(windows.reshape(-1, 200) @ w2 + b2, 0.0).reshape(n, 7, 7, 6)
    features = _pool(second).reshape(n, 294)
    return _Pass(patches, first, pooled, windows, second, features, features @ w3 + b3)


def _pool(maps: Floats) -> Floats:
    """Take the largest of each 2x2, moving by one; cells beyond the border never win."""
    down = maps.copy()
    np.maximum(down[:, :-1], maps[:, 1:], out=down[:, :-1])
    pooled = down.copy()
    np.maximum(pooled[:, :, :-1], down[:, :, 1:], out=pooled[:, :, :-1])
    return pooled


def _unpool(slopes: Floats, maps: Floats, pooled: Floats) -> Floats:
    """Send each slope back to the first largest of its 2x2, through the rectifier."""
    back = np.zeros_like(maps)
    size = maps.shape[1]
    free = np.ones(maps.shape, dtype=np.bool_)
    for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
        here = (slice(None), slice(0, size - i), slice(0, size - j))
        there = (slice(None), slice(i, size), slice(j, size))
        won = free[here] & (maps[there] == pooled[here])
        back[there] += slopes[here] * won
        free[here] &= ~won
    back *= maps > 0
    return back


def _miss(step: _Pass, labels: Labels) -> Floats:
    """Return the slope of the cross entropy in the logits: softmax less truth."""
    powers = np.exp(step.logits - step.logits.max(axis=1, keepdims=True))
    miss: Floats = powers / powers.sum(axis=1, keepdims=True)
    miss[np.arange(len(labels)), labels] -= 1
    return miss


def _second_slopes(parameters: Floats, step: _Pass, miss: Floats) -> Floats:
    weights = _split(parameters)[4]
    slopes = (miss @ weights.T).reshape(step.second.shape)
    pooled = step.features.reshape(step.second.shape)
    return _unpool(slopes, step.second, pooled).reshape(-1, 49, 6)


def _first_slopes(parameters: Floats, step: _Pass, second: Floats, who: Positions) -> Floats:
    n = len(who)
    wide = np.zeros((n, 9, 9, 6), dtype=np.float32)
    wide[:, 1:8, 1:8] = second[who].reshape(n, 7, 7, 6)
    view = sliding_window_view(wide, (3, 3), axis=(1, 2))
    windows = view.transpose(0, 1, 2, 4, 5, 3).reshape(-1, 54)
    parts = (windows @ _backwards(_split(parameters)[2])).reshape(n, 7, 7, 2, 2, 8)
    slopes = parts.transpose(0, 1, 3, 2, 4, 5).reshape(n, 14, 14, 8)
    return _unpool(slopes, step.first[who], step.pooled[who]).reshape(-1, 196, 8)


def _backwards(weights: Floats) -> Floats:
    """Return the backward step of the second convolution: from 3x3 of its outputs to 2x2 inputs.

    Inputs 2u and 2u + 1 of a line enter outputs u - 1, u, u + 1 through taps 3, 1, - and 4, 2, 0.
    """
    taps = weights.reshape(5, 5, 8, 6)
    step_back = np.zeros((3, 3, 6, 2, 2, 8), dtype=np.float32)
    seen = ((3, 1), (4, 2, 0))
    for i, down in enumerate(seen):
        for j, across in enumerate(seen):
            for y, tap in enumerate(down):
                for x, other in enumerate(across):
                    step_back[y, x, :, i, j] = taps[tap, other].T
    return step_back.reshape(54, 32)


def sampled_gradients(
    parameters: Floats, images: Floats, labels: Labels, coordinates: Positions
) -> Floats:
    """Return each person's gradient at that person's coordinates, shape (n, w)."""
    slopes = np.empty(coordinates.shape, dtype=np.float32)
    for start in range(0, len(images), _CHUNK):
        rows = slice(start, start + _CHUNK)
        slopes[rows] = _sampled(parameters, images[rows], labels[rows], coordinates[rows])
    return slopes


def _sampled(parameters: Floats, images: Floats, labels: Labels, coordinates: Positions) -> Floats:
    step = _forward(parameters, images)
    miss = _miss(step, labels)
    second = _second_slopes(parameters, step, miss)
    slopes = np.zeros(coordinates.shape, dtype=np.float32)
    inside = np.searchsorted(_STARTS, coordinates, side="right") - 1
    who, where = np.nonzero(inside == 4)
    tap, out = np.divmod(coordinates[who, where] - _STARTS[4], 10)
    slopes[who, where] = step.features[who, tap] * miss[who, out]
    who, where = np.nonzero(inside == 5)
    slopes[who, where] = miss[who, coordinates[who, where] - _STARTS[5]]
    who, where = np.nonzero(inside == 2)
    tap, out = np.divmod(coordinates[who, where] - _STARTS[2], 6)
    slopes[who, where] = (step.windows[who, :, tap] * second[who, :, out]).sum(axis=1)
    who, where = np.nonzero(inside == 3)
    slopes[who, where] = second[who, :, coordinates[who, where] - _STARTS[3]].sum(axis=1)
    early = np.flatnonzero((inside < 2).any(axis=1))
    first = _first_slopes(parameters, step, second, early)
    place = np.zeros(len(images), dtype=np.int64)
    place[early] = np.arange(len(early))
    who, where = np.nonzero(inside == 0)
    tap, out = np.divmod(coordinates[who, where], 8)
    slopes[who, where] = (step.patches[who, :, tap] * first[place[who], :, out]).sum(axis=1)
    who, where = np.nonzero(inside == 1)
    slopes[who, where] = first[place[who], :, coordinates[who, where] - _STARTS[1]].sum(axis=1)
    return slopes


def gradients(parameters: Floats, images: Floats, labels: Labels) -> Floats:
    """Return each person's whole gradient of the cross entropy, shape (n, 4292)."""
    slopes = np.empty((len(images), DIMENSION), dtype=np.float32)
    for start in range(0, len(images), _CHUNK):
        rows = slice(start, start + _CHUNK)
        step = _forward(parameters, images[rows])
        miss = _miss(step, labels[rows])
        second = _second_slopes(parameters, step, miss)
        first = _first_slopes(parameters, step, second, np.arange(len(miss)))
        parts = (
            step.patches.transpose(0, 2, 1) @ first,
            first.sum(axis=1),
            step.windows.transpose(0, 2, 1) @ second,
            second.sum(axis=1),
            step.features[:, :, None] * miss[:, None, :],
            miss,
        )
        slopes[rows] = np.concatenate([part.reshape(len(miss), -1) for part in parts], axis=1)
    return slopes


def mean_gradient(parameters: Floats, images: Floats, labels: Labels) -> Floats:
    """Return the mean gradient of the cross entropy over some images, shape (4292,)."""
    total = np.zeros(DIMENSION)
    for start in range(0, len(images), _CHUNK):
        rows = slice(start, start + _CHUNK)
        step = _forward(parameters, images[rows])
        miss = _miss(step, labels[rows])
        second = _second_slopes(parameters, step, miss)
        first = _first_slopes(parameters, step, second, np.arange(len(miss)))
        flat2, flat1 = second.reshape(-1, 6), first.reshape(-1, 8)
        parts = (
            step.patches.reshape(-1, 16).T @ flat1,
            flat1.sum(axis=0),
            step.windows.reshape(-1, 200).T @ flat2,
            flat2.sum(axis=0),
            step.features.T @ miss,
            miss.sum(axis=0),
        )
        total += np.concatenate([part.ravel() for part in parts])
    return (total / len(images)).astype(np.float32)


def accuracy(parameters: Floats, images: Floats, labels: Labels) -> float:
    """Return the share of images that get their correct label."""
    right = 0
    for start in range(0, len(images), _CHUNK):
        rows = slice(start, start + _CHUNK)
        guesses = _forward(parameters, images[rows]).logits.argmax(axis=1)
        right += int((guesses == labels[rows]).sum())
    return right / len(images)
