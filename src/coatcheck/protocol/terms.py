"""The terms of a round as plain data, and the two cipher suites by their numbers.

Names and numbers only, so that the shuffler and the board can read a round and compute lengths
without importing keys, randomizers or tasks. What is signed and hashed are the exact bytes of the
document; its digest is bound into every seal. SPEC sections 3 and 6.
"""

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final, Literal, NoReturn

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from coatcheck.errors import Malformed, Refused

VERIFYING_SIZE = 32
SIGNATURE_SIZE = 64
ADDRESS_SIZE = 16
DIGEST_SIZE = 32


@dataclass(frozen=True, kw_only=True)
class Suite:
    """One HPKE suite (RFC 9180, base mode, single shot) by its public numbers.

    Attributes:
        name: its name in the terms.
        number: the byte that names it in messages.
        kem: the KEM's registered identifier; KDF 0x0001 and AEAD 0x0003 go with both.
        sealing_size: bytes of a public sealing key.
        overhead: bytes that sealing adds (encapsulated key and tag).
    """

    name: str
    number: int
    kem: int
    sealing_size: int
    overhead: int

    @property
    def contact_size(self) -> int:
        """Bytes of a one-time public pair: the sealing key, then the verifying key."""
        return self.sealing_size + VERIFYING_SIZE


CLASSICAL = Suite(name="x25519", number=1, kem=0x0020, sealing_size=32, overhead=48)
# Boards are public forever, so what is sealed today must outlast today's curves.
HYBRID = Suite(name="mlkem768-x25519", number=2, kem=0x647A, sealing_size=1216, overhead=1136)

SUITES = {suite.name: suite for suite in (CLASSICAL, HYBRID)}


def suite_named(name: str) -> Suite:
    """Return a suite by its name in the terms."""
    if name not in SUITES:
        raise Refused(f"unknown `suite` {name!r}: this version supports {', '.join(SUITES)}")
    return SUITES[name]


DOCUMENT_LIMIT: Final = 1 << 16
UPLOAD_HEAD: Final = 52
REPORT_HEAD: Final = 2
LETTER_FIXED: Final = 1 + 8 + 2 + 64
MOST_DECOYS: Final = 8

# Not `$`, which also matches before a newline at the end: a key would have a second spelling.
Name = Annotated[str, Meta(pattern=r"\A[a-z0-9][a-z0-9-]{0,31}\Z")]
Title = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9 .:_-]{0,63}\Z")]
Verifying = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Hex = Annotated[str, Meta(pattern=r"\A([0-9a-f]{2})+\Z", max_length=4096)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Second = Annotated[int, Meta(ge=0, le=2**48)]
AtLeastOne = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Share = Annotated[float, Meta(gt=0, lt=1)]
Unlikely = Annotated[float, Meta(ge=0, lt=0.5)]
Positive = Annotated[float, Meta(gt=0, le=1e6)]
_PORT: Final = (
    "(:(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3}))?"
)
_HOST: Final = r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])"
# One spelling per address: no default port, no slash at the end.
Url = Annotated[
    str,
    Meta(
        pattern=rf"\A(https://{_HOST}(?!:443$)|http://(localhost|127\.0\.0\.1|\[::1\])(?!:80$))"
        rf"{_PORT}\Z",
        max_length=256,
    ),
]

Issuer = Annotated[str, Meta(pattern=rf"\A{_HOST}{_PORT}\Z", max_length=256)]
# RSASSA-PSS with SHA-384 and a salt of 48 bytes, an odd modulus of 2,048 bits, exponent 65,537.
IssuerKey = Annotated[
    str,
    Meta(
        pattern=r"\A30820152303d06092a864886f70d01010a3030a00d300b0609608648016503040202a11a301806"
        r"092a864886f70d010108300b0609608648016503040202a2030201300382010f003082010a0282010100"
        r"[89a-f][0-9a-f]{510}[13579bdf]0203010001\Z"
    ),
]


class Tokens(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="tokens"):
    """Admission by one-use tokens that the shuffler's operator gives out, one per round."""


class Anybody(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="open"):
    """Admission of everybody; a draft has to ask for it (S6.13)."""


class PrivacyPass(
    Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="privacy-pass"
):
    """Admission by tokens that an issuer signed blindly (RFC 9578, type 2).

    Attributes:
        issuer: the issuer's name in challenges.
        key: its public key, as RFC 9578 writes it.
    """

    issuer: Issuer
    key: IssuerKey


AdmissionTerms = Tokens | PrivacyPass | Anybody


class Notary(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A party that only signs: the board.

    Attributes:
        url: the only address at which people and roles connect to this role (S6.9).
    """

    name: Title
    verifying: Verifying
    url: Url


class Party(Notary, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A party that signs and opens seals: the server, or one of the shufflers."""

    sealing: Hex


class ShufflerParty(Party, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A shuffler, with the people whom it admits."""

    admission: AdmissionTerms


class Promise(Struct, frozen=True, forbid_unknown_fields=True):
    """The privacy promise to the members of a group, and its assumptions.

    Attributes:
        epsilon: the central ε at the group's minimum crowd.
        delta: the central δ.
        corrupted: members of the group that may help the server.
        exposed: reports whose anonymity the answers may cost: of members, or their decoys.
    """

    epsilon: Positive
    delta: Share
    corrupted: Count = 0
    exposed: Count = 0


class GroupTerms(Struct, frozen=True, forbid_unknown_fields=True):
    """A group: its mechanism, its minimum crowd, its sizes and its promise.

    Attributes:
        decoys: how many uniform reports each member hands in beside their own (S7.24).
    """

    name: Name
    randomizer: dict[str, Any]
    decode: Name
    minimum: AtLeastOne
    payload_size: Annotated[int, Meta(ge=1, le=1 << 14)]
    answer_size: Annotated[int, Meta(ge=8, le=1 << 20)]
    promise: Promise
    note_size: Annotated[int, Meta(ge=0, le=1 << 10)] = 0
    decoys: Annotated[int, Meta(ge=0, le=MOST_DECOYS)] = 0


class Work(Struct, frozen=True, forbid_unknown_fields=True):
    """The task by name, with its parameters."""

    name: Name
    params: dict[str, Any] = {}


class SettleTerms(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Terms of settling: how candidates agree by letter on who meets whom.

    Attributes:
        cell: the side of the cells that places are rounded to, in the task's unit of distances.
        rings: the radii by which candidates learn how far apart they are; nothing beyond the last.
        asks: how many times people ask with each list of candidates; without any, people only
            learn who is in a ring.
        pause: for how many seconds a step waits for letters.
        spread: within how many seconds the letters of a step are posted, at random times, by
            people with decoys or a relay; by default a quarter of `pause`.
    """

    cell: Positive
    rings: Annotated[tuple[Positive, ...], Meta(min_length=1, max_length=16)]
    asks: Annotated[tuple[Annotated[int, Meta(ge=1, le=8)], ...], Meta(max_length=2)] = (3, 2)
    pause: Annotated[int, Meta(ge=1, le=86_400)] = 60
    spread: Annotated[float, Meta(ge=0, le=86_400)] | UnsetType = UNSET

    @property
    def posting_seconds(self) -> float:
        """The seconds within which the letters of a step are posted at random times."""
        return self.pause / 4 if self.spread is UNSET else self.spread


class Terms(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that the roles of one round agree on.

    Attributes:
        trap_delta: the chance that the traps of a cascade count wrongly; 0 with one shuffler.
    """

    coatcheck: Literal["terms/1"] = "terms/1"
    round: Title
    suite: Literal["x25519", "mlkem768-x25519"] = "x25519"
    groups: Annotated[tuple[GroupTerms, ...], Meta(min_length=1, max_length=16)]
    task: Work
    server: Party
    shufflers: Annotated[tuple[ShufflerParty, ...], Meta(min_length=1, max_length=8)]
    board: Notary
    opens: Second
    closes: Second
    expires: Second
    grace: Annotated[int, Meta(ge=60, le=86_400)] = 3600
    letter_size: Annotated[int, Meta(ge=0, le=1 << 12)] = 256
    trap_delta: Unlikely = 0.0
    settle: SettleTerms | UnsetType = UNSET
    window: Annotated[int, Meta(ge=1, le=86_400)] | UnsetType = UNSET


@dataclass(frozen=True)
class Round:
    """Terms together with the exact document they were read from; no signature is verified.

    `agreement.verify_signatures` returns the same with every signature verified.
    """

    terms: Terms
    document: bytes

    @cached_property
    def digest(self) -> bytes:
        """The 32 bytes that stand for these terms in every seal and on the board."""
        return hashlib.sha256(self.document).digest()

    @property
    def address(self) -> str:
        """The address of the round for people, at the first shuffler."""
        return f"{self.terms.shufflers[0].url}/rounds/{self.digest.hex()}"

    @property
    def name(self) -> str:
        """The name of the round in a ledger: no other terms have the same one."""
        return f"{self.terms.round}/{self.digest.hex()}"

    @cached_property
    def suite(self) -> Suite:
        """The suite of every seal of the round."""
        return suite_named(self.terms.suite)

    def group(self, name: str) -> int:
        """Return a group's number by its name; without a name, that of the only group."""
        names = [group.name for group in self.terms.groups]
        if not name and len(names) == 1:
            return 0
        if not name:
            raise Malformed(f"say which group is yours: the round has {', '.join(names)}")
        if name not in names:
            raise Malformed(f"the round has no group {name!r}: its groups are {', '.join(names)}")
        return names.index(name)

    def report_size(self, group: int) -> int:
        """Return the bytes of a report before sealing."""
        terms = self.terms.groups[group]
        return REPORT_HEAD + self.suite.contact_size + terms.payload_size + terms.note_size

    def item_size(self, group: int, hop: int) -> int:
        """Return the bytes of an item that enters shuffler `hop`; after the last, the server."""
        layers = 1 + len(self.terms.shufflers) - hop
        return self.report_size(group) + layers * self.suite.overhead

    def reports_each(self, group: int) -> int:
        """Return how many reports a member hands in: their own and the decoys."""
        return 1 + self.terms.groups[group].decoys

    def items_each(self, group: int) -> int:
        """Return how many items an upload has: the reports, and a trap for each later shuffler."""
        return len(self.terms.shufflers) - 1 + self.reports_each(group)

    @cached_property
    def upload_sizes(self) -> tuple[int, ...]:
        """The bytes of an upload, for each group."""
        groups = range(len(self.terms.groups))
        return tuple(UPLOAD_HEAD + self.items_each(n) * self.item_size(n, 0) for n in groups)

    def crowd_delta(self, group: int) -> float:
        """Return the δ that the traps leave for the shuffle, rounded down."""
        return delta_less(self.terms.groups[group].promise.delta, self.terms.trap_delta)

    def entry_size(self, group: int) -> int:
        """Return the bytes of one entry on the board: address and sealed answer."""
        return ADDRESS_SIZE + self.terms.groups[group].answer_size + self.suite.overhead

    def letter_size(self) -> int:
        """Return the bytes of a sealed letter."""
        fixed = LETTER_FIXED + self.suite.contact_size
        return fixed + self.terms.letter_size + self.suite.overhead


def delta_less(delta: float, part: float) -> float:
    """Subtract a part from a probability, rounded down."""
    return math.nextafter(delta - part, 0.0) if part else delta


def write_terms(terms: Terms) -> bytes:
    """Write the document; the parties sign exactly these bytes."""
    return msgspec.json.format(msgspec.json.encode(terms), indent=1)


def read_terms(document: bytes) -> Round:
    """Read a document strictly; unknown and repeated fields are refused (S6.2)."""
    if len(document) > DOCUMENT_LIMIT:
        raise Malformed(
            f"terms have at most {DOCUMENT_LIMIT} bytes, these have {len(document)}: give the"
            " mechanisms fewer numbers, such as a coarser prior"
        )
    try:
        plain = json.loads(
            document, object_pairs_hook=_without_repeats, parse_constant=_reject_constant
        )
        terms = msgspec.json.decode(document, type=Terms)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"the terms do not decode: {error}") from None
    # The types have defaults for writers of terms; a reader guesses neither version nor suite.
    for field in ("coatcheck", "suite"):
        if field not in plain:
            raise Malformed(f"the terms do not decode: field `{field}` is missing")
    round_ = Round(terms, document)
    _check(round_)
    return round_


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Of two equal fields, some readers use the first and some the last.
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a field is repeated")
    return dict(pairs)


def _reject_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def _check(round_: Round) -> None:
    """Refuse what the types cannot express: contradictions between fields."""
    terms = round_.terms
    _distinct("groups", (group.name for group in terms.groups))
    # One party in two places would join what the protocol keeps apart (S6.6). The keys are compared
    # as bytes, because hex may be in upper or lower case.
    parties = (terms.server, *terms.shufflers)
    verifying = (*(party.verifying for party in parties), terms.board.verifying)
    _distinct("keys", map(bytes.fromhex, verifying))
    _distinct("addresses", (party.url for party in (*parties, terms.board)))
    _distinct("keys", (bytes.fromhex(party.sealing) for party in parties))
    for party in parties:
        if len(party.sealing) != 2 * round_.suite.sealing_size:
            raise Malformed(f"the sealing key of {party.name!r} is not of suite {terms.suite}")
    if "name" in terms.task.params:
        raise Malformed("`params` of the task must not have a `name`: the task has a field for it")
    if not terms.opens < terms.closes <= terms.expires:
        raise Malformed("the times of a round must be in order: `opens` < `closes` <= `expires`")
    _check_cascade(terms)
    if terms.settle is not UNSET and terms.settle.posting_seconds > terms.settle.pause:
        raise Malformed(
            f"`spread` of `settle` must be at most its `pause`, {terms.settle.pause} seconds: later"
            " letters would come too late"
        )
    for group in terms.groups:
        if group.decoys and group.note_size:
            raise Malformed(
                f"group {group.name!r} has `decoys`, so its `note_size` must be 0, not"
                f" {group.note_size}: a note would show which reports are decoys"
            )
        # An exposed report is a member's; with decoys, as many as a member has cost one member.
        exposed = -(-group.promise.exposed // max(1, group.decoys))
        if group.promise.corrupted + exposed >= group.minimum:
            raise Malformed(
                f"`corrupted` + `exposed` of group {group.name!r} must be below its `minimum`,"
                f" {group.minimum}: nobody would be left to hide among"
            )


def _check_cascade(terms: Terms) -> None:
    """Refuse traps that count wrongly too often, and shufflers whose traps count made-up people."""
    least = min(group.promise.delta for group in terms.groups)
    if not (0 < terms.trap_delta < least if len(terms.shufflers) > 1 else not terms.trap_delta):
        raise Malformed(
            "`trap_delta` must be 0 with one shuffler, and with several above 0 and below the"
            f" `delta` of every promise; got {terms.trap_delta:g}"
        )
    for party in terms.shufflers[1:]:
        # Made-up people could register there, and its traps would count them (S6.13).
        if isinstance(party.admission, Anybody):
            raise Malformed(
                f"shuffler {party.name!r} counts people by their traps, so it must not admit"
                " anybody: give it admission by `tokens` or `privacy-pass`"
            )


def _distinct(what: str, values: Iterable[str] | Iterable[bytes]) -> None:
    listed = list(values)
    if len(set(listed)) < len(listed):
        raise Malformed(f"the {what} of the terms must all differ, but two are the same")
