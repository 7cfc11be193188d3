"""Documents that several services take and give, as OpenAPI describes them."""

from typing import Annotated

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from coatcheck.protocol.keyfiles import PublicKeys
from coatcheck.protocol.terms import DOCUMENT_LIMIT

Signature = Annotated[str, Field(pattern="^([0-9a-f]{2})+$", max_length=256)]


class SignedDocument(BaseModel):
    """Terms with the signatures under them; null stands for one still to come."""

    model_config = ConfigDict(extra="forbid")

    document: Annotated[str, Field(max_length=DOCUMENT_LIMIT)]
    server: Signature
    shufflers: Annotated[list[Signature | None], Field(max_length=8)]


class Key(BaseModel):
    """The public keys of a role."""

    coatcheck: str
    name: str
    suite: str
    verifying: str
    sealing: str


def signed_document(raw: bytes) -> SignedDocument:
    """Read signed terms that are known to be well formed."""
    return SignedDocument.model_validate_json(raw)


def key_of(public: PublicKeys) -> Key:
    """Write public keys as a document."""
    return Key.model_validate(msgspec.to_builtins(public))
