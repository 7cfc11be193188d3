"""Addresses of roles and relays: their parts, and whether two belong to one operator."""

import ipaddress
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from coatcheck.errors import Misuse

_REGISTRIES: Final = frozenset(
    ("ac", "co", "com", "edu", "go", "gob", "gouv", "gov", "mil", "ne", "net", "nom", "or", "org")
)
"""Labels below a country's that are a registry's."""


class Origin(NamedTuple):
    """Where a role or a relay is."""

    scheme: str
    authority: str
    host: str
    port: int = 0

    @property
    def url(self) -> str:
        """The address without a path."""
        return f"{self.scheme}://{self.authority}"


def origin_of(url: str) -> Origin:
    """Read the origin of an address."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 0
    except ValueError:
        host, port = "", 0
    if not host or parts.scheme not in {"http", "https"} or "@" in parts.netloc:
        raise Misuse(f"{url!r} is no address: give https://HOST[:PORT]")
    return Origin(parts.scheme, parts.netloc.lower(), host, port)


def apart(relay: str, role: str) -> None:
    """Refuse a relay in the domain of the role it is to hide people from.

    Domains are compared from their second label on (`relay.a.org` and `board.a.org` are one
    operator's). Addresses of this machine are for practice, and let through.
    """
    one, two = origin_of(relay).host, origin_of(role).host
    if _is_loopback(one) or _is_loopback(two):
        return
    if one == two or (not _is_number(one) and not _is_number(two) and _domain(one) == _domain(two)):
        raise Misuse(
            f"the relay {one} and the role {two} belong to one operator, who would see both who"
            " asks and what is asked: use a relay of somebody else"
        )


def _domain(host: str) -> list[str]:
    labels = host.rstrip(".").split(".")
    # The last two labels of a.co.uk are a registry's and nobody's own; those of a.b.io are b's.
    registry = len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _REGISTRIES
    return labels[-3 if registry else -2 :]


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_number(host) and ipaddress.ip_address(host).is_loopback)
