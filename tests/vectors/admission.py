"""Vectors of admission by Privacy Pass: challenges of a round, and tokens for them."""

import json

from coatcheck.protocol import privacy_pass
from coatcheck.protocol.terms import read_terms
from support.issuing import TestIssuer
from vectors.kinds import HERE, Case
from vectors.writing import case


def cases() -> list[Case]:
    """Challenge for the round of `terms.json` with another admission, and redeem tokens."""
    issuer = TestIssuer()
    signed = json.loads((HERE / "terms.json").read_text(encoding="utf-8"))["cases"][0]["input"]
    plain = json.loads(signed["document"])
    plain["shufflers"][0]["admission"] = {
        "kind": "privacy-pass",
        "issuer": "issuer.example",
        "key": issuer.key,
    }
    document = json.dumps(plain)
    round_ = read_terms(document.encode())
    asked = {"document": document, "hop": 0}
    told = {
        "challenge": privacy_pass.challenge(round_, 0).hex(),
        "header": privacy_pass.demand(round_, 0),
    }
    token = issuer.token(round_)
    stranger = TestIssuer(b"stranger").sign(bytes(32), token[34:66])
    wrong = {
        "of another round": (issuer.sign(bytes(32), bytes(32)), "bad-signature"),
        "of another issuer": (stranger, "bad-signature"),
        "of another issuer under this key's id": (token[:98] + stranger[98:], "bad-signature"),
        "another nonce": (token[:2] + bytes([1]) + token[3:], "bad-signature"),
        "a salt of no bytes": (issuer.token(round_, salt=0), "bad-signature"),
        "another type": (b"\0\1" + token[2:], "malformed"),
        "a byte more": (token + b"\0", "malformed"),
        "a byte short": (token[:-1], "malformed"),
    }
    good = {"remembered": privacy_pass.redeem(token, round_, 0).hex()}
    return [
        case("a round by Privacy Pass", "challenge", asked, fields=told),
        case(
            "a round by tokens", "challenge", {**asked, "document": signed["document"]}, "malformed"
        ),
        case("a token", "token", {**asked, "token": token.hex()}, fields=good),
        *(
            case(f"a token: {name}", "token", {**asked, "token": raw.hex()}, expect)
            for name, (raw, expect) in wrong.items()
        ),
    ]
