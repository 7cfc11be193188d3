"""The crowd of a run: in which order people come, how many are busy at once, what each reported."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final

from coatcheck.demo.events import Person
from coatcheck.randomizers import Randomizer

AT_ONCE: Final = 80
"""How many people are busy at the same moment."""


class Noting:
    """A person's randomizer that remembers the one report it gave, for the page to show."""

    def __init__(self, inner: Randomizer) -> None:
        self._inner = inner
        self.report: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def randomize(self, values: Any, entropy: Any, *, clamp: bool = False) -> Any:
        """Randomize as the inner one does."""
        reports = self._inner.randomize(values, entropy, clamp=clamp)
        self.report = [int(number) for number in reports[0]]
        return reports


async def each(people: Sequence[Person], errand: Callable[[Person], Awaitable[None]]) -> None:
    """Run everybody's errand, so many at a time; a failure stops the others."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(who: Person) -> None:
        async with turns:
            await errand(who)

    try:
        async with asyncio.TaskGroup() as group:
            for who in people:
                group.create_task(one(who))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


def by_turns(sizes: Sequence[int]) -> Iterator[Person]:
    """Yield everybody, the groups in turn, as people come."""
    for row, turn in enumerate(zip_longest(*(range(size) for size in sizes))):
        yield from ((group, row) for group, there in enumerate(turn) if there is not None)
