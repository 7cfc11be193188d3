"""The explorer's figures: what an epsilon and a crowd buy, by the library that plans rounds.

A table made beforehand answers while a slider moves; `answer` gives the exact figure on release.
Sees no person and no round. `python -m coatcheck.demo.page.explorer` makes the table again.

    >>> found = answer(crowd=500, epsilon=1.0, share=0.0)
    >>> found["designs"][0]["error"] < found["blind"]
    True
"""

import json
import math
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from coatcheck.demo.city import CITY
from coatcheck.errors import Misuse
from coatcheck.planning import Group, plan

DELTA: Final = 1e-6
CROWDS: Final = (50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
EPSILONS: Final = (0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
MECHANISMS: Final = ("minkowski", "bounded", "grid")
FIRST: Final = (4_000, 1.0, 0.01)
"""Where the sliders stand when the page is opened."""
TABLE: Final = Path(__file__).parent / "static" / "explorer.json"


@lru_cache(maxsize=256)
def answer(*, crowd: int, epsilon: float, share: float) -> dict[str, Any]:
    """Plan one group on the city: every mechanism at its best, the least error first.

    Args:
        crowd: the least number of people without whom nothing is released.
        epsilon: the promise to everybody, at δ = 1e-6.
        share: of the crowd, how many may work for the server.
    """
    if not (2 <= crowd <= 1_000_000 and 0.05 <= epsilon <= 8 and 0 <= share <= 0.5):
        raise Misuse(
            "the explorer takes 2 to 1,000,000 people, ε from 0.05 to 8 and up to half of the"
            " crowd corrupted: choose within these"
        )
    corrupted = math.floor(share * crowd)
    groups = {"people": Group(CITY, crowd=crowd, corrupted=corrupted)}
    found = plan(groups, epsilon=epsilon, delta=DELTA)
    people = found["people"]
    return {
        "crowd": crowd,
        "corrupted": corrupted,
        "epsilon": epsilon,
        "delta": DELTA,
        "blind": people.best.report_free,
        "designs": [one.plain() for one in people.designs if one.randomizer.name in MECHANISMS],
        "plan": str(found),
        "promise": str(people.best.guarantee),
        "command": _command(crowd, epsilon, corrupted),
        "python": _python(crowd, epsilon, corrupted),
    }


def warm() -> None:
    """Work out the first answer before anybody asks for it."""
    crowd, epsilon, share = FIRST
    answer(crowd=crowd, epsilon=epsilon, share=share)


def table() -> dict[str, Any]:
    """Work out the answers between which the page interpolates, to four digits."""

    def cells(figure: str) -> list[list[list[float]]]:
        return [
            [[float(f"{by[name][figure]:.4g}") for name in MECHANISMS] for by in line]
            for line in rows
        ]

    asked = [[answer(crowd=n, epsilon=epsilon, share=0.0) for epsilon in EPSILONS] for n in CROWDS]
    rows = [[{one["mechanism"]: one for one in cell["designs"]} for cell in line] for line in asked]
    return {
        "crowds": CROWDS,
        "epsilons": EPSILONS,
        "mechanisms": MECHANISMS,
        "delta": DELTA,
        "blind": asked[0][0]["blind"],
        "errors": cells("error"),
        "locals": cells("local_epsilon"),
    }


def _command(crowd: int, epsilon: float, corrupted: int) -> str:
    box = ",".join(f"{side:g}" for side in (*CITY.lo, *CITY.hi))
    return (
        f"coatcheck plan --epsilon {epsilon:g} --delta {DELTA:g} --crowd {crowd}"
        f" --corrupted {corrupted} --geographic {box}"
    )


def _python(crowd: int, epsilon: float, corrupted: int) -> str:
    south, west, north, east = (*CITY.lo, *CITY.hi)
    return "\n".join(
        (
            "from coatcheck.domains import Box",
            "from coatcheck.planning import Group, plan",
            "",
            f"city = Box.geographic(south={south}, west={west}, north={north}, east={east})",
            f"group = Group(city, crowd={crowd}, corrupted={corrupted})",
            f'print(plan({{"people": group}}, epsilon={epsilon:g}, delta={DELTA:g}))',
        )
    )


if __name__ == "__main__":
    TABLE.write_text(json.dumps(table(), separators=(",", ":")) + "\n")
