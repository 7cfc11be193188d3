"""Times that say nothing: through a relay a person asks at moments drawn at random.

A relay and a role that both keep times could join requests that follow each other at once. Waiting
without a relay would hide nothing, so nobody waits then. SPEC section 17.
"""

import asyncio
from typing import Final

from msgspec import UNSET

from coatcheck.entropy import system
from coatcheck.protocol.terms import Round
from coatcheck.services.http.client import HttpClient
from coatcheck.services.person.relayed import RelayedClient

STEP: Final = 0.25
"""The share of a pause of settling within which the letters of a step are posted."""


def window_of(round_: Round, peers: HttpClient | RelayedClient) -> int:
    """Give the seconds within which the times of a person's requests are drawn; 0 for at once."""
    window = round_.terms.window
    return 0 if window is UNSET or not isinstance(peers, RelayedClient) else window


def drawn(seconds: float) -> float:
    """Draw a time evenly between nothing and so many seconds."""
    return system().integer(int(1000 * seconds) + 1) / 1000


async def linger(seconds: float) -> None:
    """Wait for a time drawn evenly between nothing and so many seconds."""
    if seconds:
        await asyncio.sleep(drawn(seconds))
