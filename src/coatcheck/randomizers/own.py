"""Mechanisms of other packages, found by their entry points.

A package that declares a subclass of `Randomizer` in the group `coatcheck.randomizers` may be named
by terms. If the class has a classmethod `fitted(*, domain, epsilon, goal)`, which returns it at its
best or raises `Misuse` where it does not serve, `choose` and `plan` consider it too. Everybody in
such a round needs the package: a client that does not have it refuses the terms.
"""

from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final

from coatcheck.errors import Misuse
from coatcheck.randomizers.contract import Randomizer

GROUP: Final = "coatcheck.randomizers"


@cache
def installed() -> dict[str, Any]:
    """Return the installed mechanisms by their names."""
    found: dict[str, Any] = {}
    for entry in entry_points(group=GROUP):
        try:
            kind = entry.load()
        except Exception as error:
            raise Misuse(
                f"the randomizer {entry.name!r} ({entry.value}) cannot be loaded: {error}; mend "
                "or remove the package that declares it"
            ) from error
        if not (isinstance(kind, type) and issubclass(kind, Randomizer)):
            raise Misuse(f"{entry.value} is declared as a randomizer, but is no Randomizer class")
        found[kind.name] = kind
    return found
