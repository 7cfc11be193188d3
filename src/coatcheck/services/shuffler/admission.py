"""Admission: whom a shuffler lets hand something in, under one contract.

Looks at a request's credential and knows nothing of what is handed in. What is given back is
stored with the upload in one transaction, so a credential is spent if and only if the upload is
kept. SPEC section 6.
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
    """A way to tell who may take part.

    Attributes:
        terms: what the terms of a round say of it.
    """

    terms: AdmissionTerms

    def admit(self, scope: Scope, round_: Round, *, hop: int) -> bytes | None:
        """Give what the credential of a request is remembered by; None if nobody needs one.

        Raises a `Problem` for who is not admitted to the round at this place of the cascade.
        Nothing is spent yet.
        """


class OpenAdmission:
    """Everybody is admitted."""

    terms: AdmissionTerms = Anybody()

    def admit(self, scope: Scope, round_: Round, *, hop: int) -> bytes | None:
        """Let everybody in."""
        del scope, round_, hop
        return None


class TokenAdmission:
    """Who shows a token of a list is admitted; the list holds hashes only."""

    terms: AdmissionTerms = Tokens()

    def __init__(self, hashes: frozenset[bytes]) -> None:
        self._hashes = hashes

    @classmethod
    def read(cls, path: Path) -> "TokenAdmission":
        """Read a file of SHA-256 hashes in hex, one per line."""
        try:
            lines = path.read_text(encoding="ascii").split()
            return cls(frozenset(bytes.fromhex(line) for line in lines))
        except (OSError, ValueError) as error:
            raise Misuse(f"{path} is no list of hashes of tokens: {error}") from None

    def admit(self, scope: Scope, round_: Round, *, hop: int) -> bytes | None:
        """Look the token up by its hash: how long that takes says nothing about the token."""
        del round_, hop
        given = hashlib.sha256(header(scope, TOKEN.name.encode())).digest()
        if given not in self._hashes:
            raise Problem("forbidden", "this shuffler asks for a one-use token that it gave out")
        return given


class PrivacyPassAdmission:
    """Who shows a token that an issuer signed blindly for this round is admitted."""

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
                f"{issuer!r} with {path} is no issuer of Privacy Pass: give its host name, and its"
                f" RSASSA-PSS key of 2,048 bits in DER (RFC 9578, section 8.2.2): {error}"[:300]
            ) from None

    def admit(self, scope: Scope, round_: Round, *, hop: int) -> bytes | None:
        """Redeem the token of the request."""
        # All of them: a second token is refused wherever it stands.
        shown = [value for name, value in scope["headers"] if name == b"authorization"]
        given = b", ".join(shown).decode("latin-1")
        try:
            return privacy_pass.redeem(privacy_pass.read_credential(given), round_, hop)
        except (Malformed, BadSignature) as error:
            raise Problem(
                "unadmitted", str(error), www_authenticate=privacy_pass.demand(round_, hop)
            ) from None


def admission_of(settings: ShufflerSettings) -> Admission:
    """Make what the settings ask for; open doors must be asked for."""
    if settings.admission == "open":
        return OpenAdmission()
    if settings.admission == "privacy-pass":
        return PrivacyPassAdmission.read(settings.issuer, settings.path(settings.issuer_key))
    if not settings.tokens:
        raise Misuse(
            "say whom this shuffler admits: name a file with the SHA-256 hashes of one-use tokens"
            ' as `tokens`, or set admission = "privacy-pass" with `issuer` and `issuer_key`, or'
            ' admission = "open" for anybody'
        )
    return TokenAdmission.read(settings.path(settings.tokens))
