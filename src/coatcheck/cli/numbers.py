"""Numbers as people type and read them: lists by comma, lengths in metres or kilometres."""

import math

from coatcheck.errors import Misuse


def numbers(text: str, option: str, *, how_many: int, example: str) -> list[float]:
    """Read so many numbers by comma, or say how the option is written."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if len(found) != how_many or not all(map(math.isfinite, found)):
        raise Misuse(f"{option} takes {how_many} numbers by comma, such as {example}, got {text!r}")
    return found


def only_positive(value: float, option: str) -> None:
    """Refuse what is not a finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise Misuse(f"{option} is a number above 0, got {value:g}; 0.1 to 3 is usual")


def length(value: float, unit: str) -> str:
    """Write a distance to three digits, in kilometres from 1,000 metres up."""
    if math.isnan(value):
        return "-"
    if unit == "m" and value >= 1_000:
        return f"{value / 1_000:.2f} km"
    return f"{value:.0f} m" if unit == "m" else f"{value:.3g}"
