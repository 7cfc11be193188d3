"""The offer of a round: what a shuffler tells to people who may take part."""

from dataclasses import dataclass
from typing import Any

from coatcheck.errors import Refused
from coatcheck.protocol.agreement import SignedTerms
from coatcheck.protocol.terms import Round


@dataclass(frozen=True)
class Offer:
    """What the shuffler tells of a round: the terms, and where it stands."""

    signed: SignedTerms
    status: dict[str, Any]


def check_place(round_: Round, url: str) -> None:
    """Refuse terms of a round that is elsewhere: they say where everything is asked."""
    if round_.address != url:
        raise Refused(
            f"the terms are of the round at {round_.address}, not at {url}: ask whoever told you"
            " this address for the right one"
        )
