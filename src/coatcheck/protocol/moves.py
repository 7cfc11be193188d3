"""Moves: the table by which a role's rounds go from phase to phase, and the one place to ask it.

A role writes its table down once. Its object, its stores, its service and SPEC all read that table.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Generic, TypeVar

from coatcheck.errors import Refused

P = TypeVar("P", bound=Enum)


class Moves(Generic[P]):
    """Which moves a role allows in which phase, and the phase each one leads to.

    Attributes:
        phases: all the phases of the role.
    """

    def __init__(self, phases: type[P], table: Mapping[tuple[P, str], P]) -> None:
        self.phases = phases
        self._table = dict(table)

    def __iter__(self) -> Iterator[tuple[P, str, P]]:
        """List phase, move and next phase, in the order of the table."""
        return ((phase, move, after) for (phase, move), after in self._table.items())

    def after(self, phase: P, move: str) -> P:
        """Give the phase that a move leads to; a move that the table does not list is refused."""
        if (phase, move) not in self._table:
            raise Refused(f"a round that is {phase.value} does not take the move {move!r}")
        return self._table[phase, move]

    def allows(self, phase: P, move: str) -> bool:
        """Tell whether a move is allowed in a phase."""
        return (phase, move) in self._table

    def ahead(self, phase: P) -> set[P]:
        """Give this phase and all that a round in it can still come to."""
        found: set[P] = set()
        fresh = {phase}
        while fresh:
            found |= fresh
            fresh = {after for before, _, after in self if before in found} - found
        return found

    def is_last(self, phase: P) -> bool:
        """Tell whether no move leads out of a phase."""
        return all(before is not phase for before, _ in self._table)
