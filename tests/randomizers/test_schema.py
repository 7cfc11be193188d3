"""The JSON Schema of randomizers is what the code writes and reads, and SPEC lists its fields."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped] # it has no types

from coatcheck.domains import Ball, Box, Categories, Product
from coatcheck.errors import Misuse
from coatcheck.randomizers import (
    REGISTRY,
    BoundedResponse,
    CodebookResponse,
    GridResponse,
    MinkowskiResponse,
    Randomizer,
    SphereResponse,
    from_params,
)

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs/reference/randomizer.schema.json").read_text(encoding="utf-8"))
VALID = Draft202012Validator(SCHEMA)
BOX = Box(lo=(0.0, -1.0), hi=(1.0, 4.0), steps=1024)
BALL = Ball(radius=2.0, p=2.0, dimension=3)
CUBE = Ball(radius=2.0, p=float("inf"), dimension=2)
LABELS = Categories(("red", "green", "blue"))
BOTH = Product({"where": BOX, "color": LABELS}, shares={"where": 2.0, "color": 1.0})
PARTS = BOTH.split(3.0)

MADE: list[Randomizer] = [
    MinkowskiResponse(domain=BOX, epsilon=1.0, radius=0.5),
    MinkowskiResponse(domain=CUBE, epsilon=1.0, radius=0.5, decode="unbiased", inset=0.25),
    BoundedResponse(domain=BALL, epsilon=2.0, radius=0.25),
    GridResponse(domain=BOX, epsilon=1.0, cells=(3, 4)),
    GridResponse(domain=LABELS, epsilon=1.0),
    CodebookResponse(domain=BOX, epsilon=1.0, points=((0, 0), (5, -5))),
    SphereResponse(domain=BALL, epsilon=1.0, size=64, closest=8, turns=4, seed=1),
    REGISTRY["fieldwise"](  # type: ignore[call-arg] # its own arguments
        domain=BOTH,
        parts={
            "where": GridResponse(domain=BOX, epsilon=PARTS["where"], cells=(2, 2)),
            "color": GridResponse(domain=LABELS, epsilon=PARTS["color"]),
        },
    ),
    REGISTRY["coin"](part=GridResponse(domain=BOX, epsilon=1.0, cells=(2, 2)), rate=0.5),  # type: ignore[call-arg] # its own arguments
]
PLAIN = [json.loads(json.dumps(made.params())) for made in MADE]


def test_the_schema_is_one_and_knows_every_mechanism() -> None:
    """It is a schema itself, and has each mechanism and domain of the code."""
    Draft202012Validator.check_schema(SCHEMA)
    names = {
        VALID.schema["$defs"][one["$ref"].rpartition("/")[2]] is not None for one in SCHEMA["oneOf"]
    }
    assert names == {True}
    assert {one["$ref"].rpartition("/")[2] for one in SCHEMA["oneOf"]} == set(REGISTRY)
    assert {plain["name"] for plain in PLAIN} == set(REGISTRY)


@pytest.mark.parametrize("plain", PLAIN, ids=lambda plain: plain["name"])
def test_what_the_code_writes_is_valid_and_read_again(plain: dict[str, Any]) -> None:
    """Parameters that the code made pass, and make the same mechanism."""
    VALID.validate(plain)
    assert json.loads(json.dumps(from_params(plain).params())) == plain


def _changed(plain: Any) -> Iterator[Any]:
    """Change one thing at a time, at every depth: leave out, add, another type, another sign."""
    if not isinstance(plain, dict):
        return
    for key, value in plain.items():
        yield {name: part for name, part in plain.items() if name != key}
        others: tuple[Any, ...] = (
            None,
            [],
            {},
            "text",
            True,
            -1,
            0,
            2.5,
            [1.5],
            ["a", "a"],
            [True],
        )
        for other in others:
            if other != value:
                yield {**plain, key: other}
        for deeper in _changed(value):
            yield {**plain, key: deeper}
    yield {**plain, "surprise": 1}


@pytest.mark.parametrize("plain", PLAIN, ids=lambda plain: plain["name"])
def test_the_schema_refuses_nothing_that_the_code_takes(plain: dict[str, Any]) -> None:
    """Of many changed parameters, whatever makes a mechanism is valid; most is neither."""
    taken = valid = both = 0
    for changed in _changed(copy.deepcopy(plain)):
        try:
            from_params(changed)
        except Misuse:
            made = False
        else:
            made = True
        fits = VALID.is_valid(changed)
        assert fits or not made, changed
        taken, valid, both = taken + made, valid + fits, both + 1
    # What only fits the schema breaks a rule between fields, such as lo < hi.
    assert taken <= valid < both / 4


def test_the_specification_lists_the_same_fields() -> None:
    """The two tables of section 13 name every field of the schema."""
    text = (ROOT / "SPEC.md").read_text(encoding="utf-8")
    section = text[text.index("## 13. The lattice") : text.index("## 14. Vectors")]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.MULTILINE))
    kinds = {"box", "ball", "categories", "product"}
    assert set(rows) == set(REGISTRY) | kinds
    for name, row in rows.items():
        fields = set(SCHEMA["$defs"][name]["properties"]) - {"kind", "name"}
        assert fields == set(re.findall(r"`([a-z]+)`", row)), name
