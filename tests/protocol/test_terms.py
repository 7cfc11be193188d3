"""Terms: strict decoding, signatures of all parties, one version per round."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from coatcheck.errors import BadKey, BadSignature, Equivocation, Malformed, Misuse, Refused
from coatcheck.protocol.agreement import (
    SignedTerms,
    Trust,
    accept,
    countersign,
    propose,
    read_signed,
    verify_signatures,
    write_signed,
)
from coatcheck.protocol.terms import SUITES, read_terms, write_terms
from support.rounds import SmallRound, signed_blindly

SMALL = SmallRound(shufflers=2)


def altered(change: Callable[[dict[str, Any]], object]) -> bytes:
    """Return the document with a change to its JSON."""
    plain = json.loads(SMALL.round.document)
    change(plain)
    return json.dumps(plain).encode()


def set_to(*path: str | int, value: object) -> Callable[[dict[str, Any]], object]:
    """Return a change that sets one field."""

    def change(plain: Any) -> None:
        for step in path[:-1]:
            plain = plain[step]
        plain[path[-1]] = value

    return change


def test_terms_survive_writing_and_reading() -> None:
    """The document decodes to equal terms, and its digest covers its exact bytes."""
    round_ = read_terms(write_terms(SMALL.round.terms))
    assert round_.terms == SMALL.round.terms
    assert round_.digest == SMALL.round.digest
    assert read_terms(SMALL.round.document + b" ").digest != SMALL.round.digest


@pytest.mark.parametrize(
    "change",
    [
        set_to("surprise", value=1),
        set_to("groups", 0, "surprise", value=1),
        set_to("groups", 0, "promise", "surprise", value=1),
        set_to("coatcheck", value="terms/2"),
        set_to("suite", value="rot13"),
        set_to("groups", value=[]),
        set_to("groups", 1, "name", value="riders"),
        set_to("groups", 0, "name", value="Riders!"),
        set_to("groups", 0, "minimum", value=0),
        set_to("groups", 0, "minimum", value=2.5),
        set_to("groups", 0, "minimum", value="2"),
        set_to("groups", 0, "payload_size", value=0),
        set_to("groups", 0, "answer_size", value=7),
        set_to("groups", 0, "note_size", value=-1),
        set_to("groups", 0, "promise", "epsilon", value=0),
        set_to("groups", 0, "promise", "delta", value=1),
        set_to("groups", 0, "promise", "corrupted", value=2),
        set_to("shufflers", value=[]),
        set_to("server", "sealing", value="00"),
        set_to("server", "verifying", value="XY" * 32),
        set_to("closes", value=1),
        set_to("expires", value=1_500),
        set_to("opens", value=-1),
        lambda plain: plain.pop("server"),
        lambda plain: plain["shufflers"].append(plain["server"]),
        lambda plain: plain["board"].update(verifying=plain["server"]["verifying"]),
        lambda plain: plain["shufflers"][0].update(sealing=plain["server"]["sealing"]),
        lambda plain: plain.pop("coatcheck"),
        lambda plain: plain.pop("suite"),
        lambda plain: plain["task"]["params"].update(name="learning"),
        set_to("round", value="example\n"),
        set_to("groups", 0, "name", value="riders\n"),
        set_to("task", "name", value="echo\n"),
        set_to("shufflers", 0, "name", value="shuffler\n"),
        lambda plain: plain["shufflers"][0].update(verifying=plain["server"]["verifying"] + "\n"),
        lambda plain: plain["board"].update(verifying=plain["server"]["verifying"] + "\n"),
        lambda plain: plain["shufflers"][0].update(sealing=plain["server"]["sealing"] + "\n"),
        lambda plain: plain["board"].update(verifying=plain["board"]["verifying"].upper()),
        set_to("shufflers", 1, "admission", value={"kind": "open"}),
    ],
)
def test_terms_are_read_strictly(change: Callable[[dict[str, Any]], object]) -> None:
    """An unknown, missing, repeated or contradictory field is malformed."""
    with pytest.raises(Malformed):
        read_terms(altered(change))


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b" " * (1 << 17),
        b"[" * 60_000,
        SMALL.round.document.replace(b'"delta": 0.4', b'"delta": NaN'),
        SMALL.round.document.replace(b'"opens"', b'"opens": 1, "opens"'),
    ],
)
def test_an_invalid_document_is_malformed(document: bytes) -> None:
    """Only well-formed JSON with each field once decodes."""
    with pytest.raises(Malformed):
        read_terms(document)


@pytest.mark.parametrize("spelled", ["{}\n", "{} ", " {}", "\t{}"])
def test_a_server_is_not_its_own_shuffler_under_another_spelling(spelled: str) -> None:
    """Python's hex decoder skips spaces, so a key with one must be refused before it."""
    own = SMALL.roles.server
    fake = SMALL.roles.shufflers[0].opening.public_raw.hex()
    party = {"verifying": spelled.format(own.signing.public_raw.hex()), "sealing": fake}
    document = altered(lambda plain: plain.update(shufflers=[{**plain["shufflers"][0], **party}]))
    with pytest.raises(Malformed):
        verify_signatures(signed_blindly(document, server=own, shufflers=[own]))


@pytest.mark.parametrize("field", ["server", "shufflers"])
def test_signatures_have_one_spelling(field: str) -> None:
    """Even a newline after a signature's hex digits is refused."""
    plain = json.loads(write_signed(SMALL.signed))
    plain[field] = plain[field] + "\n" if field == "server" else [plain[field][0] + "\n"] * 2
    with pytest.raises(Malformed):
        read_signed(json.dumps(plain).encode())


def test_signed_terms_are_agreed() -> None:
    """With every signature valid and every key trusted, the terms are agreed."""
    again = read_signed(write_signed(SMALL.signed))
    assert accept(again, trusted=SMALL.roles.trusted).digest == SMALL.round.digest


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b"\xff", b'{"document":"","server":"00"}', b" " * 200_000]
)
def test_an_invalid_signed_document_is_malformed(raw: bytes) -> None:
    """Signed terms are decoded strictly too."""
    with pytest.raises(Malformed):
        read_signed(raw)


def test_one_changed_byte_breaks_every_signature() -> None:
    """Signatures cover the exact bytes: one more space makes other terms."""
    signed = SMALL.signed
    with pytest.raises(BadSignature):
        verify_signatures(SignedTerms(signed.document + " ", signed.server, signed.shufflers))


def test_every_shuffler_must_have_signed() -> None:
    """Terms with a missing, swapped or foreign signature are not agreed."""
    signed, roles = SMALL.signed, SMALL.roles
    draft = propose(SMALL.round.terms, keys=roles.server)
    half = countersign(draft, keys=roles.shufflers[0], pledged={})
    for early in (draft, half):
        with pytest.raises(BadSignature, match="wait until all have"):
            verify_signatures(early)
    one, two = signed.shufflers
    for wrong in (
        SignedTerms(signed.document, signed.server, (two, one)),
        SignedTerms(signed.document, signed.server, (one,)),
        SignedTerms(signed.document, one or "", signed.shufflers),
    ):
        with pytest.raises(BadSignature):
            verify_signatures(wrong)


def test_a_stranger_among_the_parties_is_refused() -> None:
    """All parties of the terms must be in the client's trusted keys."""
    known = SMALL.roles.trusted
    for fewer in (
        Trust(),
        dataclasses.replace(known, server=frozenset()),
        dataclasses.replace(known, shufflers=known.shufflers[:1]),
        dataclasses.replace(known, shufflers=known.shufflers[1:]),
        dataclasses.replace(known, board=frozenset()),
    ):
        with pytest.raises(Refused, match="not one you trust"):
            accept(SMALL.signed, trusted=fewer)


def test_a_key_is_trusted_in_its_role_only() -> None:
    """Server and board together cannot put the board's key in a shuffler's place."""
    small = SmallRound()
    roles, other = small.roles, SmallRound(seed=99).roles.server.opening.public_raw.hex()
    plain = json.loads(small.round.document)
    plain["shufflers"][0].update(verifying=roles.board.signing.public_raw.hex(), sealing=other)
    plain["board"]["verifying"] = roles.shufflers[0].signing.public_raw.hex()
    document = json.dumps(plain).encode()
    signed = signed_blindly(document, server=roles.server, shufflers=[roles.board])
    with pytest.raises(Refused, match="not one you trust as a shuffler"):
        accept(signed, trusted=roles.trusted)
    # The weaker form admits it, as its name says.
    loose = Trust(anywhere=frozenset(bytes.fromhex(p["verifying"]) for p in _everyone(plain)))
    assert accept(signed, trusted=loose)


def _everyone(plain: dict[str, Any]) -> list[dict[str, Any]]:
    return [plain["server"], plain["board"], *plain["shufflers"]]


@pytest.mark.parametrize("kept", [0, 1])
def test_a_cascade_that_omits_a_trusted_shuffler_is_refused(kept: int) -> None:
    """Any one of them may be the honest one, so the server may leave out none."""
    roles = SMALL.roles
    document = altered(
        lambda plain: plain.update(shufflers=[plain["shufflers"][kept]], trap_delta=0)
    )
    signed = signed_blindly(document, server=roles.server, shufflers=[roles.shufflers[kept]])
    with pytest.raises(Refused, match=f"leave out shuffler {2 - kept} of the 2"):
        accept(signed, trusted=roles.trusted)
    alone = dataclasses.replace(roles.trusted, shufflers=(roles.trusted.shufflers[kept],))
    assert accept(signed, trusted=alone)


def test_a_shuffler_whose_keys_change_is_known_by_either() -> None:
    """Old and new key of one shuffler are one entry; the cascade needs one of them."""
    fresh = SmallRound(seed=99).roles.shufflers[0].signing.public_raw
    first, second = SMALL.roles.trusted.shufflers
    known = dataclasses.replace(SMALL.roles.trusted, shufflers=(first | {fresh}, second))
    assert accept(SMALL.signed, trusted=known)
    apart = dataclasses.replace(known, shufflers=(first, frozenset([fresh]), second))
    with pytest.raises(Refused, match="leave out shuffler 2 of the 3"):
        accept(SMALL.signed, trusted=apart)


def test_a_key_without_a_role_may_stand_anywhere() -> None:
    """An empty role means trust in any role, and no cascade requires such a key."""
    known = SMALL.roles.trusted
    keys = [*known.server, *known.board, *(key for each in known.shufflers for key in each)]
    anywhere = Trust.of([("", keys)])
    assert anywhere == Trust(anywhere=frozenset(keys))
    assert accept(SMALL.signed, trusted=anywhere)


def test_a_role_that_does_not_exist_is_misuse() -> None:
    """A misspelt role would otherwise trust nobody."""
    with pytest.raises(Misuse, match="got 'shufler'"):
        Trust.of([("shufler", [bytes(32)])])


def test_only_the_named_parties_sign() -> None:
    """A key that is not in the terms cannot propose or counter-sign them."""
    stranger = SmallRound(seed=99).roles
    with pytest.raises(Misuse):
        propose(SMALL.round.terms, keys=stranger.server)
    with pytest.raises(Misuse):
        countersign(SMALL.signed, keys=stranger.server, pledged={})


def test_a_shuffler_signs_one_version_of_a_round() -> None:
    """The second version under a name is refused; the first may be signed again."""
    roles, pledged = SMALL.roles, dict[str, bytes]()
    keys = roles.shufflers[0]
    first = propose(SMALL.round.terms, keys=roles.server)
    countersign(first, keys=keys, pledged=pledged)
    countersign(first, keys=keys, pledged=pledged)
    other = json.loads(SMALL.round.document)
    other["closes"] += 1
    terms = read_terms(json.dumps(other).encode()).terms
    second = propose(terms, keys=roles.server)
    with pytest.raises(Equivocation):
        countersign(second, keys=keys, pledged=pledged)
    assert pledged == {"example": SMALL.round.digest}


def test_low_order_keys_in_terms_are_refused() -> None:
    """Terms with a low-order sealing key are refused, whoever signed them."""
    roles = SMALL.roles
    document = altered(set_to("shufflers", 0, "sealing", value="00" * 32))
    with pytest.raises(BadKey):
        verify_signatures(signed_blindly(document, server=roles.server, shufflers=roles.shufflers))


@pytest.mark.parametrize("role", ["server", "shufflers", "board"])
def test_a_board_key_that_anyone_could_sign_for_is_refused(role: str) -> None:
    """The board's key is decoded as strictly as the others, though it has signed nothing yet."""
    roles = SMALL.roles
    path = (role, 0) if role == "shufflers" else (role,)
    document = altered(set_to(*path, "verifying", value=(1).to_bytes(32, "little").hex()))
    with pytest.raises(BadKey, match="small order"):
        verify_signatures(signed_blindly(document, server=roles.server, shufflers=roles.shufflers))


def test_documents_have_a_largest_size() -> None:
    """Signed terms of exactly the limit decode; one byte more is refused."""
    raw = write_signed(SMALL.signed)
    assert read_signed(raw.ljust(1 << 17)) == SMALL.signed
    with pytest.raises(Malformed, match="at most"):
        read_signed(raw.ljust((1 << 17) + 1))
    document = SMALL.round.document
    assert read_terms(document.ljust(1 << 16)).terms == SMALL.round.terms
    with pytest.raises(Malformed, match="at most"):
        read_terms(document.ljust((1 << 16) + 1))


def test_a_shuffler_checks_the_servers_signature_first() -> None:
    """Terms without the server's signature are not counter-signed, and no name is reserved."""
    signed = propose(SMALL.round.terms, keys=SMALL.roles.server)
    pledged = dict[str, bytes]()
    forged = replace(signed, server="00" * 64)
    with pytest.raises(BadSignature):
        countersign(forged, keys=SMALL.roles.shufflers[0], pledged=pledged)
    assert not pledged


@pytest.mark.parametrize("suite", SUITES)
def test_a_party_signs_its_own_sealing_key_only(suite: str) -> None:
    """Another's sealing key under a shuffler's name and verifying key would take over its layer."""
    small, other = SmallRound(suite=suite), SmallRound(suite=suite, seed=99).roles.server
    foreign = other.opening.public_raw.hex()
    terms = small.round.terms
    with pytest.raises(Refused, match="another sealing key than its own"):
        propose(
            replace(terms, server=replace(terms.server, sealing=foreign)), keys=small.roles.server
        )
    party = replace(terms.shufflers[0], sealing=foreign)
    signed = propose(replace(terms, shufflers=(party,)), keys=small.roles.server)
    pledged = dict[str, bytes]()
    with pytest.raises(Refused, match="another sealing key than its own"):
        countersign(signed, keys=small.roles.shufflers[0], pledged=pledged)
    assert not pledged


def test_a_shuffler_signs_in_its_own_place_only() -> None:
    """Signed terms with too few or too many signature places are malformed."""
    first = propose(SMALL.round.terms, keys=SMALL.roles.server)
    for places in ((), (None,), (None,) * 3):
        with pytest.raises(Malformed):
            countersign(replace(first, shufflers=places), keys=SMALL.roles.shufflers[1], pledged={})
