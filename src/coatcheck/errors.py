"""The exceptions that coatcheck raises on purpose.

`Misuse` is the caller's mistake: a wrong argument or a wrong order of calls. `Refused` is about
input from others: terms weaker than the caller accepts, a spent budget, bytes that do not decode.
`Unavailable` means that trying again later may help.

A message says what was wrong, what is allowed and what to do next: lower case, no full stop.
"""

from typing import Final


class Error(Exception):
    """The root of every error that coatcheck raises on purpose."""


class Misuse(Error, ValueError):
    """The caller passed a wrong argument, or made calls in a wrong order."""


class Refused(Error):
    """Continuing would break a promise, so nothing was done; the message says which and why."""


class OutsideDomain(Misuse):
    """A value is outside the domain; `clamp=True` would move it to the boundary."""


class Malformed(Refused):
    """Bytes do not decode, because of their size, version or trailing bytes; none were used."""


class BadKey(Refused):
    """A public key is not canonical or has small order: it must not be used."""


class Unsealable(Refused):
    """A seal does not open: wrong key, round or group, or altered bytes; one error for all four."""


class BadSignature(Refused):
    """A signature is not valid for these bytes and this key."""


class Missing(Refused):
    """Your entry is not on the board, although the receipt proves that your report was accepted."""


class Forgotten(Refused):
    """The key of a round was destroyed, so nothing that was stored under it can be read."""


class Equivocation(Refused):
    """A board, server or shuffler signed or published conflicting statements."""


class Unavailable(Error):
    """A store or peer cannot answer now; nothing was lost, so try again later."""


class Full(Unavailable):
    """A store has no space left; it continues by itself once there is some."""


class Damaged(Error):
    """A database is damaged: trying again does not help, and further writes would make it worse."""


class Fenced(Error):
    """Another process now leads this database, so this process's write was rejected."""


UNTRUSTED_DATA_ERRORS: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""The built-in exceptions that building an object from untrusted JSON may raise."""
