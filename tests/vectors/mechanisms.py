"""Vectors of the mechanisms: which reports are near each point, and how often the coin says so."""

from typing import Any

from coatcheck.domains import Ball, Box, Categories, Product
from coatcheck.randomizers import (
    BoundedResponse,
    CodebookResponse,
    FieldwiseResponse,
    GridResponse,
    MinkowskiResponse,
    SphereResponse,
)
from vectors.kinds import Case, outcome
from vectors.writing import case

_BOX = Box((0.0, -1.0), (1.0, 3.0), steps=64)
_BALL = Ball(radius=2.0, p=2, dimension=3, steps=64)
_POINTS = ((-32, -32), (-7, 20), (0, 0), (0, 5), (31, -2), (32, 32))
_ASKED = [[0, 0], [-32, 32], [3, 2], [-4, 10], [16, 15], [32, -32]]
_INSIDE = [[0, 0, 0], [32, 0, 0], [-5, 20, 11]]
_PLACES = ((0, 0, 0), (32, 0, 0), (-20, 20, 10), (0, -31, 5))


def mechanisms() -> list[Case]:
    """Every exact mechanism, and codebooks that no client may take."""
    one = CodebookResponse(domain=_BOX, epsilon=1.25, points=_POINTS)
    three = CodebookResponse(domain=_BOX, epsilon=0.5, points=_POINTS, weights=(1, 9), closest=3)
    alone = CodebookResponse(domain=_BOX, epsilon=1.0, points=((4, -4),))
    grid = GridResponse(domain=_BOX, epsilon=2.0, cells=(3, 5))
    sphere = SphereResponse(domain=_BALL, epsilon=3.0, size=64, closest=5, turns=8, seed=7)
    ball = CodebookResponse(domain=_BALL, epsilon=1.0, points=_PLACES, closest=2)
    found = [
        _case("a grid", grid.params()),
        _case("a codebook: ties go to the first point", one.params()),
        _case("a codebook with three close points and weights of its own", three.params()),
        _case("a codebook of one point tells nothing", alone.params()),
        case("a sphere: the near codewords of two turns", "directions", _asked(sphere.params())),
        case(
            "a sphere is refused: every codeword is near",
            "directions",
            _asked(sphere.params() | {"closest": 64}),
            expect="misuse",
        ),
    ]
    found += [_case("a codebook on a ball", ball.params(), points=_INSIDE), *_caps()]
    found += [*_coins(grid.params()), *_labels(), *_fields()]
    outside = ball.params() | {"points": [*ball.params()["points"], [20, 20, 20]]}
    name = "a codebook is refused: a point leaves the ball"
    found.append(_case(name, outside, points=_INSIDE, expect="misuse"))
    plain = one.params()
    points = plain["points"]
    wrong: dict[str, Any] = {
        "a point stands twice": {"points": [*points, points[2]]},
        "a point leaves the lattice": {"points": [*points, [33, 0]]},
        "a point lacks a coordinate": {"points": [*points, [1]]},
        "no point": {"points": []},
        "as many close points as there are": {"closest": len(points)},
        "a weight of 0": {"weights": [0, 1]},
        "a parameter is missing": {"weights": None},
    }
    for name, change in wrong.items():
        given = {key: value for key, value in (plain | change).items() if value is not None}
        found.append(_case(f"a codebook is refused: {name}", given, expect="misuse"))
    return [_filled(one) for one in found]


def _coins(part: dict[str, Any]) -> list[Case]:
    """A coin before a grid: how often it speaks, what silence is, and coins that are none."""
    coin = {"name": "coin", "part": part, "rate": 0.2}
    wrong: dict[str, Any] = {
        "it always speaks": {"rate": 1.0},
        "it never speaks": {"rate": 0.0},
        "it stands before a coin": {"part": coin},
        "it has a decode of its own": {"decode": "raw"},
    }
    found = [case("a coin before a grid", "coin", coin)]
    for name, change in wrong.items():
        found.append(case(f"a coin is refused: {name}", "coin", coin | change, expect="misuse"))
    return found


def _labels() -> list[Case]:
    """k-ary response on categories, and categories that are none."""
    plain = GridResponse(domain=Categories(("red", "green", "blue")), epsilon=1.5).params()
    wrong: dict[str, Any] = {
        "a label stands twice": {
            "domain": {"kind": "categories", "labels": ["red", "red", "blue"]}
        },
        "no label": {"domain": {"kind": "categories", "labels": []}},
        "a label is no text": {"domain": {"kind": "categories", "labels": ["red", 2, "blue"]}},
        "no median of labels": {"decode": "median"},
    }
    points = [[0], [2], [1]]
    found = [_case("a grid on categories", plain, points=points)]
    for name, change in wrong.items():
        given = plain | change
        found.append(
            _case(f"categories are refused: {name}", given, points=points, expect="misuse")
        )
    return found


def _fields() -> list[Case]:
    """A place, a label and a codebook side by side, and fields that are none."""
    labels = Categories(("red", "green", "blue"))
    shares = {"where": 3.0, "color": 2.0, "home": 1.0}
    domain = Product({"where": _BOX, "color": labels, "home": _BOX}, shares=shares)
    randomizer = FieldwiseResponse(
        domain=domain,
        parts={
            "where": MinkowskiResponse(domain=_BOX, epsilon=1.5, radius=0.25),
            "color": GridResponse(domain=labels, epsilon=1.0),
            "home": CodebookResponse(domain=_BOX, epsilon=0.5, points=_POINTS, closest=2),
        },
    )
    plain = randomizer.params()
    parts, space = plain["parts"], plain["domain"]
    coin = {"name": "coin", "part": parts["color"], "rate": 0.5}
    other = MinkowskiResponse(domain=Box((0.0, -1.0), (1.0, 3.0)), epsilon=1.5, radius=0.25)
    wrong: dict[str, Any] = {
        "in another order": {"parts": dict(reversed(parts.items()))},
        "one has no mechanism": {"parts": {"where": parts["where"], "color": parts["color"]}},
        "one has a coin": {"parts": parts | {"color": coin}},
        "one is made for another domain": {"parts": parts | {"where": other.params()}},
        "no field": {"domain": space | {"fields": {}, "shares": {}}, "parts": {}},
        "a share of 0": {"domain": space | {"shares": shares | {"home": 0.0}}},
        "a budget of the whole": {"epsilon": 3.0},
    }
    asked = [[0, 0, 1, 3, 2], [-32, 32, 0, 32, -32], [7, -4, 2, -4, 10]]
    found = [case("fields side by side", "fields", {"params": plain, "points": asked})]
    for name, change in wrong.items():
        given = {"params": plain | change, "points": asked}
        found.append(case(f"fields are refused: {name}", "fields", given, expect="misuse"))
    return found


def _caps() -> list[Case]:
    """Caps on balls: counted, and in a finer lattice bounded by volumes."""
    crossed = Ball(radius=1.0, p=1, dimension=3, steps=64)
    fine = Ball(radius=2.0, p=2, dimension=3, steps=2**20)
    listed = {
        "a cap around the value, on the l2 ball": (MinkowskiResponse, _BALL, _INSIDE),
        "a cap moved inside, on the l2 ball": (BoundedResponse, _BALL, _INSIDE),
        "a cap moved inside, on the l1 ball": (
            *(BoundedResponse, crossed),
            [[0, 0, 0], [-32, 0, 0], [-5, 20, 7]],
        ),
        "a cap on an l2 ball that is too fine to count": (
            *(BoundedResponse, fine),
            [[i << 14 for i in point] for point in _INSIDE],
        ),
    }
    return [
        _case(name, kind(domain=domain, epsilon=1.5, radius=0.25).params(), points=points)
        for name, (kind, domain, points) in listed.items()
    ]


def _filled(one: Case) -> Case:
    """Add the fields; `tests/vectors/test_vectors.py` and the browser compute them again."""
    word, fields = outcome(one)
    if word != one["expect"]:
        raise ValueError(f"{one['name']}: {word} instead of {one['expect']}")
    return one | ({"fields": fields} if fields else {})


def _asked(params: dict[str, Any]) -> dict[str, Any]:
    return {"params": params, "points": _INSIDE, "turns": [0, 7]}


def _case(
    name: str, params: dict[str, Any], *, points: list[list[int]] = _ASKED, **more: str
) -> Case:
    return case(name, "mechanism", {"params": params, "points": points}, **more)
