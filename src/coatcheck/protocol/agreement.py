"""Signed terms, and the keys that a person trusts: the server signs, every shuffler counter-signs.

A server that gives different people different terms needs a shuffler's signature for each version,
and an honest shuffler signs one version of a round (S6.37). Verified terms have a type that only
this file makes: `AgreedTerms` carry every signature, and the reader trusts the parties of
`TrustedTerms`. A key is trusted in one role: otherwise a server could put the board's key in the
place of a shuffler, or leave out the one shuffler that would not help it. SPEC section 6.
"""

from collections.abc import Collection, Iterable, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
from msgspec import Struct

from coatcheck.errors import BadSignature, Equivocation, Malformed, Misuse, Refused
from coatcheck.protocol.keys import KeyPairs, SealingKey, VerifyingKey
from coatcheck.protocol.log.witness_policy import NOBODY, Policy, Quorum
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

ROLES: Final = ("server", "shuffler", "board", "witness")
POLICY: Final = "policy"
"""Stands where a role would: a policy file says which witnesses must have cosigned."""


@dataclass(frozen=True, kw_only=True)
class Trust:
    """The verifying keys that a person trusts, by role; they come from elsewhere than the terms.

    *Assumes:* at least one of `shufflers` does not help the server. Nobody needs to know which one,
    so all of them must be in the cascade.

    Attributes:
        server: keys of servers that may run the round.
        shufflers: the keys of each shuffler that the person relies on, several during a rotation.
        board: keys of boards that may show the answers.
        witnesses: the witnesses who must have cosigned the board's log, or enough of them.
        anywhere: keys that may stand in any role, and that no cascade needs. This is weaker: the
            owner of two of them may take both places.
    """

    server: frozenset[bytes] = frozenset()
    shufflers: tuple[frozenset[bytes], ...] = ()
    board: frozenset[bytes] = frozenset()
    witnesses: Quorum = NOBODY
    anywhere: frozenset[bytes] = frozenset()

    @classmethod
    def of(cls, entries: Iterable[tuple[str, Collection[bytes]]]) -> "Trust":
        """Build a trust from pairs of a role and its keys; one shuffler's keys are in one pair.

        An empty role stands for any role.
        """
        by_role: dict[str, list[frozenset[bytes]]] = {role: [] for role in ("", *ROLES)}
        for role, keys in entries:
            if role not in by_role:
                raise Misuse(f"a key is trusted as one of {', '.join(ROLES)}; got {role!r}")
            by_role[role].append(frozenset(keys))
        return cls(
            server=_union(by_role["server"]),
            shufflers=tuple(by_role["shuffler"]),
            board=_union(by_role["board"]),
            witnesses=Quorum.of(by_role["witness"]),
            anywhere=_union(by_role[""]),
        )

    def demanding(self, witnesses: int) -> "Trust":
        """Return the same trust, but demand cosignatures of this many witnesses only."""
        most = len(self.witnesses.members)
        if not 1 <= witnesses <= most:
            raise Misuse(
                f"the number of demanded witnesses must be from 1 to {most}, as many"
                f" as you trust (--trust witness=FILE); got {witnesses}"
            )
        return replace(self, witnesses=replace(self.witnesses, least=witnesses))

    def under(self, policy: Policy) -> "Trust":
        """Return the same trust with the witnesses of a policy file, in boards that it names.

        A file of other programs names their logs too: it makes nobody a board whom the person does
        not trust as one. Refused if witnesses are named twice, or if no trusted board is left.
        """
        if self.witnesses.members:
            raise Misuse("name witnesses by `witness=FILE` or by a policy file, not by both")
        if policy.logs and self.anywhere:
            raise Misuse("the policy file names logs: give every trusted key its role (board=FILE)")
        boards = self.board & policy.logs if policy.logs else self.board
        if policy.logs and not boards:
            raise Misuse("the policy file names no log of a board that you trust (board=FILE)")
        return replace(self, board=boards, witnesses=policy.quorum)

    def plain(self) -> dict[str, Any]:
        """Return the keys in hex by role, as JSON and the browser's client take them."""
        return {
            "server": _in_hex(self.server),
            "shufflers": [_in_hex(keys) for keys in self.shufflers],
            "board": _in_hex(self.board),
            "witnesses": self.witnesses.plain(),
            "anywhere": _in_hex(self.anywhere),
        }

    def check(self, terms: Terms) -> None:
        """Refuse terms with an unknown key, or without one of the trusted shufflers (S6.41)."""
        shuffler_keys = _union(self.shufflers)
        self._check_key(terms.server, self.server, "server")
        for party in terms.shufflers:
            self._check_key(party, shuffler_keys, "shuffler")
        self._check_key(terms.board, self.board, "board")
        cascade = {_raw(party) for party in terms.shufflers}
        for number, keys in enumerate(self.shufflers, start=1):
            if not keys & cascade:
                raise Refused(
                    f"the terms leave out shuffler {number} of the {len(self.shufflers)} that you"
                    " rely on: it may be the only honest one; ask for terms with all of them"
                )

    def _check_key(self, signer: Notary, keys: frozenset[bytes], role: str) -> None:
        if _raw(signer) not in keys | self.anywhere:
            raise Refused(
                f"the key of {signer.name!r} in the terms is not one you trust as a {role}: get"
                " the key from its owner in another way, compare it, and add it"
            )


def _union(several: Iterable[frozenset[bytes]]) -> frozenset[bytes]:
    return frozenset[bytes]().union(*several)


def _in_hex(keys: frozenset[bytes]) -> list[str]:
    return sorted(key.hex() for key in keys)


def _raw(signer: Notary) -> bytes:
    return bytes.fromhex(signer.verifying)


_SERVER = b"coatcheck/v1/terms/server\0"
_SHUFFLER = b"coatcheck/v1/terms/shuffler\0"


class SignedTerms(Struct, frozen=True, forbid_unknown_fields=True):
    """A document with its signatures; None stands for one that is still missing."""

    document: str
    server: Hex
    shufflers: tuple[Hex | None, ...]


def propose(terms: Terms, *, keys: KeyPairs) -> SignedTerms:
    """Write and sign the terms as the server, whose two keys they must have (S6.33)."""
    document = write_terms(terms)
    round_ = read_terms(document)
    if keys.signing.public_raw.hex() != terms.server.verifying:
        raise Misuse("the terms name another key for the server: sign with the one that they name")
    _check_sealing(terms.server, keys)
    blank = (None,) * len(terms.shufflers)
    signature = keys.signing.sign(_SERVER + round_.document)
    return SignedTerms(document.decode(), signature.hex(), blank)


def countersign(
    signed: SignedTerms, *, keys: KeyPairs, pledged: MutableMapping[str, bytes]
) -> SignedTerms:
    """Sign as one of the shufflers, one version per round.

    `pledged` maps round names to the digests that this shuffler signed, and must outlive restarts.
    *Guarantee:* it refuses a second version of a round under the same name (S6.38), and terms that
    pair this shuffler's verifying key with another sealing key (S6.34).
    """
    round_ = read_terms(signed.document.encode())
    if len(signed.shufflers) != len(round_.terms.shufflers):
        raise Malformed("signed terms must have one place for each shuffler's signature")
    _verifying(round_.terms.server).check(bytes.fromhex(signed.server), _SERVER + round_.document)
    own = keys.signing.public_raw.hex()
    verifying_keys = [party.verifying for party in round_.terms.shufflers]
    if own not in verifying_keys:
        raise Misuse("the terms name no shuffler with this key: sign with one that they name")
    place = verifying_keys.index(own)
    _check_sealing(round_.terms.shufflers[place], keys)
    name = round_.terms.round
    if pledged.setdefault(name, round_.digest) != round_.digest:
        raise Equivocation(
            f"round {name!r} is already signed with other terms: signing both would let the"
            " server split the crowd; give the new terms a new name"
        )
    signature = keys.signing.sign(_SHUFFLER + round_.document).hex()
    signatures = list(signed.shufflers)
    signatures[place] = signature
    return SignedTerms(signed.document, signed.server, tuple(signatures))


def check_own_entry(entry: Notary, *, url: str, admission: AdmissionTerms | None = None) -> None:
    """Refuse terms that give a role another `url` or `admission` than its settings (S6.35)."""
    if entry.url != url:
        raise Refused(
            f"the terms say that {entry.name!r} is at {entry.url}, but it is at {url}: ask for"
            " terms with the `url` of its settings"
        )
    if isinstance(entry, ShufflerParty) and admission != entry.admission:
        raise Refused(
            f"the terms have another `admission` for {entry.name!r} than its settings: ask for"
            " terms with that of its settings"
        )


@dataclass(frozen=True)
class AgreedTerms(Round):
    """Terms whose signatures and keys are all verified. Made by `verify_signatures`."""


@dataclass(frozen=True)
class TrustedTerms(AgreedTerms):
    """Agreed terms whose parties the reader trusts, each in its role. Made by `accept`."""


def verify_signatures(signed: SignedTerms) -> AgreedTerms:
    """Verify every signature and key of the terms and return the round that they describe.

    This is enough for a role that has its own key in the terms, and for a person whose ticket
    has their digest. A person who joins must `accept` them.
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
    """Verify the terms' signatures, and check that the reader trusts every party in its role."""
    agreed = verify_signatures(signed)
    trusted.check(agreed.terms)
    return TrustedTerms(agreed.terms, agreed.document)


def write_signed(signed: SignedTerms) -> bytes:
    """Write signed terms as a JSON document."""
    return msgspec.json.format(msgspec.json.encode(signed), indent=1)


def read_signed(raw: bytes) -> SignedTerms:
    """Read signed terms strictly; no signature is verified yet."""
    if len(raw) > 2 * DOCUMENT_LIMIT:
        raise Malformed(f"signed terms have at most {2 * DOCUMENT_LIMIT} bytes")
    return read_document(raw, SignedTerms, "the signed terms do not decode")


def _check_sealing(party: Party, keys: KeyPairs) -> None:
    # A role that signs vouches for its whole entry: beside a verifying key that people trust, a
    # foreign sealing key would let its owner open this role's layer.
    if bytes.fromhex(party.sealing) != keys.opening.public_raw:
        raise Refused(
            f"the terms name {party.name!r} with another sealing key than its own: do not sign, and"
            " ask their author for terms with the key of your public file"
        )


def _verifying(party: Party) -> VerifyingKey:
    return VerifyingKey(bytes.fromhex(party.verifying))
