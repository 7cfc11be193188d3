"""Local randomizers by name: a new mechanism is a file here and a line in `_MECHANISMS`.

`from_params` builds the mechanism that terms name. `choose` (in `mechanism_search`) looks for the
best mechanism for a domain and an ε, and returns a `Choice` (in `choice`): the mechanism, its
decoder and its predicted error. A mechanism's file is loaded at its first use, so a person's client
loads the one that the terms name, and neither the search nor the baselines.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from coatcheck.domains import domain_from_params
from coatcheck.errors import UNTRUSTED_DATA_ERRORS, Misuse
from coatcheck.randomizers.contract import Decode, Goal, Randomizer, Reports

if TYPE_CHECKING:
    from coatcheck.randomizers.choice import Candidate, Choice, Errors, errors_under
    from coatcheck.randomizers.codebook import CodebookResponse
    from coatcheck.randomizers.composed import CoinResponse, FieldwiseResponse
    from coatcheck.randomizers.grid import GridResponse
    from coatcheck.randomizers.mechanism_search import (
        candidates,
        choose,
        fieldwise,
        from_draft,
        tuned,
    )
    from coatcheck.randomizers.minkowski import BoundedResponse, MinkowskiResponse
    from coatcheck.randomizers.prior import Prior, posterior_mean
    from coatcheck.randomizers.sphere import SphereResponse

    REGISTRY: dict[str, type[Randomizer]]

__all__ = [
    "REGISTRY",
    "BoundedResponse",
    "Candidate",
    "Choice",
    "CodebookResponse",
    "CoinResponse",
    "Decode",
    "Errors",
    "FieldwiseResponse",
    "Goal",
    "GridResponse",
    "MinkowskiResponse",
    "Prior",
    "Randomizer",
    "Reports",
    "SphereResponse",
    "candidates",
    "choose",
    "errors_under",
    "fieldwise",
    "from_draft",
    "from_params",
    "posterior_mean",
    "tuned",
]

ENTRY_POINTS = "coatcheck.randomizers"
_MECHANISMS = {
    "minkowski": "minkowski:MinkowskiResponse",
    "bounded": "minkowski:BoundedResponse",
    "grid": "grid:GridResponse",
    "fieldwise": "composed:FieldwiseResponse",
    "codebook": "codebook:CodebookResponse",
    "sphere": "sphere:SphereResponse",
    "coin": "composed:CoinResponse",
}
"""The mechanisms by name, each with its file and class."""
_CONTENTS = {
    **{place.partition(":")[2]: place.partition(":")[0] for place in _MECHANISMS.values()},
    **dict.fromkeys(("Candidate", "Choice", "Errors", "errors_under"), "choice"),
    **dict.fromkeys(
        ("candidates", "choose", "fieldwise", "from_draft", "tuned"), "mechanism_search"
    ),
    **dict.fromkeys(("Prior", "posterior_mean"), "prior"),
}
"""The other names that this package offers, each with its file."""


def __getattr__(name: str) -> Any:
    """Load a name from its file."""
    if name == "REGISTRY":
        value: Any = {mechanism: _built_in(mechanism) for mechanism in _MECHANISMS}
    elif name in _CONTENTS:
        value = getattr(import_module(f"coatcheck.randomizers.{_CONTENTS[name]}"), name)
    else:
        raise AttributeError(f"module 'coatcheck.randomizers' has no attribute {name!r}")
    globals()[name] = value
    return value


def _built_in(name: str) -> type[Randomizer]:
    """Load the class of a mechanism of this package."""
    file, _, kind = _MECHANISMS[name].partition(":")
    loaded: type[Randomizer] = getattr(import_module(f"coatcheck.randomizers.{file}"), kind)
    return loaded


def from_params(params: Mapping[str, Any]) -> Randomizer:
    """Build the randomizer that `params()` describes; an unknown or missing key is an error.

    Parameters come from strangers' terms: JSON of any shape gives a mechanism or a `Misuse`.
    """
    try:
        randomizer = from_open_params(params)
    except Misuse:
        raise
    except (*UNTRUSTED_DATA_ERRORS, RecursionError) as error:
        raise Misuse(f"these parameters describe no randomizer: {error}") from error
    if randomizer.params() != dict(params):
        raise Misuse(
            f"the parameters of {randomizer.name} are not complete; they should be "
            f"{randomizer.params()}"
        )
    return randomizer


def from_open_params(params: Mapping[str, Any]) -> Randomizer:
    """Build the randomizer of parameters that may leave out those with a default."""
    args = dict(params)
    name = args.pop("name", None)
    kind = _mechanism(name)
    if name == "coin":
        args["part"] = from_params(args.get("part", {}))
    elif "domain" not in args:
        raise Misuse(f"the parameters of {name} lack `domain`")
    else:
        args["domain"] = domain_from_params(args["domain"])
    if "cells" in args:
        args["cells"] = tuple(args["cells"])
    if "parts" in args:
        args["parts"] = {field: from_params(part) for field, part in args["parts"].items()}
    try:
        randomizer: Randomizer = kind(**args)
    except TypeError as error:
        raise Misuse(f"{name} cannot be built from {sorted(args)}: {error}") from error
    return randomizer


def _mechanism(name: Any) -> Any:
    """Return the class of a mechanism, of this package or of a plug-in."""
    if name in _MECHANISMS:
        return _built_in(name)
    plug_ins = installed()
    if name not in plug_ins:
        raise Misuse(
            f"a randomizer is one of {sorted(_MECHANISMS)} or an installed plug-in, got {name!r}"
        )
    return plug_ins[name]


@cache
def installed() -> dict[str, Any]:
    """Return the plug-ins: the mechanisms of other packages, by name.

    Terms may name a subclass of `Randomizer` that an installed package declares in the
    entry-point group `coatcheck.randomizers`. If the class has a classmethod
    `fitted(*, domain, epsilon, goal)`, which returns its best instance or raises `Misuse` where it
    does not apply, `choose` and `plan` consider it too. Everybody in such a round needs the
    package: a client without it refuses the terms.
    """
    plug_ins: dict[str, Any] = {}
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            kind = entry.load()
        except Exception as error:
            raise Misuse(
                f"the randomizer {entry.name!r} ({entry.value}) cannot be loaded: {error}; repair "
                "or remove the package that declares it"
            ) from error
        if not (isinstance(kind, type) and issubclass(kind, Randomizer)):
            raise Misuse(
                f"{entry.value} is declared as a randomizer but is not a subclass of Randomizer"
            )
        plug_ins[kind.name] = kind
    return plug_ins
