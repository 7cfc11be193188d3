"""FAMILY: local randomizers; a mechanism is added by a file here and a line in `REGISTRY`."""

from collections.abc import Mapping
from typing import Any, Final

from coatcheck.domains import Domain, Product, domain_from_params
from coatcheck.errors import SHAPELESS, Misuse
from coatcheck.randomizers.choice import Candidate, Choice, Errors, constant, errors_under
from coatcheck.randomizers.codebook import CodebookResponse
from coatcheck.randomizers.composed import CoinResponse, FieldwiseResponse
from coatcheck.randomizers.contract import Decode, Goal, Randomizer, Reports
from coatcheck.randomizers.grid import GridResponse
from coatcheck.randomizers.mechanism_search import fieldwise, plug_ins, ranked, tuned
from coatcheck.randomizers.minkowski import BoundedResponse, MinkowskiResponse
from coatcheck.randomizers.prior import Prior, posterior_mean
from coatcheck.randomizers.sphere import SphereResponse

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

REGISTRY: Final[dict[str, type[Randomizer]]] = {
    kind.name: kind
    for kind in (
        MinkowskiResponse,
        BoundedResponse,
        GridResponse,
        FieldwiseResponse,
        CodebookResponse,
        SphereResponse,
        CoinResponse,
    )
}
_SEARCHED: Final[dict[str, Any]] = {
    kind.name: kind for kind in (MinkowskiResponse, BoundedResponse, GridResponse)
}


def choose(
    *,
    epsilon: float,
    domain: Domain,
    goal: Goal = "mean",
    exact: bool = False,
    prior: Prior | None = None,
) -> Choice:
    """Return the mechanism and decode with the least predicted error for a goal.

    Goals: `mean`, the expected distance for a value uniform on the domain; `squared`, the root of
    its mean square; `median`, the distance within which half of all values are read; `worst`, the
    largest expected distance over values; `unbiased`, the root of the largest mean squared error
    of an estimate that is right on average. With `exact` only mechanisms that services accept are
    considered. With a public prior the first three goals are for people as the prior says.

    The best answer without any report is a candidate too: a codebook of one point. If it wins,
    `worth_a_report` is false and `words` says so.

    >>> choose(epsilon=5.0, domain=Box((-1, -1), (1, 1))).randomizer.name
    'grid'
    """
    found = candidates(epsilon=epsilon, domain=domain, goal=goal, exact=exact, prior=prior)
    return found[0]


def candidates(
    *,
    epsilon: float,
    domain: Domain,
    goal: Goal = "mean",
    exact: bool = False,
    prior: Prior | None = None,
) -> list[Choice]:
    """Return every mechanism that fits, each at its best, the least predicted error first."""
    if isinstance(domain, Product):
        raise Misuse("fields have different units: choose for each field, or call fieldwise()")
    return ranked(domain, budget=constant(epsilon), goal=goal, exact=exact, prior=prior)


def from_params(params: Mapping[str, Any]) -> Randomizer:
    """Return the randomizer that `params()` described; an unknown or missing key is an error.

    Parameters come from strangers' terms: whatever shape JSON can have, they make a mechanism
    or a `Misuse`.
    """
    try:
        randomizer = _made(params)
    except Misuse:
        raise
    except (*SHAPELESS, RecursionError) as error:
        raise Misuse(f"these parameters make no randomizer: {error}") from error
    if randomizer.params() != dict(params):
        raise Misuse(
            f"the parameters of {randomizer.name} are not complete: {randomizer.params()} was made of them"
        )
    return randomizer


def from_draft(params: Mapping[str, Any]) -> Randomizer:
    """Return the randomizer of an organizer's draft.

    As `from_params`, but a radius or grid that the draft leaves open is searched for its `goal`,
    and a codebook may be given public `places` instead of its points, which are then placed.
    """
    args = dict(params)
    if args.get("name") == CodebookResponse.name and "places" in args:
        args.pop("name")
        domain: Any = domain_from_params(args.pop("domain"))
        prior = Prior.from_points(args.pop("places"))
        return CodebookResponse.placed(domain=domain, points=prior, **args)
    kind = _SEARCHED.get(args.pop("name", None))
    if kind is None or {"radius", "cells"} & args.keys():
        return _made(params)
    randomizer: Randomizer = tuned(kind, domain=domain_from_params(args.pop("domain")), **args)
    return randomizer


def _made(params: Mapping[str, Any]) -> Randomizer:
    args = dict(params)
    name = args.pop("name", None)
    kind = REGISTRY.get(name) or plug_ins().get(name)
    if kind is None:
        raise Misuse(f"a randomizer is one of {sorted(REGISTRY)}, got {name!r}")
    if kind is CoinResponse:
        args["part"] = from_params(args.get("part", {}))
    elif "domain" not in args:
        raise Misuse(f"the parameters of {name} lack a domain")
    else:
        args["domain"] = domain_from_params(args["domain"])
    if "cells" in args:
        args["cells"] = tuple(args["cells"])
    if "parts" in args:
        args["parts"] = {field: from_params(part) for field, part in args["parts"].items()}
    try:
        return kind(**args)
    except TypeError as error:
        raise Misuse(f"{name} cannot be made of {sorted(args)}: {error}") from error
