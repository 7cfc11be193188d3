"""Documents that several services take and give, as OpenAPI describes them."""

import msgspec
from pydantic import BaseModel, ConfigDict

from coatcheck.keyfiles import PublicKeys


class SignedDocument(BaseModel):
    """Terms with the signatures under them; null stands for one still to come."""

    model_config = ConfigDict(extra="forbid")

    document: str
    server: str
    shufflers: list[str | None]


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
