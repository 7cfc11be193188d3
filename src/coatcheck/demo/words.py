"""The promise of a round in one plain line; the guarantee itself says it in full."""

import math

from coatcheck.accounting.guarantee import rounded_up


def plain_promise(*, epsilon: float, delta: float, also: str = "") -> str:
    """Say a promise in one line, and what is told besides."""
    factor = f"{math.ceil(100 * math.exp(epsilon)) / 100:,g}"
    told = f"; {also}" if also else ""
    return (
        f"what others see of your report is at most {factor} times as likely as if your"
        f" value were another (ε = {rounded_up(epsilon)}, δ = {delta:g}){told}"
    )
