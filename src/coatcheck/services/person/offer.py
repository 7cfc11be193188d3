"""The offer of a round: what a shuffler tells to people who may take part."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coatcheck.errors import Refused
from coatcheck.protocol.agreement import SignedTerms
from coatcheck.protocol.records import read_document
from coatcheck.protocol.terms import Round


@dataclass(frozen=True)
class Offer:
    """What the shuffler tells of a round: the terms, and where it stands."""

    signed: SignedTerms
    status: dict[str, Any]


def stored_offer(ticket: Path) -> Offer | None:
    """Read what was kept beside a ticket; without the ticket it is of no round."""
    kept = Path(f"{ticket}.offer")
    if not ticket.exists() or not kept.exists():
        return None
    return read_document(kept.read_bytes(), Offer, f"{kept} is no offer")


def check_place(round_: Round, url: str) -> None:
    """Refuse terms of a round that is elsewhere: they say where everything is asked."""
    if round_.address != url:
        raise Refused(
            f"the terms are of the round at {round_.address}, not at {url}: ask whoever told you"
            " this address for the right one"
        )
