"""What settling shows to those who are no candidates: that people settle, and nothing of places.

The model of `test_views.py`, with the machine of settling that ships. What candidates show each
other is in `test_letters.py`.
"""

from collections.abc import Collection
from dataclasses import replace

import pytest

from attacks.test_views import FOUR, joined, mixed
from coatcheck.protocol.settling.rules import Settling
from coatcheck.protocol.terms import SettleTerms
from coatcheck.tasks.matching import LeastCostMatching
from support.views import Stage, Step

SETTLE = Stage(
    people=FOUR,
    task=LeastCostMatching(groups=("riders", "drivers"), candidates=2),
    settle=SettleTerms(cell=0.05, rings=(0.1, 0.2), asks=(1,), pause=60),
)
REPORTS = {"ada": 0, "ben": 2, "cyd": 0, "dee": 2}
STEPS: list[Step] = [
    *joined(SETTLE, list(FOUR)),
    *mixed(SETTLE),
    *(("collect", person) for person in FOUR),
    ("settle",),
]
ROLES = {"network", "board", "server", "shuffler 0"}
PLACES = {
    "two pairs": {"ada": 0.1, "ben": 0.8, "cyd": 0.12, "dee": 0.82},
    "the other two": {"ada": 0.1, "ben": 0.8, "cyd": 0.82, "dee": 0.12},
    "one pair": {"ada": 0.1, "ben": 0.5, "cyd": 0.12, "dee": 0.9},
    "all near": {"ada": 0.5, "ben": 0.52, "cyd": 0.54, "dee": 0.56},
    "nobody": {"ada": 0.0, "ben": 0.3, "cyd": 0.6, "dee": 0.9},
}


def paired(where: str) -> int:
    """Return how many people have a partner in the end."""
    stage = replace(SETTLE, values=PLACES[where])
    play = stage.play(stage.held(REPORTS)).taken(STEPS)
    return sum(map(bool, play.partners.values()))


def views(coalition: Collection[str]) -> list[object]:
    """Return what a coalition sees, for each way in which people are near each other."""
    found: list[object] = []
    for values in PLACES.values():
        stage = replace(SETTLE, values=values)
        found.append(stage.play(stage.held(REPORTS)).taken(STEPS).view(coalition))
    return found


def test_people_settle() -> None:
    """Otherwise there would be nothing to see."""
    assert [paired(where) for where in PLACES] == [4, 4, 2, 2, 0]


def test_all_roles_together_see_nothing_of_places() -> None:
    """Who is near whom, and who is paired, changes no number, size, order or recipient."""
    first, *others = views(ROLES)
    assert others == [first] * len(others)


def test_a_person_who_stops_when_paired_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """If those who have a partner wrote no more, a reader would see who has one."""
    speak = Settling.speak

    def lazy(machine: Settling, words: bytes = b"") -> list[tuple[bytes, bytes]]:
        written = speak(machine, words)
        return [] if machine.partner else written

    monkeypatch.setattr(Settling, "speak", lazy)
    first, *others = views({"reader"})
    assert first not in others[1:]
