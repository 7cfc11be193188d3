"""Key files: the seed of a role's keys for its owner alone, and the public halves for everybody.

The one format that the commands and the services share. Secrets get mode 0600 from the first
byte on, and a file that others could read is refused. SPEC section 4.
"""

from pathlib import Path
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from coatcheck.errors import Misuse
from coatcheck.files import read_bytes, read_secret
from coatcheck.protocol.keys import KeyPairs
from coatcheck.protocol.records import read_document
from coatcheck.protocol.suites import suite_named
from coatcheck.protocol.terms import (
    AdmissionTerms,
    Hex,
    Notary,
    Party,
    ShufflerParty,
    Title,
    Url,
    Verifying,
)


class PublicKeys(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a role gives away: its name, its two public keys, and where it is.

    Attributes:
        url: its address; absent in the key file of a service, whose settings say it.
    """

    coatcheck: Literal["public/1"] = "public/1"
    name: Title
    suite: str
    verifying: Verifying
    sealing: Hex
    url: Url | UnsetType = UNSET

    @property
    def party(self) -> Party:
        """The entry in the terms of the server."""
        return Party(**self._known(), sealing=self.sealing)

    def shuffler(self, admission: AdmissionTerms) -> ShufflerParty:
        """Give the entry in the terms of a shuffler that admits these people."""
        return ShufflerParty(**self._known(), sealing=self.sealing, admission=admission)

    @property
    def notary(self) -> Notary:
        """The entry in the terms of the board."""
        return Notary(**self._known())

    def _known(self) -> dict[str, str]:
        if self.url is UNSET:
            raise Misuse(
                f"nobody knows where {self.name!r} is: make its keys with `keygen --url`, or add"
                " `url` to the file of its public keys"
            )
        return {"name": self.name, "verifying": self.verifying, "url": self.url}


class SecretKeys(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a role keeps: the seed of its keys."""

    coatcheck: Literal["secret/1"] = "secret/1"
    name: Title
    suite: str
    seed: Hex
    url: Url | UnsetType = UNSET

    @property
    def pairs(self) -> KeyPairs:
        """The keys."""
        return KeyPairs(suite_named(self.suite), bytes.fromhex(self.seed))

    @property
    def public(self) -> PublicKeys:
        """The half to give away."""
        pairs = self.pairs
        return PublicKeys(
            name=self.name,
            suite=self.suite,
            verifying=pairs.signing.public_raw.hex(),
            sealing=pairs.opening.public_raw.hex(),
            url=self.url,
        )

    def __repr__(self) -> str:
        return f"SecretKeys(name={self.name!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Print as the name in rich terminals too: theirs would list every field."""
        return [("name", self.name)]


def read_keys(path: Path) -> SecretKeys:
    """Read a role's key file."""
    return read_document(read_secret(path), SecretKeys, f"{path} is no key file", error=Misuse)


def read_public(path: Path) -> PublicKeys:
    """Read a role's public keys."""
    return read_document(
        read_bytes(path), PublicKeys, f"{path} is no file of public keys", error=Misuse
    )
