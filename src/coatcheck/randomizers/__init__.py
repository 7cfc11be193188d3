"""FAMILY: local randomizers; a mechanism is added by a file here and a line in `REGISTRY`."""

from collections.abc import Mapping
from typing import Any, Final

from coatcheck.domains import domain_from_params
from coatcheck.errors import SHAPELESS, Misuse
from coatcheck.randomizers.caps import BoundedResponse, MinkowskiResponse
from coatcheck.randomizers.choice import Candidate, Choice
from coatcheck.randomizers.codebook import CodebookResponse
from coatcheck.randomizers.contract import Decode, Goal, Randomizer, Reports
from coatcheck.randomizers.fieldwise import FieldwiseResponse
from coatcheck.randomizers.grid import GridResponse
from coatcheck.randomizers.posterior import posterior_mean
from coatcheck.randomizers.prior import Prior
from coatcheck.randomizers.search import candidates, choose, fieldwise, tuned
from coatcheck.randomizers.sphere import SphereResponse

__all__ = [
    "REGISTRY",
    "BoundedResponse",
    "Candidate",
    "Choice",
    "CodebookResponse",
    "Decode",
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
    "fieldwise",
    "from_draft",
    "from_params",
    "posterior_mean",
    "tuned",
]

REGISTRY: Final[dict[str, type[Randomizer]]] = {
    kind.name: kind
    for kind in (
        MinkowskiResponse,
        BoundedResponse,
        GridResponse,
        FieldwiseResponse,
        CodebookResponse,
        SphereResponse,
    )
}
_SEARCHED: Final[dict[str, Any]] = {
    kind.name: kind for kind in (MinkowskiResponse, BoundedResponse, GridResponse)
}


def from_params(params: Mapping[str, Any]) -> Randomizer:
    """Return the randomizer that `params()` described; an unknown or missing key is an error.

    Parameters come from strangers' terms: whatever shape JSON can have, they make a mechanism
    or a `Misuse`.
    """
    try:
        made = _made(params)
    except Misuse:
        raise
    except (*SHAPELESS, RecursionError) as error:
        raise Misuse(f"these parameters make no randomizer: {error}") from error
    if made.params() != dict(params):
        raise Misuse(
            f"the parameters of {made.name} are not complete: {made.params()} was made of them"
        )
    return made


def from_draft(params: Mapping[str, Any]) -> Randomizer:
    """Return the randomizer of an organizer's draft.

    As `from_params`, but a radius or grid that the draft leaves open is searched for its `goal`.
    """
    given = dict(params)
    kind = _SEARCHED.get(given.pop("name", None))
    if kind is None or {"radius", "cells"} & given.keys():
        return _made(params)
    made: Randomizer = tuned(kind, domain=domain_from_params(given.pop("domain")), **given)
    return made


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
        return REGISTRY[name](**given)
    except TypeError as error:
        raise Misuse(f"{name} cannot be made of {sorted(given)}: {error}") from error
