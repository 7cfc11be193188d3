"""Adversaries: what the library says against each of them, without a browser."""

import pytest

from coatcheck.accounting.amplification import amplify
from coatcheck.demo.page.app import against, corrupted
from coatcheck.domains import Box
from coatcheck.errors import Misuse
from coatcheck.protocol.drafting import GroupPlan
from coatcheck.randomizers import BoundedResponse
from coatcheck.tasks.matching import LeastCostMatching

MECHANISM = BoundedResponse(domain=Box((0.0, 0.0), (1.0, 1.0)), epsilon=3.0, radius=0.3)
GROUPS = [
    GroupPlan(name=name, randomizer=MECHANISM, minimum=size, delta=1e-4)
    for name, size in (("riders", 40), ("drivers", 30))
]
TASK = LeastCostMatching(groups=("riders", "drivers"))


def test_the_server_alone_faces_the_whole_crowd() -> None:
    """Nobody is corrupted or exposed, and the sentence is the guarantee's own."""
    answer = against("server", GROUPS, task=TASK, group=1)
    expected = amplify(MECHANISM.law, crowd=30, delta=1e-4)
    assert (answer["epsilon"], answer["sentence"]) == (expected.epsilon, str(expected))
    assert answer["corrupted"] == answer["exposed"] == []


def test_corrupted_people_expose_those_they_were_told_of() -> None:
    """A rider counts for less when drivers were bought: both are taken out of the crowd."""
    partners = {(0, 39): [(1, 3)], (1, 29): [(0, 5)], (0, 38): [(1, 29)]}
    answer = against("server-and-people", GROUPS, task=TASK, group=0, people=4, partners=partners)
    assert answer["corrupted"] == [(0, 39), (1, 29), (0, 38), (1, 28)]
    assert answer["exposed"] == [(0, 5), (1, 3)]
    expected = amplify(MECHANISM.law, crowd=40, delta=1e-4, corrupted=2, exposed=2)
    assert (
        answer["epsilon"]
        == expected.epsilon
        > against("server", GROUPS, task=TASK, group=0)["epsilon"]
    )


def test_who_cannot_open_reports_learns_nothing_of_values() -> None:
    """ε = 0 for four seats; the shuffler's sentence warns of the local one."""
    for seat in ("onlooker", "relay", "witness"):
        assert against(seat, GROUPS, task=TASK, group=0)["epsilon"] == 0
    answer = against("shuffler", GROUPS, task=TASK, group=0)
    assert answer["epsilon"] == 0
    assert answer["colluding"] == MECHANISM.epsilon_spent
    assert f"{MECHANISM.epsilon_spent:.4g}" in answer["sentence"]


def test_somebody_honest_is_left_in_every_group() -> None:
    """At most all but one of each group can be corrupted; more is a mistake, told in words."""
    chosen = corrupted((3, 2), 3)
    assert sorted(chosen) == [(0, 1), (0, 2), (1, 1)]
    with pytest.raises(Misuse, match="from 0 to 3"):
        corrupted((3, 2), 4)
    with pytest.raises(Misuse, match="`adversary` must be one of"):
        against("cleaner", GROUPS, task=TASK, group=0)
