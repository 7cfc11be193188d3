"""Download-then-compute: all get the list, and the stated exposure is everyone."""

import numpy as np
import pytest

from coatcheck.errors import Refused
from coatcheck.tasks import References, answer, exposure
from coatcheck.tasks.download import Download

PLACES = np.array([[3.0], [1.0], [2.0]])


def test_all_people_get_the_whole_list_in_one_order() -> None:
    """The list is sorted by content, located, and the same for all."""
    (told,) = answer(Download(), [PLACES])
    assert isinstance(told, References)
    assert told.located
    assert [told.of(i).tolist() for i in range(3)] == [[1, 2, 0]] * 3


def test_one_colluder_exposes_all() -> None:
    """A single corrupted person leaves no honest one in the crowd."""
    assert exposure(Download(), sizes=(500,), corrupted=(1,)) == (499,)
    assert exposure(Download(), sizes=(500,), corrupted=(0,)) == (0,)


def test_a_larger_crowd_than_the_answers_hold_is_refused() -> None:
    """No list is cut short."""
    with pytest.raises(Refused, match="raise `most`"):
        answer(Download(most=2), [PLACES])
