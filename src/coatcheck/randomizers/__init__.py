"""FAMILY: local randomizers; a mechanism is added by a file here and a line in `REGISTRY`."""

from collections.abc import Mapping
from typing import Any, Final

from coatcheck.domains import domain_from_params
from coatcheck.errors import SHAPELESS, Misuse
from coatcheck.randomizers.additive import Laplace, PlanarLaplace, Staircase
from coatcheck.randomizers.bounded import BoundedResponse
from coatcheck.randomizers.choice import candidates, choose, fieldwise
from coatcheck.randomizers.contract import Choice, Decode, Goal, Randomizer, Reports
from coatcheck.randomizers.duchi import PrivHS
from coatcheck.randomizers.fieldwise import FieldwiseResponse
from coatcheck.randomizers.grid import GridResponse
from coatcheck.randomizers.minkowski import MinkowskiResponse
from coatcheck.randomizers.posterior import posterior_mean
from coatcheck.randomizers.privunit import PrivUnit
from coatcheck.randomizers.privunitg import PrivUnitG
from coatcheck.randomizers.squarewave import SquareWave

__all__ = [
    "REGISTRY",
    "BoundedResponse",
    "Choice",
    "Decode",
    "FieldwiseResponse",
    "Goal",
    "GridResponse",
    "Laplace",
    "MinkowskiResponse",
    "PlanarLaplace",
    "PrivHS",
    "PrivUnit",
    "PrivUnitG",
    "Randomizer",
    "Reports",
    "SquareWave",
    "Staircase",
    "candidates",
    "choose",
    "fieldwise",
    "from_params",
    "posterior_mean",
]

REGISTRY: Final[dict[str, type[Randomizer]]] = {
    kind.name: kind
    for kind in (
        MinkowskiResponse,
        BoundedResponse,
        GridResponse,
        FieldwiseResponse,
        PrivUnit,
        PrivUnitG,
        PrivHS,
        Laplace,
        PlanarLaplace,
        Staircase,
        SquareWave,
    )
}


def from_params(params: Mapping[str, Any]) -> Randomizer:
    """Return the randomizer that `params()` described; an unknown or missing key is an error.

    Parameters come from strangers' terms: whatever shape JSON can have, they make a mechanism
    or a `Misuse`.
    """
    try:
        return _made(params)
    except Misuse:
        raise
    except (*SHAPELESS, RecursionError) as error:
        raise Misuse(f"these parameters make no randomizer: {error}") from error


def _made(params: Mapping[str, Any]) -> Randomizer:
    given = dict(params)
    name = given.pop("name", None)
    if name not in REGISTRY:
        raise Misuse(f"a randomizer is one of {sorted(REGISTRY)}, got {name!r}")
    if "domain" not in given:
        raise Misuse(f"the parameters of {name} lack a domain")
    given["domain"] = domain_from_params(given["domain"])
    if "cells" in given:
        given["cells"] = tuple(given["cells"])
    if "parts" in given:
        given["parts"] = {field: from_params(part) for field, part in given["parts"].items()}
    try:
        made = REGISTRY[name](**given)
    except TypeError as error:
        raise Misuse(f"{name} cannot be made of {sorted(given)}: {error}") from error
    if made.params() != dict(params):
        raise Misuse(f"the parameters of {name} are not complete: {made.params()} was made of them")
    return made
