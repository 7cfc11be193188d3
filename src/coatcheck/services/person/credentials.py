"""Credentials: what a person shows to a shuffler that does not admit everybody.

A token is checked here before anything is spent, as far as a person can. It says nothing of the
report. SPEC section 6.
"""

import base64
from collections.abc import Mapping

from coatcheck.errors import BadSignature, Malformed, Misuse
from coatcheck.protocol import privacy_pass
from coatcheck.protocol.terms import PrivacyPass, Round, Tokens


def credential(round_: Round, token: str, *, hop: int = 0) -> Mapping[str, str]:
    """Give the headers by which a shuffler of the round admits the owner of a token."""
    party = round_.terms.shufflers[hop]
    if isinstance(party.admission, PrivacyPass):
        return {"authorization": _private_token(round_, token, hop=hop)}
    if isinstance(party.admission, Tokens):
        if not token:
            raise Misuse(
                f"{party.name!r} admits who has a one-use token: ask its operator for one, and give"
                " it as --token or in a file as --token-file"
            )
        return {"coatcheck-token": token}
    return {}


def _private_token(round_: Round, token: str, *, hop: int) -> str:
    """Check a token of Privacy Pass, and write it as a header."""
    party = round_.terms.shufflers[hop]
    issuer = getattr(party.admission, "issuer", "")
    try:
        raw = base64.b64decode(token, altchars=b"-_", validate=True)
        privacy_pass.redeem(raw, round_, hop)
    except (ValueError, Malformed, BadSignature) as error:
        why = f" ({error})" if token else ""
        raise Misuse(
            f"{party.name!r} admits who has a Privacy Pass token of {issuer} for this round{why}:"
            " have your app get one for this challenge, and give it as --token or --token-file: "
            + privacy_pass.demand(round_, hop)
        ) from None
    return privacy_pass.credential(raw)
