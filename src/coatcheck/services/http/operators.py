"""Who operates a service: several people may, each with a token, and the log tells them apart.

A line of the token file is a credential, `NAME.SECRET` or just a secret. The name is the
operator's, never a person's who takes part: those show other tokens, and nobody writes them down.
"""

import base64
import binascii
import hmac
import re
from typing import Final

from coatcheck.errors import Misuse
from coatcheck.services.http.connections import Scope, header
from coatcheck.services.http.problems import Problem
from coatcheck.services.http.routes import Route
from coatcheck.services.log import log

NOBODY: Final = ""
_SHORTEST: Final = 16
_NAMED: Final = re.compile(r"([a-z][a-z0-9-]{0,31})\.(\S+)")


class Operators:
    """The operators of a service, by the credentials of its token file."""

    def __init__(self, raw: bytes) -> None:
        lines = [line.strip() for line in raw.decode(errors="replace").splitlines()]
        self._known = {line.encode(): _name(line) for line in lines if line}
        if len(set(self._known.values())) < len(self._known):
            raise Misuse("the token file names an operator twice: give each line its own NAME.")

    def check(self, route: Route, scope: Scope) -> None:
        """Refuse whoever is no operator, and log which operator changes something."""
        who = self.who(scope)
        if not who and route.demands:  # a browser then asks for a name and a password
            asks = {"www_authenticate": 'Basic realm="coatcheck", charset="UTF-8"'}
            raise Problem("unadmitted", "show an operator's name and token", **asks)
        if not who:
            raise Problem("forbidden", "this needs the operator's token as a Bearer credential")
        if route.method != "GET":
            log.info("operator %s: %s %s", who, route.method, route.path)

    def who(self, scope: Scope) -> str:
        """Name the operator who asks; nobody without a known credential."""
        found = NOBODY
        for given in _shown(header(scope, b"authorization")):
            for known, name in self._known.items():  # all of them, so that the time tells nothing
                found = name if hmac.compare_digest(given, known) else found
        return found


def _name(line: str) -> str:
    named = _NAMED.fullmatch(line)
    secret = named[2] if named else line
    if len(secret) < _SHORTEST or not line.isascii() or " " in line:
        raise Misuse(
            f"a line of the operator's token file is NAME.SECRET, with {_SHORTEST} characters or"
            " more for the secret; make one with: coatcheck operator NAME --out FILE"
        )
    return named[1] if named else "operator"


def _shown(line: bytes) -> tuple[bytes, ...]:
    """Read the credentials of a header: Bearer, or Basic as browsers send a name and a password."""
    kind, _, rest = line.partition(b" ")
    if kind.lower() == b"bearer":
        return (rest.strip(),)
    if kind.lower() != b"basic":
        return ()
    try:
        name, _, secret = base64.b64decode(rest.strip(), validate=True).partition(b":")
    except binascii.Error:
        return ()
    return (secret, b".".join((name, secret)))
