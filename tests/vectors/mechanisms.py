"""Vectors of the mechanisms: which reports are near each point, and how often the coin says so."""

from typing import Any

from coatcheck.domains import Ball, Box
from coatcheck.randomizers import CodebookResponse, GridResponse, SphereResponse
from vectors.kinds import Case, outcome
from vectors.writing import case

_BOX = Box((0.0, -1.0), (1.0, 3.0), steps=64)
_BALL = Ball(radius=2.0, p=2, dimension=3, steps=64)
_POINTS = ((-32, -32), (-7, 20), (0, 0), (0, 5), (31, -2), (32, 32))
_ASKED = [[0, 0], [-32, 32], [3, 2], [-4, 10], [16, 15], [32, -32]]
_INSIDE = [[0, 0, 0], [32, 0, 0], [-5, 20, 11]]


def mechanisms() -> list[Case]:
    """Grids, codebooks and spheres, and codebooks that no client may take."""
    one = CodebookResponse(domain=_BOX, epsilon=1.25, points=_POINTS)
    three = CodebookResponse(domain=_BOX, epsilon=0.5, points=_POINTS, weights=(1, 9), closest=3)
    alone = CodebookResponse(domain=_BOX, epsilon=1.0, points=((4, -4),))
    grid = GridResponse(domain=_BOX, epsilon=2.0, cells=(3, 5))
    sphere = SphereResponse(domain=_BALL, epsilon=3.0, size=64, closest=5, turns=8, seed=7)
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


def _filled(one: Case) -> Case:
    """Add the fields; `tests/test_vectors.py` and the browser compute them again."""
    word, fields = outcome(one)
    if word != one["expect"]:
        raise ValueError(f"{one['name']}: {word} instead of {one['expect']}")
    return one | ({"fields": fields} if fields else {})


def _asked(params: dict[str, Any]) -> dict[str, Any]:
    return {"params": params, "points": _INSIDE, "turns": [0, 7]}


def _case(name: str, params: dict[str, Any], **more: str) -> Case:
    return case(name, "mechanism", {"params": params, "points": _ASKED}, **more)
