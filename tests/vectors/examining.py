"""How vectors of section 20 are read: parameters and promises in, numbers or a refusal out."""

import math
from typing import Any

from coatcheck import tasks
from coatcheck.accounting.laws import Law, TwoLevel, WithDecoys
from coatcheck.accounting.reference_bound import ROUNDING, examined, kinds, reference_delta
from coatcheck.errors import Misuse, Refused
from coatcheck.randomizers import Randomizer, from_params

Case = dict[str, Any]


def law(case: Case) -> Case:
    """Give the law of a mechanism."""
    stated = _exact(case).law
    (found,) = kinds(stated)
    return {"epsilon": stated.epsilon, "kinds": [list(kind) for kind in sorted(found)]}


def _exact(case: Case) -> Randomizer:
    randomizer = from_params(case["input"]["params"])
    if not randomizer.exact:
        raise Misuse("a client takes no mechanism that draws floats")
    return randomizer


def crowd(case: Case) -> Case:
    """Bound D of a crowd, as every client does."""
    given = case["input"]
    stated: Law = _exact(case).law
    if given["decoys"]:
        assert isinstance(stated, TwoLevel)
        stated = WithDecoys(law=stated, each=given["decoys"])
    return {"delta": reference_delta(stated, size=given["crowd"], epsilon=given["epsilon"])}


def promise(case: Case) -> Case:
    """Accept a promise, or refuse it."""
    given = case["input"]
    guarantee = examined(
        _exact(case).law,
        promise=given["promise"],
        crowd=given["minimum"],
        delta=given["delta"] - given["trap_delta"],
        corrupted=given["corrupted"],
        exposed=given["exposed"],
        decoys=given["decoys"],
    )
    if guarantee.epsilon > given["promise"] * (1 + ROUNDING):
        raise Refused("the crowd gives less than the promise")
    return {}


def exposure(case: Case) -> Case:
    """Say whom the answers to corrupted people expose."""
    given = case["input"]
    task = tasks.from_params({**given["params"], "name": given["task"]})
    exposed = tasks.exposure(
        task,
        sizes=given["minimum"],
        corrupted=given["corrupted"],
        shufflers=given["shufflers"],
        decoys=given["decoys"],
    )
    return {"exposed": list(exposed)}


def agrees(case: Case, fields: Case) -> bool:
    """Return whether a reader's fields are those stated, up to rounding where they are doubles."""
    stated = case.get("fields", {})
    if case["kind"] == "crowd":  # a bound is never below the truth, and hardly above
        return bool(stated["low"] <= fields["delta"] <= stated["high"] * (1 + 1e-4))
    if case["kind"] == "law":
        sides = (fields, stated)
        one, other = ([side["epsilon"], *_flat(side["kinds"])] for side in sides)
        return len(one) == len(other) and all(map(_close, one, other))
    return bool(fields == stated)


def _flat(rows: list[list[float]]) -> list[float]:
    """List the kinds in order; those with one x and one y are one, and rounding is none."""
    masses: dict[tuple[str, str], float] = {}
    for x, y, m in rows:
        name = f"{x:.10e}", f"{y:.10e}"
        masses[name] = masses.get(name, 0.0) + m
    kinds = sorted((float(x), float(y), m) for (x, y), m in masses.items() if m > 1e-12)
    return [number for kind in kinds for number in kind]


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-8)
