"""Everything that can go wrong, told to the reader.

There are two kinds. `Misuse` is the caller's mistake (a wrong argument, a wrong order of calls).
`Refused` is about what came from elsewhere (terms weaker than asked, a budget that is spent, bytes
that do not decode).

A message says what happened, why it matters and what to do: lower case, no full stop.
"""

from typing import Final


class Error(Exception):
    """The root of every error that coatcheck raises on purpose."""


class Misuse(Error, ValueError):
    """The caller asked for something that has no meaning; the message says what to ask instead."""


class Refused(Error):
    """Going on would break a promise, so nothing was done; the message says which and why."""


class OutsideDomain(Misuse):
    """A value is outside the domain; it was not moved inside, because you have to ask for that."""


class Malformed(Refused):
    """Bytes do not decode: a wrong size, version or leftover; nothing was read from them."""


class BadKey(Refused):
    """A public key is not canonical or has small order: it must not be used."""


class Unsealable(Refused):
    """A seal does not open: another key, round or group, or altered bytes; one error for all."""


class BadSignature(Refused):
    """A signature does not hold for these bytes under this key."""


class Missing(Refused):
    """Your entry is not on the board; the receipt proves that your report was handed in."""


class Forgotten(Refused):
    """The key of a round is gone, and with it everything that was kept under it."""


class Equivocation(Refused):
    """A board, a server or a shuffler showed different things to different people."""


class Unavailable(Error):
    """A store or a peer cannot answer now; nothing was lost, and trying again later is right."""


class Full(Unavailable):
    """A store has no room left; it goes on by itself when there is some."""


class Damaged(Error):
    """A database is damaged: no later try helps, and whoever goes on makes it worse."""


class Fenced(Error):
    """Another process leads this database now, so this one's write was refused."""


SHAPELESS: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What making an object from a stranger's JSON may raise besides our own errors."""
