"""Where values live, and the integer lattice on which their privacy is exact.

After a shift and a scale per axis every numeric domain is the unit ball of some l_p norm (a box
is that of l_inf). Its lattice is every integer vector i with |i|_p <= N, where N is half the
number of steps along an axis; i stands for the point i/N. Values enter in the user's units and
leave in them; everything between is integers.

This file knows nothing of noise. SPEC.md, "The lattice", has the rules in MUSTs.
"""

import math
from collections.abc import Mapping
from typing import Any

from coatcheck.domains.fields import Categories, Product
from coatcheck.domains.numeric import STEPS, Ball, Box, Floats, Points, lattice_norm_within
from coatcheck.errors import Misuse

__all__ = [
    "STEPS",
    "Ball",
    "Box",
    "Categories",
    "Domain",
    "Floats",
    "Points",
    "Product",
    "domain_from_params",
    "lattice_norm_within",
]

Domain = Box | Ball | Categories | Product


def domain_from_params(params: Mapping[str, Any]) -> Domain:
    """Return the domain that `params()` described; an unknown or missing key is an error."""
    makers = {"box": Box, "ball": Ball, "categories": Categories, "product": Product}
    given = dict(params)
    kind = given.pop("kind", None)
    if kind not in makers:
        raise Misuse(f"a domain is one of {sorted(makers)}, got {kind!r}")
    if kind == "ball" and given.get("p") == "inf":
        given["p"] = math.inf
    if kind == "product":
        fields = given.get("fields", {})
        given["fields"] = {name: domain_from_params(part) for name, part in fields.items()}
    try:
        made: Domain = makers[kind](**given)
    except TypeError as error:
        raise Misuse(f"a {kind} cannot be made of {sorted(given)}: {error}") from error
    return made
