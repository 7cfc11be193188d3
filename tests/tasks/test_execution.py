"""Answers follow their reports, and the server enforces what a task states."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.errors import Misuse, Refused
from coatcheck.tasks import (
    Answers,
    Floats,
    References,
    Values,
    answer,
    exposure,
    from_pairs,
    from_params,
    load,
    names,
)
from coatcheck.tasks.matching import LeastCostMatching
from coatcheck.tasks.neighbours import Neighbours
from support.wrong_tasks import Numbers, TellsTooMuch, Tickets

PEOPLE = np.array([[0.3, 0.1], [0.1, 0.9], [0.2, 0.5]])


def test_references_move_and_are_renamed() -> None:
    """Taking rows in another order keeps each row's references; renaming changes the names."""
    found = from_pairs((np.array([2, 0, 2]), np.array([1, 0, 3])), reports=3, group=0)
    assert [found.of(i).tolist() for i in range(3)] == [[0], [], [1, 3]]
    moved = found.take(np.array([2, 1, 0])).renamed(np.array([5, 6, 7, 8]))
    assert [moved.of(i).tolist() for i in range(3)] == [[6, 8], [], [5]]


@given(st.permutations(range(6)))
def test_canonical_order_makes_positions_mean_content(order: list[int]) -> None:
    """A task that answers by position, shown sorted reports, answers by content."""
    places = np.linspace(5.0, 0.0, 6)[:, None]
    (told,) = answer(Tickets(), [places[order]])
    assert isinstance(told, Values)
    assert np.array_equal(told.data[:, 0], places[order][:, 0])


def test_a_task_that_exposes_more_than_it_states_is_refused() -> None:
    """The accountant's number binds: no answer exceeds it."""
    with pytest.raises(Refused, match="stated 0"):
        answer(TellsTooMuch(), [PEOPLE])


def test_reports_that_no_task_can_take_are_misuse() -> None:
    """Wrong number of groups, wrong shape and values that are no numbers get different errors."""
    for estimates, told in [
        ([PEOPLE, PEOPLE], "1 groups"),
        ([PEOPLE[:, 0]], "shape"),
        ([PEOPLE * np.nan], "finite"),
    ]:
        with pytest.raises(Misuse, match=told):
            answer(Numbers(), estimates)


def test_a_task_states_its_exposure_for_every_pair_of_groups() -> None:
    """A statement of the wrong shape is misuse, never a guess in the accountant's disfavor."""

    class Vague(Numbers):
        def exposed(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:  # noqa: ARG002 - wrong
            return ()

    with pytest.raises(Misuse, match="every pair"):
        answer(Vague(), [PEOPLE])


def test_notes_belong_to_reports() -> None:
    """A note too few is misuse: notes must not slip to their neighbours."""
    with pytest.raises(Misuse, match="one note per report"):
        answer(Numbers(), [PEOPLE], notes=[np.zeros((2, 4), np.uint8)])


def test_references_to_missing_reports_are_misuse() -> None:
    """A reference out of range never reaches the step that looks up addresses."""

    class Beyond(Numbers):
        def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:  # noqa: ARG002 - wrong
            return [References(0, np.array([0, 1, 1, 1]), np.array([3]))]

    with pytest.raises(Misuse, match="does not exist"):
        answer(Beyond(), [PEOPLE])


def test_built_in_tasks_come_by_name_and_return_from_their_parameters() -> None:
    """Every name loads; a task rebuilt from its JSON-able parameters has the same parameters."""
    assert set(names()) >= {"least-cost-matching", "maximum-matching", "neighbours", "download"}
    task = Neighbours(radius=120.0, limit=5, scale=(111_000.0, 70_000.0))
    assert from_params(task.params()) == task
    with pytest.raises(Misuse, match="no task is called"):
        load("matchmaking")
    with pytest.raises(Misuse, match="does not take"):
        from_params({"name": "neighbours", "diameter": 3})
    with pytest.raises(Misuse, match="need its name"):
        from_params({})


def test_installed_tasks_come_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third party's task is found under its entry point's name, and does not hide a built-in."""
    from importlib.metadata import EntryPoint  # noqa: PLC0415 - for this test only

    points = (
        EntryPoint("tickets", "support.wrong_tasks:Tickets", "coatcheck.tasks"),
        EntryPoint("neighbours", "support.wrong_tasks:Tickets", "coatcheck.tasks"),
    )
    monkeypatch.setattr("coatcheck.tasks.entry_points", lambda **_: points)
    assert load("tickets") is Tickets
    assert load("neighbours") is Neighbours
    assert "tickets" in names()


def test_exposure_counts_the_other_side_of_a_matching() -> None:
    """A corrupted worker exposes users, and a corrupted user a worker (paper: |U| <= |C|)."""
    task = LeastCostMatching(capacity=(1, 3))
    assert exposure(task, sizes=(100, 50), corrupted=(10, 4)) == (12, 10)
    assert exposure(task, sizes=(20, 50), corrupted=(10, 4)) == (10, 10)
