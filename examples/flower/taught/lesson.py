"""The data and the model: tell the digit 1 from the digit 0; each person has 20 images.

The images are MNIST's if `data` names a folder with mnist.npz; otherwise a seed draws them.
"""

from pathlib import Path

import numpy as np

PIXELS = 49
PARAMETERS = PIXELS + 1
_EACH = 20


def images(data: str) -> tuple[np.ndarray, np.ndarray]:
    """Return images of 7 x 7 pixels, one row each, and their labels, 0 or 1."""
    path = Path(data) / "mnist.npz"
    if not path.is_file():
        return _made_up()
    with np.load(path) as arrays:
        labels = arrays["train_labels"]
        wanted = labels <= 1
        whole = arrays["train_images"][wanted] / 255.0
    small = whole.reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).reshape(-1, PIXELS)
    return small, labels[wanted].astype(np.float64)


def _made_up() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2026)
    labels = (rng.uniform(size=4_000) < 0.5).astype(np.float64)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 7)] * 2), axis=-1).reshape(PIXELS, 2)
    ring = np.exp(-8 * (np.linalg.norm(grid, axis=1) - 0.7) ** 2)
    line = np.exp(-8 * grid[:, 0] ** 2)
    shapes = np.where(labels[:, None] > 0, line, ring)
    return np.clip(shapes + 0.35 * rng.normal(size=shapes.shape), 0, 1), labels


def of_person(number: int, data: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the images of one person."""
    every, labels = images(data)
    rows = slice(number * _EACH, (number + 1) * _EACH)
    return with_bias(every[rows]), labels[rows]


def held_out(data: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the last thousand images, which no person has."""
    every, labels = images(data)
    return with_bias(every[-1_000:]), labels[-1_000:]


def with_bias(rows: np.ndarray) -> np.ndarray:
    """Return images minus their usual brightness, each followed by a 1."""
    return np.concatenate([rows - 0.2, np.ones((len(rows), 1))], axis=1)


def gradient(model: np.ndarray, inputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the gradient of the logistic loss."""
    return inputs.T @ (1 / (1 + np.exp(-inputs @ model)) - labels) / len(labels)


def accuracy(model: np.ndarray, inputs: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of images that the model classifies correctly."""
    return float(((inputs @ model > 0) == (labels > 0.5)).mean())
