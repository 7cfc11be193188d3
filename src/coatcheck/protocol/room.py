"""Room: how many people a round can carry, and terms that nobody could carry.

What a store, a file or a count cannot hold is refused when terms are drafted, not when the crowd is
there. Knows sizes, no value. SPEC section 6.
"""

from typing import Final

from coatcheck.errors import Misuse
from coatcheck.protocol.manifest import PART
from coatcheck.protocol.notices import heading_size
from coatcheck.protocol.terms import Round

_COUNTED: Final = 2**32 - 1  # what the counts of a batch hold
_SEALED: Final = 2**31 - 1  # the bytes that one seal of a file takes


def sizes_of(round_: Round) -> list[int]:
    """Bytes that a person of each group takes: their items in the first batch, or their entry."""
    hops = len(round_.terms.shufflers)
    return [
        max(hops * round_.item_size(group, 1), round_.entry_size(group))
        for group in range(len(round_.terms.groups))
    ]


def room_of(round_: Round, limit: int) -> int:
    """Count the people whom a batch and a bulletin of so many bytes carry for sure."""
    terms = round_.terms
    heading = heading_size(len(terms.groups), len(terms.shufflers))
    return max(0, limit - heading) // max(sizes_of(round_))


def check_room(round_: Round, *, limit: int) -> None:
    """Refuse a round that cannot end well: its least crowd or its answers are too large.

    `limit` is the most bytes of a batch or a bulletin.
    """
    terms, sizes = round_.terms, sizes_of(round_)
    people, hops = sum(group.minimum for group in terms.groups), len(terms.shufflers)
    most = max(group.minimum for group in terms.groups)
    if hops * most > _COUNTED:
        raise Misuse(
            f"a group of {most} people with {hops} shufflers has more items than a batch counts"
            f" ({_COUNTED}): state a minimum of at most {_COUNTED // hops}"
        )
    if people > room_of(round_, limit):
        needed = people * max(sizes) + heading_size(len(terms.groups), hops)
        raise Misuse(
            f"the least crowd of this round is {people} people, and {max(sizes)} bytes each make"
            f" {needed}, but a batch or bulletin has at most {limit}: raise `batch_limit` in the"
            " settings of every role, lower the minimum, or ask the task for smaller answers"
        )
    together = min(PART, room_of(round_, limit))
    if together * max(sizes) > _SEALED:
        raise Misuse(
            f"{together} people with {max(sizes)} bytes each are more than one file of the depot"
            f" takes ({_SEALED}): ask the task for smaller answers"
        )
