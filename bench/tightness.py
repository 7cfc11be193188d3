"""How much of ε the accountant leaves on the table: promises beside what some data set reaches.

    python -m bench tightness

Prints, at δ = 0.01/n, the promised ε, the blanket's alone, an ε that some data set reaches, and
the local ε that keeps a promise of 1 for a Bounded response, before and after overlap counts.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from bench import Figure, show
from coatcheck.accounting.amplification import amplify, calibrate
from coatcheck.accounting.laws import TwoLevel, bounded, grid, minkowski

_LAWS: Final = {
    "binary, ε 1": grid(1.0, cells=2),
    "binary, ε 3": grid(3.0, cells=2),
    "16 cells, ε 4": grid(4.0, cells=16),
    "Minkowski d 2 r .37, ε 4": minkowski(4.0, radius=0.37, dimension=2),
    "Bounded d 2 r .6, ε 2": bounded(2.0, radius=0.6, dimension=2),
    "Bounded d 2 r .6, ε 4": bounded(4.0, radius=0.6, dimension=2),
    "Bounded d 3 r .8, ε 3": bounded(3.0, radius=0.8, dimension=3),
    "Minkowski d 1 r 1.2, ε 3": minkowski(3.0, radius=1.2, dimension=1),
    "Minkowski d 6 r 1.5, ε 5": minkowski(5.0, radius=1.5, dimension=6),
}
_CROWDS: Final = (532, 4036, 100_000)


def main() -> int:
    """Measure and print; return 1 if a promise is more than 1.05 times what is reached."""
    return show([*_promises(), *_budgets()])


def _promises() -> list[Figure]:
    figures = []
    for name, law in _LAWS.items():
        # Neither two reports nor boxes are known of this law: only its blanket counts.
        plain = replace(law, axes=0, binary=False)
        for n in _CROWDS:
            promise = partial(amplify, crowd=n, delta=0.01 / n)
            guarantee = promise(law, lower=True)
            reached = guarantee.least or guarantee.epsilon
            before = promise(plain).epsilon
            figures += [
                Figure(what=f"{name}, n = {n:,}: promised ε", value=guarantee.epsilon, unit=""),
                Figure(what="  by the blanket alone", value=before, unit=""),
                Figure(
                    what="  promised : reached",
                    value=guarantee.epsilon / reached,
                    unit="x",
                    target=1.05,
                ),
            ]
    return figures


def _budgets() -> list[Figure]:
    def one(*, axes: bool) -> Callable[[float], TwoLevel]:
        def make(epsilon: float) -> TwoLevel:
            law = bounded(epsilon, radius=0.6, dimension=2)
            return law if axes else replace(law, axes=0)

        return make

    return [
        Figure(
            what=f"Bounded d 2 r .6, n = {n:,}: local ε for a promise of 1, {name}",
            value=calibrate(one(axes=axes), epsilon=1.0, crowd=n, delta=0.01 / n).local_epsilon,
            unit="",
        )
        for n in (532, 4036)
        for name, axes in (("before", False), ("now", True))
    ]


if __name__ == "__main__":
    sys.exit(main())
