"""The offer of a round: what a shuffler tells to people who may take part."""

from dataclasses import dataclass
from typing import Any

from coatcheck.protocol.agreement import SignedTerms


@dataclass(frozen=True)
class Offer:
    """What the shuffler tells of a round: the terms, where the board is, how many are there."""

    signed: SignedTerms
    board: str
    status: dict[str, Any]
