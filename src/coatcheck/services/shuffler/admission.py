"""Admission: whom a shuffler lets hand something in, under one contract.

Looks at a request's credential and knows nothing of what is handed in. What is given back is
stored with the upload in one transaction, so a credential is spent if and only if the upload is
kept. SPEC section 6.
"""

import hashlib
from pathlib import Path
from typing import Final, Protocol

from coatcheck.errors import Misuse
from coatcheck.protocol.terms import AdmissionTerms, Anybody, Tokens
from coatcheck.services.http.connections import Scope, header
from coatcheck.services.http.problems import Problem
from coatcheck.services.http.routes import Header
from coatcheck.services.settings import ShufflerSettings

TOKEN: Final = Header("coatcheck-token", "A one-use token, if asked for.", required=False)


class Admission(Protocol):
    """A way to tell who may take part.

    Attributes:
        terms: what the terms of a round say of it.
    """

    terms: AdmissionTerms

    def admit(self, scope: Scope) -> bytes | None:
        """Give what the credential of a request is remembered by; None if nobody needs one.

        Raises a `Problem` for who is not admitted. Nothing is spent yet.
        """


class OpenAdmission:
    """Everybody is admitted."""

    terms: AdmissionTerms = Anybody()

    def admit(self, scope: Scope) -> bytes | None:
        """Let everybody in."""
        del scope
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

    def admit(self, scope: Scope) -> bytes | None:
        """Look the token up by its hash: how long that takes says nothing about the token."""
        given = hashlib.sha256(header(scope, TOKEN.name.encode())).digest()
        if given not in self._hashes:
            raise Problem("forbidden", "this shuffler asks for a one-use token that it gave out")
        return given


def admission_of(settings: ShufflerSettings) -> Admission:
    """Make what the settings ask for; open doors must be asked for."""
    if settings.admission == "open":
        return OpenAdmission()
    if not settings.tokens:
        raise Misuse(
            "say whom this shuffler admits: name a file with the SHA-256 hashes of one-use tokens"
            ' as `tokens`, or set admission = "open" for anybody'
        )
    return TokenAdmission.read(settings.path(settings.tokens))
