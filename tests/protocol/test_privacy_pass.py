"""Privacy Pass as published: challenges, tokens of other issuers, and headers."""

import base64
import hashlib
import json
from typing import Any

import msgspec
import pytest

from coatcheck.errors import BadSignature, Malformed
from coatcheck.protocol import privacy_pass
from coatcheck.protocol.terms import PrivacyPass, read_terms
from support.issuing import TestIssuer
from support.published import published
from support.rounds import SmallRound

ISSUER = TestIssuer()


def test_tokens_of_rfc_9578_are_redeemed() -> None:
    """Tokens of appendix B.2 and of two libraries verify under their keys and challenges."""
    cases = [*published("rfc9578-appendix-b2.json")["vectors"]]
    cases += published("rfc9578-blind-rsa-rust.json")["vectors"]
    assert len(cases) >= 10
    for case in cases:
        token, told = bytes.fromhex(case["token"]), bytes.fromhex(case["token_challenge"])
        remembered = privacy_pass.check_token(token, told, case["pkS"])
        assert remembered == hashlib.sha256(token[:98]).digest()
        assert msgspec.convert(_plain(case["pkS"]), PrivacyPass).key == case["pkS"]
        for place in (2, 34, 66, 98, 353):
            altered = bytearray(token)
            altered[place] ^= 1
            with pytest.raises(BadSignature):
                privacy_pass.check_token(bytes(altered), told, case["pkS"])
        with pytest.raises(BadSignature, match="another round"):
            privacy_pass.check_token(token, told + b"\0", case["pkS"])


def test_a_token_of_another_salt_is_refused() -> None:
    """privacypass-ts can issue both types under one key; only that of RFC 9578 is accepted."""
    good, bad = published("privacypass-ts-issued.json")["vectors"]
    privacy_pass.check_token(*_given(good))
    with pytest.raises(BadSignature, match="did not sign"):
        privacy_pass.check_token(*_given(bad))


def _given(case: dict[str, str]) -> tuple[bytes, bytes, str]:
    return (
        bytes.fromhex(case["token"]),
        bytes.fromhex(case["token_challenge"]),
        case["token_key"],
    )


def test_challenges_are_those_of_rfc_9577() -> None:
    """The layout is that of appendix A.1, with our context and origin."""
    (first, *_) = published("rfc9577-token.json")["vectors"]
    parts = [
        bytes.fromhex(first[name]) for name in ("issuer_name", "redemption_context", "origin_info")
    ]
    round_ = _round()
    told = privacy_pass.challenge(round_, 0)
    context = hashlib.sha256(b"coatcheck/v1/admission\0" + round_.digest + b"\0").digest()
    assert told.count(context) == 1
    like = told.replace(context, parts[1]).replace(
        b"\0\x12shuffler-1.example", b"\0\x0eorigin.example"
    )
    digest = bytes.fromhex(first["token_authenticator_input"])[34:66]
    assert hashlib.sha256(like).digest() == digest


@pytest.mark.parametrize(
    "spelled",
    [
        'PrivateToken token="{}"',
        "PrivateToken token={}",
        'privatetoken  token = "{}"',
        'PrivateToken other="x", token="{}", more=1',
        'PrivateToken token="{}",extensions="abc="',
        'PrivateToken TOKEN="{}"',
        'PrivateToken other="token=x, \\" token=y", token="{}"',
    ],
)
def test_a_credential_is_read_as_the_rfc_lets_it_be_written(spelled: str) -> None:
    """Quoted or bare, and beside unknown parameters."""
    raw = bytes(range(256)) + bytes(98)
    text = base64.urlsafe_b64encode(raw).decode()
    assert privacy_pass.read_credential(spelled.format(text)) == raw
    assert privacy_pass.read_credential(privacy_pass.credential(raw)) == raw


@pytest.mark.parametrize(
    "spelled",
    [
        "",
        "Bearer {}",
        "PrivateToken",
        'PrivateToken token="short"',
        'PrivateToken token="{}x"',
        'PrivateToken token="{}" token="{}"',
        'PrivateToken token="{}", token="{}"',
        'PrivateToken nottoken="{}"',
        'PrivateToken token="{}\n"',
        'PrivateToken token="{}", Token="{}"',
        'PrivateToken token="{}", token="short"',
        'PrivateToken other="x, token={}, y"',
        'PrivateToken token="{}", PrivateToken token="{}"',
        'PrivateToken token="{}" more',
    ],
)
def test_an_invalid_credential_is_refused(spelled: str) -> None:
    """A missing one, another scheme, another size, or two of them."""
    text = base64.urlsafe_b64encode(bytes(354)).decode()
    with pytest.raises(Malformed):
        privacy_pass.read_credential(spelled.format(text, text))


def test_a_token_names_its_type_and_its_key() -> None:
    """A token that names others is refused, even if the issuer signed it."""
    round_ = _round()
    text = ISSUER.token(round_)[:98]
    assert privacy_pass.redeem(ISSUER.signed(text), round_, 0)
    for place, kind in ((1, Malformed), (66, BadSignature), (97, BadSignature)):
        other = bytearray(text)
        other[place] ^= 1
        with pytest.raises(kind):
            privacy_pass.redeem(ISSUER.signed(bytes(other)), round_, 0)


def test_a_token_is_for_one_place_of_the_cascade() -> None:
    """Its challenge contains the place as well as the shuffler's address."""
    round_ = _round(shufflers=2)
    for hop in range(2):
        context = hashlib.sha256(
            b"coatcheck/v1/admission\0" + round_.digest + bytes([hop])
        ).digest()
        assert context in privacy_pass.challenge(round_, hop)
    with pytest.raises(BadSignature, match="another shuffler"):
        privacy_pass.redeem(ISSUER.token(round_, hop=1), round_, 0)


def _plain(key: str) -> dict[str, str]:
    return {"kind": "privacy-pass", "issuer": "issuer.example", "key": key}


def _round(*, shufflers: int = 1) -> Any:
    plain = json.loads(SmallRound(shufflers=shufflers).round.document)
    for one in plain["shufflers"]:
        one["admission"] = _plain(ISSUER.key)
    return read_terms(json.dumps(plain).encode())


def test_terms_name_a_key_as_the_rfc_writes_it() -> None:
    """Another padding, exponent, size or spelling, and an even modulus, are refused."""
    key, tail = ISSUER.key, "0203010001"
    half = len(key) - len(tail)
    for bad in (
        key.replace("a203020130", "a203020120"),
        key[:half] + "0203010003",
        key[: half - 2] + "00" + tail,
        key[:half] + "00" + tail,
        key.upper(),
        key + "00",
    ):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(_plain(bad), PrivacyPass)


def test_a_token_is_for_one_round_one_hop_and_one_issuer() -> None:
    """The same issuer's token for other terms does not answer this challenge."""
    first, second = _round(), SmallRound(name="morning").round
    token = ISSUER.token(first)
    assert len(privacy_pass.redeem(token, first, 0)) == 32
    with pytest.raises(Malformed, match="does not admit"):
        privacy_pass.redeem(token, second, 0)
    plain = json.loads(first.document)
    other = read_terms(json.dumps({**plain, "round": "other"}).encode())
    with pytest.raises(BadSignature, match="another round"):
        privacy_pass.redeem(token, other, 0)
