"""Vectors of section 20: laws, what crowds give, promises, and whom answers expose.

The numbers are those of `by_the_book`, which is written from SPEC alone, and of Arb's intervals.
"""

import math
from collections.abc import Iterator
from typing import Any

from coatcheck.accounting.amplification import bounding_laws
from coatcheck.accounting.certificate import delta_interval
from coatcheck.accounting.reference_bound import promised
from coatcheck.domains import Ball, Box, Categories, Product
from coatcheck.randomizers import (
    BoundedResponse,
    CodebookResponse,
    CoinResponse,
    FieldwiseResponse,
    GridResponse,
    MinkowskiResponse,
    Randomizer,
    SphereResponse,
)
from vectors import by_the_book
from vectors.kinds import Case
from vectors.writing import case

_BOX = Box((0.0, -1.0), (1.0, 3.0), steps=64)
_LINE = Box((0.0,), (1.0,))
_LABELS = Categories(("red", "green", "blue"))
_COARSE = Ball(radius=2.0, p=2, dimension=3, steps=64)
_FINE = Ball(radius=1.0, p=2, dimension=2)
_CROSS = Ball(radius=1.0, p=1, dimension=3, steps=64)
_POINTS = ((-32, -32), (-7, 20), (0, 0), (0, 5), (31, -2), (32, 32))


def _fields(parts: dict[str, BoundedResponse | GridResponse]) -> FieldwiseResponse:
    domain = Product({name: part.domain for name, part in parts.items()})
    return FieldwiseResponse(domain=domain, parts=parts)


_GRID = GridResponse(domain=_BOX, epsilon=2.0, cells=(3, 5))
_FINE_GRID = GridResponse(domain=_BOX, epsilon=6.0, cells=(5, 5))
_BINARY = GridResponse(domain=_LINE, epsilon=1.0, cells=(2,))
_DISJOINT = MinkowskiResponse(domain=_BOX, epsilon=1.5, radius=0.25)
_OVERLAPPING = BoundedResponse(domain=_BOX, epsilon=3.0, radius=0.75)
_LENS = MinkowskiResponse(domain=_FINE, epsilon=2.0, radius=1.25)
_PLACE_AND_LABEL = _fields(
    {"place": _OVERLAPPING, "label": GridResponse(domain=_LABELS, epsilon=1.0)}
)
_EVERY: dict[str, Randomizer] = {
    "a grid": _GRID,
    "a grid of two cells: binary response": _BINARY,
    "a grid of one cell tells nothing": GridResponse(domain=_BOX, epsilon=2.0, cells=(1, 1)),
    "categories": GridResponse(domain=_LABELS, epsilon=0.5),
    "a codebook of which two points are near": CodebookResponse(
        domain=_BOX, epsilon=1.0, points=_POINTS, closest=2
    ),
    "a codebook of which most points are near": CodebookResponse(
        domain=_BOX, epsilon=1.0, points=_POINTS, closest=5
    ),
    "a sphere": SphereResponse(domain=_COARSE, epsilon=3.0, size=64, closest=5, turns=8, seed=7),
    "a cap around the value, on a box": _DISJOINT,
    "a cap larger than the box": MinkowskiResponse(domain=_LINE, epsilon=1.0, radius=3.5),
    "a cap moved inside, that all values share in part": _OVERLAPPING,
    "a cap of the whole box tells nothing": BoundedResponse(domain=_BOX, epsilon=1.0, radius=1.0),
    "a cap on the l1 ball": BoundedResponse(domain=_CROSS, epsilon=1.0, radius=0.625),
    "a cap on an l2 ball whose points are counted": MinkowskiResponse(
        domain=_COARSE, epsilon=1.5, radius=0.25
    ),
    "a cap on an l2 ball, and another shares a lens that is counted": BoundedResponse(
        domain=_COARSE, epsilon=1.5, radius=0.625
    ),
    "a cap on a fine l2 ball, and another shares a lens": _LENS,
    "a coin before a grid": CoinResponse(part=_GRID, rate=0.2),
    "a place and a label": _PLACE_AND_LABEL,
    "a coin before two fields": CoinResponse(part=_PLACE_AND_LABEL, rate=0.5),
    "two binary fields": _fields({"a": _BINARY, "b": _BINARY}),
    "twelve fields have too many kinds": _fields(
        {
            name: BoundedResponse(domain=_LINE, epsilon=0.25 + 0.03125 * place, radius=0.75)
            for place, name in enumerate("abcdefghijkl")
        }
    ),
}


def laws() -> list[Case]:
    """Give the law of each mechanism, and mechanisms that have none."""
    cases = []
    for name, randomizer in _EVERY.items():
        params = randomizer.params()
        law = by_the_book.law_of(params)
        kinds = [[digits(number) for number in kind] for kind in law.kinds if kind[2] > 1e-12]
        fields = {"epsilon": digits(law.epsilon), "kinds": kinds}
        cases.append(case(name, "law", {"params": params}, fields=fields))
    wrong: dict[str, dict[str, Any]] = {
        "the radius is no whole number of steps": {"radius": 0.26},
        "the radius is rounded to another double": {"radius": math.nextafter(0.25, 1)},
        "the radius is beyond the reports": {"radius": 2.0**31},
        "epsilon is 0": {"epsilon": 0},
        "epsilon is above 64": {"epsilon": 65.0},
        "inset is 1": {"inset": 1.0},
        "decode is missing": {"decode": None},
        "too many dimensions to draw exactly": {
            "domain": Ball(radius=1.0, p=2, dimension=9, steps=64).params()
        },
        "an odd number of steps": {"domain": _BOX.params() | {"steps": 63}},
        "another mechanism": {"name": "laplace"},
    }
    for name, change in wrong.items():
        changed = {k: v for k, v in (_DISJOINT.params() | change).items() if v is not None}
        cases.append(case(f"refused: {name}", "law", {"params": changed}, expect="misuse"))
    return cases


def promises() -> list[Case]:
    """Enclose D(ε) for some crowds, and give promises that hold and promises that do not."""
    return [*_crowds(), *_promises()]


def _crowds() -> Iterator[Case]:
    narrow = BoundedResponse(domain=_BOX, epsilon=8.5, radius=0.6875)
    listed: list[tuple[str, Randomizer, int, float]] = [
        ("two people", _GRID, 2, 1.0),
        ("five people, binary response", _BINARY, 5, 0.25),
        ("five hundred people, binary response", _BINARY, 532, 0.125),
        ("a hundred people", _GRID, 100, 0.75),
        ("a thousand people", _DISJOINT, 1000, 0.25),
        ("caps that overlap", _OVERLAPPING, 532, 1.0),
        ("caps that overlap, and a large local ε", narrow, 431, 5.0),
        ("a lens", _LENS, 5000, 0.25),
        ("a hundred thousand people", _GRID, 100_000, 0.03125),
        ("two thousand million people", _GRID, 2**31 - 1, 0.000244140625),
        ("a coin", CoinResponse(part=_GRID, rate=0.2), 2000, 0.125),
        ("a place and a label", _PLACE_AND_LABEL, 3000, 0.25),
        ("hardly any crowd: the law of any mechanism is better", _OVERLAPPING, 2, 2.9375),
    ]
    for name, randomizer, crowd, epsilon in listed:
        bounds = bounding_laws(randomizer.law)
        ends = [delta_interval(law, size=crowd, epsilon=epsilon, decide=0.0) for law in bounds]
        low, high = min(low for low, _ in ends), min(high for _, high in ends)
        boxes = by_the_book.delta_of_params(randomizer.params(), crowd, epsilon)
        if boxes < low:  # that of boxes that overlap is closer (S20.30), and no interval
            low, high = boxes * (1 - 1e-6), boxes
        given = {"crowd": crowd, "decoys": 0, "epsilon": epsilon}
        yield _enclosed(name, {"params": randomizer.params(), **given}, low, high)
    decoyed: list[tuple[str, Randomizer, int, int, float]] = [
        ("decoys of two people", _GRID, 2, 1, 1.0),
        ("two decoys of each of twelve", _FINE_GRID, 12, 2, 2.0),
        ("decoys beside caps that overlap", _OVERLAPPING, 9, 1, 0.75),
    ]
    for name, randomizer, crowd, decoys, epsilon in decoyed:
        params = randomizer.params()
        exact = by_the_book.delta_of_all_outcomes(params, n=crowd, each=decoys, epsilon=epsilon)
        given = {"crowd": crowd, "decoys": decoys, "epsilon": epsilon}
        yield _enclosed(name, {"params": params, **given}, exact * (1 - 1e-9), exact * (1 + 1e-9))


def _enclosed(name: str, given: dict[str, Any], low: float, high: float) -> Case:
    fields = {"low": digits(low * (1 - 1e-11)), "high": digits(high * (1 + 1e-11))}
    return case(name, "crowd", given, fields=fields)


def _promises() -> Iterator[Case]:
    crowd: dict[str, Any] = {"minimum": 1000, "corrupted": 0, "exposed": 0, "decoys": 0}
    crowd |= {"delta": 1e-6, "trap_delta": 0.0}
    alone = crowd | {"minimum": 10, "corrupted": 4, "exposed": 5, "delta": 1e-12}
    changes: dict[str, tuple[Randomizer, dict[str, Any]]] = {
        "a grid": (_GRID, crowd),
        "some are corrupted and some exposed": (_GRID, crowd | {"corrupted": 50, "exposed": 250}),
        "half of δ is for traps": (_GRID, crowd | {"trap_delta": 5e-7}),
        "a large crowd": (_DISJOINT, crowd | {"minimum": 2_000_000, "delta": 1e-9}),
        "a coin": (CoinResponse(part=_GRID, rate=0.2), crowd),
        "fields": (_PLACE_AND_LABEL, crowd | {"minimum": 20_000}),
        "nobody is left to hide among: the local ε": (_GRID, alone),
        "binary response": (_BINARY, crowd),
        "decoys": (_FINE_GRID, crowd | {"minimum": 532, "delta": 1e-5, "decoys": 2}),
        "decoys, and reports that answers give away": (
            *(_FINE_GRID, crowd | {"decoys": 1, "corrupted": 10, "exposed": 200}),
        ),
    }
    for name, (randomizer, given) in changes.items():
        least = _least(randomizer, given)
        full = {"params": randomizer.params(), **given}
        less = least * (1 - 1e-8 if given is alone else 0.97)
        yield case(name, "promise", full | {"promise": least})
        yield case(f"{name}: too little", "promise", full | {"promise": less}, expect="refused")
    stated = crowd | {"promise": _least(_GRID, crowd), "minimum": 900}
    fewer = {"params": _GRID.params(), **stated}
    yield case("a grid, with fewer people", "promise", fewer, expect="refused")
    sphere = {"params": _EVERY["a sphere"].params(), **crowd, "decoys": 1, "promise": 3.0}
    yield case("decoys beside a sphere", "promise", sphere, expect="misuse")


def _least(randomizer: Randomizer, given: dict[str, Any]) -> float:
    """Find the least ε that the library can draft; the sum of S20.14 by the book confirms it."""
    delta = given["delta"] - given["trap_delta"]
    names = ("corrupted", "exposed", "decoys")
    counts = {name: given[name] for name in names}
    least = promised(randomizer.law, crowd=given["minimum"], delta=delta, **counts).epsilon
    crowd = by_the_book.Crowd(given["minimum"], **counts)
    params = randomizer.params()
    if crowd.size == 1:
        return by_the_book.law_of(params).epsilon
    least = digits(least * (1 + 1e-11))
    if not by_the_book.keeps(params, promise=least, crowd=crowd, delta=delta):
        raise ValueError(f"SPEC alone does not confirm {least} for {randomizer}")
    if by_the_book.keeps(params, promise=0.97 * least, crowd=crowd, delta=delta):
        raise ValueError(f"SPEC alone confirms less than {least} for {randomizer}")
    return least


def exposure() -> list[Case]:
    """Say whom answers expose, and give tasks for which a client cannot tell."""
    people = {"minimum": [400], "corrupted": [10], "decoys": [0], "shufflers": 1}
    sides = {"minimum": [400, 300], "corrupted": [10, 4], "decoys": [0, 0], "shufflers": 1}
    near: dict[str, Any] = {"radius": 0.25}
    listed: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("learning", {"dimension": 5}, people),
        ("standing", {}, people),
        ("download", {"most": 500}, people),
        ("groups", {}, people),
        ("groups", {"size": 7}, people),
        ("neighbours", near, people),
        ("neighbours", near | {"limit": 5}, people | {"shufflers": 3}),
        ("neighbours", near | {"limit": 50}, people),
        ("neighbours", near | {"limit": 5}, people | {"decoys": [2]}),
        ("neighbours", near, people | {"minimum": [7], "corrupted": [1], "decoys": [1]}),
        ("similar", {}, people | {"minimum": [3], "corrupted": [1]}),
        ("least-cost-matching", {}, sides),
        ("least-cost-matching", {"capacity": [1, 3]}, sides),
        ("maximum-matching", {"radius": 0.25, "candidates": 5}, sides | {"shufflers": 2}),
        ("maximum-matching", {"radius": 0.25, "candidates": 5}, sides | {"decoys": [1, 2]}),
    ]
    cases = []
    for task, params, crowd in listed:
        exposed = by_the_book.exposed_by(task, params, crowd)
        name = f"{task} with {params or 'its defaults'}, {crowd['shufflers']} shufflers"
        name += f" and decoys {crowd['decoys']}" if any(crowd["decoys"]) else ""
        given = {"task": task, "params": params, **crowd}
        cases.append(case(name, "exposure", given, fields={"exposed": exposed}))
    wrong = {
        "an unknown task": {"task": "gossip", "params": {}, **people},
        "a task of one group for two": {"task": "groups", "params": {}, **sides},
        "capacity on both sides": {
            "task": "least-cost-matching",
            "params": {"capacity": [2, 3]},
            **sides,
        },
        "a limit of 0": {"task": "similar", "params": {"limit": 0}, **people},
        "no whole number of candidates": {
            "task": "least-cost-matching",
            "params": {"candidates": 1.5},
            **sides,
        },
    }
    for name, given in wrong.items():
        cases.append(case(f"refused: {name}", "exposure", given, expect="misuse"))
    return cases


def digits(number: float) -> float:
    """Keep twelve digits: the last ones of a double may differ between machines."""
    return float(f"{number:.12g}")
