"""What the accountant accepts: for anything else it has a sentence and never a number.

Within these limits the bounds were compared with exact arithmetic (tests/test_soundness.py).
"""

import math
from numbers import Real
from typing import Any, Final

from coatcheck.errors import Misuse

# e^-64 is far below any δ, so a report with a larger ε is as good as public in any crowd.
EPSILON: Final = 64.0
CROWD: Final = 10**9
DELTA: Final = 1e-15


def check_epsilon(value: Any, name: str = "the local epsilon", *, positive: bool = False) -> None:
    """Refuse what is no privacy budget."""
    if not _number(value) or value < 0 or (positive and value == 0):
        kind = "a positive epsilon" if positive else "a finite number, zero or more"
        raise Misuse(f"{name} must be {kind}, not {value!r}; 0.1 to 3 is usual for a promise")
    if value > EPSILON:
        raise Misuse(f"{name} of {value:g} protects nothing; ask for at most {EPSILON:g}")


def check_delta(value: Any) -> None:
    """Refuse what is no chance of failure, or one too small for floating point."""
    if not _number(value) or not 0 < value < 1:
        raise Misuse(
            f"delta must lie between 0 and 1, not {value!r}; "
            "one over a hundred times the crowd is a usual choice"
        )
    if value < DELTA:
        raise Misuse(
            f"delta must be at least {DELTA:g}, not {value:g}: no sum here is that precise"
        )


def check_count(value: Any, name: str) -> None:
    """Refuse what does not count people or rounds."""
    if not _number(value) or not float(value).is_integer() or value < 0:
        raise Misuse(f"{name} must be a whole number, zero or more, not {value!r}")
    if value > CROWD:
        raise Misuse(f"{name} must be at most {CROWD:,}, not {value:,}")


def check_rounds(value: Any) -> None:
    """Refuse what is no number of rounds."""
    check_count(value, "rounds")
    if value < 1:
        raise Misuse(f"there is at least 1 round, not {value}")


def check_share(value: Any, name: str) -> None:
    """Refuse what is no share of the people above none."""
    if not _number(value) or not 0 < value <= 1:
        raise Misuse(f"{name} must be in (0, 1], not {value!r}")


def _number(value: Any) -> bool:
    return isinstance(value, Real) and math.isfinite(value)
