"""The network of the federated tables: its size, and gradients against finite differences."""

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from study import network


def _people(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    images = (rng.random((count, 28, 28)) * (rng.random((count, 28, 28)) < 0.3)).astype(np.float32)
    parameters = network.initial(0) + rng.normal(0, 0.05, network.DIMENSION).astype(np.float32)
    return parameters, images, rng.integers(0, 10, count)


def test_network_has_the_papers_parameters() -> None:
    """The network has the 4292 parameters that the paper counts."""
    assert network.DIMENSION == 4292


def test_gradients_are_slopes_of_the_loss() -> None:
    """A gradient at a coordinate is what the loss changes by, for every layer."""
    parameters, images, labels = _people(1)
    coordinates = np.array([[0, 100, 130, 135, 140, 1000], [1340, 1345, 2000, 3000, 4280, 4291]])
    found = network.sampled_gradients(
        parameters, images.repeat(2, axis=0), labels.repeat(2), coordinates
    )
    wide = parameters.astype(np.float64)
    for row, line in enumerate(coordinates):
        for column, place in enumerate(line):
            step = np.zeros_like(wide)
            step[place] = 1e-5
            up, down = (_loss(wide + sign * step, images, labels) for sign in (1, -1))
            assert found[row, column] == pytest.approx((up - down) / 2e-5, abs=2e-4)


def _loss(parameters: np.ndarray, images: np.ndarray, labels: np.ndarray) -> float:
    logits = network._forward(parameters, images.astype(np.float64)).logits[
        0
    ]  # the loss is not public
    return float(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[labels[0]])


def test_mean_gradient_is_the_mean_of_everybodys() -> None:
    """The validation gradient is the mean of per-person gradients, coordinate by coordinate."""
    parameters, images, labels = _people(3)
    every = np.arange(4292).reshape(-1, 4)
    one_by_one = [
        network.sampled_gradients(
            parameters,
            images[[i]].repeat(len(every), axis=0),
            labels[[i]].repeat(len(every)),
            every,
        ).ravel()
        for i in range(3)
    ]
    mean = network.mean_gradient(parameters, images, labels)
    assert np.abs(np.mean(one_by_one, axis=0) - mean).max() < 1e-5


if find_spec("jax"):  # an oracle of 400 MB: used where it is there, never asked for

    def test_gradients_agree_with_jax() -> None:
        """JAX's automatic gradients are the same, where JAX is installed."""
        import jax  # noqa: PLC0415 - an oracle that may not be there

        parameters, images, labels = _people(4)
        coordinates = np.random.default_rng(1).integers(0, 4292, (4, 6))
        oracle = jax.vmap(jax.grad(_jax_loss), in_axes=(None, 0, 0))(parameters, images, labels)
        wanted = np.take_along_axis(np.asarray(oracle), coordinates, axis=1)
        found = network.sampled_gradients(parameters, images, labels, coordinates)
        assert np.abs(found - wanted).max() < 1e-5


def _jax_loss(parameters: Any, image: Any, label: Any) -> Any:
    import jax  # noqa: PLC0415 - as above
    import jax.numpy as jnp  # noqa: PLC0415 - as above

    w1, b1, w2, b2, w3, b3 = (
        part.reshape(shape)
        for part, shape in zip(
            jnp.split(parameters, network._STARTS[1:-1]), network._SHAPES, strict=True
        )
    )
    kinds = ("NHWC", "HWIO", "NHWC")

    def block(x: Any, w: Any, b: Any) -> Any:
        x = jax.nn.relu(
            jax.lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=kinds) + b
        )
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 1, 1, 1), "SAME")

    x = block(image[None, :, :, None], w1.reshape(4, 4, 1, 8), b1)
    x = block(x, w2.reshape(5, 5, 8, 6), b2)
    return -jax.nn.log_softmax(x.reshape(-1) @ w3 + b3)[label]
