"""What settling shows to those who are no candidates: that people settle, and nothing of places.

The model of `test_views.py`, with the machine of settling that ships. What candidates show each
other is in `test_letters.py`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import pytest

from attacks.test_views import FOUR, THREE, joined, mixed
from coatcheck.protocol.settling.rules import Settling
from coatcheck.protocol.terms import SettleTerms
from coatcheck.tasks.matching import LeastCostMatching
from coatcheck.tasks.neighbours import Neighbours
from support.views import Play, Stage, Step

RIDES = LeastCostMatching(groups=("riders", "drivers"), candidates=2)
NEAR = Neighbours(radius=1.0, limit=5, mutual=True)
PAIRS = SettleTerms(cell=0.05, rings=(0.1, 0.2), asks=(1,))
RING = SettleTerms(cell=0.05, rings=(0.2,), asks=())
REPORTS = {"ada": 0, "ben": 2, "cem": 1, "cyd": 0, "dee": 2}
ROLES = {"network", "board", "server", "shuffler 0"}


@dataclass(frozen=True)
class Scene:
    """People who settle, and places of theirs, with how many partners they have in the end."""

    stage: Stage
    places: Mapping[int, Mapping[str, float]]

    @property
    def steps(self) -> list[Step]:
        """The steps of the round, then settling."""
        people = list(self.stage.people)
        collected = [("collect", person) for person in people]
        return [*joined(self.stage, people), *mixed(self.stage), *collected, ("settle",)]

    def plays(self) -> list[Play]:
        """Run the round for each way in which people are near each other."""
        stages = [replace(self.stage, values=values) for values in self.places.values()]
        reports = {person: REPORTS[person] for person in self.stage.people}
        return [stage.play(stage.held(reports)).taken(self.steps) for stage in stages]

    def views(self, coalition: Collection[str]) -> list[object]:
        """Return what a coalition sees, for each way."""
        return [play.view(coalition) for play in self.plays()]


NEAR_PLACES = {
    6: {"ada": 0.5, "ben": 0.52, "cem": 0.54},
    2: {"ada": 0.1, "ben": 0.12, "cem": 0.9},
    0: {"ada": 0.1, "ben": 0.5, "cem": 0.9},
}
"""By the number of partners that all people together have."""
MATCHED = Scene(
    Stage(people=FOUR, task=RIDES, settle=PAIRS),
    {
        4: {"ada": 0.1, "ben": 0.8, "cyd": 0.82, "dee": 0.12},
        2: {"ada": 0.1, "ben": 0.5, "cyd": 0.12, "dee": 0.9},
        0: {"ada": 0.0, "ben": 0.3, "cyd": 0.6, "dee": 0.9},
    },
)
SCENES = {
    "pairs": MATCHED,
    "neighbours": Scene(Stage(people=THREE, task=NEAR, settle=RING), NEAR_PLACES),
    "neighbours with decoys": Scene(
        Stage(people=THREE, task=NEAR, settle=RING, decoys=1), NEAR_PLACES
    ),
}


@pytest.mark.parametrize("scene", SCENES)
def test_people_settle(scene: str) -> None:
    """Otherwise there would be nothing to see. Nobody settles with a decoy."""
    plays = SCENES[scene].plays()
    assert [play.partners.total() for play in plays] == list(SCENES[scene].places)


@pytest.mark.parametrize("scene", SCENES)
def test_all_roles_together_see_nothing_of_places(scene: str) -> None:
    """Who is near whom, and who is paired, changes no number, size, order or recipient."""
    first, *others = SCENES[scene].views(ROLES)
    assert others == [first] * len(others)


def test_a_person_who_stops_when_paired_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """If those who have a partner wrote no more, a reader would see who has one."""
    speak = Settling.speak

    def lazy(machine: Settling, words: bytes = b"") -> list[tuple[bytes, bytes]]:
        written = speak(machine, words)
        return [] if machine.partner else written

    monkeypatch.setattr(Settling, "speak", lazy)
    first, *others = MATCHED.views({"reader"})
    assert first not in others


def test_letters_to_those_in_a_ring_alone_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """If people wrote only to candidates who are near, a reader would see who is near whom."""
    speak = Settling.speak

    def frugal(machine: Settling, words: bytes = b"") -> list[tuple[bytes, bytes]]:
        near = {machine.address, *(name for name in machine._turn_of if machine._ring(name))}
        step = machine.progress.step
        return [one for one in speak(machine, words) if step < 4 or one[0] in near]

    monkeypatch.setattr(Settling, "speak", frugal)
    first, *others = MATCHED.views({"reader"})
    assert first not in others
