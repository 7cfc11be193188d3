"""The offer of a round: what a shuffler tells to people who may take part."""

from dataclasses import dataclass
from typing import Any

from coatcheck.protocol.agreement import SignedTerms


@dataclass(frozen=True)
class Offer:
    """What the shuffler tells of a round: the terms, and where it stands."""

    signed: SignedTerms
    status: dict[str, Any]
