"""Death of a process at a fault point, played by an exception in the same process."""


class Lost(Exception):
    """The death of the process."""


class DiesAt:
    """A stand-in for `clock.reach` that raises `Lost` at some of the visits to one fault point."""

    def __init__(self, place: str, *, every: int, first: int) -> None:
        self._place, self._every, self._first = place, every, first
        self._visits = 0

    def __call__(self, name: str, *, alone: bool = False) -> None:
        """Count a visit, and die at the first one named and at each one `every` visits later."""
        del alone
        if name == self._place:
            self._visits += 1
            if self._visits % self._every == self._first % self._every:
                raise Lost
