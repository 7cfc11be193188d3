"""The current round of a service: a person who knows the first shuffler need not know the round.

Its address is made of the shuffler's address, as the person was told it, and a digest: an answer
never sends anybody elsewhere. Asked through the relay, if there is one. SPEC section 12.
"""

from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from coatcheck.errors import Refused
from coatcheck.protocol.records import read_document
from coatcheck.protocol.trust import Trust
from coatcheck.services.http.client import Absent, HttpClient, Wrong, patiently
from coatcheck.services.person.relayed import RelayedClient


class _Newest(Struct, frozen=True):
    """What is read of the answer."""

    digest: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]


def service_of(url: str) -> str:
    """Give the address of the service, if this is one and no address of a round; else nothing."""
    bare = url.rstrip("/").removesuffix("/rounds/current")
    return "" if urlsplit(bare).path else bare


async def current_round(
    service: str, *, trusted: Trust, relay: str = "", ca: str = "", patience: float = 30.0
) -> str:
    """Ask a shuffler for its current round, and give the round's address."""
    direct = HttpClient(ca=ca)
    way = RelayedClient(relay, first=service, trusted=trusted, http=direct) if relay else direct
    try:
        raw = await patiently(lambda: way.get(f"{service}/rounds/current"), patience)
    except (Absent, Wrong) as none:
        hint = f"coatcheck round list {service} tells; people ask the first shuffler"
        raise Refused(f"{none} ({hint})") from None
    finally:
        await way.close()
    return f"{service}/rounds/{read_document(raw, _Newest, f'{service} is no shuffler').digest}"
