"""The clock of rounds: it follows the wall clock without following its steps."""

from hypothesis import given
from hypothesis import strategies as st

from coatcheck.services.clock import Clock


class TwoClocks:
    """A wall clock and a steady clock that a test moves."""

    def __init__(self) -> None:
        self.wall, self.steady = 1_000_000.0, 50.0
        self.clock = Clock(wall=lambda: self.wall, steady=lambda: self.steady)

    def wait(self, seconds: float, *, step: float = 0.0) -> int:
        """Let time pass, and let the wall clock step in addition."""
        self.steady += seconds
        self.wall += seconds + step
        return self.clock.now()


def test_it_follows_the_wall() -> None:
    """Without steps it shows the time of the wall clock."""
    clocks = TwoClocks()
    assert [clocks.wait(10), clocks.wait(0.5), clocks.wait(100)] == [
        1_000_010,
        1_000_010,
        1_000_110,
    ]


def test_a_step_back_stands_still() -> None:
    """After a step back it stands still until the wall clock catches up: nothing repeats."""
    clocks = TwoClocks()
    assert clocks.wait(10) == 1_000_010
    assert clocks.wait(10, step=-600) == 1_000_010
    assert clocks.wait(580) == 1_000_010
    assert clocks.wait(20) == 1_000_020


def test_a_step_forward_comes_through_slowly() -> None:
    """A step of ten minutes takes ten minutes: no round closes long before its time."""
    clocks = TwoClocks()
    assert clocks.wait(1, step=600) == 1_000_002
    assert clocks.wait(60) == 1_000_122
    assert clocks.wait(600) == 1_000_000 + 661 + 600


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(-1000, 1000)), max_size=30))
def test_it_never_goes_back_nor_runs_away(moves: list[tuple[float, float]]) -> None:
    """With any wall clock, time goes forward at most twice as fast as it really does."""
    clocks = TwoClocks()
    before, passed = clocks.clock.now(), 0.0
    for seconds, step in moves:
        now = clocks.wait(seconds, step=step)
        passed += seconds
        assert now >= before
        assert now <= 1_000_000 + 2 * passed + 1
        before = now
