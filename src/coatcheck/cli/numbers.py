"""Numbers as people type and read them: lists by comma, lengths in metres or kilometres."""

import math

from coatcheck.errors import Misuse


def numbers(text: str, option: str, *, how_many: int | None = None, example: str) -> list[float]:
    """Read numbers separated by commas, so many or at least one; or say how to write them."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if len(found) != (how_many or max(1, len(found))) or not all(map(math.isfinite, found)):
        count = f"{how_many} numbers" if how_many else "numbers"
        raise Misuse(f"{option} takes {count} by comma, such as {example}, got {text!r}")
    return found


def only_positive(value: float, option: str) -> None:
    """Refuse what is not a finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise Misuse(f"{option} is a number above 0, got {value:g}; 0.1 to 3 is usual")


def read_length(text: str, option: str) -> tuple[float, bool]:
    """Read a length above 0, and say whether it is in metres: 300m, 1.2km, or 0.3 as it is."""
    plain = text.strip().removesuffix("m").removesuffix("k").rstrip()
    try:
        value = float(plain) * (1_000 if text.strip().endswith("km") else 1)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0) or text.strip().endswith("k"):
        raise Misuse(f"{option} is a length such as 300m, 1.2km or 0.3, got {text!r}")
    return value, text.strip().endswith("m")


def length(value: float, unit: str) -> str:
    """Write a distance to three digits, in kilometres from 1,000 metres up."""
    if math.isnan(value):
        return "-"
    if unit == "m" and value >= 1_000:
        return f"{value / 1_000:.2f} km"
    return f"{value:.0f} m" if unit == "m" else f"{value:.3g}"
