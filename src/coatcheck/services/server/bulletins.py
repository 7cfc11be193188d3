"""A bulletin on its way to the board: its heading, then its parts, one at a time.

A role's end without entries is its heading alone. SPEC section 19.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator

from coatcheck.protocol.keys import SigningKey
from coatcheck.services import faults
from coatcheck.services.batches import sealed
from coatcheck.services.http.client import HttpClient, Long
from coatcheck.services.http.deliveries import announced
from coatcheck.stores.server import ServerStore


class Outgoing:
    """The end of a round as it is kept, in pieces.

    Attributes:
        names: the files of its parts, in order.
    """

    def __init__(self, store: ServerStore, digest: bytes) -> None:
        self.heading = store.kept(digest, "bulletin")
        self.crate = store.crate(digest)
        listed = store.listed(digest)
        if listed:
            self.crate.key("batch")  # without it nothing of them is read: that is told first
        self.names = [sealed(n, content) for n, content in enumerate(listed)]

    def part(self, name: str) -> bytes:
        """Read a part."""
        return self.crate.get(name, use="batch")

    def measured(self) -> tuple[int, bytes]:
        """Give how many bytes there are, and their hash."""
        found, size = hashlib.sha256(self.heading), len(self.heading)
        for name in self.names:
            raw = self.part(name)
            found.update(raw)
            size += len(raw)
        return size, found.digest()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Give the bytes, a part at a time."""
        yield self.heading
        for name in self.names:
            yield await asyncio.to_thread(self.part, name)


async def publish(
    store: ServerStore, digest: bytes, *, to: str, signing: SigningKey, peers: HttpClient
) -> None:
    """Hand the end of a round to the board."""
    going = await asyncio.to_thread(Outgoing, store, digest)
    size, content = await asyncio.to_thread(going.measured)
    headers = announced(content, digest=digest, signing=signing)
    faults.reach("server.deliver")
    url = f"{to}/rounds/{digest.hex()}/bulletin"
    await peers.stream(url, Long(size, going.pieces), headers=headers)
    faults.reach("server.delivered")
