"""Admission: which requests may upload: all, those with a token of a list, or with Privacy Pass.

Admission reads a request's credential and nothing of the upload. What it returns is stored with the
upload in one transaction, so a credential is spent if and only if the upload is stored. The store
refuses a spent one in that transaction (`Verdict.SPENT` of `ShufflerStore.put`). SPEC section 6.
"""

import hashlib
from pathlib import Path
from typing import Final, Protocol

import msgspec

from coatcheck.durable_files import read_bytes
from coatcheck.errors import BadSignature, Malformed, Misuse
from coatcheck.protocol import privacy_pass
from coatcheck.protocol.terms import AdmissionTerms, Anybody, PrivacyPass, Round, Tokens
from coatcheck.services.settings import ShufflerSettings
from coatcheck.services.web.connections import Scope, header
from coatcheck.services.web.routing import Header, Problem

TOKEN: Final = Header("coatcheck-token", "A one-use token, if asked for.", required=False)
CHALLENGE: Final = Header("www-authenticate", "What a token of Privacy Pass must answer.")


class Admission(Protocol):
    """A rule for which requests may upload.

    Attributes:
        terms: the rule as the terms of a round state it.
    """

    terms: AdmissionTerms

    def admit(self, scope: Scope, round_: Round, *, hop: int) -> bytes | None:
        """Return what is stored of a request's credential; None if it needs none.

        Raises a `Problem` if the request is not admitted to the round at this place of the cascade.
        Nothing is spent yet.
        """


class OpenAdmission:
    """Admits every request."""

    terms: AdmissionTerms = Anybody()

    def admit(self, scope: Scope, round_: Round, *, hop: int) -> bytes | None:
        """Admit the request."""
        del scope, round_, hop
        return None


class TokenAdmission:
    """Admits requests with a token of a list, which holds hashes only."""

    terms: AdmissionTerms = Tokens()

    def __init__(self, hashes: frozenset[bytes]) -> None:
        self._hashes = hashes

    @classmethod
    def read(cls, path: Path) -> "TokenAdmission":
        """Read a file of SHA-256 hashes in hex, one per line."""
        try:
            lines = path.read_text(encoding="ascii").split()
            return cls(frozenset(bytes.fromhex(line) for line in lines))
        except OSError as error:
            raise Misuse(f"cannot read the token hashes in {path}: {error.strerror}") from None
        except ValueError:
            raise Misuse(
                f"{path} must have one SHA-256 hash of a token in hex per line; `coatcheck tokens`"
                " makes such a file"
            ) from None

    def admit(self, scope: Scope, round_: Round, *, hop: int) -> bytes | None:
        """Look the token up by its hash: how long that takes says nothing about the token."""
        del round_, hop
        digest = hashlib.sha256(header(scope, TOKEN.name.encode())).digest()
        if digest not in self._hashes:
            raise Problem(
                "forbidden", "an upload to this shuffler needs a one-use token of its operator"
            )
        return digest


class PrivacyPassAdmission:
    """Admits requests with a token that an issuer signed blindly for this round."""

    def __init__(self, terms: PrivacyPass) -> None:
        self.terms: AdmissionTerms = terms

    @classmethod
    def read(cls, issuer: str, path: Path) -> "PrivacyPassAdmission":
        """Read the issuer's key, in DER as RFC 9578 writes it."""
        try:
            plain = {"kind": "privacy-pass", "issuer": issuer, "key": read_bytes(path).hex()}
            return cls(msgspec.convert(plain, PrivacyPass))
        except msgspec.ValidationError as error:
            raise Misuse(
                f"`issuer` {issuer!r} with `issuer_key` {path} is no Privacy Pass issuer; give its"
                " host name, and its RSASSA-PSS key of 2,048 bits in DER (RFC 9578, section"
                f" 8.2.2): {error}"[:300]
            ) from None

    def admit(self, scope: Scope, round_: Round, *, hop: int) -> bytes | None:
        """Redeem the token of the request."""
        # All of them: a second token is refused wherever it stands.
        values = [value for name, value in scope["headers"] if name == b"authorization"]
        credential = b", ".join(values).decode("latin-1")
        try:
            return privacy_pass.redeem(privacy_pass.read_credential(credential), round_, hop)
        except (Malformed, BadSignature) as error:
            issuer = getattr(self.terms, "issuer", "")
            raise Problem(
                "unadmitted",
                f"this shuffler admits only people with a Privacy Pass token of {issuer} for this"
                f" round ({error}): get one for the challenge in the header WWW-Authenticate, and"
                ' send it as Authorization: PrivateToken token="..."; nothing was stored',
                www_authenticate=privacy_pass.demand(round_, hop),
            ) from None


def admission_of(settings: ShufflerSettings) -> Admission:
    """Make the admission that the settings name; `open` is never the default."""
    if settings.admission == "open":
        return OpenAdmission()
    if settings.admission == "privacy-pass":
        return PrivacyPassAdmission.read(settings.issuer, settings.path(settings.issuer_key))
    if not settings.tokens:
        raise Misuse(
            "the settings do not say whom this shuffler admits; name a file with the SHA-256 hashes"
            ' of one-use tokens as `tokens`, or set admission = "privacy-pass" with `issuer` and'
            ' `issuer_key`, or admission = "open" for anybody'
        )
    return TokenAdmission.read(settings.path(settings.tokens))
