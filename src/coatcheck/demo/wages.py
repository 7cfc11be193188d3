"""Where do I stand: made-up wages of a crowd, and how well people find their place among them.

Nobody real is in it. What is measured is the share of the crowd below a person, as the server tells
it, as the person finds it among the public deciles, and by chance; with true numbers it is exact.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from scipy.special import ndtri

from coatcheck.domains import Box, Floats
from coatcheck.entropy import Entropy, source
from coatcheck.errors import Misuse
from coatcheck.tasks.answers import Values
from coatcheck.tasks.standing import Standing

LEAST, MOST = 10.0, 45.0
RANGE: Final = Box((LEAST,), (MOST,))
"""Wages per hour."""
_MIDDLE, _SPREAD = 21.0, 0.35


def wages(people: int, *, entropy: Entropy | int) -> Floats:
    """Make up what people earn per hour: most near the middle, a few far above."""
    drawn = np.asarray(ndtri(source(entropy).uniforms(people)))
    return np.clip(np.round(_MIDDLE * np.exp(_SPREAD * drawn), 2), LEAST, MOST)[:, None]


def share_among(wage: float, deciles: Sequence[float]) -> float:
    """Find the share of the crowd below a wage from the nine public deciles, as a person would."""
    ends = np.maximum.accumulate([LEAST, *deciles, MOST])
    return float(np.interp(wage, ends, np.linspace(0, 1, len(ends))))


def _exactly(values: Floats) -> Values:
    """Give the answers to true numbers."""
    (answers,) = Standing()([values])
    if not isinstance(answers, Values):
        raise Misuse("the answers of a standing are numbers")
    return answers


def measured(values: Floats, told: Floats, deciles: Sequence[float]) -> dict[str, Any]:
    """Measure how far off people's shares are: private, with true numbers, and by chance."""
    exact = _exactly(values)
    right = exact.data[:, 0]
    own = np.array([share_among(wage, deciles) for wage in values[:, 0]])
    return {
        "mean_error": {
            "private, your number among the deciles": float(np.abs(own - right).mean()),
            "private, as the server tells you": float(np.abs(told - right).mean()),
            "with true numbers": 0.0,
            "by chance": float(np.abs(right[:, None] - right[None, :]).mean()),
        },
        "deciles": list(deciles),
        "true_deciles": exact.shared.tolist(),
    }
