"""A clock for rounds that does not jump when the system's clock does.

It follows the wall clock, but never goes back and never runs at more than twice the pace of the
steady clock. So a jump forward by ten minutes takes ten minutes to come through: an operator has
time to mend it, and no round closes twice or long before its time.
"""

import time
from collections.abc import Callable


class Clock:
    """Seconds since 1970, without steps."""

    def __init__(
        self,
        *,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._last = wall()
        self._seen = steady()

    def now(self) -> int:
        """Tell the time."""
        steady = self._steady()
        elapsed, self._seen = steady - self._seen, steady
        self._last = min(max(self._last, self._wall()), self._last + 2 * elapsed)
        return int(self._last)
