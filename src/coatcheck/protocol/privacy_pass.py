"""Privacy Pass (RFC 9577, RFC 9578 type 2): a round's challenge, and the check of its tokens.

A token says that an issuer admitted somebody, but not whom, because the issuer signed it blindly.
Everybody can check it with the issuer's key in the terms. Issuing is not part of coatcheck: an app
brings the token. Nothing here remembers tokens: the shuffler's store refuses a token that was used
before (`services.shuffler.store.Verdict.SPENT`). SPEC section 6.
"""

import base64
import hashlib
import re
import struct
from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import load_der_public_key

from coatcheck.errors import BadSignature, Malformed
from coatcheck.protocol.terms import PrivacyPass, Round

_TYPE: Final = struct.pack(">H", 2)
_INPUT: Final = 98
"""Bytes of a token that the issuer signed: type, nonce, digest of the challenge, id of the key."""
TOKEN_SIZE: Final = _INPUT + 256
_CONTEXT: Final = b"coatcheck/v1/admission\0"
_SALT: Final = PSS(MGF1(SHA384()), 48)
_CREDENTIAL: Final = re.compile(r"privatetoken +(.*)", re.IGNORECASE | re.ASCII)
_WORD: Final = r"[!#$%&'*+.^_`|~\w-]+"
_PARAMETER: Final = re.compile(
    rf"[ \t]*({_WORD})[ \t]*=[ \t]*(?:\"((?:[^\"\\]|\\.)*)\"|({_WORD}=*))[ \t]*(?:,|\Z)", re.ASCII
)
"""A parameter of RFC 9110, section 11.2, up to the comma after it; its value may be quoted."""
_TOKEN: Final = re.compile(r"[\w-]{472}", re.ASCII)


def challenge(round_: Round, hop: int) -> bytes:
    """Write the challenge of a round at a shuffler (RFC 9577, section 2.1; S6.18).

    It is the same for everybody, so that it singles nobody out.
    """
    party = round_.terms.shufflers[hop]
    if not isinstance(party.admission, PrivacyPass):
        raise Malformed(f"{party.name!r} does not admit people by Privacy Pass")
    context = hashlib.sha256(_CONTEXT + round_.digest + bytes([hop])).digest()
    issuer, origin = party.admission.issuer.encode(), party.url.partition("://")[2].encode()
    return b"".join(
        (_TYPE, _sized(issuer), bytes([len(context)]), context, _sized(origin)),
    )


def demand(round_: Round, hop: int) -> str:
    """Write the challenge as a `WWW-Authenticate` header (S6.20)."""
    admission = round_.terms.shufflers[hop].admission
    text = _base64url(challenge(round_, hop))
    key = bytes.fromhex(admission.key) if isinstance(admission, PrivacyPass) else b""
    return f'PrivateToken challenge="{text}", token-key="{_base64url(key)}"'


def credential(token: bytes) -> str:
    """Write a token as an `Authorization` header."""
    return f'PrivateToken token="{_base64url(token)}"'


def read_credential(text: str) -> bytes:
    """Read the one token of an `Authorization` header; other parameters are ignored.

    Names may be in any case, and text inside quotes is no parameter.
    """
    scheme = _CREDENTIAL.fullmatch(text)
    tokens = [value for name, value in _parameters(scheme[1] if scheme else "") if name == "token"]
    if len(tokens) != 1 or not _TOKEN.fullmatch(tokens[0]):
        raise Malformed('a request needs one token, as `PrivateToken token="..."` in base64url')
    return base64.urlsafe_b64decode(tokens[0])


def _parameters(text: str) -> list[tuple[str, str]]:
    """Read parameters, with names in lower case; none if any part of the text is invalid."""
    parameters, at = list[tuple[str, str]](), 0
    while at < len(text):
        parameter = _PARAMETER.match(text, at)
        if parameter is None:
            return []
        parameters.append((parameter[1].lower(), parameter[3] or parameter[2] or ""))
        at = parameter.end()
    return parameters


def redeem(token: bytes, round_: Round, hop: int) -> bytes:
    """Check a token for a shuffler of a round; return the hash that is stored when it is spent.

    *Guarantee:* a token that answers another challenge (another round, hop, address or issuer),
    or that this issuer's key did not sign with a salt of 48 bytes, is refused.
    """
    admission = round_.terms.shufflers[hop].admission
    key = admission.key if isinstance(admission, PrivacyPass) else ""
    return check_token(token, challenge(round_, hop), key)


def check_token(token: bytes, challenge: bytes, key: str) -> bytes:
    """Check a token for a challenge by the issuer's key in hex (RFC 9578, section 6.4)."""
    if len(token) != TOKEN_SIZE or not token.startswith(_TYPE):
        raise Malformed(f"a Privacy Pass token of type 2 has {TOKEN_SIZE} bytes: get another one")
    digest = hashlib.sha256(challenge).digest()
    if token[34:_INPUT] != digest + hashlib.sha256(bytes.fromhex(key)).digest():
        raise BadSignature(
            "this token is for another round, another shuffler or another key: get one for the"
            " challenge of this round"
        )
    try:
        _issuer_key(key).verify(token[_INPUT:], token[:_INPUT], _SALT, SHA384())
    except InvalidSignature:
        raise BadSignature("the issuer of the terms did not sign this token") from None
    return hashlib.sha256(token[:_INPUT]).digest()


@lru_cache(maxsize=64)
def _issuer_key(key: str) -> RSAPublicKey:
    # The terms' pattern has fixed every byte but the modulus, the parameters of PSS included.
    public = load_der_public_key(bytes.fromhex(key))
    if not isinstance(public, RSAPublicKey):
        raise Malformed("the issuer's key in the terms is not an RSA key")
    return public


def _sized(text: bytes) -> bytes:
    return struct.pack(">H", len(text)) + text


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode()
