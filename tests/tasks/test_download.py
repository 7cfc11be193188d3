"""Download-then-compute: everybody gets the list, and the exposure says so."""

import numpy as np
import pytest

from coatcheck.errors import Refused
from coatcheck.tasks import References, answer, exposure
from coatcheck.tasks.download import Download

PLACES = np.array([[3.0], [1.0], [2.0]])


def test_everybody_gets_the_whole_list_in_one_order() -> None:
    """The list is sorted by content, located, and the same for everybody."""
    (told,) = answer(Download(), [PLACES])
    assert isinstance(told, References)
    assert told.located
    assert [told.of(i).tolist() for i in range(3)] == [[1, 2, 0]] * 3


def test_one_colluder_exposes_everybody() -> None:
    """A single corrupted person leaves no honest one in the crowd."""
    assert exposure(Download(), sizes=(500,), corrupted=(1,)) == (499,)
    assert exposure(Download(), sizes=(500,), corrupted=(0,)) == (0,)


def test_a_larger_crowd_than_the_answers_hold_is_refused() -> None:
    """No list is cut short."""
    with pytest.raises(Refused, match="raise `most`"):
        answer(Download(most=2), [PLACES])
