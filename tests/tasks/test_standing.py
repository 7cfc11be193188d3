"""Where people stand: ranks without noise, and honest errors with it."""

import numpy as np
import pytest

from coatcheck.domains import Box
from coatcheck.entropy import seeded
from coatcheck.errors import Misuse
from coatcheck.protocol.server import belief, numbers
from coatcheck.randomizers import GridResponse
from coatcheck.tasks import Values, answer
from coatcheck.tasks.standing import Standing


def test_ranks_share_the_middle_of_ties() -> None:
    """Equal numbers stand equally; the median is neither above nor below itself."""
    (told,) = Standing()([np.array([[1.0], [2.0], [2.0], [2.0], [7.0]])])
    assert isinstance(told, Values)
    assert told.data[:, 0] == pytest.approx([0.1, 0.5, 0.5, 0.5, 0.9])
    assert told.data[:, 1].tolist() == [0.0] * 5
    assert told.data[:, 2].tolist() == [0.0, 0.5, 0.5, 0.5, 1.0]
    assert told.shared.tolist() == [1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 7.0]


def test_errors_are_as_large_as_stated() -> None:
    """With noise, the stated standard errors are the true ones within a tenth; seeds are fixed."""
    mechanism = GridResponse(domain=Box((0.0,), (100.0,)), epsilon=3.0, cells=(16,))
    truth = seeded(5).uniforms(20_000).reshape(-1, 1) ** 2 * 100
    reports = mechanism.randomize(truth, seeded(6))
    seen = numbers(mechanism, reports)
    task = Standing()
    told = answer(task, [seen], beliefs=[belief(mechanism, reports)])
    (right,) = task([truth])
    assert isinstance(told[0], Values)
    assert isinstance(right, Values)
    off = told[0].data[:, 0] - right.data[:, 0]
    promised = np.sqrt((told[0].data[:, 1] ** 2).mean())
    assert np.sqrt((off**2).mean()) == pytest.approx(promised, rel=0.1)
    above = told[0].data[:, 2]
    for low, high in ((0.0, 0.3), (0.3, 0.7), (0.7, 1.01)):
        some = (above >= low) & (above < high)
        if some.sum() > 500:
            assert right.data[some, 2].mean() == pytest.approx(above[some].mean(), abs=0.05)
    assert told[0].shared == pytest.approx((np.arange(1, 10) / 10) ** 2 * 100, abs=4.0)
    plain = task.score([truth], estimates=[seen])
    assert task.score([truth], estimates=[seen], answers=told).better_than(plain)


def test_one_number_per_person() -> None:
    """Places have no order, and one group stands among itself."""
    with pytest.raises(Misuse, match="one number per person"):
        Standing()([np.zeros((3, 2))])
    with pytest.raises(Misuse, match="one group"):
        Standing(groups=("a", "b"))  # type: ignore[arg-type]
    assert Standing().exposed([100]) == ((0,),)
