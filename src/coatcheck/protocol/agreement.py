"""Signed terms: the server signs them, every shuffler counter-signs, everybody checks.

A server that hands different terms to different people needs the signature of a shuffler for
each version, and an honest shuffler signs one version of a round. What was checked has a type:
`AgreedTerms` carry every signature, `TrustedTerms` also name only parties that the reader
trusts. Only this file makes them. SPEC section 6.
"""

from collections.abc import Collection, Iterable, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
from msgspec import Struct

from coatcheck.errors import BadSignature, Equivocation, Malformed, Misuse, Refused
from coatcheck.protocol.keys import KeyPairs, SealingKey, VerifyingKey
from coatcheck.protocol.terms import (
    DOCUMENT_LIMIT,
    AdmissionTerms,
    Hex,
    Notary,
    Party,
    Round,
    ShufflerParty,
    Terms,
    read_terms,
    write_terms,
)
from coatcheck.protocol.wire.encoding import read_document

# HOUSE-DOC protocol.trust: "Trust: which keys a person knows from elsewhere, and what for.\n\nA key is trusted in a role. Otherwise a server could put the board's key in the place of a shuffler,\nor leave out the one shuffler that would not help it. SPEC section 6.\n"
ROLES: Final = ("server", "shuffler", "board", "witness")


@dataclass(frozen=True, kw_only=True)
class Trust:
    """The verifying keys that somebody knows, by role.

    *Assumes:* at least one of `shufflers` does not help the server. Which one need not be known,
    so all of them must be in the cascade.

    Attributes:
        server: keys of servers that may run the round.
        shufflers: for each shuffler that is relied on its keys, more than one while they change.
        board: keys of boards that may show the answers.
        witnesses: for each witness whose word on the board's log counts its keys.
        demanded: how many of them must have cosigned it.
        anywhere: keys that may stand in any role, and that no cascade needs: weaker, because
            whoever holds two of them may stand where the other should.
    """

    server: frozenset[bytes] = frozenset()
    shufflers: tuple[frozenset[bytes], ...] = ()
    board: frozenset[bytes] = frozenset()
    witnesses: tuple[frozenset[bytes], ...] = ()
    demanded: int = 0
    anywhere: frozenset[bytes] = frozenset()

    @classmethod
    def of(cls, known: Iterable[tuple[str, Collection[bytes]]]) -> "Trust":
        """Gather keys told one role at a time; the keys of a shuffler's entry are one shuffler's.

        An empty role means any.
        """
        by_role: dict[str, list[frozenset[bytes]]] = {role: [] for role in ("", *ROLES)}
        for role, keys in known:
            if role not in by_role:
                raise Misuse(f"{role!r} is no role: a key is trusted as {', '.join(ROLES)}")
            by_role[role].append(frozenset(keys))
        return cls(
            server=_together(by_role["server"]),
            shufflers=tuple(by_role["shuffler"]),
            board=_together(by_role["board"]),
            witnesses=tuple(by_role["witness"]),
            demanded=len(by_role["witness"]),
            anywhere=_together(by_role[""]),
        )

    def demanding(self, witnesses: int) -> "Trust":
        """Demand the word of so many witnesses instead of all that are named."""
        if not 1 <= witnesses <= len(self.witnesses):
            raise Misuse(
                f"you name {len(self.witnesses)} witnesses (--trust witness=FILE): of these,"
                f" {witnesses} cannot be demanded"
            )
        return replace(self, demanded=witnesses)

    def plain(self) -> dict[str, Any]:
        """Spell the keys in hex by role, as JSON and the browser's client take them."""
        return {
            "server": _spelled(self.server),
            "shufflers": [_spelled(keys) for keys in self.shufflers],
            "board": _spelled(self.board),
            "witnesses": [_spelled(keys) for keys in self.witnesses],
            "demanded": self.demanded,
            "anywhere": _spelled(self.anywhere),
        }

    def check(self, terms: Terms) -> None:
        """Refuse terms with a stranger in any role, or without a shuffler that is relied on."""
        relied = _together(self.shufflers)
        self._know(terms.server, self.server, "server")
        for party in terms.shufflers:
            self._know(party, relied, "shuffler")
        self._know(terms.board, self.board, "board")
        cascade = {_raw(party) for party in terms.shufflers}
        for number, keys in enumerate(self.shufflers, start=1):
            if not keys & cascade:
                raise Refused(
                    f"the terms leave out shuffler {number} of the {len(self.shufflers)} that you"
                    " rely on: it may be the only honest one; ask for terms with all of them"
                )

    def _know(self, signer: Notary, keys: frozenset[bytes], role: str) -> None:
        if _raw(signer) not in keys | self.anywhere:
            raise Refused(
                f"the key of {signer.name!r} in the terms is not one you trust as a {role}: get"
                " it from them by another way, compare, and add it"
            )


def _together(several: Iterable[frozenset[bytes]]) -> frozenset[bytes]:
    return frozenset[bytes]().union(*several)


def _spelled(keys: frozenset[bytes]) -> list[str]:
    return sorted(key.hex() for key in keys)


def _raw(signer: Notary) -> bytes:
    return bytes.fromhex(signer.verifying)


_SERVER = b"coatcheck/v1/terms/server\0"
_SHUFFLER = b"coatcheck/v1/terms/shuffler\0"


class SignedTerms(Struct, frozen=True, forbid_unknown_fields=True):
    """A document with the signatures under it; None stands for one still to come."""

    document: str
    server: Hex
    shufflers: tuple[Hex | None, ...]


def propose(terms: Terms, *, keys: KeyPairs) -> SignedTerms:
    """Write and sign the terms as the server, which they must name with both its keys."""
    document = write_terms(terms)
    round_ = read_terms(document)
    if keys.signing.public_raw.hex() != terms.server.verifying:
        raise Misuse("this key is not the server's key of the terms: sign with the one they name")
    _check_sealing(terms.server, keys)
    blank = (None,) * len(terms.shufflers)
    signature = keys.signing.sign(_SERVER + round_.document)
    return SignedTerms(document.decode(), signature.hex(), blank)


def countersign(
    signed: SignedTerms, *, keys: KeyPairs, pledged: MutableMapping[str, bytes]
) -> SignedTerms:
    """Sign as one of the shufflers, one version per round.

    `pledged` is the shuffler's memory of round names and digests; it must outlive restarts.
    *Guarantee:* a second version of a round under the same name is refused, and so are terms
    that give this shuffler's layer to somebody else's sealing key.
    """
    round_ = read_terms(signed.document.encode())
    if len(signed.shufflers) != len(round_.terms.shufflers):
        raise Malformed("signed terms have one place for each shuffler's signature: ask for others")
    _verifying(round_.terms.server).check(bytes.fromhex(signed.server), _SERVER + round_.document)
    mine = keys.signing.public_raw.hex()
    place = [party.verifying for party in round_.terms.shufflers]
    if mine not in place:
        raise Misuse("this key is none of the shufflers' keys of the terms")
    _check_sealing(round_.terms.shufflers[place.index(mine)], keys)
    name = round_.terms.round
    if pledged.setdefault(name, round_.digest) != round_.digest:
        raise Equivocation(
            f"round {name!r} is already signed with other terms: signing both would let the"
            " server split the crowd; give the new terms a new name"
        )
    signature = keys.signing.sign(_SHUFFLER + round_.document).hex()
    signatures = list(signed.shufflers)
    signatures[place.index(mine)] = signature
    return SignedTerms(signed.document, signed.server, tuple(signatures))


def check_own_entry(entry: Notary, *, url: str, admission: AdmissionTerms | None = None) -> None:
    """Refuse terms that give a role another address than its own, or other people to admit."""
    if entry.url != url:
        raise Refused(
            f"the terms say that {entry.name!r} is at {entry.url}, it is at {url}: people would be"
            " sent to somebody else; ask for terms with the address of its settings"
        )
    if isinstance(entry, ShufflerParty) and admission != entry.admission:
        raise Refused(
            f"the terms say otherwise whom {entry.name!r} admits than it does: ask for terms with"
            " what its settings say"
        )


@dataclass(frozen=True)
class AgreedTerms(Round):
    """Terms whose signatures and keys were all checked. Made by `settle`."""


@dataclass(frozen=True)
class TrustedTerms(AgreedTerms):
    """Settled terms whose parties the reader knows from elsewhere. Made by `accept`."""


def verify_signatures(signed: SignedTerms) -> AgreedTerms:
    """Check every signature and key of the terms and return the round they describe.

    This is enough for a role that finds its own key in the terms, and for a person whose ticket
    holds their digest. Whoever joins must `accept` them.
    """
    round_ = read_terms(signed.document.encode())
    terms = round_.terms
    if len(signed.shufflers) != len(terms.shufflers) or None in signed.shufflers:
        raise BadSignature("not every shuffler has signed these terms: wait until all have")
    _verifying(terms.server).check(bytes.fromhex(signed.server), _SERVER + round_.document)
    for party, signature in zip(terms.shufflers, signed.shufflers, strict=True):
        _verifying(party).check(bytes.fromhex(signature or ""), _SHUFFLER + round_.document)
    for opener in (terms.server, *terms.shufflers):
        SealingKey(round_.suite, bytes.fromhex(opener.sealing))
    VerifyingKey(bytes.fromhex(terms.board.verifying))
    return AgreedTerms(terms, round_.document)


def accept(signed: SignedTerms, *, trusted: Trust) -> TrustedTerms:
    """Settle the terms, and check that the reader trusts every party in its role.

    `trusted` are the verifying keys that the reader knows from elsewhere; every shuffler that
    the reader relies on must be in the cascade.
    """
    settled = verify_signatures(signed)
    trusted.check(settled.terms)
    return TrustedTerms(settled.terms, settled.document)


def write_signed(signed: SignedTerms) -> bytes:
    """Write signed terms as a JSON document."""
    return msgspec.json.format(msgspec.json.encode(signed), indent=1)


def read_signed(raw: bytes) -> SignedTerms:
    """Read signed terms strictly; nothing in them is checked yet."""
    if len(raw) > 2 * DOCUMENT_LIMIT:
        raise Malformed(f"signed terms have at most {2 * DOCUMENT_LIMIT} bytes")
    return read_document(raw, SignedTerms, "the signed terms do not decode")


def _check_sealing(party: Party, keys: KeyPairs) -> None:
    # Whoever signs vouches for the whole entry: under a name and a verifying key that people
    # trust, a foreign sealing key would hand this role's layer to whoever put it there.
    if bytes.fromhex(party.sealing) != keys.opening.public_raw:
        raise Refused(
            f"the terms name {party.name!r} with a sealing key that is not its own: do not sign,"
            " and ask whoever wrote them for terms with the key of your public file"
        )


def _verifying(party: Party) -> VerifyingKey:
    return VerifyingKey(bytes.fromhex(party.verifying))
