"""Small made-up data sets in the shape of the real ones, for machines that do not have those.

They test the study's code. No figure of the study is ever made from them.
"""

import numpy as np
from numpy.typing import NDArray

from study import datasets

_PEOPLE = 4_000


def made(name: str) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of a data set; every call returns the same ones."""
    rng = np.random.default_rng(sum(map(ord, name)))
    if name in datasets.CROWDSOURCING.values():
        group = np.where(np.arange(600) % 3 == 0, "worker", "user")
        return {"xy": rng.uniform(0, 5, size=(600, 2)), "group": group}
    quarters = rng.uniform((37.55, -122.5), (37.78, -122.39), size=(12, 2))
    places = quarters[rng.integers(12, size=_PEOPLE)] + rng.normal(scale=0.01, size=(_PEOPLE, 2))
    return {"latlon": places}
