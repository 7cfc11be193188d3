"""The mean of whole gradients a part at a time: the task's own answer, in bounded memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck.domains import Ball
from coatcheck.errors import Misuse
from coatcheck.randomizers import SphereResponse
from coatcheck.tasks import Floats, Values, answer
from coatcheck.tasks import learning as learning_module
from coatcheck.tasks.learning import Learning, answers_mean_only, mean_of
from coatcheck.tasks.standing import Standing


def learning(dimension: int) -> Learning:
    """A task that answers with the mean only."""
    return Learning(dimension=dimension, share_mean=True, rewards=False)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 70), st.integers(1, 5), st.integers(1, 40))
def test_parts_give_what_the_task_answers(seed: int, people: int, width: int, most: int) -> None:
    """Parts of any size give the same bits, in any order of the reports."""
    draw = np.random.default_rng(seed)
    reports = draw.integers(-3, 4, (people, width))
    (expected,) = answer(learning(width), [reports.astype(np.float64) / 10])
    assert isinstance(expected, Values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learning_module, "_NUMBERS", most)
        found, again = (
            mean_of(learning(width), some, lambda part: part / 10)
            for some in (reports, draw.permutation(reports))
        )
    assert found.data.shape == expected.data.shape == (people, 0)
    assert found.shared == pytest.approx(expected.shared, abs=1e-12)
    assert found.shared.tolist() == again.shared.tolist()


def test_no_more_than_a_part_is_read_at_once() -> None:
    """Reports of a sphere are one number each; their estimates are read part by part."""
    made = SphereResponse(domain=Ball(radius=1.0, p=2, dimension=600), epsilon=4.0)
    reports = np.random.default_rng(1).integers(0, made.high[0] + 1, (5_000, 1))
    sizes = []

    def read(part: Floats) -> Floats:
        sizes.append(len(part) * 600)
        return np.asarray(made.estimate(part))

    found = mean_of(learning(600), reports, read)
    assert sum(sizes) == 5_000 * 600
    assert max(sizes) <= 2**20
    assert found.shared == pytest.approx(np.asarray(made.estimate(reports)).mean(axis=0))


def test_nobody_and_no_number() -> None:
    """The mean of an empty group is zero; an estimate that is no number is refused."""
    told = mean_of(
        learning(3), np.empty((0, 1), dtype=np.int64), lambda part: np.repeat(part, 3, axis=1)
    )
    assert told.shared.tolist() == [0.0] * 3
    with pytest.raises(Misuse, match="not all finite"):
        mean_of(learning(1), np.zeros((2, 1)), lambda part: part + np.nan)


def test_only_a_mean_is_taken_in_parts() -> None:
    """Rewards compare people, and sampled gradients need their notes."""
    assert answers_mean_only(learning(2))
    assert not answers_mean_only(Learning(dimension=2, share_mean=True))
    assert not answers_mean_only(Learning(dimension=2, sampled=1, share_mean=True, rewards=False))
    assert not answers_mean_only(Standing())
